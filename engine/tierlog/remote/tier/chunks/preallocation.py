"""Indexes of active segments: a broker allocates 10 MiB for each, and zeros stand behind the entries."""

from __future__ import annotations

from tierlog._native import indexes
from tierlog.log.formats.offset_index import ENTRY_SIZE_BYTES as OFFSET_ENTRY_BYTES
from tierlog.log.formats.time_index import ENTRY_SIZE_BYTES as TIME_ENTRY_BYTES
from tierlog.remote.api import IndexType


def without_preallocation(index_type: IndexType, data: bytes, *, leaves_mark: bool = False) -> bytes:
    """The entries of an offset or time index; any other part of a segment as it is.

    Args:
        index_type: Of the part.
        data: The part's bytes.
        leaves_mark: Leave one zero entry where there were any: ``is_untrimmed`` goes on to say that entries which a
            truncation took back may stand behind those in use.
    """
    if index_type is IndexType.OFFSET:
        entries, size_bytes = indexes.offset_index_entries(data), OFFSET_ENTRY_BYTES
    elif index_type is IndexType.TIMESTAMP:
        entries, size_bytes = indexes.time_index_entries(data), TIME_ENTRY_BYTES
    else:
        return data
    return data[: (entries + leaves_mark) * size_bytes]
