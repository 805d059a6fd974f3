"""What a store can: what it says of itself, and what it is found to do when it is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from tierlog.errors import ObjectConflictError, StoreError
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ABSENT, ObjectStore


@dataclass(frozen=True, slots=True)
class StoreCapabilities:
    """What a store can; stores that speak the same protocol differ in it.

    Args:
        addressing: Where requests go, and whether the bucket is in the path or in the host name.
        checksums: Of what is written: "crc32c", "md5" or "none".
        checks_bodies: Whether a body with a wrong checksum was refused.
        conditional_put: Whether a second object "only if absent" was refused.
        batch_delete: Whether many objects go in one request.
        part_bytes_min: The smallest part that is not the last; what the store took, not what it documents.
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
    """A store that says who we are to it, and finds out what it can."""

    def identity(self) -> str:
        """Who we are to the store; never a secret. Raises StoreError: nobody, or the source does not answer."""

    def capabilities(self, key: str) -> StoreCapabilities:
        """Find out what the store can, by objects whose keys begin with ``key``. Raises StoreError and its kinds."""


_log = logging.getLogger(__name__)
#: What the keys of the probe begin with, behind the prefix of all keys.
PROBE_PREFIX: Final = ".tierlog-probe-"
#: Behind the key of an object that is sent in parts.
PARTS_SUFFIX: Final = "-parts"


def probe_store(store: ObjectStore, key: str) -> StoreCapabilities:
    """Ask a store what it can. Leaves nothing behind if the store lets it; ``remove_probe`` takes away what is left.

    Args:
        store: Its write half is told what is found.
        key: Of ``probe_key``.

    Raises:
        StoreError and its kinds: the store cannot be written to, or does not let us remove.
    """
    inner = unwrapped(store)
    return inner.capabilities(key) if isinstance(inner, ProbedStore) else plain_capabilities(store, key)


def remove_probe(store: ObjectStore, key: str) -> None:
    """Take away what a probe that was ended has left. Raises StoreError and its kinds."""
    store.delete([key, f"{key}{PARTS_SUFFIX}"])
    for upload in list(store.iter_uploads(key)):
        store.abort_upload(upload)


def identity_of(store: ObjectStore) -> str:
    """Who we are to a store, never a secret. Raises StoreError and its kinds: nobody, or the source does not answer."""
    inner = unwrapped(store)
    return inner.identity() if isinstance(inner, ProbedStore) else "not known: a store of a third party"


def probe_key(machine: Machine, key_prefix: str = "") -> str:
    """A new key, which no object has."""
    return f"{key_prefix}{PROBE_PREFIX}{machine.rng.secret_bytes(8).hex()}"


def unwrapped(store: ObjectStore) -> ObjectStore:
    """The store inside all wrappers."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store


@contextmanager
def removing(delete: Callable[[Sequence[str]], None], keys: Sequence[str]) -> Iterator[None]:
    """Removes the objects at the end; where the block failed, its error is the one that is told."""
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
    """The capabilities that can be found out of any store."""
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
