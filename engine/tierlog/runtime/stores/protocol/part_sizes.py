"""Which parts of an upload have come: an object of parts with a hole is never made."""

from __future__ import annotations

from tierlog.errors import StoreError


class PartSizes:
    """The sizes of the parts that have come, by number. Not thread-safe: whoever holds it locks."""

    def __init__(self, key: str, part_bytes: int) -> None:
        self._key = key
        self._part_bytes = part_bytes
        self._sizes: dict[int, int] = {}

    def check(self, number: int, size_bytes: int) -> None:
        """Raises ValueError: a number below 1, an empty part or one that is too large."""
        if number < 1 or not 1 <= size_bytes <= self._part_bytes:
            raise ValueError(f"{self._key}: part {number} of {size_bytes} bytes: 1 to {self._part_bytes} expected")

    def take(self, number: int, size_bytes: int) -> None:
        """Enter a part that is stored."""
        self._sizes[number] = size_bytes

    def whole(self) -> int:
        """The number of parts of an upload that is whole.

        Raises:
            StoreError: none came, one is missing, or one before the last is too small: the caller's mistake, which must
                not become an object with a hole.
        """
        last = max(self._sizes, default=0)
        wrong = [n for n in range(1, last) if self._sizes.get(n) != self._part_bytes]
        if not last or wrong:
            raise StoreError(f"{self._key}: parts {wrong[:5]} of {last} are missing or smaller than {self._part_bytes}")
        return last

    @property
    def size_bytes(self) -> int:
        return sum(self._sizes.values())
