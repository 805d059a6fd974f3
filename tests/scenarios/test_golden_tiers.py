"""Every golden bucket against the broker's own files: the log and each part beside it, byte for byte."""

from __future__ import annotations

import hashlib
import pathlib
import pickle
import random

import pytest

from tests.support.golden import config_of
from tierlog.remote.api import IndexType
from tierlog.remote.tier import StoredSegment, Tier, open_tier

RUNS = ["main-plain", "plain-4m", "zstd", "heuristic", "aes", "zstd-aes", "custom-meta", "local-tiered"]
COMMITTED_RUNS = ["main-plain", "zstd-aes", "local-tiered"]
#: Odd on purpose: no chunk size is a multiple of them, nor they of one.
WINDOW_BYTES = [None, 997, 30_011]
SUFFIXES = {IndexType.OFFSET: "index", IndexType.TIMESTAMP: "timeindex", IndexType.TRANSACTION: "txnindex"}


def broker_folders(run: pathlib.Path, segment: StoredSegment) -> list[pathlib.Path]:
    """The partition's folders on the brokers' disks that have this segment's log."""
    folders = (run / "local-before").rglob(str(segment.topic_id_partition))
    return [folder for folder in folders if (folder / f"{segment.start_offset:020d}.log").exists()]


def read_log(tier: Tier, segment: StoredSegment, *, window_bytes: int | None = None) -> bytes:
    joined, expected_position = [], 0
    for position, window in tier.iter_log_windows(segment, window_bytes=window_bytes):
        assert position == expected_position
        expected_position += len(window)
        joined.append(bytes(window))
    return b"".join(joined)


def check_run(run: pathlib.Path, window_bytes: int | None) -> None:
    compared = 0
    with open_tier(str(run / "objects"), config=config_of(run)) as tier:
        for segment in tier.iter_segments():
            log = read_log(tier, segment, window_bytes=window_bytes)
            assert len(log) == segment.size_bytes
            folders = broker_folders(run, segment)
            if not folders:
                continue  # deleted from the disk before it was copied (fx-lso, fx-retention), or not committed here
            assert log in [(folder / f"{segment.start_offset:020d}.log").read_bytes() for folder in folders]
            check_parts(tier, segment, folders)
            compared += 1
    assert compared > 2


def check_parts(tier: Tier, segment: StoredSegment, folders: list[pathlib.Path]) -> None:
    for kind, suffix in SUFFIXES.items():
        found = tier.fetch_index(segment, kind)
        files = [folder / f"{segment.start_offset:020d}.{suffix}" for folder in folders]
        wanted = [file.read_bytes() for file in files if file.exists()]
        if kind is IndexType.TRANSACTION and not any(wanted):
            assert not found, segment.name
        else:
            assert found is not None
            assert bytes(found) in wanted, (segment.name, kind)
    snapshot = tier.fetch_index(segment, IndexType.PRODUCER_SNAPSHOT)
    snapshots = [folder / f"{segment.end_offset + 1:020d}.snapshot" for folder in folders]
    wanted = [file.read_bytes() for file in snapshots if file.exists()]
    assert snapshot is not None
    assert not wanted or bytes(snapshot) in wanted, segment.name
    epochs = tier.fetch_index(segment, IndexType.LEADER_EPOCH)
    assert epochs is not None
    assert bytes(epochs).startswith(b"0\n")


@pytest.mark.parametrize("window_bytes", WINDOW_BYTES)
@pytest.mark.parametrize("run", RUNS)
def test_every_segment_is_the_brokers_own_bytes(fixtures: pathlib.Path, run: str, window_bytes: int | None) -> None:
    """If this fails, records come out wrong, or dump and export differ from what the broker had."""
    check_run(fixtures / run, window_bytes)


@pytest.mark.parametrize("run", COMMITTED_RUNS)
def test_the_committed_subset_reads_equal_too(data: pathlib.Path, run: str) -> None:
    """The same on a machine that has the checkout alone."""
    check_run(data / run, None)


@pytest.mark.parametrize("run", COMMITTED_RUNS)
def test_any_range_is_that_part_of_the_whole(data: pathlib.Path, run: str) -> None:
    """If this fails, a scan that begins or ends inside a segment reads shifted, doubled or missing bytes."""
    rng = random.Random(20261121)
    with open_tier(str(data / run / "objects"), config=config_of(data / run)) as tier:
        for segment in tier.iter_segments():
            whole = read_log(tier, segment)
            for _ in range(12):
                start, end = sorted(rng.randrange(len(whole) + 1) for _ in range(2))
                window_bytes = rng.choice((1, 4096, 1 << 20)) if end - start < 4096 else None
                windows = tier.iter_log_windows(
                    segment, start, end, window_bytes=window_bytes, prefetch=rng.randrange(4)
                )
                pieces = list(windows)
                assert b"".join(piece for _, piece in pieces) == whole[start:end]
                assert [position for position, _ in pieces][:1] in ([], [start])


def test_a_segment_travels_to_an_executor_and_reads_the_same(data: pathlib.Path) -> None:
    """If this fails, Spark's tasks cannot read what the driver planned, or the plan carries secrets."""
    run = data / "zstd-aes"
    with open_tier(str(run / "objects"), config=config_of(run)) as driver:
        segments = list(driver.iter_segments())
        digests = [hashlib.sha256(read_log(driver, segment)).digest() for segment in segments]
    wire = pickle.dumps(segments)
    assert len(wire) < 4096 * len(segments)
    assert b"PRIVATE" not in wire
    with open_tier(str(run / "objects"), layout="aiven", config=config_of(run)) as executor:
        read = pickle.loads(wire)
        assert read == segments
        assert [hashlib.sha256(read_log(executor, segment)).digest() for segment in read] == digests
