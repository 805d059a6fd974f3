"""How much memory groups may take together."""

from __future__ import annotations


class MemoryBudget:
    """Bytes that are in use, about, and the most that may be.

    Only what a client asks for anew is measured against the limit: what is there is never taken away.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def has_room(self, more_bytes: int) -> bool:
        """Whether more bytes may be taken."""
        return more_bytes <= 0 or self.used_bytes + more_bytes <= self.limit_bytes

    def take(self, more_bytes: int) -> None:
        """Count bytes as in use; negative ones are given back."""
        self.used_bytes += more_bytes
