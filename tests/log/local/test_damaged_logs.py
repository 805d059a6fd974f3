"""Folders with damage: opening one ends with a typed error, or with a log that serves a sound prefix and goes on."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.records.test_bad_logs import EXPECTED
from tests.support.batches import Batch, encode
from tests.support.living_logs import (
    NOW_MS,
    batch_of,
    contents_of,
    ended,
    iter_served,
    machine_of,
    opened,
    served,
)
from tierlog._native.batches import scan_batches
from tierlog.errors import CorruptDataError, CorruptIndexError, StoreError, TierlogError
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogOfflineError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.simulated.memory_files import MemoryFiles

#: Sound by every checksum, and yet in no log of ours: see STRICTER of test_bad_logs.
NOT_OURS = {"07-magic-3", "07-magic-127", "22-last-offset-delta-negative", "25-batches-out-of-order"}


def sound_bytes(log: bytes) -> int:
    """How many bytes of a log lie in front of the first batch that is torn or does not match its checksum."""
    columns, end, _, _ = scan_batches(log, verify_crc=True)
    wrong = columns["position"][~columns["crc_ok"].astype(bool)].tolist()
    return min([end, *wrong])


def appends_and_reads(log: UnifiedLog, before: bytes) -> None:
    """The log goes on: what was served is still served, and a batch more."""
    log.append_as_leader(batch_of(b"next"), leader_epoch=1_000)
    after = served(log)
    assert after.startswith(before)
    assert len(after) > len(before)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_bad_log_after_an_unclean_stop(data: Path, name: str) -> None:
    """Else a broker does not come up again after the one crash that tore a batch, or serves what nobody wrote."""
    log_bytes = (data / "bad" / "log" / f"{name}.log").read_bytes()
    machine = machine_of({"00000000000000000000.log": log_bytes})
    log = opened(machine)
    found = served(log)
    assert log_bytes.startswith(found)
    _, fault, position, record = EXPECTED[name]
    if fault is None:
        assert found == log_bytes
    elif record < 0 and fault != "BAD_COMPRESSED":
        assert len(found) >= min(position, sound_bytes(log_bytes[:position]))
    if name not in NOT_OURS:
        assert len(found) <= sound_bytes(log_bytes)
    log.close()

    again = opened(machine)  # what was mended is mended: the next start finds nothing to do
    assert served(again) == found
    assert not [action for action in again.recovery_report.actions if action.kind == "cut"]
    appends_and_reads(again, found)
    again.close()


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_bad_log_after_a_clean_stop(data: Path, name: str) -> None:
    """Nothing is checked then, as in Kafka: whoever reads up to the damage is told, and the process lives."""
    log_bytes = (data / "bad" / "log" / f"{name}.log").read_bytes()
    machine = machine_of({"00000000000000000000.log": log_bytes})
    try:
        log = opened(machine, clean=True)
    except (CorruptDataError, StoreError):
        return
    try:
        for batch in iter_served(log):
            assert batch in log_bytes
    except (CorruptDataError, StoreError, OffsetOutOfRangeError, AssertionError):
        pass  # AssertionError: of this test's own walk over damaged bytes
    for timestamp_ms in (0, NOW_MS, -3):
        try:
            log.fetch_offset_by_timestamp(timestamp_ms)
        except (CorruptDataError, StoreError):
            continue
    try:
        log.close()
    except LogOfflineError:
        pass


# ---- the files beside the log


def real_segment(data: Path) -> dict[str, bytes]:
    """Segment 654 of a broker's log, with transactions."""
    folder = data / "main-plain" / "local-before" / "broker1" / "fx-txn-0"
    return {path.name: path.read_bytes() for path in folder.glob("*0654.*")}


INDEXES = [
    "01-nonmonotonic.index",
    "02-size-not-multiple-8.index",
    "03-position-beyond-segment.index",
    "04-negative-relative-offset.index",
    "05-all-zero.index",
    "11-nonmonotonic.timeindex",
    "12-size-not-multiple-12.timeindex",
    "13-negative-timestamp.timeindex",
    "21-truncated.txnindex",
    "22-version-7.txnindex",
    "23-nonmonotonic.txnindex",
    "31-crc.snapshot",
    "32-version-9.snapshot",
    "33-truncated.snapshot",
    "34-count-intmax.snapshot",
]


