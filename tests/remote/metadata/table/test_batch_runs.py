"""Runs of whole record batches, as log files and brokers have them."""

from __future__ import annotations

import struct

import pytest

from tests.remote.metadata.table.segments import FINISHED, ORDERS, segment, update
from tests.support.batches import Batch, encode
from tierlog.records.builder import RecordBatchBuilder
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.remote.metadata.metadata_log import MetadataBatches
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord, encode_record
from tierlog.remote.metadata.segment_table import SegmentTable

NOBODYS = TopicIdPartition(Uuid(bytes(range(16))), "payments", 0)


def batch(base_offset: int, *records: RemoteLogMetadataRecord) -> bytes:
    return encode(Batch(base_offset, tuple(encode_record(each) for each in records)))


def test_a_million_events_of_a_partition_that_is_not_followed_are_passed_over() -> None:
    """A broker follows a few of the partitions of a metadata partition: the others cost it neither memory nor time."""
    one = batch(0, *[segment(n, 10 * n, 10 * n + 9, partition=NOBODYS) for n in range(1000)])
    data = b"".join(struct.pack(">q", 1000 * n) + one[8:] for n in range(1000))  # no checksum covers the offset
    mine = batch(10**6, segment(1, 0, 9))
    with SegmentTable() as table:
        table.assign(ORDERS)
        run = table.apply(MetadataBatches(0, 10**6 + 1, data + mine))
        assert (run.passed_over, run.applied, run.error) == (10**6, 1, None)
        assert table.figures.held_bytes < 4096


@pytest.mark.parametrize("at", [-1, 40, 70])
def test_a_damaged_batch_ends_the_run_and_nothing_before_it_is_lost(at: int) -> None:
    """What is read again after the file was mended begins where the damage was."""
    sound, broken = batch(0, segment(1, 0, 9)), bytearray(batch(1, update(1, FINISHED)))
    broken[at] ^= 0x10
    with SegmentTable() as table:
        table.assign(ORDERS)
        run = table.apply(MetadataBatches(0, 2, sound + bytes(broken)))
        assert run.error is not None
        assert (run.error.fault, run.error.base_offset) == ("BAD_CRC", 1)
        assert (run.applied, run.next_offset) == (1, 1)
        mended = table.apply(MetadataBatches(0, 2, sound + batch(1, update(1, FINISHED))))
        assert (mended.applied, mended.passed_over, mended.error) == (1, 1, None)
        assert table.find(ORDERS, 0, 5) is not None


def test_a_bad_record_in_the_middle_of_a_batch_is_named_by_its_offset() -> None:
    """The batch is sound: only its third record is of a type of the future."""
    values = (encode_record(segment(1, 0, 9)), encode_record(update(1, FINISHED)), b"\x01\x63\x00", b"\x00")
    with SegmentTable() as table:
        table.assign(ORDERS)
        run = table.apply(MetadataBatches(0, 104, encode(Batch(100, values))))
        assert run.error is not None
        assert (run.error.fault, run.error.found, run.error.base_offset) == ("BAD_VERSION", 0x63, 102)
        assert (run.applied, run.next_offset, run.newest_timestamp_ms) == (2, 102, 1_700_000_000_001)


def test_a_run_that_is_cut_inside_a_batch_says_so() -> None:
    """A file that is being written ends so; its reader waits for the rest."""
    sound, cut = batch(0, segment(1, 0, 9)), batch(1, update(1, FINISHED))[:-5]
    with SegmentTable() as table:
        table.assign(ORDERS)
        run = table.apply(MetadataBatches(0, 2, sound + cut))
        assert run.error is not None
        assert (run.error.fault, run.next_offset, run.applied) == ("PARTIAL", 1, 1)


def test_control_batches_and_gaps_are_passed_over() -> None:
    """Transactions and compaction leave both in any topic."""
    marker = encode(Batch(5, (None,), producer_id=7, producer_epoch=0, marker="commit"))
    with SegmentTable() as table:
        table.assign(ORDERS)
        run = table.apply(MetadataBatches(0, 31, batch(0, segment(1, 0, 9)) + marker + batch(30, update(1, FINISHED))))
        assert (run.applied, run.next_offset, run.error) == (2, 31, None)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_read(codec: str) -> None:
    """A producer's compression.type reaches the metadata topic through ``rlmm.config.*``."""
    builder = RecordBatchBuilder(3, codec=codec)
    for n in range(500):
        builder.append(None, encode_record(segment(n, 10 * n, 10 * n + 9, custom=bytes(100))))
    with SegmentTable() as table:
        table.assign(ORDERS)
        run = table.apply(MetadataBatches(0, 503, builder.build()))
        assert (run.applied, run.next_offset, run.error) == (500, 503, None)
        assert len(table.columns(ORDERS)) == 500
