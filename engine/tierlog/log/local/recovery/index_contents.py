"""What a segment's indexes hold, to tell whether rebuilding them changed anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tierlog.log.local.segments.log_segment import LogSegment
from tierlog.runtime.machine.files import Files

#: A larger one is no index of a segment: it counts as another one, and is not read.
_SIZE_BYTES_MAX: Final = 128 << 20


@dataclass(frozen=True, slots=True)
class IndexContents:
    """The files by path: None where there is none, otherwise the bytes without preallocated zeros at the end."""

    files: dict[str, bytes | None]

    @classmethod
    def read(cls, files: Files, segment: LogSegment) -> IndexContents:
        """Read the three indexes of a segment. Raises StoreError."""
        sizes = {segment.offset_index_path: 8, segment.time_index_path: 12, segment.transaction_index_path: 0}
        return cls({path: _content(files, path, entry_size) for path, entry_size in sizes.items()})

    def changes(self, after: IndexContents) -> Iterator[tuple[str, str]]:
        """(path, what happened to it), of those that differ. An empty transaction index is as good as none."""
        for path, now in after.files.items():
            was = self.files.get(path)
            if (was or b"") == (now or b"") and (was is not None or path.endswith(".txnindex")):
                continue
            if was is None:
                yield path, "it was missing"
            else:
                yield path, f"from the log: {len(was)} bytes were there, {len(now or b'')} now"


def _content(files: Files, path: str, entry_size: int) -> bytes | None:
    found = files.find(path)
    if found is None:
        return None
    if found.size_bytes > _SIZE_BYTES_MAX:
        return b"?"
    data = files.read_whole(path, limit_bytes=_SIZE_BYTES_MAX)
    if entry_size:
        used = len(data.rstrip(b"\0"))
        whole = len(data) - len(data) % entry_size
        data = data[: min(whole, -(-used // entry_size) * entry_size)] if whole == len(data) else data
    return data
