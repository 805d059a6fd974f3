"""Where a follower's log begins, by the leader's answers alone: the KIP's scripts, and epochs without records."""

from __future__ import annotations

import pytest

from tests.support.replicas import Replica, grown, made
from tierlog.log.local.log_errors import KafkaError
from tierlog.replication import AskEpochEnd, AskOffset, BuildAuxState, EpochEnd, OffsetAndEpoch, ReplicationError
from tierlog.replication.aux_target import AuxTarget, BeginAnew, StartLater, aux_target

LATEST, EARLIEST, LOCAL, PENDING = -1, -2, -4, -6


def target(
    replica: Replica,
    *,
    offsets: dict[int, tuple[int, int]],
    ends: dict[int, tuple[int, int]] | None = None,
    last_tiered: bool = False,
    keeps_records: bool = True,
) -> AuxTarget | KafkaError:
    """The outcome for a leader that answers so."""
    steps = aux_target(replica.log, 7, fetch_last_tiered_offset=last_tiered, keeps_records=keeps_records)
    try:
        request = next(steps)
        while True:
            assert request.leader_epoch == 7
            if isinstance(request, AskOffset):
                request = steps.send(OffsetAndEpoch(*offsets[request.timestamp]))
            else:
                assert isinstance(request, AskEpochEnd)
                request = steps.send(EpochEnd(*(ends or {})[request.epoch]))
    except StopIteration as ended:
        outcome: AuxTarget = ended.value
        return outcome
    except ReplicationError as error:
        return error.error


def built(outcome: object) -> tuple[int, int, int]:
    assert isinstance(outcome, BuildAuxState), outcome
    return outcome.epoch, outcome.offset, outcome.log_start_offset


@pytest.mark.parametrize(
    ("local", "ends", "expected"),
    [
        ((3, 1), {0: (0, 3)}, (0, 2, 0)),  # script 1
        ((9, 3), {2: (2, 7)}, (3, 8, 0)),  # script 2
        ((6, 2), {1: (0, 5)}, (2, 5, 0)),  # script 5: epoch 1 is a dead end
        ((5, 0), {}, (0, 4, 0)),  # the first epoch: nobody is asked
        ((5, 9), {8: (2, 5)}, (2, 4, 0)),  # epochs 3 to 8 have no records
        ((5, 9), {8: (2, 4)}, (9, 4, 0)),  # epoch 9 begins at 4
        ((5, 9), {8: (-1, -1)}, (9, 4, 0)),  # the leader does not know
    ],
)
def test_the_epoch_is_that_of_the_offset_in_front(
    local: tuple[int, int], ends: dict[int, tuple[int, int]], expected: tuple[int, int, int]
) -> None:
    """If it is one off, a segment of another branch is taken, or none is found for ever."""
    assert built(target(made(tiered=True), offsets={EARLIEST: (0, 0), LOCAL: local}, ends=ends)) == expected


@pytest.mark.parametrize("local", [(0, 0), (5, -1), (-1, -1)])
def test_with_nothing_in_front_it_is_tried_again(local: tuple[int, int]) -> None:
    outcome = target(made(tiered=True), offsets={EARLIEST: (0, 0), LOCAL: local})
    assert outcome is KafkaError.OFFSET_NOT_AVAILABLE


class TestLastTieredOffset:
    """follower.fetch.last.tiered.offset.enable (KIP-1023)."""

    def test_an_empty_log_begins_at_the_first_that_is_not_copied(self) -> None:
        offsets = {EARLIEST: (2, 0), PENDING: (8, 3)}
        assert built(target(made(tiered=True), offsets=offsets, ends={2: (2, 8)}, last_tiered=True)) == (2, 7, 2)

    def test_a_log_with_records_goes_by_the_local_start(self) -> None:
        replica = made(tiered=True)
        grown(replica, 2)
        offsets = {EARLIEST: (0, 0), LOCAL: (5, 3)}
        assert built(target(replica, offsets=offsets, ends={2: (2, 5)}, last_tiered=True)) == (2, 4, 0)

    def test_a_leader_that_does_not_know_is_asked_again(self) -> None:
        """Its tier has something, since its local log begins behind its start."""
        outcome = target(
            made(tiered=True), offsets={EARLIEST: (0, 0), PENDING: (-1, -1), LOCAL: (5, 3)}, last_tiered=True
        )
        assert outcome is KafkaError.OFFSET_NOT_AVAILABLE

    def test_without_a_tier_it_is_the_local_start(self) -> None:
        """Both begin at 5: what lies in front has expired."""
        offsets = {EARLIEST: (5, 3), PENDING: (-1, -1), LOCAL: (5, 3)}
        assert built(target(made(tiered=True), offsets=offsets, ends={2: (2, 4)}, last_tiered=True)) == (3, 4, 5)


