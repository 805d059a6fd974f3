"""The logs that real brokers left: opened, asked, read and written again."""

from __future__ import annotations

import pathlib
import shutil
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.support.broker_logs import BrokerLog, broker_logs, machine_of_the_run
from tests.support.golden import Row, consumed
from tests.support.log_consumer import batches_in, consume, number
from tierlog.log.formats.identity_files import parse_partition_metadata
from tierlog.log.formats.leader_epochs import encode_leader_epochs, parse_leader_epochs
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot, parse_producer_snapshot
from tierlog.log.local.log_reads import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    FetchIsolation,
)
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
RUNNING, STOPPED = list(broker_logs(DATA, "local-before")), list(broker_logs(DATA, "broker-after-stop"))
SPECIAL = {
    "latest(-1)": LATEST_TIMESTAMP,
    "earliest(-2)": EARLIEST_TIMESTAMP,
    "maxTimestamp(-3)": MAX_TIMESTAMP,
    "earliestLocal(-4)": EARLIEST_LOCAL_TIMESTAMP,
    "latestTiered(-5)": LATEST_TIERED_TIMESTAMP,
    "earliestPendingUpload(-6)": EARLIEST_PENDING_UPLOAD_TIMESTAMP,
}
STABLE = "latest(-1) read_committed"
EPOCHS = "leader-epoch-checkpoint"
LEVELS = ("read_uncommitted", "read_committed")


def check_answers(log: UnifiedLog, broker: BrokerLog) -> int:
    """ListOffsets: the local half of what the broker answered; how many questions there were."""
    told = broker.answers()
    if told is None:
        return 0
    highest = told["latestTiered(-5)"]["offset"]
    assert highest is not None
    log.update_highest_offset_in_remote_storage(highest)
    asked = 0
    for name, answer in told.items():
        if name == STABLE:
            assert log.last_stable_offset == answer["offset"], (broker, name)
        elif name in SPECIAL or name.startswith("ts:"):
            timestamp = SPECIAL[name] if name in SPECIAL else int(name.removeprefix("ts:"))
            expected = (answer["timestamp"], answer["offset"], answer["leaderEpoch"])
            tiered = timestamp >= 0 and 0 <= expected[1] < log.local_log_start_offset  # type: ignore[operator]
            if tiered:  # the tier answers
                continue
            found = log.fetch_offset_by_timestamp(timestamp)
            given = (-1, -1, None) if found is None else (found.timestamp_ms, found.offset, found.leader_epoch)
            if timestamp == LATEST_TIMESTAMP:  # leaders changed between the answer and the stop
                assert given[2] is not None
                assert given[2] >= expected[2], broker  # type: ignore[operator]
                given = (*given[:2], expected[2])  # type: ignore[assignment]
            assert (*given[:2], None if given[2] == -1 else given[2]) == expected, (broker, name)
        else:
            continue
        asked += 1
    return asked


def check_rows(log: UnifiedLog, broker: BrokerLog) -> int:
    """What is local reads as a real consumer read it, in both isolation levels; how many rows."""
    count = 0
    for isolation in LEVELS:
        expected = consumed(broker.run, broker.topic, isolation)
        if expected is None:
            continue
        start = log.local_log_start_offset
        wanted: list[Row] = [row for row in expected if row[0] == broker.partition and row[1] >= start]
        assert consume(log, isolation=isolation) == wanted, (broker, isolation)
        count += len(wanted)
    return count


def contents(folder: pathlib.Path | str, *, without: frozenset[str] = frozenset()) -> dict[str, bytes]:
    """The files of a folder by name; indexes without the zeros that a running broker preallocates."""
    found = {}
    for path in sorted(pathlib.Path(folder).iterdir()):
        data = path.read_bytes()
        entry = {".index": 8, ".timeindex": 12}.get(path.suffix)
        while entry and data[-entry:] == bytes(entry):
            data = data[:-entry]
        if path.suffix == ".snapshot" and data:  # Kafka's order is that of a hash map, which recovery makes anew
            data = encode_producer_snapshot(sorted(parse_producer_snapshot(data).entries, key=lambda e: e.producer_id))
        if path.suffix not in without and path.name not in without:
            found[path.name] = data
    return found


