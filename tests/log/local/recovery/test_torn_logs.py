"""Logs that end in the middle, or are damaged: cut at the first bad batch, and nothing else is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA, FIXTURES
from tests.support.batches import Batch, encode
from tests.support.living_logs import FOLDER, batch_of, contents, load, name_of, put_log
from tierlog._native.batches import scan_batches
from tierlog.errors import CorruptRecordError, StoreError
from tierlog.log.formats.leader_epochs import LeaderEpochs, encode_leader_epochs
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.memory_files import MemoryFiles

BAD = next((root / "bad/log" for root in (FIXTURES, DATA) if (root / "bad/log").is_dir()), DATA)
#: Holes between segments are none's loss there.
COMPACTED = LogConfig(cleanup_policy=frozenset(("compact",)))
BAD_LOGS = sorted(BAD.glob("*.log"))


def run_of(start: int, count: int, **fields: object) -> list[Batch]:
    """Batches of two records."""
    return [Batch(start + 2 * i, (b"a", b"b"), **fields) for i in range(count)]  # type: ignore[arg-type]


def sound_bytes(data: bytes) -> int:
    """How much of a log is sound batches whose offsets rise, by the scan alone."""
    columns, end, _, _ = scan_batches(data)
    next_offset = 0
    for row in range(len(columns["position"])):
        base, last = int(columns["base_offset"][row]), int(columns["last_offset"][row])
        if not columns["crc_ok"][row] or base < next_offset or last < base:
            return int(columns["position"][row])
        next_offset = last + 1
    return end


def kinds(loaded: object) -> list[str]:
    return [action.kind for action in loaded.report.actions]  # type: ignore[attr-defined]


@pytest.mark.parametrize("log", BAD_LOGS, ids=lambda log: log.stem)
def test_every_kind_of_damage_is_where_the_log_ends(log: Path) -> None:
    """Otherwise half a batch is served, sound ones are lost, or the start ends with a traceback."""
    data = log.read_bytes()
    files = MemoryFiles()
    files.put(name_of(0), data)
    whole = sound_bytes(data) == len(data)
    next_base = int(scan_batches(data)[0]["last_offset"][-1]) + 1 if whole and data else 10_000
    put_log(files, {next_base: run_of(next_base, 3)})
    loaded = load(files, config=COMPACTED)
    left = files.read_whole(name_of(0))
    kept = sound_bytes(data)
    if log.stem.startswith("31-"):  # a marker without a type: no producer's state can take it
        kept = len(left)
        assert kept < len(data)
        assert sound_bytes(left) == kept
    assert left == data[:kept]
    columns, _, _, _ = scan_batches(left)
    end = int(columns["last_offset"][-1]) + 1 if kept else 0
    assert loaded.log_end_offset == (end if kept < len(data) else next_base + 6)
    assert len(loaded.segments) == (1 if kept < len(data) else 2)
    assert sum(action.bytes_cut for action in loaded.report.actions if action.kind == "cut") == len(data) - kept
    before = contents(files)
    assert "cut" not in kinds(load(files, config=COMPACTED))
    assert contents(files) == before


@given(st.integers(0, 400), st.binary(max_size=80))
def test_a_torn_tail_costs_what_is_torn(cut: int, tail: bytes) -> None:
    """Otherwise a power cut in the middle of a batch takes whole batches with it, or leaves a part of one."""
    data = b"".join(map(encode, run_of(0, 8)))
    torn = data[: len(data) - cut] + tail
    files = MemoryFiles()
    files.put(name_of(0), torn)
    loaded = load(files)
    kept = files.read_whole(name_of(0))
    whole = (len(data) - cut) // (len(data) // 8)
    if not tail:
        assert kept == data[: whole * (len(data) // 8)]
        assert loaded.log_end_offset == 2 * whole
    assert kept == torn[: sound_bytes(torn)]


def test_what_lies_behind_a_cut_goes() -> None:
    """Otherwise a log has a hole, and a follower never agrees with its leader."""
    files = MemoryFiles()
    put_log(files, {0: run_of(0, 5), 10: [*run_of(10, 3), b"\1" * 70, *run_of(16, 1)], 20: run_of(20, 5)})
    for offset in (10, 20, 30):
        files.put(name_of(offset, ".snapshot"), b"not a snapshot")
    loaded = load(files)
    assert loaded.log_end_offset == 16
    assert [segment.base_offset for segment in loaded.segments] == [0, 10]
    names = set(contents(files))
    assert not [name for name in names if name.startswith((f"{20:020d}", f"{30:020d}"))]
    deleted = [action for action in loaded.report.actions if action.kind == "deleted" and action.path == name_of(20)]
    assert [action.bytes_cut for action in deleted] == [5 * len(encode(run_of(20, 1)[0]))]
    assert loaded.snapshots.offsets == (10, 16)


@pytest.mark.parametrize("bit", [6, 20, 33, 56, 63])
def test_an_offset_of_the_next_segment_is_where_a_segment_is_cut(bit: int) -> None:
    """No checksum covers a base offset: one flipped bit would put the log's end 2^56 further, for good, or lose sound
    records in front of it.
    """
    files = MemoryFiles()
    put_log(files, {0: run_of(0, 3), 6: run_of(6, 5), 16: run_of(16, 5)})
    data = bytearray(files.read_whole(name_of(6)))
    size = len(data) // 5
    data[2 * size + 7 - bit // 8] ^= 1 << bit % 8
    files.put(name_of(6), bytes(data))
    loaded = load(files)
    assert loaded.log_end_offset == 10
    assert [segment.base_offset for segment in loaded.segments] == [0, 6]
    assert files.read_whole(name_of(6)) == data[: 2 * size]
    assert kinds(loaded).count("cut") == 1


def test_a_segment_with_offsets_of_the_next_is_not_split() -> None:
    """Otherwise the swap deletes the next segment as replaced, with its sound records."""
    files, far = MemoryFiles(), 1 << 33
    put_log(files, {0: [*run_of(0, 2), *run_of(far, 2), *run_of(far * 8, 1)], far * 2: run_of(far * 2, 3)})
    before = contents(files)
    with pytest.raises(CorruptRecordError, match="the next segment begins at"):
        load(files)
    assert {name: data for name, data in contents(files).items() if name.endswith(".log")} == before


def test_what_was_flushed_is_not_read() -> None:
    """Otherwise a start after a kill reads the whole disk, and cuts what bit rot hit long ago with all behind it."""
    files = MemoryFiles()
    put_log(files, {0: run_of(0, 5), 10: run_of(10, 5), 20: run_of(20, 5)})
    load(files)
    damaged = files.read_whole(name_of(0))[:-3] + b"???"
    files.put(name_of(0), damaged)
    loaded = load(files, recovery_point=12)
    assert (loaded.log_end_offset, loaded.recovery_point) == (30, 12)
    assert files.read_whole(name_of(0)) == damaged
    assert loaded.report.batches_checked == 10
    assert load(files, recovery_point=99).recovery_point == 30
    clean = load(files, clean=True)
    assert (clean.recovery_point, clean.report.batches_checked) == (30, 0)


def with_a_hole() -> MemoryFiles:
    """A log that lacks offsets 10 … 19."""
    files = MemoryFiles()
    put_log(files, {0: run_of(0, 5), 20: run_of(20, 5), 30: run_of(30, 5)})
    return files


@pytest.mark.parametrize("point", [0, 5, 10])
def test_what_was_never_flushed_goes_from_behind_a_hole(point: int) -> None:
    """Otherwise a replica goes on behind what a power cut took, and nobody ever fills it."""
    loaded = load(files := with_a_hole(), recovery_point=point)
    assert (loaded.log_end_offset, loaded.recovery_point) == (10, point)
    deleted = [action.path for action in loaded.report.actions if action.kind == "deleted"]
    assert deleted == [name_of(20), name_of(30)]
    assert files.find(name_of(20)) is None


@pytest.mark.parametrize("point", [20, 25, 40])
def test_what_was_flushed_stays_behind_a_hole(point: int) -> None:
    """Otherwise a topic that once was compacted loses sound records that were acknowledged as flushed."""
    loaded = load(with_a_hole(), recovery_point=point)
    assert (loaded.log_end_offset, loaded.recovery_point) == (40, point)
    assert [segment.base_offset for segment in loaded.segments] == [0, 20, 30]


def test_a_hole_stays_and_is_told_where_the_recovery_point_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    """Otherwise a lost checkpoint costs flushed records, or nobody learns that the log has a hole."""
    loaded = load(files := with_a_hole(), recovery_point=None)
    assert [segment.base_offset for segment in loaded.segments] == [0, 20, 30]
    assert loaded.report.batches_checked == 15
    told = [action for action in loaded.report.actions if action.kind == "hole"]
    assert [(action.path, action.is_change) for action in told] == [(name_of(0), False)]
    assert told[0].text == "offsets 10 … 19 are in no segment; what lies behind them stays"
    assert [record.levelname for record in caplog.records if told[0].text in record.getMessage()] == ["WARNING"]
    # All of it is on the disk now: were it written down as 0, the next start would take it for never flushed.
    assert (loaded.log_end_offset, loaded.recovery_point) == (40, 40)
    assert load(files, recovery_point=loaded.recovery_point).log_end_offset == 40
    assert "hole" not in kinds(load(with_a_hole(), recovery_point=None, config=COMPACTED))


def test_a_flushed_segment_without_an_index_is_read_and_alone() -> None:
    """Otherwise a lost index of an old segment costs the newer ones (Kafka keeps them, as this does)."""
    files = MemoryFiles()
    put_log(files, {0: run_of(0, 5), 10: run_of(10, 5), 20: run_of(20, 5)})
    load(files)
    before = contents(files)
    for name in (name_of(0, ".index"), name_of(10, ".timeindex")):
        files.remove(name)
    for clean in (True, False):
        loaded = load(files, clean=clean, recovery_point=30)
        assert loaded.report.batches_checked == (10 if clean else 5)
        assert contents(files) == before


def test_an_active_segment_whose_index_is_wrong_after_a_clean_stop() -> None:
    """Otherwise the log ends where a damaged index says, and appends overwrite offsets that are in use."""
    for damage in (b"\0\0\0\1\0\1\0\0", b"\xff" * 8, b"\0\0\0\3\0\0\0\5"):
        files = MemoryFiles()
        put_log(files, {0: run_of(0, 5), 10: run_of(10, 500)})
        load(files)
        sound = contents(files)
        files.put(name_of(10, ".index"), damage)
        assert load(files, clean=True).log_end_offset == 1010
        assert contents(files) == sound


def test_an_index_without_its_log_goes_and_an_empty_log_gets_a_segment() -> None:
    """Otherwise orphans stay for ever, or a new partition cannot be appended to."""
    files = MemoryFiles()
    for suffix in (".index", ".timeindex", ".txnindex"):
        files.put(name_of(7, suffix), b"")
    loaded = load(files, log_start=5)
    assert (loaded.log_start_offset, loaded.log_end_offset) == (5, 5)
    assert set(contents(files)) == {f"{5:020d}.log", f"{5:020d}.index", f"{5:020d}.timeindex"}
    assert kinds(loaded) == ["deleted"] * 3 + ["created"]


def test_a_log_that_ends_in_front_of_its_start_begins_anew() -> None:
    """Otherwise records that were deleted, or are in the tier alone, come back at offsets that consumers passed."""
    files = MemoryFiles()
    put_log(files, {0: run_of(0, 5), 10: run_of(10, 5)})
    files.put(f"{FOLDER}/leader-epoch-checkpoint", encode_leader_epochs_of((0, 0), (1, 12)))
    loaded = load(files, log_start=25)
    assert (loaded.log_start_offset, loaded.log_end_offset) == (25, 25)
    assert [segment.base_offset for segment in loaded.segments] == [25]
    assert files.read_whole(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n0\n"
    assert load(files, log_start=25).log_end_offset == 25


def encode_leader_epochs_of(*entries: tuple[int, int]) -> bytes:
    return encode_leader_epochs(LeaderEpochs(entries))


def test_epochs_come_from_the_batches_and_are_cut_at_both_ends() -> None:
    """Otherwise a follower truncates to an offset of another leader's records."""
    files = MemoryFiles()
    put_log(files, {0: [*run_of(0, 3, epoch=1), *run_of(6, 2, epoch=4), *run_of(10, 2, epoch=3), b"torn"]})
    files.put(f"{FOLDER}/leader-epoch-checkpoint", encode_leader_epochs_of((0, 0), (9, 14), (11, 20)))
    load(files)
    assert files.read_whole(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    files.remove(f"{FOLDER}/leader-epoch-checkpoint")
    loaded = load(files, log_start=7)
    assert (loaded.log_start_offset, loaded.log_end_offset) == (7, 14)
    assert files.read_whole(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n1\n4 7\n"


def test_epochs_are_cut_to_the_first_segment_where_the_checkpoint_of_the_start_is_behind() -> None:
    """Otherwise a log that was killed between both writes answers with epochs of records that it has no more."""
    files = MemoryFiles()
    put_log(files, {10: run_of(10, 5, epoch=2)})
    files.put(f"{FOLDER}/leader-epoch-checkpoint", encode_leader_epochs_of((0, 0), (1, 5), (2, 8)))
    assert load(files, log_start=3).log_start_offset == 10
    assert files.read_whole(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n1\n2 10\n"


def test_an_epoch_begins_where_it_did_though_a_cut_took_the_batch_there() -> None:
    """Otherwise a start after a kill moves the end of the epoch before it, which Kafka's replicas leave."""
    files = MemoryFiles()
    put_log(files, {0: run_of(2, 1, epoch=1)})
    files.put(f"{FOLDER}/leader-epoch-checkpoint", encode_leader_epochs_of((1, 1)))
    assert load(files).log_end_offset == 4
    assert files.read_whole(f"{FOLDER}/leader-epoch-checkpoint") == b"0\n1\n1 1\n"


def test_a_tiered_log_begins_where_its_checkpoint_says() -> None:
    """Otherwise records that are in the tier alone cannot be read any more."""
    files = MemoryFiles()
    put_log(files, {10: run_of(10, 5)})
    loaded = load(files, log_start=3, tiered=True)
    assert (loaded.log_start_offset, loaded.local_log_start_offset) == (3, 10)
    loaded = load(files, log_start=3)
    assert (loaded.log_start_offset, loaded.local_log_start_offset) == (10, 10)


@pytest.mark.parametrize("first", [0, 2**31 + 40])
def test_a_segment_whose_offsets_do_not_fit_is_split(first: int) -> None:
    """Otherwise a log of a broker before 2.0 (KAFKA-6264) cannot be opened, or loses its end."""
    far = 2**31 + 100
    batches = [*run_of(first, 3), *run_of(far, 3), *run_of(3 * far, 2)]
    files = MemoryFiles()
    put_log(files, {0: [*batches, b"torn"], 4 * far: run_of(4 * far, 2)})
    loaded = load(files, config=COMPACTED)
    assert loaded.log_end_offset == 3 * far + 4
    data = b"".join(contents(files)[f"{segment.base_offset:020d}.log"] for segment in loaded.segments)
    assert data == b"".join(map(encode, batches))
    assert kinds(loaded).count("split") == 1
    assert not [name for name in contents(files) if name.endswith((".swap", ".cleaned", ".deleted"))]
    before = contents(files)
    assert load(files, config=COMPACTED).log_end_offset == 3 * far + 4
    assert contents(files) == before


def test_a_segment_that_would_fall_into_dust_is_refused() -> None:
    """Otherwise a crafted log of a megabyte makes a million files."""
    files = MemoryFiles()
    put_log(files, {0: [Batch(i * 2**32) for i in range(1100)]})
    with pytest.raises(CorruptRecordError, match="more than 1024 segments"):
        load(files)
    assert [name for name in contents(files) if name.endswith(".log")] == [f"{0:020d}.log"]


def test_offsets_at_the_end_of_all_offsets() -> None:
    """Otherwise a crafted batch makes a log whose next offset is no offset."""
    files = MemoryFiles()
    top = 2**63 - 1
    put_log(files, {top - 20: [Batch(top - 20), Batch(top - 10), Batch(top)]})
    loaded = load(files)
    assert loaded.log_end_offset == top - 9


def test_markers_and_open_transactions_after_a_kill() -> None:
    """Otherwise aborted records are served, or readers of committed records wait for a transaction that has ended."""
    mine = {"producer_id": 7, "producer_epoch": 1, "transactional": True}
    files = MemoryFiles()
    put_log(
        files,
        {
            0: [
                *run_of(0, 2, **mine),
                Batch(4, producer_id=7, producer_epoch=1, marker="abort"),
                *run_of(5, 1, **mine),
            ],
            7: [Batch(7, producer_id=7, producer_epoch=1, marker="commit"), *run_of(8, 1, **mine)],
        },
    )
    loaded = load(files)
    assert loaded.producers.first_undecided_offset == 8
    assert len(contents(files)[f"{0:020d}.txnindex"]) == 34
    assert loaded.snapshots.offsets == (7, 10)


def test_small_reads_of_a_large_batch() -> None:
    """Otherwise a batch that spans several reads is called torn."""
    files = MemoryFiles()
    big = Batch(0, (b"x" * 3_000_000,))
    put_log(files, {0: [big, *run_of(1, 2)]})
    assert load(files).log_end_offset == 5
    files.put(name_of(0), encode(big)[:-1])
    assert load(files).log_end_offset == 0


def test_index_entries_go_by_the_configuration() -> None:
    """Otherwise a topic with an interval of its own gets another topic's index."""
    files = MemoryFiles()
    put_log(files, {0: run_of(0, 50)})
    load(files, config=LogConfig(index_interval_bytes=0))
    dense = len(contents(files)[f"{0:020d}.index"])
    load(files)
    assert dense == 49 * 8
    assert len(contents(files)[f"{0:020d}.index"]) < dense


def test_a_folder_that_is_gone_is_an_error_of_its_own(tmp_path: Path) -> None:
    """Otherwise a start on a disk that is not mounted makes a new empty log."""
    with pytest.raises(StoreError):
        load(PosixFiles(), folder=str(tmp_path / "no"))
    assert not list(tmp_path.iterdir())


def test_a_warning_keeps_no_file_open(caplog: pytest.LogCaptureFixture) -> None:
    """A handler that keeps log records, as crash reporters do, would keep an error's traceback, and with it the files
    of segments that were deleted long ago: the disk fills.
    """
    files = MemoryFiles()
    machine = Machine(files=files)
    folder = "/logs/orders-0"
    with UnifiedLog.open(folder, machine=machine) as log:
        log.append_as_leader(batch_of(b"v", producer_id=7, base_sequence=0), leader_epoch=0)
    files.put(f"{folder}/{0:020}.txnindex", bytes(range(34)))
    UnifiedLog.open(folder, machine=machine).close()
    files.put(f"{folder}/{1:020}.snapshot", b"torn")
    UnifiedLog.open(folder, machine=machine, had_clean_shutdown=True).close()
    assert len(caplog.records) > 1
    assert not [record for record in caplog.records for part in record.args or () if isinstance(part, BaseException)]
