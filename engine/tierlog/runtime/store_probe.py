"""What a store can do, found out once at start-up by asking it.

S3's dialects differ in what they check, refuse and batch; what a copy relies on is better known before the first one.
"""

from __future__ import annotations

import logging
from typing import Final

from tierlog.errors import ObjectConflictError, StoreError
from tierlog.runtime.machine import Machine
from tierlog.runtime.object_store import ABSENT, ObjectStore
from tierlog.runtime.store_traits import ProbedStore, StoreTraits

_log = logging.getLogger(__name__)
_PROBE: Final = ".tierlog-probe-"


def probe_store(store: ObjectStore, machine: Machine, *, key_prefix: str = "") -> StoreTraits:
    """Ask, and log the answer in one line. Leaves nothing behind, as far as the store lets it.

    Args:
        store: Its write half is told what is found.
        machine: For a key that nobody else has.
        key_prefix: In front of the probe's keys.

    Raises:
        StoreError and its kinds: the store cannot be written to.
    """
    key = probe_key(machine, key_prefix)
    inner = unwrapped(store)
    traits = inner.traits(key) if isinstance(inner, ProbedStore) else plain_traits(store, key)
    _log.info("%s: %s", store.describe(), traits)
    return traits


def probe_key(machine: Machine, key_prefix: str = "") -> str:
    """A key that no object has."""
    return f"{key_prefix}{_PROBE}{machine.rng.secret_bytes(8).hex()}"


def unwrapped(store: ObjectStore) -> ObjectStore:
    """The store inside all that count, break and mask."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store


def plain_traits(
    store: ObjectStore, key: str, *, addressing: str | None = None, checksums: str = "none"
) -> StoreTraits:
    """What can be found out of any store."""
    try:
        return StoreTraits(
            addressing=addressing or store.describe(),
            checksums=checksums,
            checks_bodies=checksums != "none",
            conditional_put=refuses_second(store, key),
            batch_delete=False,
            part_bytes_min=store.upload_limits.part_bytes_min,
        )
    finally:
        store.delete([key])


def refuses_second(store: ObjectStore, key: str) -> bool:
    """Whether an object "only if absent" is refused where there is one. Leaves the first."""
    store.put(key, b"tierlog", expected_etag=ABSENT)
    try:
        store.put(key, b"tierlog", expected_etag=ABSENT)
    except ObjectConflictError:
        return True
    except StoreError as error:
        _log.info("%s: conditional put: %s", store.describe(), error)
    return False
