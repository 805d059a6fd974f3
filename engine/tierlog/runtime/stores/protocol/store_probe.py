"""The features of a store: as it states them, and as a probe finds them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, cast, runtime_checkable

from tierlog.errors import ObjectConflictError, StoreError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ABSENT, ObjectStore


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """The features of a store; stores that speak the same protocol differ in them.

    Args:
        addressing: Where requests go, and whether the bucket is in the path or in the host name.
        checksums: Of written objects: "crc32c", "md5" or "none".
        checks_bodies: Whether a body with a wrong checksum was refused.
        conditional_put: Whether a second object "only if absent" was refused.
        batch_delete: Whether many objects go in one request.
        part_bytes_min: The smallest part that is not the last; as found, not as documented.
    """

    addressing: str
    checksums: str
    checks_bodies: bool
    conditional_put: bool
    batch_delete: bool
    part_bytes_min: int

    def __str__(self) -> str:
        checked = "checked by the store" if self.checks_bodies else "not checked by the store"
        parts = [
            self.addressing,
            f"checksums of writes {self.checksums}, {checked}"
            if self.checksums != "none"
            else "no checksums of writes",
            "conditional puts" if self.conditional_put else "NO conditional puts",
            "deletes in batches" if self.batch_delete else "deletes one by one",
            f"parts from {self.part_bytes_min} bytes",
        ]
        return "; ".join(parts)


@runtime_checkable
class ProbedStore(Protocol):
    """A store that knows our identity, and probes its features."""

    def identity(self) -> str:
        """Return our identity for the store; never a secret. Raises StoreError: there is none, or the source does not
        answer.
        """

    def capabilities(self, key: str) -> StoreCapabilities:
        """Probe the store's features, by objects whose keys begin with ``key``. Raises StoreError and its kinds."""


_log = logging.getLogger(__name__)
#: Prefix of the probe's keys, behind the prefix of all keys.
PROBE_PREFIX: Final = ".tierlog-probe-"
#: Behind the key of an object that is sent in parts.
PARTS_SUFFIX: Final = "-parts"


def probe_store(store: ObjectStore, key: str) -> StoreCapabilities:
    """Probe a store's features. Leaves no object behind if the store allows it; ``remove_probe`` removes leftovers.

    Args:
        store: Its write half uses the result.
        key: Of ``probe_key``.

    Raises:
        StoreError and its kinds: the store cannot be written to, or does not let us remove.
    """
    inner = unwrapped(store)
    return inner.capabilities(key) if isinstance(inner, ProbedStore) else plain_capabilities(store, key)


def remove_probe(store: ObjectStore, key: str) -> None:
    """Remove the leftovers of an interrupted probe. Raises StoreError and its kinds."""
    store.delete([key, f"{key}{PARTS_SUFFIX}"])
    for upload in list(store.iter_uploads(key)):
        store.abort_upload(upload)


def identity_of(store: ObjectStore) -> str:
    """Return our identity for a store, never a secret. Raises StoreError and its kinds: there is none, or the source
    does not answer.
    """
    inner = unwrapped(store)
    return inner.identity() if isinstance(inner, ProbedStore) else "not known: a store of a third party"


def time_of(store: ObjectStore) -> int | None:
    """Return a store's own time now, ms since 1970 UTC, by its last answer to a write and the time since then; None if
    it has not said, or cannot. Does not block.
    """
    ask = getattr(unwrapped(store), "store_time_ms", None)
    return None if ask is None else cast("int | None", ask())


def probe_key(machine: Machine, key_prefix: str = "") -> str:
    """Make a new key, which no object has."""
    return f"{key_prefix}{PROBE_PREFIX}{machine.rng.secret_bytes(8).hex()}"


def unwrapped(store: ObjectStore) -> ObjectStore:
    """Return the store inside all wrappers."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store


@contextmanager
def removing(delete: Callable[[Sequence[str]], None], keys: Sequence[str]) -> Iterator[None]:
    """Remove the objects at the end; where the block failed, its error is raised."""
    try:
        yield
    except StoreError as error:
        try:
            delete(keys)
        except StoreError as left:
            error.add_note(f"what was written may be left: {left}")
        raise
    delete(keys)


def plain_capabilities(
    store: ObjectStore, key: str, *, addressing: str | None = None, checksums: str = "none"
) -> StoreCapabilities:
    """Probe the capabilities that can be found out of any store."""
    with removing(store.delete, [key]):
        conditional = refuses_second(lambda etag: store.put(key, b"tierlog", expected_etag=etag), store.describe())
    return StoreCapabilities(
        addressing=addressing or store.describe(),
        checksums=checksums,
        checks_bodies=checksums != "none",
        conditional_put=conditional,
        batch_delete=False,
        part_bytes_min=store.upload_limits.part_bytes_min,
    )


def refuses_second(put: Callable[[str | None], object], name: str) -> bool:
    """Whether an object "only if absent" is refused where there is one. Leaves the first.

    Args:
        put: Puts the object under this condition; None is none.
        name: The store's.
    """
    put(None)
    try:
        put(ABSENT)
    except ObjectConflictError:
        return True
    except StoreError as error:  # without its text, which has a key that may be masked
        _log.info("%s: conditional put: %s", name, type(error).__name__)
    return False
