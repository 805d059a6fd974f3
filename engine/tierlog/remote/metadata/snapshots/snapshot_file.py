"""The columnar snapshot: a segment table and its offsets, in one file that is written whole and checked whole.

::

    8 bytes "TLRLMSNP" | uint32 version = 2 | uint32 flags (1: with Kafka's marks) | sections

A section has a head of 32 bytes with its kind, its size, its number and a CRC-32C of all of it, and a payload of at
most 20 MiB (``tierlog/segment_snapshot.h``): the topic, removals, partitions, segments, the end. The end has the
counts, the size of the file and a checksum over those of all sections, so that a file that was cut, or put together of
two, is noticed. Neither writing nor reading needs more memory than one section, beside the table.

Bytes: docs/formats/metadata-snapshots.md.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import numpy as np

from tierlog._native.checksums import crc32c
from tierlog._native.segments import (
    SNAPSHOT_END,
    SNAPSHOT_HEAD_BYTES,
    SNAPSHOT_PARTITIONS,
    SNAPSHOT_REMOVALS,
    SNAPSHOT_SECTION_BYTES_MAX,
    SNAPSHOT_SEGMENTS,
    SNAPSHOT_TOPIC,
    SnapshotLoader,
    check_snapshot_section,
    read_snapshot_head,
    seal_snapshot_section,
)
from tierlog.errors import CorruptIndexError, CorruptRecordError, TierlogError
from tierlog.remote.api import RemotePartitionDeleteMetadata
from tierlog.remote.metadata.metadata_log import LogBounds, RecordIdentity
from tierlog.remote.metadata.record_serde import decode_record, encode_record
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.machine.files import ReadableFile, WritableFile


@contextlib.contextmanager
def as_snapshot_faults(position: int = 0) -> Iterator[None]:
    """Return a block whose CorruptRecordError, and ValueError of a value that cannot be, is a CorruptIndexError.

    Args:
        position: Of the record's first byte in the file.
    """
    try:
        yield
    except CorruptRecordError as fault:
        raise CorruptIndexError(
            fault.text,
            fault=fault.fault,
            position=position + max(0, fault.position),
            expected=fault.expected,
            found=fault.found,
        ) from fault
    except ValueError as fault:
        if isinstance(fault, CorruptIndexError):
            raise
        raise CorruptIndexError(str(fault), fault="BAD_ENTRY", position=position) from fault


class SnapshotMismatchError(TierlogError, ValueError):
    """The snapshot is sound, but not of this metadata topic as it is now: read the topic from its beginning."""


@dataclass(frozen=True, slots=True)
class PendingRemoval:
    """The removal of a partition, and where in the metadata topic its newest state stands.

    Attributes:
        metadata: Its newest state.
        metadata_partition: The partition of the metadata topic that has the event; -1 if that is not known.
        offset: The offset of the event in it; -1 if it is not known.
    """

    metadata: RemotePartitionDeleteMetadata
    metadata_partition: int = -1
    offset: int = -1


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """The topic's identity and the offsets up to which a snapshot's segments are complete.

    Attributes:
        identity: That of the metadata topic (``MetadataLog.identity``); "" for segments that come from elsewhere.
        partition_count: Of the metadata topic; 0 for segments that come from elsewhere.
        positions: Metadata partition → the first offset whose event is not in the snapshot.
        removals: Of partitions, FINISHED ones too.
        last_records: Metadata partition, of those that have a position → the last record that was read of it, which a
            partition that is read again has behind its position.
    """

    identity: str = ""
    partition_count: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)
    removals: tuple[PendingRemoval, ...] = ()
    last_records: Mapping[int, RecordIdentity] = field(default_factory=dict)


def check_snapshot_fits(
    state: SnapshotState, identity: str, partition_count: int, bounds: Mapping[int, LogBounds]
) -> None:
    """Whether events may be read from the snapshot's positions on.

    Args:
        state: The snapshot's.
        identity: That of the topic.
        partition_count: Of the topic.
        bounds: Of the topic's partitions, now; those that the snapshot has positions of, at least.

    Raises:
        SnapshotMismatchError: it is of another topic, of another number of partitions, newer than the topic (which was
            truncated, or made anew), or older than its oldest events.
    """
    if state.identity != identity:
        raise SnapshotMismatchError(f"the snapshot is of the topic {state.identity!r}, not of {identity!r}")
    if state.partition_count != partition_count:
        text = f"the snapshot is of a topic of {state.partition_count} partitions, the topic has {partition_count}"
        raise SnapshotMismatchError(text)
    for partition, position in sorted(state.positions.items()):
        found = bounds.get(partition)
        if found is None:
            raise SnapshotMismatchError(
                f"the snapshot reads metadata partition {partition}, whose bounds are not known"
            )
        last = state.last_records.get(partition)
        behind = position if last is None else max(position, last.offset + 1)
        if behind > found.end_offset:
            raise SnapshotMismatchError(
                f"the snapshot is newer than the topic: it goes on at offset {behind} of metadata partition "
                f"{partition}, which ends at {found.end_offset}"
            )
        if position < found.start_offset:
            raise SnapshotMismatchError(
                f"the snapshot is too old: it goes on at offset {position} of metadata partition {partition}, which "
                f"begins at {found.start_offset}: the events between are gone"
            )


MAGIC: Final = b"TLRLMSNP"
VERSION: Final = 2
_KAFKA_MARKS: Final = 1
_PREFIX: Final = struct.Struct("<8sII")
_TOPIC: Final = struct.Struct("<QQII")  # partitions, segments, partitions of the metadata topic, removals
_END: Final = struct.Struct("<QQQII")  # partitions, segments, size of the file, sections, CRC-32C of all checksums
_END_BYTES: Final = _END.size + -_END.size % 8
_REMOVALS_IN_SECTION: Final = 4096
_SEGMENT_BYTES_MIN: Final = 78
_PARTITION_BYTES_MIN: Final = 44
_POSITION_BYTES: Final = 24
_REMOVAL_BYTES: Final = 16
_NO_RECORD: Final = RecordIdentity(-1, 0)
#: Kinds of sections in the order in which they come; all but the first and the last any number of times.
_ORDER: Final = (SNAPSHOT_TOPIC, SNAPSHOT_REMOVALS, SNAPSHOT_PARTITIONS, SNAPSHOT_SEGMENTS, SNAPSHOT_END)


def write_snapshot(path: str, table: SegmentTable, state: SnapshotState, *, machine: Machine) -> None:
    """Write a table and its state to a file: after an error or a crash the old file is there, or the new one.

    Args:
        path: Its directory must exist.
        table: No event may be applied before this returns; a lookup waits for one section at most.
        state: Its positions are those up to which the table's events have been applied.
        machine: Has the files.

    Raises:
        ValueError: a number of the state is out of range, or its identity or a topic's name is above 64 KiB.
        RuntimeError: the table was changed meanwhile. StoreUnavailableError: another process is writing the file.
        StoreError and its kinds.

    Cost: 3 bytes of CPU cycles for each byte of the file, about 91 bytes a segment of two epochs.
    """
    snapshot = table.snapshot()
    with machine.files.open_write(path) as file:
        out = _SectionWriter(file, _KAFKA_MARKS if snapshot.as_kafka else 0)
        out.section(SNAPSHOT_TOPIC, *_topic_payload(state, snapshot.partitions, snapshot.segments))
        for first in range(0, len(state.removals), _REMOVALS_IN_SECTION):
            some = state.removals[first : first + _REMOVALS_IN_SECTION]
            out.section(SNAPSHOT_REMOVALS, *_removals_payload(some))
        room = new_buffer(SNAPSHOT_SECTION_BYTES_MAX)
        while size := snapshot.next_section(out.sections, room):
            out.sealed(room[:size])
        out.end(snapshot.partitions, snapshot.segments)
        file.commit()


def read_snapshot(
    path: str, *, machine: Machine, as_kafka: bool = False, learns_partitions: bool = False
) -> tuple[SegmentTable, SnapshotState]:
    """Load a snapshot into a new table, which the caller closes.

    Args:
        path: A file that write_snapshot has written.
        machine: The table's, and its files.
        as_kafka: As SegmentTable's; the snapshot must be of a table of that kind.
        learns_partitions: As SegmentTable's.

    Raises:
        CorruptIndexError: damaged, cut short or of another version; located. SnapshotMismatchError: ``as_kafka``, and
            the table that was written answered otherwise. ObjectNotFoundError, StoreError and its kinds.
    """
    with machine.files.open_read(path) as file:
        table = SegmentTable(machine=machine, as_kafka=as_kafka, learns_partitions=learns_partitions)
        try:
            return table, _SnapshotReader(file).load(table, as_kafka=as_kafka)
        except CorruptIndexError as error:
            table.close()
            raise error.located(path) from None
        except BaseException:
            table.close()
            raise


def read_snapshot_state(path: str, *, machine: Machine) -> SnapshotState:
    """Read a snapshot's state, from its first sections alone: the rest of the file is not looked at.

    Raises:
        As read_snapshot.
    """
    with machine.files.open_read(path) as file:
        try:
            return _SnapshotReader(file).read_state()
        except CorruptIndexError as error:
            raise error.located(path) from None


def is_snapshot(prefix: bytes) -> bool:
    """Whether a file that begins so is a columnar snapshot, of any version."""
    return prefix[: len(MAGIC)] == MAGIC


class _SectionWriter:
    """Sections into a file, counted and with their checksums chained."""

    def __init__(self, file: WritableFile, flags: int) -> None:
        prefix = _PREFIX.pack(MAGIC, VERSION, flags)
        file.write(prefix)
        self.sections = 0
        self._file = file
        self._size = len(prefix)
        self._chain = crc32c(prefix)

    def section(self, kind: int, payload: bytes, count: int, more: int, size: int) -> None:
        """Write a section of this payload, padded; ``size``: of its parts without a fixed size."""
        section = bytearray(SNAPSHOT_HEAD_BYTES + len(payload) + -len(payload) % 8)
        section[SNAPSHOT_HEAD_BYTES : SNAPSHOT_HEAD_BYTES + len(payload)] = payload
        seal_snapshot_section(section, kind, self.sections, count, more, size)
        self.sealed(memoryview(section))

    def sealed(self, section: memoryview) -> None:
        self._file.write(section)
        self.sections += 1
        self._size += len(section)
        self._chain = crc32c(section[:4], self._chain)

    def end(self, partitions: int, segments: int) -> None:
        size = self._size + SNAPSHOT_HEAD_BYTES + _END_BYTES
        self.section(SNAPSHOT_END, _END.pack(partitions, segments, size, self.sections, self._chain), 0, 0, 0)


def _topic_payload(state: SnapshotState, partitions: int, segments: int) -> tuple[bytes, int, int, int]:
    identity = state.identity.encode("utf-8")
    places = sorted(state.positions)
    offsets = [state.positions[place] for place in places]
    if not 0 <= state.partition_count < 2**31 or len(identity) > 1 << 16:
        raise ValueError(f"{state.partition_count} metadata partitions of topic {state.identity!r:.80}")
    if any(not 0 <= place < state.partition_count for place in places) or min(offsets, default=0) < 0:
        raise ValueError(f"positions {dict(state.positions)!r:.200} of {state.partition_count} metadata partitions")
    if not state.last_records.keys() <= state.positions.keys():
        raise ValueError(f"last records {dict(state.last_records)!r:.200} of other metadata partitions than positions")
    last = [state.last_records.get(place, _NO_RECORD) for place in places]
    payload = b"".join(
        (
            _TOPIC.pack(partitions, segments, state.partition_count, len(state.removals)),
            np.array(offsets, "<i8").tobytes(),
            np.array([record.offset for record in last], "<i8").tobytes(),
            np.array(places, "<i4").tobytes(),
            np.array([record.value_crc for record in last], "<u4").tobytes(),
            identity,
        )
    )
    return payload, len(places), 0, len(identity)


def _removals_payload(removals: Sequence[PendingRemoval]) -> tuple[bytes, int, int, int]:
    records = [encode_record(each.metadata) for each in removals]
    payload = b"".join(
        (
            np.array([each.offset for each in removals], "<i8").tobytes(),
            np.array([each.metadata_partition for each in removals], "<i4").tobytes(),
            np.array([len(record) for record in records], "<i4").tobytes(),
            *records,
        )
    )
    return payload, len(removals), 0, sum(map(len, records))


@dataclass(frozen=True, slots=True)
class _Section:
    """A section that is whole; what its numbers count is the kind's business."""

    kind: int
    position: int
    count: int
    more: int
    size: int
    payload: memoryview

    def require(self, holds: bool, text: str) -> None:
        if not holds:
            raise _corrupt(text, "BAD_ENTRY", self.position)


