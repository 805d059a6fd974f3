"""The pages of ``docs/formats`` describe what real systems wrote: files are unpacked by the pages' own tables."""

from __future__ import annotations

import dataclasses
import enum
import json
import pathlib
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest
import zstandard

from tests.remote.metadata.snapshots.samples import PARTITION, SEGMENT
from tests.support.checkout import IN_CHECKOUT, ROOT, needs_checkout
from tierlog._native.checksums import crc32c
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex, TransactionIndex
from tierlog.records import scan
from tierlog.records.batch_runs import BatchRuns
from tierlog.records.control import ControlRecordType
from tierlog.records.decoding import decode
from tierlog.remote.api import (
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemotePartitionDeleteMetadata,
    RemotePartitionDeleteState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import RecordIdentity
from tierlog.remote.metadata.record_serde import decode_record
from tierlog.remote.metadata.segment_table import SegmentTable
from tierlog.remote.metadata.snapshots.snapshot_file import PendingRemoval, SnapshotState, write_snapshot
from tierlog.remote.tier.objects.footer import FooterBinding, encode_footer
from tierlog.remote.tier.objects.footer_builder import FooterBuilder
from tierlog.runtime.machine import Machine

pytestmark = needs_checkout

PAGES: Final = ROOT / "docs" / "formats"
_CODES: Final = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint32": "I"}


@dataclass(frozen=True, slots=True)
class Section:
    """One heading of a page.

    Attributes:
        tables: The cells of each row of each table; the first row names the columns.
    """

    text: str
    tables: list[list[list[str]]]

    def layout(self, table: int = 0) -> tuple[struct.Struct, list[str]]:
        """A table of fixed positions as a structure, and its fields. The positions must follow from the types."""
        rows = [row for row in self.tables[table][1:] if row[1] in _CODES]
        form = ">"
        for position, kind, *_ in rows:
            assert struct.calcsize(form) == int(position), f"{position} does not follow from the types before it"
            form += _CODES[kind]
        return struct.Struct(form), [row[2] for row in rows]


def _section(page: str, heading: str) -> Section:
    text = (PAGES / page).read_text() if IN_CHECKOUT else ""
    found = re.search(rf"^(#+) {re.escape(heading)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page} has no heading {heading!r}"
    tables: list[list[list[str]]] = []
    for block in re.findall(r"(?:^\|.*\n)+", found[2], re.MULTILINE):
        rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in block.splitlines()]
        tables.append([rows[0], *rows[2:]])
    return Section(found[2], tables)


def _closed_segments(data: pathlib.Path) -> list[pathlib.Path]:
    logs = sorted((data / "main-plain" / "local-before" / "broker1" / "fx-txn-0").glob("*.log"))
    assert len(logs) > 3
    return logs


def test_record_batch(data: pathlib.Path) -> None:
    """Whoever writes a reader of their own by this page reads the same numbers as the core."""
    form, names = _section("log-files.md", "Record batch").layout()
    assert form.size == 61
    columns = {
        "baseOffset": "base_offset",
        "partitionLeaderEpoch": "leader_epoch",
        "magic": "magic",
        "crc": "crc",
        "attributes": "attributes",
        "baseTimestamp": "base_timestamp",
        "maxTimestamp": "max_timestamp",
        "producerId": "producer_id",
        "producerEpoch": "producer_epoch",
        "baseSequence": "base_sequence",
        "recordCount": "record_count",
    }
    for path in _closed_segments(data):
        content = path.read_bytes()
        known = scan(content)
        at = row = 0
        while at < len(content):
            fields = dict(zip(names, form.unpack_from(content, at), strict=True))
            size = fields["batchLength"] + 12
            assert crc32c(content[at + 21 : at + size]) == fields["crc"]
            assert fields["baseOffset"] + fields["lastOffsetDelta"] == known.last_offset[row]
            for name, column in columns.items():
                assert fields[name] == getattr(known, column)[row], name
            at, row = at + size, row + 1
        assert row == len(known.base_offset) > 0


def test_message_sets(data: pathlib.Path) -> None:
    """The same of what brokers before 0.11 wrote."""
    form, names = _section("log-files.md", "Message sets of magic 0 and 1").layout()
    for magic, size in ((0, 18), (1, 26)):
        content = (data / "record-v0-v1" / f"v{magic}-none.log").read_bytes()
        known = scan(content)
        at = row = 0
        while at < len(content):
            fields = dict(zip(names, form.unpack_from(content, at), strict=True))
            assert fields["magic"] == magic
            assert (fields["offset"], fields["crc"]) == (known.base_offset[row], known.crc[row])
            assert magic == 0 or fields["timestamp"] == known.max_timestamp[row]
            key_length = struct.unpack_from(">i", content, at + size)[0]
            assert -1 <= key_length < fields["size"]
            at, row = at + 12 + fields["size"], row + 1
        assert row == len(known.base_offset) > 0


def test_indexes(data: pathlib.Path) -> None:
    """The three indexes of real segments, entry by entry."""
    for log in _closed_segments(data):
        base_offset = int(log.stem)
        offsets = list(_entries("Offset index", log.with_suffix(".index")))
        assert [entry["relativeOffset"] + base_offset for entry in offsets] == list(
            OffsetIndex(log.with_suffix(".index").read_bytes(), base_offset).columns()[0]
        )
        assert all(entry["filePosition"] < log.stat().st_size for entry in offsets)
        known = TimeIndex(log.with_suffix(".timeindex").read_bytes(), base_offset).columns()
        times = list(_entries("Time index", log.with_suffix(".timeindex")))
        assert [(entry["timestamp"], entry["relativeOffset"] + base_offset) for entry in times] == list(
            zip(*(column.tolist() for column in known), strict=True)
        )
        aborted = log.with_suffix(".txnindex")
        if aborted.exists():
            names = ("producer_id", "first_offset", "last_offset", "last_stable_offset")
            rows = TransactionIndex(aborted.read_bytes()).entries()
            found = list(_entries("Transaction index", aborted))
            assert [[*entry.values()][1:] for entry in found] == [[int(row[name]) for name in names] for row in rows]


def _entries(heading: str, path: pathlib.Path) -> Iterator[dict[str, int]]:
    """Without the zeros that an active segment's file is allocated with."""
    form, names = _section("log-files.md", heading).layout()
    content = path.read_bytes()
    for values in form.iter_unpack(content[: -(-len(content.rstrip(b"\0")) // form.size) * form.size]):
        yield dict(zip(names, values, strict=True))


def test_producer_snapshot(data: pathlib.Path) -> None:
    """Header and entries of every committed snapshot."""
    section = _section("log-files.md", "Producer snapshot")
    header, header_names = section.layout(0)
    entry, _ = section.layout(1)
    paths = sorted((data / "main-plain").glob("**/*.snapshot"))
    producers = 0
    for path in paths:
        content = path.read_bytes()
        fields = dict(zip(header_names, header.unpack_from(content), strict=True))
        assert fields["version"] == 1
        assert fields["crc"] == crc32c(content[6:])
        found = list(entry.iter_unpack(content[header.size :]))
        assert fields["count"] == len(found)
        assert found == [
            tuple(getattr(each, name) for name in each.__slots__) for each in parse_producer_snapshot(content).entries
        ]
        producers += len(found)
    assert producers > 10


@pytest.mark.parametrize(
    ("page", "heading", "numbers"),
    [
        ("log-files.md", "Control records", ControlRecordType),
        ("metadata-records.md", "Segment states", RemoteLogSegmentState),
        ("metadata-records.md", "Partition states", RemotePartitionDeleteState),
    ],
)
def test_numbers_and_names(page: str, heading: str, numbers: type[enum.IntEnum]) -> None:
    """A page that swaps two states would have an operator delete what is being copied."""
    rows = _section(page, heading).tables[0][1:]
    assert {int(row[0]): row[1] for row in rows} == {each.value: each.name for each in numbers if each.value >= 0}


def test_manifest(data: pathlib.Path) -> None:
    """Every member of every real manifest is on the page, and nothing else is."""
    members = {row[0].strip("`") for row in _section("objects.md", "Manifest").tables[0][1:]}
    indexes = [row[1].strip("`") for row in _section("objects.md", "Indexes object").tables[0][1:]]
    described = re.findall(r"`(\w+)`", "".join(row[0] for row in _section("objects.md", "Segment metadata").tables[0]))
    chunk_index = set(re.findall(r"`(\w+)`", _section("objects.md", "Chunk index").text))
    found: set[str] = set()
    paths = [path for path in data.glob("*/objects/**/*.rsm-manifest") if "bad" not in path.parts]
    for path in paths:
        manifest = json.loads(path.read_bytes())
        found |= manifest.keys()
        assert list(manifest["segmentIndexes"]) == indexes
        assert manifest["chunkIndex"].keys() <= chunk_index
        assert set(manifest["remoteLogSegmentMetadata"]) == set(described)
    assert found == members
    assert len(paths) > 20


class _Fields:
    """Reads a value by the types that a page names."""

    def __init__(self, value: bytes) -> None:
        self._left = memoryview(value)

    def _take(self, size: int) -> bytes:
        taken, self._left = bytes(self._left[:size]), self._left[size:]
        assert len(taken) == size
        return taken

    def _uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def _tags(self) -> dict[int, bytes]:
        return {self._uvarint(): self._take(self._uvarint()) for _ in range(self._uvarint())}

    def _compact_bytes(self) -> bytes | None:
        size = self._uvarint()
        return None if size == 0 else self._take(size - 1)

    def _compact_string(self) -> str:
        raw = self._compact_bytes()
        assert raw is not None
        return raw.decode()

    def _epochs(self) -> dict[int, int]:
        epochs = {}
        for _ in range(self._uvarint() - 1):
            epoch, start = struct.unpack(">iq", self._take(12))
            epochs[epoch] = start
            assert self._tags() == {}
        return epochs

    def read(self, section: Section) -> dict[str, object]:
        """The fields of a section's first table by name; tags under ""."""
        readers: dict[str, Callable[[], object]] = {
            "uvarint": self._uvarint,
            "uuid": lambda: Uuid(self._take(16)),
            "tags": self._tags,
            "compact string": self._compact_string,
            "compact bytes": self._compact_bytes,
            "compact array": self._epochs,
        }
        fields: dict[str, object] = {}
        for kind, name, *_ in section.tables[0][1:]:
            if kind in _CODES:
                form = struct.Struct(">" + _CODES[kind])
                fields[name] = form.unpack(self._take(form.size))[0]
            else:
                fields[name] = readers[kind]()
        return fields

    def finish(self) -> None:
        assert not self._left, "bytes that the page does not know"


def _metadata_folders(data: pathlib.Path) -> list[pathlib.Path]:
    return sorted((data / "main-plain" / "broker-after-stop" / "broker1").glob("__remote_log_metadata-*"))


def _metadata_records(data: pathlib.Path) -> Iterator[tuple[int, bytes]]:
    """(partition, value) of every record of the topic as a broker left it."""
    for folder in _metadata_folders(data):
        for log in folder.glob("*.log"):
            batch = decode(log.read_bytes(), columns=["value"])
            for value in batch["value"].to_pylist():
                yield int(folder.name.rsplit("-", 1)[1]), value


def test_metadata_records(data: pathlib.Path) -> None:
    """Real records of each type, decoded by the page, say what our own decoder says."""
    headings = {0: "Segment metadata", 1: "Segment update"}
    seen: set[object] = set()
    for _, value in _metadata_records(data):
        fields = _Fields(value)
        frame = fields.read(_section("metadata-records.md", "Framing"))
        assert (frame["frameVersion"], frame["version"]) == (1, 0)
        key = frame["apiKey"]
        assert isinstance(key, int)
        found = fields.read(_section("metadata-records.md", headings[key]))
        fields.finish()
        record = decode_record(value)
        assert isinstance(record, RemoteLogSegmentMetadata | RemoteLogSegmentMetadataUpdate)
        partition = record.remote_log_segment_id.topic_id_partition
        assert partition == TopicIdPartition(found["topicId"], found["topic"], found["partition"])  # type: ignore[arg-type]
        assert found["segmentId"] == record.remote_log_segment_id.id
        assert (found["state"], found["brokerId"]) == (record.state, record.broker_id)
        assert found["customMetadata"] == record.custom_metadata
        assert found["eventTimestampMs"] == record.event_timestamp_ms
        if isinstance(record, RemoteLogSegmentMetadata):
            assert (found["startOffset"], found["endOffset"]) == (record.start_offset, record.end_offset)
            assert found["segmentLeaderEpochs"] == dict(record.segment_leader_epochs)
            assert found["segmentSizeInBytes"] == record.segment_size_in_bytes
            assert found["maxTimestampMs"] == record.max_timestamp_ms
            assert found[""] == ({0: b"\x01"} if record.txn_idx_empty else {})
        seen.add(key)
    assert seen == set(headings)


def test_partition_of_a_record(data: pathlib.Path) -> None:
    """The page's formula leads to the partition in which Kafka put each record."""
    partitions = len(_metadata_folders(data))
    found = set()
    for partition, value in _metadata_records(data):
        segment = decode_record(value).remote_log_segment_id.topic_id_partition  # type: ignore[union-attr]
        assert _metadata_partition(segment, partitions) == partition
        found.add(partition)
    assert len(found) > 1


def _metadata_partition(partition: TopicIdPartition, partitions: int) -> int:
    high, low = struct.unpack(">QQ", partition.topic_id.raw)
    number = 1
    for word in (low, high):
        number = number * 31 + ((word ^ word >> 32) & 0xFFFFFFFF) & 0xFFFFFFFF
    number = number * 31 + partition.partition & 0xFFFFFFFF
    return (_murmur2(number.to_bytes(4, "big")) & 0x7FFFFFFF) % partitions


def _murmur2(word: bytes) -> int:
    """Kafka's, of four bytes."""
    factor = np.uint64(0x5BD1E995)
    mask = np.uint64(0xFFFFFFFF)
    mixed = np.uint64(int.from_bytes(word, "little")) * factor & mask
    mixed = (mixed ^ mixed >> np.uint64(24)) * factor & mask
    state = np.uint64(0x9747B28C ^ 4) * factor & mask ^ mixed
    state = (state ^ state >> np.uint64(13)) * factor & mask
    return int(state ^ state >> np.uint64(15))


_ITEMS: Final = {"uuid": "16s", "uint64": "Q", "uint32": "I", "int64": "q", "int32": "i", "uint8": "B"}


def _columns(heading: str, payload: bytes, counts: dict[str, int]) -> dict[str, tuple[object, ...]]:
    """A payload by the table of its section; what follows the last column is padding."""
    found: dict[str, tuple[object, ...]] = {}
    at = 0
    for kind, name, _ in _section("metadata-snapshots.md", heading).tables[0][1:]:
        item, _, times = kind.partition("[")
        form = f"<{counts['bytes']}s" if kind == "bytes" else "<" + _ITEMS[item] * counts.get(times.rstrip("]"), 1)
        found[name] = struct.unpack_from(form, payload, at)
        at += struct.calcsize(form)
    assert 0 <= len(payload) - at < 8
    assert not any(payload[at:])
    return found


def test_columnar_snapshot(tmp_path: pathlib.Path) -> None:
    """If this fails, nobody but us can read a snapshot, or not even we the one of an earlier release."""
    segment = dataclasses.replace(SEGMENT, custom_metadata=b"abc")
    removal = RemotePartitionDeleteMetadata(
        PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms=5, broker_id=1
    )
    path = tmp_path / "snapshot"
    with SegmentTable(learns_partitions=True) as table:
        table.put(segment)
        state = SnapshotState(
            "topic-a", 50, {3: 7, 9: 8}, (PendingRemoval(removal, 3, 6),), {9: RecordIdentity(7, 0x12345678)}
        )
        write_snapshot(str(path), table, state, machine=Machine())
    data = path.read_bytes()
    tables = _section("metadata-snapshots.md", "Columnar snapshot").tables
    assert [row[0] for row in tables[0][1:]] == ["0", "8", "12"]
    assert struct.unpack_from("<8sII", data) == (b"TLRLMSNP", 2, 0)
    names = [row[2] for row in tables[1][1:]]
    head = struct.Struct("<" + "".join(_ITEMS[row[1]] for row in tables[1][1:]))
    at, sections, chain = 16, [], crc32c(data[:16])
    while at < len(data):
        fields = dict(zip(names, head.unpack_from(data, at), strict=True))
        section = data[at : at + head.size + fields["payloadSize"]]
        assert crc32c(section[4:]) == fields["crc"]
        assert fields["number"] == len(sections)
        sections.append((fields, section[head.size :], chain))
        chain = crc32c(section[:4], chain)
        at += len(section)
    headings = [f"{kind} section" for kind in ("Topic", "Removal", "Partition", "Segment", "End")]
    assert [fields["kind"] for fields, _, _ in sections] == [1, 2, 3, 4, 5]
    topic, removals, partitions, segments, end = (
        _columns(heading, payload, fields) for heading, (fields, payload, _) in zip(headings, sections, strict=True)
    )
    assert topic == {
        "partitions": (1,),
        "segments": (1,),
        "partitionCount": (50,),
        "removals": (1,),
        "positions": (7, 8),
        "lastOffset": (-1, 7),
        "metadataPartition": (3, 9),
        "lastValueCrc": (0, 0x12345678),
        "identity": (b"topic-a",),
    }
    assert (removals["offset"], removals["metadataPartition"]) == ((6,), (3,))
    assert decode_record(removals["records"][0]) == removal  # type: ignore[arg-type]
    assert partitions["topicId"] == (PARTITION.topic_id.raw,)
    assert (partitions["lastApplied"], partitions["segments"], partitions["partition"]) == ((-1,), (1,), (3,))
    assert (partitions["metadataPartition"], partitions["rememberedCount"]) == ((-1,), (0,))
    assert partitions["names"] == (b"orders",)
    assert segments["segmentId"] == (segment.remote_log_segment_id.id.raw,)
    assert (segments["startOffset"], segments["endOffset"]) == ((0,), (100,))
    assert (segments["maxTimestampMs"], segments["eventTimestampMs"]) == ((1700000000000,), (1700000000123,))
    assert (segments["brokerId"], segments["segmentSizeInBytes"]) == ((1,), (1024,))
    assert (segments["epoch"], segments["epochStart"]) == ((0, 1, 2), (0, 20, 80))
    assert (segments["epochCount"], segments["customSize"], segments["custom"]) == ((3,), (3,), (b"abc",))
    assert (segments["flags"], segments["mark"]) == ((1 | 4 | 8,), (0, 0, 0))
    assert end == {
        "partitions": (1,),
        "segments": (1,),
        "fileSize": (len(data),),
        "sections": (4,),
        "chain": (sections[-1][2],),
    }


def test_footer(data: pathlib.Path) -> None:
    """If this fails, nobody but us can read a footer, or not even we the one of an earlier release."""
    log = _closed_segments(data)[2].read_bytes()
    builder = FooterBuilder()
    for run in BatchRuns([log]):
        builder.add(run)
    made = builder.finish()
    assert made is not None
    assert made.batches is not None
    binding = FooterBinding(Uuid(bytes(range(16))), len(log), bytes(range(32)))
    content = encode_footer(made, binding)
    head, at = _little_endian("Footer head", content, 0)
    assert (head["magic"], head["version"], head["flags"]) == (b"TLSF", 1, 0)
    totals, behind = _little_endian("Footer totals", content, at)
    assert (behind - at, len(content) - behind) == (head["totalsSize"], head["batchesSize"])
    assert totals["crc"] == crc32c(content[at + 4 : behind], crc32c(content[:at]))
    assert totals["batchesCrc"] == crc32c(content[behind:])
    assert (totals["segmentId"], totals["descriptionDigest"]) == (bytes(range(16)), bytes(range(32)))
    records = decode(log)
    assert (totals["sizeBytes"], totals["records"], totals["flags"]) == (len(log), records.num_rows, 15 | 16)
    assert (totals["leastOffset"], totals["greatestOffset"]) == tuple(
        records["offset"][place].as_py() for place in (0, -1)
    )
    least, width, frame = struct.unpack_from("<7q", content, behind), content[behind + 56 : behind + 63], behind + 63
    count = totals["batches"]
    plain = zstandard.ZstdDecompressor().decompress(content[frame:])
    names = [row[0] for row in _section("footer.md", "Footer batches").tables[1][1:]]
    columns, place = {}, 0
    for name, low, size in zip(names, least, width, strict=True):
        planes = [plain[place + plane * count : place + (plane + 1) * count] for plane in range(size)]
        columns[name] = [low + int.from_bytes(row, "little") for row in zip(*planes, strict=True)] or [low] * count
        place += size * count
    known = scan(log)
    assert place == len(plain)
    assert columns["sizeBytes"] == known.size_bytes.tolist()
    assert columns["recordCount"] == known.record_count.tolist()
    assert columns["attributes"] == (known.attributes & 127).tolist()
    offset, time = totals["baseOffset"], totals["firstTimestamp"]
    for row in range(count):
        offset += columns["gap"][row]
        assert offset == known.base_offset[row]
        offset += columns["missing"][row] + columns["recordCount"][row]
        assert offset == known.last_offset[row] + 1
        time += columns["step"][row] >> 1 ^ -(columns["step"][row] & 1)
        assert time == known.max_timestamp[row]
        assert time - columns["spread"][row] + 1 <= known.max_timestamp[row]
    assert totals["lastOffset"] == offset - 1


def _little_endian(heading: str, content: bytes, at: int) -> tuple[dict[str, Any], int]:
    """The fields of a table of ``footer.md`` at a place, and the place behind them."""
    found: dict[str, Any] = {}
    kinds = _ITEMS | {"uint16": "H", "int64": "q", "uint8": "B", "uint32": "I", "uuid": "16s"}
    for position, kind, name, *_ in _section("footer.md", heading).tables[0][1:]:
        form = "<" + (f"{kind.split()[0]}s" if kind.endswith(" bytes") else kinds[kind])
        (found[name],) = struct.unpack_from(form, content, at + int(position))
        end = at + int(position) + struct.calcsize(form)
    return found, end
