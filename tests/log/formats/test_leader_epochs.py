"""Leader epochs by offset: the values that Kafka's LeaderEpochFileCacheTest and the KIP's scripts pin."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.leader_epochs import EpochEntry, LeaderEpochs, encode_leader_epochs, parse_leader_epochs

TWO = LeaderEpochs([(1, 5), (3, 10)])
FOUR = LeaderEpochs([(0, 0), (1, 3), (2, 6), (3, 7)])


@pytest.mark.parametrize(
    "entries", [[(0, 0), (0, 5)], [(0, 0), (1, 0)], [(1, 0), (0, 5)], [(0, 5), (1, 0)], [(0, 0), (1, 5), (2, 5)]]
)
def test_epochs_and_offsets_have_to_rise(entries: list[tuple[int, int]]) -> None:
    """Else a search by halves finds the epoch of another offset."""
    with pytest.raises(ValueError, match="must rise"):
        LeaderEpochs(entries)


@pytest.mark.parametrize(("epoch", "offset"), [(-1, 0), (0, -1), (2**31, 0), (0, 2**63)])
def test_entries_have_bounds(epoch: int, offset: int) -> None:
    """Else an epoch is stored that no Kafka reads."""
    with pytest.raises(ValueError, match=r"2\^(31|63)-1"):
        LeaderEpochs([(epoch, offset)])
    assert EpochEntry(2**31 - 1, 2**63 - 1) == (2**31 - 1, 2**63 - 1)
    assert EpochEntry(0, 0) == (0, 0)


def test_equality_is_by_value() -> None:
    """Else a checkpoint is written anew each time, or not when it has to be."""
    same = LeaderEpochs([(1, 5), (3, 10)])
    assert same == TWO
    assert hash(same) == hash(TWO)
    assert TWO not in (LeaderEpochs([(1, 5)]), LeaderEpochs([(1, 5), (3, 11)]), ((1, 5), (3, 10)), None)


@pytest.mark.parametrize(
    ("own", "start", "end", "continued"),
    [
        ([(5, 6)], 4, 99, [(1, 4), (5, 6)]),  # in front of its first epoch is what the other one has there
        ([(3, 8)], 4, 8, [(1, 4), (2, 6), (3, 7)]),  # which may know that its first epoch began earlier
        ([(2, 7)], 4, 99, [(1, 4), (2, 6)]),
        ([(5, 8), (6, 9)], 7, 8, [(3, 7), (5, 8), (6, 9)]),
        ([], 4, 7, [(1, 4), (2, 6)]),  # there is none of its own: up to the end
        ([(5, 8)], 8, 8, [(5, 8)]),
        ([(5, 8)], 9, 9, [(5, 8)]),
    ],
)
def test_a_lineage_continues_another(
    own: list[tuple[int, int]], start: int, end: int, continued: list[tuple[int, int]]
) -> None:
    """Else a follower that begins from the tier lacks epochs, or answers for some that it does not have."""
    assert LeaderEpochs(own).continuing(FOUR, start, end) == LeaderEpochs(continued)


def test_a_lineage_continues_only_what_is_in_front_of_it() -> None:
    """Else two branches of a log become one lineage."""
    with pytest.raises(ValueError, match="no epoch is given for offset 4"):
        LeaderEpochs([(5, 20)]).continuing(TWO, 4, 20)  # which begins behind it
    with pytest.raises(ValueError, match="no epoch is given for offset 4"):
        LeaderEpochs([(5, 20)]).continuing(LeaderEpochs(), 4, 20)
    with pytest.raises(ValueError, match="epoch 3 in front of epoch 2"):
        LeaderEpochs([(2, 20)]).continuing(TWO, 5, 20)


@pytest.mark.parametrize(
    ("epoch", "answer"), [(0, (0, 5)), (1, (1, 10)), (2, (1, 10)), (3, (3, 20)), (4, (-1, -1)), (-1, (-1, -1))]
)
def test_end_of_an_epoch(epoch: int, answer: tuple[int, int]) -> None:
    """Else a follower truncates at the wrong offset."""
    assert TWO.end_offset_for(epoch, log_end_offset=20) == answer
    assert LeaderEpochs().end_offset_for(epoch, log_end_offset=20) == (-1, -1)


@pytest.mark.parametrize(("offset", "epoch"), [(4, None), (5, 1), (9, 1), (10, 3), (99, 3)])
def test_epoch_of_an_offset(offset: int, epoch: int | None) -> None:
    """Else the tier is asked for a segment in an epoch that never wrote the offset."""
    assert TWO.epoch_for_offset(offset) == epoch


@pytest.mark.parametrize(
    ("offset", "entries"),
    [(0, [(1, 5), (3, 10)]), (5, [(1, 5), (3, 10)]), (7, [(1, 7), (3, 10)]), (10, [(3, 10)]), (15, [(3, 15)])],
)
def test_truncation_from_the_start(offset: int, entries: list[tuple[int, int]]) -> None:
    """Else after DeleteRecords the first offset has no epoch."""
    assert TWO.truncate_from_start(offset) == LeaderEpochs(entries)


def test_truncation_from_the_end() -> None:
    """Else an epoch that a truncation removed still claims offsets."""
    assert TWO.truncate_from_end(11) == TWO
    assert TWO.truncate_from_end(10) == LeaderEpochs([(1, 5)])
    assert TWO.truncate_from_end(5) == LeaderEpochs()


def test_ranges_of_a_segment() -> None:
    """Else a tiered segment is stored with epochs that it does not hold."""
    assert FOUR.range(4, 7) == LeaderEpochs([(1, 4), (2, 6)])
    assert FOUR.range(-1, 7) == LeaderEpochs([(0, 0), (1, 3), (2, 6)])


def test_assignment_removes_what_contradicts_it() -> None:
    """Else an old branch stays in the lineage after an unclean election."""
    assert TWO.assign(3, 12) is TWO
    assert TWO.assign(4, 12) == LeaderEpochs([(1, 5), (3, 10), (4, 12)])
    assert TWO.assign(4, 10) == LeaderEpochs([(1, 5), (4, 10)])
    assert TWO.assign(4, 4) == LeaderEpochs([(4, 4)])
    assert TWO.assign(2, 20) == LeaderEpochs([(1, 5), (2, 20)])
    assert TWO.assign(3, 8) == LeaderEpochs([(1, 5), (3, 8)])
    with pytest.raises(ValueError):
        TWO.assign(-1, 4)


def test_neighbours() -> None:
    """Else walking from epoch to epoch skips one or does not end."""
    assert (TWO.earliest, TWO.latest) == (EpochEntry(1, 5), EpochEntry(3, 10))
    assert TWO.find_entry(3) == EpochEntry(3, 10)
    assert TWO.find_entry(2) is None
    assert [TWO.find_previous(e) for e in (1, 2, 3, 9)] == [None, (1, 5), (1, 5), (3, 10)]
    assert [TWO.find_next(e) for e in (0, 1, 2, 3)] == [(1, 5), (3, 10), (3, 10), None]
    assert LeaderEpochs().latest is None


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=12), st.integers(0, 60), st.integers(0, 60))
def test_any_history_stays_in_order(steps: list[tuple[int, int]], start: int, end: int) -> None:
    """Else some order of assignments and truncations yields epochs that no checkpoint may hold."""
    epochs = LeaderEpochs()
    for epoch, offset in steps:
        epochs = epochs.assign(epoch, offset)
        assert epochs.latest == (epoch, offset) or epochs.latest.epoch == epoch  # type: ignore[union-attr]
    cut = epochs.range(start, end)
    for offset in range(start, end):
        assert cut.epoch_for_offset(offset) == epochs.epoch_for_offset(offset)
    assert parse_leader_epochs(encode_leader_epochs(epochs)) == epochs


def test_the_checkpoint_file() -> None:
    """Else the epochs of every segment of a bucket are unreadable."""
    data = b"0\n2\n0 0\n3 500\n"
    assert parse_leader_epochs(data) == LeaderEpochs([(0, 0), (3, 500)])
    assert encode_leader_epochs(LeaderEpochs([(0, 0), (3, 500)])) == data
    assert parse_leader_epochs(b"0\n3\n0 0\n1 10\n2 10\n") == LeaderEpochs([(0, 0), (2, 10)])


def test_malformed_checkpoints(data: Path) -> None:
    """Else a damaged checkpoint decides which records count."""
    faults = {
        "01-count-too-high": "BAD_COUNT",
        "02-count-too-low": "BAD_COUNT",
        "03-version-1": "BAD_VERSION",
        "05-epochs-decrease": "BAD_ORDER",
    }
    for name, fault in faults.items():
        with pytest.raises(CorruptIndexError) as caught:
            parse_leader_epochs((data / "bad/checkpoint" / name).read_bytes())
        assert caught.value.fault == fault
    with pytest.raises(CorruptIndexError):
        parse_leader_epochs((data / "bad/checkpoint/04-garbage").read_bytes())
    assert len(parse_leader_epochs((data / "bad/checkpoint/00-good").read_bytes())) == 6
    assert parse_leader_epochs((data / "bad/checkpoint/06-empty").read_bytes()) == LeaderEpochs()