class _SnapshotReader:
    """A reader of a file's sections, one of which is in memory at a time."""

    def __init__(self, file: ReadableFile) -> None:
        self._file = file
        self._room = new_buffer(min(max(file.size_bytes, _PREFIX.size), SNAPSHOT_SECTION_BYTES_MAX))
        self._at = self._sections = self._kind = 0
        prefix = self._read(_PREFIX.size)
        self._chain = self._chain_before = crc32c(prefix)
        magic, version, self._flags = _PREFIX.unpack(prefix)
        if magic != MAGIC:
            raise _corrupt("its first bytes are not those of a snapshot", "BAD_MAGIC", 0)
        if version != VERSION:
            text = f"snapshot version {version}, only {VERSION} is known"
            raise _corrupt(text, "BAD_VERSION", 8, expected=VERSION, found=version)
        if self._flags & ~_KAFKA_MARKS:
            raise _corrupt(f"unknown flags {self._flags:#x}", "BAD_VERSION", 12, found=self._flags)
        self._at = _PREFIX.size
        self._partitions = self._segments = 0

    def load(self, table: SegmentTable, *, as_kafka: bool) -> SnapshotState:
        if as_kafka and not self._flags & _KAFKA_MARKS:
            text = "the snapshot is of a table that does not answer as Kafka's: it does not say what Kafka would find"
            raise SnapshotMismatchError(text)
        state = self.read_state()
        loader = SnapshotLoader(table, self._segments)
        while (section := self._next(loader)).kind != SNAPSHOT_END:
            pass
        with self._faults():
            loader.end()
        self._check_end(section)
        return state

    def read_state(self) -> SnapshotState:
        """Read the first sections: the topic and its removals."""
        section = self._next()
        section.require(section.kind == SNAPSHOT_TOPIC, "the first section is not that of the topic")
        section.require(len(section.payload) >= _TOPIC.size, "the section of the topic is too short")
        self._partitions, self._segments, partition_count, removals = _TOPIC.unpack_from(section.payload)
        count, at = section.count, _TOPIC.size
        whole = at + _POSITION_BYTES * count + section.size
        section.require(len(section.payload) == whole + -whole % 8, "positions that the section does not hold")
        section.require(
            self._segments * _SEGMENT_BYTES_MIN + self._partitions * _PARTITION_BYTES_MIN <= self._file.size_bytes,
            f"{self._segments} segments of {self._partitions} partitions in {self._file.size_bytes} bytes",
        )
        offsets = np.frombuffer(section.payload, "<i8", count, at)
        last_offsets = np.frombuffer(section.payload, "<i8", count, at + 8 * count)
        places = np.frombuffer(section.payload, "<i4", count, at + 16 * count)
        value_crcs = np.frombuffer(section.payload, "<u4", count, at + 20 * count)
        rising = bool((places[1:] > places[:-1]).all())
        within = not count or (places[0] >= 0 and places[-1] < partition_count and offsets.min() >= 0)
        within = within and last_offsets.min(initial=-1) >= -1
        section.require(rising and bool(within) and partition_count < 2**31, "positions that no topic has")
        positions = dict(zip(places.tolist(), offsets.tolist(), strict=True))
        records = map(RecordIdentity, last_offsets.tolist(), value_crcs.tolist())
        last = {place: record for place, record in zip(places.tolist(), records, strict=True) if record.offset >= 0}
        with self._faults():
            identity = bytes(section.payload[whole - section.size : whole]).decode("utf-8")
        return SnapshotState(identity, partition_count, positions, self._read_removals(removals), last)

    def _read_removals(self, count: int) -> tuple[PendingRemoval, ...]:
        removals: list[PendingRemoval] = []
        while len(removals) < count:
            section = self._next()
            section.require(section.kind == SNAPSHOT_REMOVALS and section.count > 0, "removals are missing")
            at, some = _REMOVAL_BYTES * section.count, section.count
            whole = at + section.size
            section.require(len(section.payload) == whole + -whole % 8, "removals that the section does not hold")
            offsets = np.frombuffer(section.payload, "<i8", some, 0).tolist()
            places = np.frombuffer(section.payload, "<i4", some, 8 * some).tolist()
            sizes = np.frombuffer(section.payload, "<i4", some, 12 * some)
            section.require(bool((sizes >= 0).all()) and int(sizes.sum(dtype=np.int64)) == section.size, "bad sizes")
            for place, offset, size in zip(places, offsets, sizes.tolist(), strict=True):
                with self._faults():
                    record = decode_record(section.payload[at : at + size])
                section.require(isinstance(record, RemotePartitionDeleteMetadata), "a record of another type")
                section.require(place >= -1 and offset >= -1, "a removal at no offset")
                removals.append(PendingRemoval(cast("RemotePartitionDeleteMetadata", record), place, offset))
                at += size
        if len(removals) > count:
            raise _corrupt(f"{len(removals)} removals, {count} declared", "BAD_COUNT", self._at)
        return tuple(removals)

    def _check_end(self, section: _Section) -> None:
        section.require(len(section.payload) == _END_BYTES, "an end of another size")
        partitions, segments, size, sections, chain = _END.unpack_from(section.payload)
        declared = (partitions, segments, sections)
        section.require(declared == (self._partitions, self._segments, self._sections - 1), "other counts at the end")
        section.require(size == self._at, f"a file of {size} bytes ends at {self._at}")
        section.require(chain == self._chain_before, "its sections are not of one file")
        if self._file.size_bytes != self._at:
            left = self._file.size_bytes - self._at
            raise _corrupt(f"{left} bytes left over behind the end", "TRAILING_BYTES", self._at, found=left)

    def _next(self, loader: SnapshotLoader | None = None) -> _Section:
        """Read the next section, checked; the loader takes its partitions or segments."""
        head = self._read(SNAPSHOT_HEAD_BYTES)
        with self._faults():
            kind, payload_bytes = read_snapshot_head(head)
        size = SNAPSHOT_HEAD_BYTES + payload_bytes
        data = self._read(size)
        with self._faults():
            takes = loader is not None and kind in (SNAPSHOT_PARTITIONS, SNAPSHOT_SEGMENTS)
            found = loader.load(data) if loader is not None and takes else check_snapshot_section(data)
        _, number, count, more, extra, crc = found
        section = _Section(kind, self._at, count, more, extra, data[SNAPSHOT_HEAD_BYTES:])
        section.require(number == self._sections, f"section {number} where {self._sections} belongs")
        section.require(kind >= self._kind and (kind > self._kind or kind != SNAPSHOT_TOPIC), "sections in disorder")
        section.require(takes or kind not in (SNAPSHOT_PARTITIONS, SNAPSHOT_SEGMENTS), "removals are missing")
        self._chain_before, self._chain = self._chain, crc32c(crc.to_bytes(4, "little"), self._chain)
        self._sections += 1
        self._kind = kind
        self._at += size
        return section

    def _read(self, size: int) -> memoryview:
        left = self._file.size_bytes - self._at
        if size > left:
            raise _corrupt("the file is cut short", "TRUNCATED", self._at, expected=size, found=left)
        view = self._room[:size]
        if self._file.read_into(view, position=self._at) != size:
            raise _corrupt("the file has become shorter", "TRUNCATED", self._at, expected=size)
        return view

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """A block whose faults lie in the section that is being looked at."""
        try:
            with as_snapshot_faults():
                yield
        except CorruptIndexError as error:
            error.position = self._at + max(0, error.position)
            raise


def _corrupt(text: str, fault: str, position: int, *, expected: int = 0, found: int = 0) -> CorruptIndexError:
    return CorruptIndexError(text, fault=fault, position=position, expected=expected, found=found)
