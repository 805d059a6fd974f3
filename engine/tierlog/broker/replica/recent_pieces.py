"""Which pieces of plain local logs are read again and again, so that a copy of them in memory pays.

The system's page cache has every local file that is read; a second copy is worth it for what several readers want at
about the same time, and for nothing that one reader passes through.
"""

from __future__ import annotations

from collections.abc import Hashable


class RecentPieces:
    """The pieces at which reads began last. Used on one thread.

    Args:
        kept_max: So many, as the cache would have room for: who reads more than that, over and over, is always new.
    """

    def __init__(self, kept_max: int) -> None:
        self._kept_max = kept_max
        self._pieces: dict[Hashable, None] = {}

    def note(self, piece: Hashable) -> bool:
        """Note that a read begins in a piece. Whether it is new: no read began there while it was remembered."""
        pieces = self._pieces
        if piece in pieces:
            del pieces[piece]  # the newest is last
            pieces[piece] = None
            return False
        pieces[piece] = None
        if len(pieces) > self._kept_max:
            del pieces[next(iter(pieces))]
        return True