def without_empty_epoch(data: bytes, log_end_offset: int) -> bytes:
    """An epochs' checkpoint as a start of the log leaves it: without an epoch that has no record yet."""
    return encode_leader_epochs(parse_leader_epochs(data).truncate_from_end(log_end_offset))


# ---- after a clean stop


def check_stopped(broker: BrokerLog, folder: pathlib.Path) -> tuple[int, int]:
    path = broker.copy_to(folder)
    before = contents(path)
    kept = {**before, EPOCHS: without_empty_epoch(before[EPOCHS], broker.checkpoints.recovery_point)}
    with broker.open(path, clean=True) as log:
        assert [action.kind for action in log.recovery_report.actions] == ["epochs"] * (kept != before), broker
        assert contents(path) == kept, broker
        assert log.topic_id == parse_partition_metadata(before["partition.metadata"]).topic_id
        assert list(log.leader_epoch_cache.epochs) == list(parse_leader_epochs(kept[EPOCHS]))
        assert log.recovery_point == log.log_end_offset == broker.checkpoints.recovery_point, broker
        asked, rows = check_answers(log, broker), check_rows(log, broker)
    assert contents(path) == kept, broker
    return asked, rows


@pytest.mark.parametrize("broker", STOPPED, ids=str)
def test_a_log_that_was_stopped_cleanly_answers_as_its_broker(broker: BrokerLog, tmp_path: pathlib.Path) -> None:
    """Else whoever takes over a broker's disk reads other records from it, or changes files that nobody may change."""
    asked, _ = check_stopped(broker, tmp_path)
    assert asked or broker.topic.startswith("__")


