"""What a store can: what it says of itself, and what it was found to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable


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
