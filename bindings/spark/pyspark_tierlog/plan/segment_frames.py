"""Stores, segments and tasks as frames ``O``, ``S`` and ``T``."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

from pyspark_tierlog.plan.frames import FRAME_BYTES_MAX, FrameWriter, packed_bytes, packed_text
from tierlog.errors import CorruptObjectError
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.objects.segment_bounds import UNKNOWN_TIMESTAMP_MS
from tierlog.runtime.stores.store_urls import StoreAddress
from tierlog.scan.reading.read import segment_label
from tierlog.scan.scan_range import ScanRange

_I32: Final = struct.Struct(">i")
_TIMES: Final = struct.Struct(">qq")
_SIZES: Final = struct.Struct(">qqBiB")
_RANGE: Final = struct.Struct(">iqqqqqqqq")
_CHUNKS: Final = struct.Struct(">qqii")
_INT32_MAX: Final = 2**31 - 1


def write_store(out: FrameWriter, address: StoreAddress, key_files: Mapping[str, str]) -> None:
    """Write where the objects of a tier are, the options that open them, and the private keys' paths by id."""
    texts = [packed_text(address.kind), packed_text(address.url)]
    for pairs in (address.options, key_files):
        texts.append(_I32.pack(len(pairs)))
        texts += [packed_text(text) for pair in sorted(pairs.items()) for text in pair]
    out.write("O", b"".join(texts))


class TaskFrames:
    """Writes tasks, and each segment before the first task that names it.

    Neighbouring ranges of a segment share its frame; a segment that comes again later is written again, so that no
    more than one is remembered.
    """

    def __init__(self, out: FrameWriter) -> None:
        self._out = out
        self._last: tuple[int, str, int] | None = None
        self._segments = 0

    def write(self, store: int, ranges: Sequence[ScanRange]) -> None:
        """Write a task; more than one only if its lists of chunks and aborted transactions do not fit a frame.

        Raises:
            CorruptObjectError: a segment has numbers that no broker writes.
        """
        packed: list[bytes] = []
        size_bytes = _I32.size
        for scan_range in ranges:
            if not scan_range.size_bytes:
                continue
            text = self._packed(self._number_of(store, scan_range.segment), scan_range)
            if packed and size_bytes + len(text) > FRAME_BYTES_MAX:
                self._out.write("T", _I32.pack(len(packed)) + b"".join(packed))
                packed, size_bytes = [], _I32.size
            packed.append(text)
            size_bytes += len(text)
        if packed:
            self._out.write("T", _I32.pack(len(packed)) + b"".join(packed))

    def _number_of(self, store: int, segment: StoredSegment) -> int:
        key = (store, segment.log.key, segment.log.position)
        if key != self._last:
            self._out.write("S", _packed_segment(store, segment))
            self._last = key
            self._segments += 1
        return self._segments - 1

    def _packed(self, segment: int, scan_range: ScanRange) -> bytes:
        numbers = _RANGE.pack(
            segment,
            scan_range.start_position,
            scan_range.end_position,
            scan_range.from_offset,
            scan_range.to_offset_exclusive,
            scan_range.least_offset,
            scan_range.greatest_offset,
            scan_range.from_timestamp_ms,
            scan_range.to_timestamp_exclusive_ms,
        )
        found = numbers + packed_bytes(scan_range.aborted) + _packed_chunks(scan_range)
        if len(found) > FRAME_BYTES_MAX - _I32.size:
            text = f"the chunks and aborted transactions of a range need {len(found)} bytes to be told"
            raise CorruptObjectError(text, fault="BAD_COUNT", where=scan_range.describe())
        return found


def _packed_segment(store: int, segment: StoredSegment) -> bytes:
    chunk_size = segment.chunk_index.original_chunk_size if segment.transformed and segment.chunk_index else 0
    if chunk_size > _INT32_MAX:
        text = f"chunks of {chunk_size} bytes, at most {_INT32_MAX} are possible"
        raise CorruptObjectError(text, fault="BAD_SIZE", where=segment.name)
    partition, encryption = segment.topic_id_partition, segment.encryption
    parts = [
        _I32.pack(store),
        packed_text(partition.topic),
        _I32.pack(partition.partition),
        packed_text(segment_label(segment)),
        packed_text(segment.name),
        packed_text(segment.log.key),
        _SIZES.pack(segment.log.position, segment.size_bytes, segment.compression, chunk_size, encryption is not None),
    ]
    if encryption is not None:
        parts += [packed_text(encryption.key_id), packed_bytes(encryption.wrapped_key), packed_bytes(encryption.aad)]
    return b"".join([*parts, _TIMES.pack(segment.last_modified_ms, _greatest_timestamp_ms(segment))])


def _greatest_timestamp_ms(segment: StoredSegment) -> int:
    """Return a time that no record exceeds; the latest possible one if the segment's description has none."""
    known = segment.metadata.max_timestamp_ms
    return known if known >= 0 else UNKNOWN_TIMESTAMP_MS


def _packed_chunks(scan_range: ScanRange) -> bytes:
    segment = scan_range.segment
    if not segment.transformed:
        return b"\0"
    assert segment.chunk_index is not None, "a transformed segment has one"
    views = segment.chunk_index.views(scan_range.start_position, scan_range.end_position)
    first, last = views[0], views[-1]
    head = _CHUNKS.pack(
        int(first["chunk"]) * segment.chunk_index.original_chunk_size,
        int(first["transformed_position"]),
        int(last["original_size"]),
        len(views),
    )
    return b"\1" + head + views["transformed_size"].astype(">i4").tobytes()