@pytest.mark.slow
def test_all_logs_that_were_stopped_cleanly(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Every codec, LogAppendTime, epochs, deletions, open transactions: as above."""
    done = [check_stopped(broker, tmp_path) for broker in broker_logs(fixtures, "broker-after-stop")]
    asked, rows = map(sum, zip(*done, strict=True))
    assert len(done) > 60
    assert asked > 400
    assert rows > 5000


def test_a_followers_transaction_index_stays_as_it_is(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Of one whose fetch held an abort marker and the next transaction behind it: else each clean start recovers the
    segment, and its entries are no longer those of the broker that wrote them.
    """
    folder = tmp_path / "logs" / "txn-0"
    shutil.copytree(data / "follower" / "txn-0", folder)
    before = contents(folder)
    with UnifiedLog.open(str(folder), machine=machine_of_the_run(), had_clean_shutdown=True) as log:
        assert not [action for action in log.recovery_report.actions if action.kind != "deleted"]  # a stray snapshot
        high_watermark = log.update_high_watermark(log.log_end_offset)
        assert high_watermark == 23
        assert log.read(0, max_bytes=9999, isolation=FetchIsolation.TXN_COMMITTED).aborted_transactions == (
            (1, 6),
            (2, 14),
        )
    del before["00000000000000000002.snapshot"]
    assert contents(folder) == before


# ---- of a running broker


def check_running(broker: BrokerLog, folder: pathlib.Path, *, checkpoints: LogCheckpoints | None) -> tuple[int, int]:
    path = broker.copy_to(folder)
    before = contents(path)
    with broker.open(path, clean=False, checkpoints=checkpoints) as log:
        assert not [action for action in log.recovery_report.actions if action.bytes_cut], broker
        after = contents(path)
        changed = [f"{log.active_segment.base_offset:020d}.timeindex"]  # recovery ends each time index
        if log.log_end_offset:  # a snapshot of the end is new; there is none at offset 0
            changed.append(f"{log.log_end_offset:020d}.snapshot")
        before[EPOCHS] = without_empty_epoch(before[EPOCHS], log.log_end_offset)
        for name in changed:
            assert after.pop(name).startswith(before.pop(name, b"")), (broker, name)
        assert after == before, broker
        return check_answers(log, broker), check_rows(log, broker)


@pytest.mark.parametrize("broker", RUNNING, ids=str)
@pytest.mark.parametrize("checkpoints", [None, LogCheckpoints()], ids=["checkpoint", "none"])
def test_a_log_of_a_broker_that_was_killed_answers_as_it_did(
    broker: BrokerLog, checkpoints: LogCheckpoints | None, tmp_path: pathlib.Path
) -> None:
    """Else recovery cuts or rebuilds what was whole, and the replicas of a partition come apart."""
    check_running(broker, tmp_path, checkpoints=checkpoints)


@pytest.mark.slow
def test_all_logs_of_brokers_that_were_killed(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """As above, with the answers of the time before anything was deleted."""
    brokers = list(broker_logs(fixtures, "local-before"))
    done = [
        check_running(broker, tmp_path, checkpoints=point) for broker in brokers for point in (None, LogCheckpoints())
    ]
    asked, rows = map(sum, zip(*done, strict=True))
    assert len(done) > 100
    assert asked > 200
    assert rows > 50_000


# ---- written again


def stored(broker: BrokerLog) -> Iterator[tuple[int, list[bytes]]]:
    """(base offset, batches) of each segment."""
    for path in sorted(broker.folder.glob("*.log")):
        yield int(path.stem), list(batches_in(path.read_bytes()))


def rewrite(broker: BrokerLog, folder: pathlib.Path) -> UnifiedLog:
    """A new log with the batches of one that stands, as a follower of its broker would have got them."""
    source = contents(broker.folder)
    path = folder / "again" / broker.folder.name
    path.parent.mkdir(exist_ok=True)
    config, compacted = broker.config, broker.config.is_compacted
    if compacted:  # its segments are what the cleaner made of them
        config = replace(config, segment_bytes=1 << 30, segment_ms=2**62, max_compaction_lag_ms=2**62)
    log = UnifiedLog.open(
        str(path),
        machine=machine_of_the_run(),
        config=config,
        topic_id=parse_partition_metadata(source["partition.metadata"]).topic_id,
        remote_log_enabled=True,
    )
    epochs = list(parse_leader_epochs(source["leader-epoch-checkpoint"]))
    segments = list(stored(broker))
    if segments[0][0]:
        log.truncate_fully_and_start_at(segments[0][0])
    for base_offset, batches in segments:
        if compacted and base_offset != log.active_segment.base_offset:
            log.roll(base_offset)
        for batch in batches:
            while epochs and epochs[0].start_offset <= number(batch, 0, 8):
                log.assign_epoch_start_offset(*epochs.pop(0))
            log.append_as_follower(bytearray(batch), leader_epoch=2**31 - 1)
        if not batches and base_offset != log.active_segment.base_offset:  # rolled by retention
            log.roll()
    for epoch in epochs:
        log.assign_epoch_start_offset(*epoch)
    return log


def check_rewritten(broker: BrokerLog, folder: pathlib.Path) -> int:
    unlike = {".snapshot"} if broker.config.is_compacted else set()
    stopped = broker.state == "broker-after-stop"
    with rewrite(broker, folder) as log:
        log.flush()
        if not stopped:
            written = contents(log.folder, without=frozenset(unlike))
            assert written == contents(broker.folder, without=frozenset(unlike)), broker
    if stopped:
        assert contents(log.folder, without=frozenset(unlike)) == contents(broker.folder, without=frozenset(unlike)), (
            broker
        )
    return log.log_end_offset


@pytest.mark.parametrize("broker", RUNNING, ids=str)
def test_a_log_is_written_again_byte_for_byte(broker: BrokerLog, tmp_path: pathlib.Path) -> None:
    """Batches, indexes, epochs, snapshots, rolls: else a follower's files are not its leader's, and what the tier gets
    is not what Kafka would have copied.
    """
    check_rewritten(broker, tmp_path)


@pytest.mark.slow
def test_all_logs_are_written_again_byte_for_byte(fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """As above; and internal topics after a clean stop, with the snapshot that it leaves."""
    whole = list(broker_logs(fixtures, "local-before"))
    whole += [b for b in broker_logs(fixtures, "broker-after-stop") if b.topic.startswith("__")]
    for number_of, broker in enumerate(whole):
        (tmp_path / str(number_of)).mkdir()
        check_rewritten(broker, tmp_path / str(number_of))
    assert len(whole) > 60
