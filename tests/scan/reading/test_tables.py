"""The tables beside the records, against Kafka's dump and the manifests."""

from __future__ import annotations

import gzip
import json
import pathlib
import re

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.footers import footers_in, indexed_copy
from tests.support.golden import config_of
from tests.support.kip_scripts import SCRIPTS
from tests.support.segments import Aborted
from tierlog import open_tier
from tierlog.errors import CorruptRecordError, TierlogError
from tierlog.scan.history import TierHistory
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import read_scan_range, records_schema
from tierlog.scan.reading.tables import (
    TRANSACTIONS_SCHEMA,
    batches_schema,
    read_batches,
    segments_schema,
    segments_table,
    transactions_table,
)
from tierlog.scan.scan_request import ScanRequest, TopicSelection


def batches(root: pathlib.Path, topic: str, size: int = 1 << 27, **options: object) -> pa.Table:
    request = ScanRequest(TopicSelection.of_names([topic]), max_bytes_per_range=size, **options)
    with open_tier(str(root), config=config_of(root.parent) if root.name == "objects" else None) as tier:
        found = [rows for each in plan_scan(tier, request).ranges for rows in read_batches(tier, each)]
    return pa.Table.from_batches(found, schema=batches_schema())


def test_batches_are_those_of_kafkas_dump(data: pathlib.Path) -> None:
    """An operator who looks for a batch would be shown another one."""
    table = batches(data / "main-plain" / "objects", "fx-txn")
    with gzip.open(data / "main-plain" / "expected-dump" / "broker1" / "fx-txn-0.dump.txt.gz", "rt") as lines:
        dump = lines.read()
    pattern = re.compile(
        r"baseOffset: (\d+) lastOffset: (\d+) count: (\d+) .*producerId: (-?\d+) producerEpoch: (-?\d+) "
        r"partitionLeaderEpoch: (\d+) isTransactional: (\w+) isControl: (\w+) .*position: (\d+) "
        r".*size: (\d+) magic: 2 compresscodec: (\w+) crc: (\d+) isvalid: true"
    )
    wanted = [match.groups() for match in map(pattern.search, dump.splitlines()) if match]
    names = [
        "baseOffset",
        "lastOffset",
        "recordCount",
        "producerId",
        "producerEpoch",
        "leaderEpoch",
        "isTransactional",
        "isControl",
        "position",
        "sizeBytes",
        "codec",
        "crc",
    ]
    got = [tuple(str(row[name]).lower() for name in names) for row in table.to_pylist()]
    assert got == wanted[: len(got)]
    assert len(got) > 500
    assert all(table["crcOk"].to_pylist())


def test_batches_of_small_ranges_come_once(data: pathlib.Path) -> None:
    """The number of rows would depend on how Spark cuts the work."""
    root = data / "zstd-aes" / "objects"
    whole = batches(root, "fx-zstd-a-json")
    assert batches(root, "fx-zstd-a-json", size=5000).equals(whole)
    assert whole["partition"].unique().to_pylist() == [0, 1]


