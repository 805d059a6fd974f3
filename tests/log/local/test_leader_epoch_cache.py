"""The cache of leader epochs against a list, Kafka's values, and a disk that loses power."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import CorruptIndexError, StoreError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.local.leader_epoch_cache import EpochCheckpointFile, LeaderEpochCache
from tierlog.log.local.log_folder import LogFolder
from tierlog.runtime.machine.machine import Machine
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles

FOLDER = "/logs/orders-0"
MACHINE = Machine()


class Checkpoint:
    """What was written, in order; it fails when it is told to."""

    def __init__(self, epochs: LeaderEpochs | None = None) -> None:
        self.written = [epochs or LeaderEpochs()]
        self.fails = False

    def read(self) -> LeaderEpochs:
        return self.written[-1]

    def write(self, epochs: LeaderEpochs) -> None:
        if self.fails:
            raise StoreError("no space left on device")
        self.written.append(epochs)


def cache_of(
    *entries: tuple[int, int], on_unwritten: Callable[[], None] | None = None
) -> tuple[LeaderEpochCache, Checkpoint]:
    checkpoint = Checkpoint(LeaderEpochs(entries))
    return LeaderEpochCache(checkpoint, machine=MACHINE, on_unwritten=on_unwritten), checkpoint


def test_lookups_of_the_interface() -> None:
    """Else a follower, the tier or a consumer is told another epoch than Kafka's cache has."""
    cache, _ = cache_of((1, 5), (3, 10))
    assert (cache.earliest_entry, cache.latest_entry, cache.latest_epoch) == ((1, 5), (3, 10), 3)
    assert cache.previous_entry(3) == (1, 5)
    assert [cache.previous_epoch(epoch) for epoch in (1, 2, 3, 4)] == [None, 1, 1, 3]
    assert cache.previous_epoch() == 1
    assert [cache.next_epoch(epoch) for epoch in (0, 1, 2, 3)] == [1, 3, 3, None]
    assert [cache.epoch_entry(epoch) for epoch in (1, 2)] == [(1, 5), None]
    assert [cache.end_offset_for(epoch, 20) for epoch in (0, 1, 2, 3, 4, -1)] == [
        (0, 5), (1, 10), (1, 10), (3, 20), (-1, -1), (-1, -1),
    ]  # fmt: skip
    assert [cache.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [None, 1, 1, 3, 3]
    assert cache.epoch_with_offsets() == {1: 5, 3: 10}
    ranges, _ = cache_of((0, 0), (1, 3), (2, 6), (3, 7))
    assert ranges.epoch_entries_in_range(4, 7) == LeaderEpochs([(1, 4), (2, 6)])
    assert ranges.epoch_entries_in_range(-1, 7) == LeaderEpochs([(0, 0), (1, 3), (2, 6)])
    assert ranges.epoch_entries_in_range(0, 0) == LeaderEpochs()
    assert ranges.epoch_entries_in_range(4, -1) == LeaderEpochs([(1, 4), (2, 6), (3, 7)])
    assert ranges.epochs == LeaderEpochs([(0, 0), (1, 3), (2, 6), (3, 7)])  # a copy was cut
    empty, _ = cache_of()
    assert (empty.latest_entry, empty.latest_epoch, empty.previous_epoch(), empty.end_offset_for(0, 9)) == (
        None, None, None, (-1, -1),
    )  # fmt: skip


def test_a_write_that_nobody_wants_any_more_is_left() -> None:
    """Else a log that went offline while its write waited for another is written to all the same."""
    cache, checkpoint = cache_of((1, 5), (2, 7))
    cache.truncate_from_start(7)
    cache.flush(is_wanted=lambda: False)
    assert (checkpoint.written, cache.is_unwritten) == ([LeaderEpochs([(1, 5), (2, 7)])], True)
    cache.flush(is_wanted=lambda: True)
    assert (checkpoint.written[-1], cache.is_unwritten) == (LeaderEpochs([(2, 7)]), False)


def test_an_assignment_is_written_before_it_is_seen() -> None:
    """Else after a crash the log holds batches of an epoch that its lineage does not know."""
    cache, checkpoint = cache_of((1, 5))
    checkpoint.fails = True
    with pytest.raises(StoreError):
        cache.assign(2, 7)
    assert cache.epochs == LeaderEpochs([(1, 5)])
    cache.assign(1, 9)  # changes nothing, so nothing is written
    checkpoint.fails = False
    cache.assign(2, 7)
    cache.assign(2, 8)
    assert checkpoint.written[1:] == [LeaderEpochs([(1, 5), (2, 7)])]
    with pytest.raises(ValueError, match="leader epoch -1 is not"):
        cache.assign(-1, 7)
    with pytest.raises(ValueError, match="epoch start offset -1 is not"):
        cache.assign_all([(3, 8), (4, -1)])
    assert cache.latest_epoch == 2
    cache.assign_all([(3, 8), (4, 9)])  # one write for all
    cache.assign_all([(4, 10), (4, 11)])  # nothing changes, so nothing is written
    assert len(checkpoint.written) == 3
    assert cache.latest_entry == (4, 9)


def test_a_cut_of_the_end_is_written_before_it_is_seen() -> None:
    """If this fails, a log grows past the begin of an epoch that the file still has: a crash brings that epoch back."""
    cache, checkpoint = cache_of((1, 5), (3, 10), on_unwritten=pytest.fail)
    checkpoint.fails = True
    with pytest.raises(StoreError):
        cache.truncate_from_end(10)
    assert cache.epochs == LeaderEpochs([(1, 5), (3, 10)])
    checkpoint.fails = False
    for end_offset in (11, -1, 10, 10, 6):
        cache.truncate_from_end(end_offset)
    assert checkpoint.written[1:] == [LeaderEpochs([(1, 5)])]
    assert cache.epochs == LeaderEpochs([(1, 5)])


def test_a_cut_of_the_start_is_seen_at_once_and_written_later() -> None:
    """Else whoever deletes records waits for the disk, or the file keeps epochs that are gone for ever."""
    asked: list[bool] = []
    cache, checkpoint = cache_of((1, 5), (3, 10), on_unwritten=lambda: asked.append(True))
    assert not cache.is_unwritten
    checkpoint.fails = True
    cache.truncate_from_start(7)
    cache.truncate_from_start(10)
    assert cache.epochs == LeaderEpochs([(3, 10)])
    assert (len(asked), cache.is_unwritten) == (2, True)
    cache.truncate_from_start(6)
    assert len(asked) == 2  # nothing changed
    with pytest.raises(StoreError):
        cache.flush()
    assert cache.is_unwritten
    checkpoint.fails = False
    cache.flush()
    cache.flush()
    assert checkpoint.written[1:] == [LeaderEpochs([(3, 10)])]
    assert not cache.is_unwritten


def test_clearing() -> None:
    """Else a log that begins anew answers with the epochs of its former life."""
    cache, checkpoint = cache_of((1, 5))
    cache.clear()
    assert cache.latest_entry is None
    assert checkpoint.read() == LeaderEpochs([(1, 5)])
    cache.clear_and_flush()
    assert checkpoint.read() == LeaderEpochs()
    checkpoint.fails = True
    cache, checkpoint = cache_of((1, 5))
    checkpoint.fails = True
    with pytest.raises(StoreError):
        cache.clear_and_flush()
    assert cache.latest_epoch == 1


def test_another_checkpoint_takes_the_epochs_along() -> None:
    """Else a replica that moves to another disk loses its lineage."""
    cache, first = cache_of((1, 5))
    other = Checkpoint()
    moved = cache.with_checkpoint(other)
    assert moved.epochs == cache.epochs
    assert len(other.written) == 1
    moved.assign(2, 9)
    assert other.read() == LeaderEpochs([(1, 5), (2, 9)])
    assert first.read() == cache.epochs == LeaderEpochs([(1, 5)])


def test_without_a_checkpoint() -> None:
    """Else a replica in memory needs a disk."""
    cache = LeaderEpochCache(None, machine=MACHINE)
    cache.assign(0, 0)
    cache.truncate_from_end(0)
    cache.flush()
    assert cache.epochs == LeaderEpochs()


operations = st.one_of(
    st.tuples(st.just("assign"), st.integers(0, 6), st.integers(0, 30)),
    st.tuples(st.just("end"), st.integers(-1, 30), st.just(0)),
    st.tuples(st.just("start"), st.integers(-1, 30), st.just(0)),
    st.tuples(st.just("clear"), st.just(0), st.just(0)),
    st.tuples(st.just("flush"), st.just(0), st.just(0)),
)


def apply_to_list(entries: list[tuple[int, int]], operation: str, number: int, offset: int) -> list[tuple[int, int]]:
    """Kafka's cache as a list, step by step as LeaderEpochFileCache goes."""
    if operation == "assign":
        if entries and entries[-1][0] == number and offset >= entries[-1][1]:
            return entries
        while entries and (entries[-1][0] >= number or entries[-1][1] >= offset):
            entries = entries[:-1]
        return [*entries, (number, offset)]
    if operation == "end":
        return entries if number < 0 else [e for e in entries if e[1] < number]
    if operation == "start":
        gone = [e for e in entries if e[1] <= number]
        return [(gone[-1][0], number), *entries[len(gone) :]] if gone else entries
    return [] if operation == "clear" else entries


@given(st.lists(operations, max_size=20))
def test_against_a_list(steps: list[tuple[str, int, int]]) -> None:
    """Else some order of elections and truncations leaves another lineage than Kafka's."""
    cache, checkpoint = cache_of()
    model: list[tuple[int, int]] = []
    for operation, number, offset in steps:
        model = apply_to_list(model, operation, number, offset)
        if operation == "assign":
            cache.assign(number, offset)
        elif operation == "end":
            cache.truncate_from_end(number)
        elif operation == "start":
            cache.truncate_from_start(number)
        elif operation == "clear":
            cache.clear_and_flush()
        else:
            cache.flush()
        assert list(cache.epochs) == model
        if operation != "start":
            assert cache.is_unwritten or checkpoint.read() == cache.epochs
        for probe in range(-1, 32, 3):
            starts = [epoch for epoch, start in model if start <= probe]
            assert cache.epoch_for_offset(probe) == (starts[-1] if starts else None)


def test_the_file_is_kafkas(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Else Kafka does not open a log of ours."""
    folder = tmp_path_factory.mktemp("orders-0")
    cache = LeaderEpochCache(EpochCheckpointFile(MACHINE.files, LogFolder(MACHINE, str(folder))), machine=MACHINE)
    cache.assign(0, 0)
    cache.assign(3, 500)
    assert (folder / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n3 500\n"
    assert [path.name for path in folder.iterdir()] == ["leader-epoch-checkpoint"]
    again = LeaderEpochCache(EpochCheckpointFile(MACHINE.files, LogFolder(MACHINE, str(folder))), machine=MACHINE)
    assert again.epochs == cache.epochs
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\nx\n")
    with pytest.raises(CorruptIndexError, match="leader-epoch-checkpoint"):
        LeaderEpochCache(EpochCheckpointFile(MACHINE.files, LogFolder(MACHINE, str(folder))), machine=MACHINE)


@pytest.mark.parametrize("seed", range(20))
def test_an_assignment_survives_a_power_cut(seed: int) -> None:
    """Else after the crash the lineage lacks an epoch whose batches were flushed."""
    files = MemoryFiles()
    files.make_directories(FOLDER)
    cache = LeaderEpochCache(EpochCheckpointFile(files, LogFolder(MACHINE, FOLDER)), machine=MACHINE)
    for epoch in range(seed % 4 + 1):
        cache.assign(epoch, 10 * epoch)
    assigned = cache.epochs
    if seed % 2:
        cache.truncate_from_start(15)
    left = files.crash(SeededRng(seed))
    found = LeaderEpochCache(EpochCheckpointFile(left, LogFolder(MACHINE, FOLDER)), machine=MACHINE)
    assert found.epochs == assigned  # after a truncation too many, never too few