def cut() -> Replica:
    """A replica of offsets 0 to 7, the first six of them in the tier alone, that was cut to 3."""
    replica = made(tiered=True)
    grown(replica, 6)
    replica.log.roll()
    grown(replica, 2)
    replica.log.update_high_watermark(8)
    replica.log.update_highest_offset_in_remote_storage(5)
    replica.log.delete_old_segments()
    replica.log.truncate_to(3)
    assert replica.log.must_be_rebuilt
    return replica


@pytest.mark.parametrize(("local", "most"), [(2, 3), (3, 3), (4, None)])
def test_a_log_that_was_cut_begins_where_it_was_cut_at_the_latest(local: int, most: int | None) -> None:
    """If this fails, it begins behind the records of a branch that has ended, and is cut again, for ever."""
    outcome = target(cut(), offsets={EARLIEST: (0, 0), LOCAL: (local, 1)}, ends={0: (0, local)})
    assert isinstance(outcome, BuildAuxState)
    assert outcome.end_offset_max == most


def test_a_log_that_was_cut_begins_at_the_leaders_start_where_all_of_it_is() -> None:
    replica = cut()
    assert target(replica, offsets={EARLIEST: (4, 1), LOCAL: (4, 1)}) == BeginAnew(4)


class TestRecordsThatStay:
    """A log that begins in the tier, whose lineage begins too late: offsets 6 and 7 are here, of epoch 3, and 8 and 9,
    of epoch 5; the leader's local log begins at 9.
    """

    OFFSETS = {EARLIEST: (0, 0), LOCAL: (9, 5)}  # noqa: RUF012

    @staticmethod
    def lacking() -> Replica:
        replica = made(tiered=True)
        replica.log.truncate_fully_and_start_at(6, 0)
        grown(replica, 2, epoch=3)
        grown(replica, 2, epoch=5)
        replica.lose_lineage()
        return replica

    @pytest.mark.parametrize(
        ("ends", "expected"),
        [
            ({3: (3, 8), 2: (1, 6)}, (1, 5, 0)),  # epoch 3 begins where the records here do
            ({3: (3, 8), 2: (1, 5)}, (3, 5, 0)),  # it goes on in the tier
            ({3: (3, 7), 2: (1, 6)}, (1, 5, 0)),  # offset 7 is of a dead branch: the next fetch cuts it
            ({3: (3, 8), 2: (-1, -1)}, (3, 5, 0)),  # the leader does not know
        ],
    )
    def test_they_stay_where_they_begin_as_the_leaders(
        self, ends: dict[int, tuple[int, int]], expected: tuple[int, int, int]
    ) -> None:
        """Section 7, step 3, asked of the log's own first offset: an in-sync follower keeps what is committed."""
        outcome = target(self.lacking(), offsets=self.OFFSETS, ends=ends)
        assert built(outcome) == expected
        assert isinstance(outcome, BuildAuxState)
        assert outcome.keeps_records

    @pytest.mark.parametrize("end", [(3, 6), (2, 8), (3, 4), (-1, -1)])
    def test_they_go_where_they_are_of_a_dead_branch(self, end: tuple[int, int]) -> None:
        """Nothing here is the leader's, or the leader cannot tell: the log begins anew at the leader's local start."""
        outcome = target(self.lacking(), offsets=self.OFFSETS, ends={3: end, 4: (4, 8)})
        assert built(outcome) == (5, 8, 0)
        assert isinstance(outcome, BuildAuxState)
        assert not outcome.keeps_records

    def test_they_go_where_they_may_not_stay(self) -> None:
        outcome = target(self.lacking(), offsets=self.OFFSETS, ends={4: (3, 8)}, keeps_records=False)
        assert built(outcome) == (5, 8, 0)

    @pytest.mark.parametrize(("start", "epoch"), [(6, 3), (7, 3), (8, 5), (9, 5)])
    def test_nothing_is_lacking_where_the_leader_has_nothing_in_front(self, start: int, epoch: int) -> None:
        """What only the tier had has expired: the log starts later, and no tier is asked."""
        replica = self.lacking()
        outcome = target(replica, offsets={EARLIEST: (start, epoch)}, ends={epoch: (epoch, 10)})
        assert outcome == StartLater(start)
        outcome.apply(replica.log)
        log = replica.log
        assert (log.log_start_offset, log.log_end_offset, log.must_be_rebuilt) == (start, 10, False)
        assert log.high_watermark >= start
        assert replica.epochs == ({3: start, 5: 8} if epoch == 3 else {5: start})

    @pytest.mark.parametrize("start", [10, 12])
    def test_a_leader_that_starts_behind_the_log(self, start: int) -> None:
        outcome = target(self.lacking(), offsets={EARLIEST: (start, 5), LOCAL: (start, 5)})
        assert outcome == BeginAnew(start)