def test_a_wrong_checksum_is_a_row_and_a_broken_header_an_error(tmp_path: pathlib.Path) -> None:
    """The table would hide damage, or be useless at the first damaged batch."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", [Batch(0), Batch(1)], lineage={0: 0})
    path = bucket.path("u1", "log")
    log = bytearray(path.read_bytes())
    log[34] ^= 1
    path.write_bytes(log)
    assert batches(tmp_path, "orders")["crcOk"].to_pylist() == [False, True]
    log[16] = 9
    path.write_bytes(log)
    with pytest.raises(CorruptRecordError, match=f"orders-0 {bucket.keys['u1']}"):
        batches(tmp_path, "orders")


def test_segments_say_what_counts(tmp_path: pathlib.Path) -> None:
    """Which objects of a bucket are dead weight could not be asked."""
    SCRIPTS["5"](tmp_path)
    with open_tier(str(tmp_path)) as tier:
        table = segments_table(TierHistory(tier).partitions(["orders"]))
    assert table.schema == segments_schema()
    rows = [
        (r["startOffset"], r["endOffset"], r["firstOffset"], r["lastOffset"], r["referenced"], dict(r["leaderEpochs"]))
        for r in table.to_pylist()
    ]
    assert rows == [
        (0, 3, 0, 3, True, {0: 0}),
        (0, 3, None, None, False, {0: 0, 1: 2}),
        (4, 5, 4, 5, True, {0: 4, 2: 5}),
    ]


def test_segments_are_those_of_the_manifests(data: pathlib.Path) -> None:
    """Sizes, times and keys would not be those of the bucket."""
    root = data / "zstd-aes" / "objects"
    with open_tier(str(root), config=config_of(data / "zstd-aes")) as tier:
        rows = segments_table(TierHistory(tier).partitions(pattern=".*"), timestamp_unit="us").to_pylist()
    manifests = {str(p.relative_to(root)): json.loads(p.read_text()) for p in root.rglob("*.rsm-manifest")}
    assert len(rows) == len(manifests)
    for row in rows:
        about = manifests[row["object"].removesuffix("log") + "rsm-manifest"]
        metadata = about["remoteLogSegmentMetadata"]
        assert (row["startOffset"], row["endOffset"]) == (metadata["startOffset"], metadata["endOffset"])
        assert row["segment"] == metadata["remoteLogSegmentId"]["id"]
        assert row["sizeBytes"] == about["chunkIndex"]["originalFileSize"]
        assert row["storedBytes"] == (root / row["object"]).stat().st_size
        assert row["maxTimestamp"].timestamp() * 1000 == pytest.approx(metadata["maxTimestampMs"], abs=0.5)
        assert (row["compression"], row["encryptionKeyId"]) == (True, about["encryption"]["dataKey"].partition(":")[0])


def test_segments_count_by_their_footers(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """How many records a segment has could be asked of no table, or a bucket without keys could not be listed."""
    run = data / "zstd-aes"
    folder = indexed_copy(run, tmp_path / "bucket")
    footers_in(folder)[0].unlink()
    with open_tier(str(folder), config=config_of(run)) as tier:
        histories = TierHistory(tier).partitions(pattern=".*")
        rows = segments_table(histories, tier=tier).to_pylist()
        assert all(row["recordCount"] is None for row in segments_table(histories).to_pylist())
        assert [row["recordCount"] is None for row in rows].count(True) == 1
        for row in rows:
            request = ScanRequest(
                TopicSelection.assign({row["topic"]: [row["partition"]]}),
                starting_offsets=row["startOffset"],
                ending_offsets=row["endOffset"] + 1,
                clamp_offsets=True,
            )
            columns = ("offset", "timestamp")
            plan = plan_scan(tier, request)
            found = pa.Table.from_batches(
                [part for each in plan.ranges for part in read_scan_range(tier, each, columns=columns)],
                schema=records_schema(columns),
            )
            if row["recordCount"] is not None:
                assert (row["recordCount"], row["minTimestamp"]) == (
                    found.num_rows,
                    pc.min(found["timestamp"]).as_py(),
                )
                assert 0 < row["batchCount"] <= row["recordCount"]
    with open_tier(str(folder), config={"key.prefix": config_of(run).get("key.prefix", "")}) as tier:
        faults: list[TierlogError] = []
        blind = segments_table(TierHistory(tier, faults=faults).partitions(pattern=".*"), tier=tier).to_pylist()
        assert [row["recordCount"] for row in blind] == [None] * len(rows)


def test_transactions_aborted_and_open(tmp_path: pathlib.Path) -> None:
    """The user could not find out why read_committed ends where it does."""
    bucket = Bucket(tmp_path)
    seven = {"producer_id": 7, "producer_epoch": 0}
    log = [
        Batch(0, transactional=True, **seven),
        Batch(1, marker="abort", **seven),
        Batch(2, transactional=True, **seven),
    ]
    bucket.segment("u1", log, lineage={0: 0}, aborted=[Aborted(7, 0, 1, 2)], open_transactions={7: 2})
    with open_tier(str(tmp_path)) as tier:
        table = transactions_table(tier, TierHistory(tier).partitions(["orders"]))
    assert table.schema == TRANSACTIONS_SCHEMA
    rows = [
        (r["segment"], r["producerId"], r["firstOffset"], r["lastOffset"], r["lastStableOffset"], r["state"])
        for r in table.to_pylist()
    ]
    assert rows == [(bucket.keys["u1"][-22:], 7, 0, 1, 2, "aborted"), (None, 7, 2, None, None, "open")]


def test_whose_clock_a_timestamp_is_of(tmp_path: pathlib.Path) -> None:
    """If this fails, the broker's clock is taken for the producer's."""
    bucket = Bucket(tmp_path)
    bucket.segment("u", [Batch(0), Batch(1, append_time=True), Batch(2, transactional=True)], lineage={0: 0})
    assert batches(tmp_path, "orders").column("timestampType").to_pylist() == [0, 1, 0]