@pytest.mark.parametrize("name", INDEXES)
def test_a_bad_file_beside_the_log_after_an_unclean_stop(data: Path, name: str) -> None:
    """Indexes and snapshots are made anew from the log: damage in them costs nothing."""
    good = real_segment(data)
    reference = opened(machine_of(good))
    bad = good | {f"{654:020d}.{name.rpartition('.')[2]}": (data / "bad" / "index" / name).read_bytes()}
    machine = machine_of(bad)
    log = opened(machine)
    assert served(log) == served(reference) == good[f"{654:020d}.log"]
    for offset in range(654, log.log_end_offset):
        both = [each.read(offset, max_bytes=300, isolation=FetchIsolation.TXN_COMMITTED) for each in (log, reference)]
        assert both[0]._replace(records=()) == both[1]._replace(records=())
    for each in (log, reference):
        each.close()
    kept = {"index", "timeindex", "txnindex"}
    rebuilt, expected = contents_of(machine), good
    assert {n: d for n, d in rebuilt.items() if n[21:] in kept} == {n: d for n, d in expected.items() if n[21:] in kept}


@pytest.mark.parametrize("name", INDEXES)
def test_a_bad_file_beside_the_log_after_a_clean_stop(data: Path, name: str) -> None:
    """A clean stop says that nothing has to be checked; a lie costs a typed error, never wrong records."""
    good = real_segment(data)
    log_bytes = good[f"{654:020d}.log"]
    bad = good | {f"{654:020d}.{name.rpartition('.')[2]}": (data / "bad" / "index" / name).read_bytes()}
    try:
        log = opened(machine_of(bad), clean=True)
    except (CorruptDataError, StoreError):
        return
    starts = scan_batches(log_bytes)[0]
    for offset in range(654, log.log_end_offset, 3):
        try:
            found = log.read(offset, max_bytes=300, isolation=FetchIsolation.LOG_END)
        except (CorruptDataError, StoreError):
            continue
        assert found.records
        expected = int(starts["position"][starts["last_offset"] >= offset][0])
        assert found.position == expected, "an index that lies led into another batch"


@pytest.mark.parametrize("name", ["00-good", "06-empty"])
def test_a_good_epoch_checkpoint(data: Path, name: str) -> None:
    """Else an old broker's folder, or an empty file after a crash, keeps a log from opening."""
    text = (data / "bad" / "checkpoint" / name).read_bytes()
    log = opened(machine_of({"leader-epoch-checkpoint": text}))
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    "name", ["01-count-too-high", "02-count-too-low", "03-version-1", "04-garbage", "05-epochs-decrease"]
)
def test_a_bad_epoch_checkpoint(data: Path, name: str) -> None:
    """Kafka takes the log directory offline: a lineage that is guessed would keep records that another leader cut."""
    text = (data / "bad" / "checkpoint" / name).read_bytes()
    machine = machine_of({"leader-epoch-checkpoint": text})
    with pytest.raises(CorruptIndexError, match="leader-epoch-checkpoint"):
        opened(machine)
    assert contents_of(machine)["leader-epoch-checkpoint"] == text


@pytest.mark.parametrize(
    "text", [b"", b"version: 0\n", b"version: 0\ntopic_id: x", b"\xff" * 50, b"version: 1e9\n" * 9]
)
def test_a_bad_partition_metadata(text: bytes) -> None:
    """The id of the topic decides whose records these are: it is never guessed."""
    machine = machine_of({"partition.metadata": text})
    with pytest.raises((CorruptDataError, TierlogError)):
        opened(machine)


def test_an_append_over_a_damaged_time_index() -> None:
    """Else an append ends with an error that says nothing of the log, and the next one is taken at another end."""
    machine = machine_of()
    with opened(machine) as log:
        log.append_as_leader(batch_of(b"one"), leader_epoch=0)
    machine.files.write_whole(f"{log.folder}/{0:020d}.timeindex", b"\xff" * 24)
    again = opened(machine, clean=True)
    with pytest.raises(LogOfflineError, match=f"{0:020d}.timeindex"):
        again.append_as_leader(batch_of(b"two"), leader_epoch=0)
    again.close()


@pytest.mark.parametrize("is_cut", [True, False], ids=["the end of a log that was cut", "the first batch"])
def test_an_append_that_looks_at_a_damaged_batch_for_its_roll(is_cut: bool) -> None:
    """If this fails, an error that no replica expects ends the fetcher of all partitions of a leader."""
    large = (b"v" * 800,)

    def append_as_follower(log: UnifiedLog) -> None:
        log.append_as_follower(encode(Batch(log.log_end_offset, large)), leader_epoch=0)

    def append_as_leader(log: UnifiedLog) -> None:
        log.append_as_leader(batch_of(*large), leader_epoch=0)

    for append in (append_as_follower, append_as_leader):
        machine = machine_of()
        log = opened(machine, config=LogConfig(segment_bytes=1_000))
        for _ in range(3):
            log.append_as_leader(batch_of(b"v" * 100), leader_epoch=0)
        if is_cut:
            log.truncate_to(2)
        else:
            log.close()
            log = opened(machine, clean=True)
        assert isinstance(machine.files, MemoryFiles)
        machine.files.flip_bit(log.active_segment.log_path, position=8, bit=7)  # the length is negative then
        with pytest.raises(LogOfflineError, match=rf"{0:020d}\.log @ 0"):
            append(log)
        assert log.is_offline
        log.close()


# ---- random damage

SMALL = LogConfig(segment_bytes=1_500, index_interval_bytes=200)


@functools.cache
def healthy() -> tuple[dict[str, bytes], bytes]:
    """Files of a log with five segments, transactions and epochs, closed cleanly; and all its batches."""
    machine = machine_of()
    log = opened(machine, config=SMALL)
    for at in range(40):
        epoch = at // 12
        log.append_as_leader(batch_of(*[bytes([at]) * 20] * (at % 3 + 1), timestamp_ms=NOW_MS + at), leader_epoch=epoch)
        producer = {"producer_id": at % 3, "producer_epoch": 0, "base_sequence": at // 3}
        log.append_as_leader(batch_of(b"t", transactional=1, **producer), leader_epoch=epoch)
        if at % 4 == 3:
            ended(log, at % 3, commits=at % 8 == 3, leader_epoch=epoch)
    whole = served(log)
    log.close()
    return contents_of(machine), whole


DAMAGE = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 99), st.integers(0, 10**6), st.integers(1, 255)),
    st.tuples(st.just("cut"), st.integers(0, 99), st.integers(0, 10**6), st.just(0)),
    st.tuples(st.just("extend"), st.integers(0, 99), st.integers(1, 300), st.integers(0, 255)),
    st.tuples(st.just("remove"), st.integers(0, 99), st.just(0), st.just(0)),
    st.tuples(st.just("rename"), st.integers(0, 99), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("copy"), st.integers(0, 99), st.integers(0, 99), st.just(0)),
)
SUFFIXES = (".deleted", ".swap", ".cleaned", ".tmp", "x", ".log")


def damaged(contents: dict[str, bytes], damage: list[tuple[str, int, int, int]]) -> dict[str, bytes]:
    contents = dict(contents)
    for kind, which, where, value in damage:
        if not contents:
            break
        name = sorted(contents)[which % len(contents)]
        data = bytearray(contents[name])
        if kind == "flip" and data:
            data[where % len(data)] ^= value
        elif kind == "cut":
            del data[where % (len(data) + 1) :]
        elif kind == "extend":
            data += bytes([value]) * where
        elif kind == "remove":
            del contents[name]
            continue
        elif kind == "rename":
            del contents[name]
            contents[name + SUFFIXES[where]] = bytes(data)
            continue
        elif kind == "copy":
            other = sorted(contents)[where % len(contents)]
            if name.endswith(".log") and other.endswith(".log"):
                continue  # sound by every checksum, and Kafka too takes one segment's batches for another's
            contents[other] = bytes(data)
            continue
        contents[name] = bytes(data)
    return contents


@given(
    damage=st.lists(DAMAGE, min_size=1, max_size=4),
    clean=st.booleans(),
    point=st.sampled_from([0, 0, 20, 10**6]),
    start=st.sampled_from([0, 0, 7, 500]),
)
@example(damage=[("flip", 54, 0, 1)], clean=False, point=0, start=0)  # a hole, then a segment that is split
def any_damage(damage: list[tuple[str, int, int, int]], clean: bool, point: int, start: int) -> None:
    contents, whole = healthy()
    machine = machine_of(damaged(contents, damage))
    try:
        log = opened(machine, clean=clean, config=SMALL, checkpoints=LogCheckpoints(point, start, 50))
    except (CorruptDataError, StoreError):
        return
    reads(log, whole, strict=not clean and point == 0)
    if clean:
        return
    before = log.offsets
    again = opened(machine, config=SMALL, checkpoints=LogCheckpoints(None, before.log_start_offset, 0))
    if point == 0:
        assert again.log_end_offset == before.log_end_offset, "recovery ends nowhere: each start cuts more"
    reads(again, whole, strict=True)
    again.append_as_leader(batch_of(b"next"), leader_epoch=1_000)
    again.close()


def test_any_damage() -> None:
    """A disk that lies: the log opens and serves batches that were written, or says what is wrong."""
    settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))(any_damage)()


@pytest.mark.slow
def test_any_damage_for_longer() -> None:
    """The same, with damage that is rarer."""
    settings(max_examples=4000, deadline=None, suppress_health_check=list(HealthCheck))(any_damage)()


def reads(log: UnifiedLog, whole: bytes, *, strict: bool) -> None:
    """Walk the log. What no checksum covers, offset and epoch, may be damaged; what it covers is what was written."""
    last = -1
    try:
        for batch in iter_served(log):
            assert batch[16:] in whole or not strict
            base = int.from_bytes(batch[:8], "big")
            assert base > last or not strict
            last = base
    except (CorruptDataError, StoreError, OffsetOutOfRangeError):
        assert not strict
    except AssertionError:
        if strict:
            raise
