"""Every branch of the choice between tier and broker."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.broker.front.source_choice import (
    EpochEnds,
    Preference,
    TierEnd,
    UpstreamState,
    Wish,
    choose_source,
    fault_of_lineage,
)
from tierlog.broker.partitions import EpochEndOffset
from tierlog.remote.api import ZERO_UUID, Uuid

TOPIC: Final = Uuid(b"a topic of tests")
OTHER: Final = Uuid(b"one of that name")
#: The tier has offsets 100 … 499, the last of epoch 7, and all transactions up to 450.
SEAM: Final = TierEnd(TOPIC, 500, 450, 7)
ENDS: Final = EpochEnds(7, EpochEndOffset(7, 900), EpochEndOffset(5, 300))
WISH: Final = Wish(200)
STATE: Final = UpstreamState(TOPIC, 9, 120, 1000, 980, 480, ENDS, asked_at_seconds=10.0)


def chosen(
    wish: Wish = WISH,
    *,
    seam: TierEnd = SEAM,
    state: UpstreamState | None = STATE,
    preference: Preference = Preference.REMOTE,
    may_read: bool = True,
    seam_since: float = 5.0,
) -> str:
    choice = choose_source(
        wish,
        seam,
        state,
        oldest_seconds=10.0,
        seam_since_seconds=seam_since,
        preference=preference,
        may_read=may_read,
    )
    return choice.value


def state(**changes: Any) -> UpstreamState:
    return dataclasses.replace(STATE, **changes)


def test_the_tier_serves_what_it_has() -> None:
    """Otherwise a backfill is the brokers' work."""
    for offset in (120, 200, 499):
        assert chosen(Wish(offset)) == "tier"
    assert chosen(Wish(449, is_read_committed=True)) == "tier"


@pytest.mark.parametrize("offset", [500, 501, 2000])
def test_behind_the_tier_the_broker_answers(offset: int) -> None:
    """Otherwise the live end is never reached; whether the state is known does not matter."""
    for known in (STATE, None):
        assert chosen(Wish(offset), state=known) == "upstream"


def test_transactions_that_the_tier_does_not_see_decided_are_the_brokers() -> None:
    """Otherwise records of a transaction whose abort lies behind the tier would be returned."""
    assert chosen(Wish(450, is_read_committed=True)) == "upstream"
    assert chosen(Wish(450)) == "tier"


def test_below_the_log_start_the_broker_answers() -> None:
    """Otherwise deleted records are served; the error is the broker's."""
    assert chosen(Wish(119)) == "upstream"
    assert chosen(Wish(-5)) == "upstream"


def test_what_brokers_have_deleted_is_theirs() -> None:
    """Otherwise a deleted tier is searched, or taken for another log's: of it brokers know no epochs any more."""
    ends = EpochEnds(7, EpochEndOffset(7, 900), EpochEndOffset(6, 600))
    for start in (500, 600):
        assert chosen(Wish(200), state=state(log_start_offset=start, ends=ends)) == "upstream"
        assert chosen(Wish(0, is_search=True), state=state(log_start_offset=start)) == "upstream"


def test_a_search_begins_at_the_log_start() -> None:
    """Otherwise no time is found in the tier, or one in another log."""
    search = Wish(0, is_search=True)
    assert chosen(search, preference=Preference.LOCAL) == "tier"
    assert chosen(search, state=state(topic_id=OTHER)) == "upstream"
    assert chosen(search, state=None) == "refresh"
    assert chosen(search, may_read=False) == "upstream"


def test_no_byte_without_the_right_to_read() -> None:
    """Otherwise the bucket is a way past the brokers' ACLs."""
    assert chosen(may_read=False) == "upstream"
    assert chosen(may_read=False, state=None) == "upstream"


def test_an_old_or_unknown_state_is_asked_first() -> None:
    """Otherwise a topic that was deleted, or whose records were, is served for ever."""
    assert chosen(state=None) == "refresh"
    assert chosen(state=state(asked_at_seconds=9.9)) == "refresh"


def test_leader_epochs() -> None:
    """Otherwise a client with old metadata, or newer than the state, reads a log that it takes for another one."""
    assert chosen(Wish(200, 9)) == "tier"
    assert chosen(Wish(200, 8)) == "upstream", "the broker says FENCED_LEADER_EPOCH, and the leader"
    assert chosen(Wish(200, 10)) == "refresh"


def test_the_epoch_of_the_record_before() -> None:
    """Otherwise a client that names it (kafka-python does) reads nothing of the bucket; or one whose log is another one
    is not told so.
    """
    assert chosen(Wish(200, last_fetched_epoch=7)) == "tier"
    assert chosen(Wish(200, last_fetched_epoch=6)) == "tier", "the read compares them"
    assert chosen(Wish(200, last_fetched_epoch=8)) == "upstream", "the tier has no record of it"
    assert chosen(Wish(120)) == "tier"
    assert chosen(Wish(120, last_fetched_epoch=7)) == "upstream", "the record before is not in the log"
    assert chosen(Wish(121, last_fetched_epoch=7)) == "tier"


@pytest.mark.parametrize(("seam_since", "expected"), [(10.1, "refresh"), (10.0, "upstream")])
def test_a_tier_that_does_not_fit_the_state(seam_since: float, expected: str) -> None:
    """Otherwise a new segment is taken for a diverged one, or served with an end that lies in front of its records; or
    each fetch of a diverged one asks the brokers once more.
    """

    def found(wish: Wish = WISH, **changes: Any) -> str:
        return chosen(wish, seam_since=seam_since, **changes)

    assert found(seam=SEAM._replace(leader_epoch=8)) == expected
    assert found(state=state(high_watermark=499, last_stable_offset=499)) == expected
    assert found(Wish(200, is_read_committed=True), state=state(last_stable_offset=449)) == expected
    assert found(state=state(ends=ENDS._replace(end=EpochEndOffset(7, 499)))) == expected
    assert found(state=state(last_stable_offset=449)) == "tier"
    assert found() == "tier"


def test_local_preference() -> None:
    """Otherwise the preference says nothing."""
    assert chosen(Wish(479), preference=Preference.LOCAL) == "tier"
    assert chosen(Wish(480), preference=Preference.LOCAL) == "upstream"
    assert chosen(Wish(480)) == "tier"


@pytest.mark.parametrize(
    ("seam", "ends", "topic_id", "text"),
    [
        (SEAM, ENDS, OTHER, "topic id"),
        (SEAM._replace(topic_id=ZERO_UUID), ENDS, ZERO_UUID, "topic id"),
        (SEAM._replace(leader_epoch=-1), ENDS._replace(leader_epoch=-1), TOPIC, "does not tell leader epochs"),
        (SEAM, EpochEnds(7, EpochEndOffset(6, 900), EpochEndOffset(6, 900)), TOPIC, "has none"),
        (SEAM, EpochEnds(7, EpochEndOffset(-1, -1), EpochEndOffset(-1, -1)), TOPIC, "has none"),
        (SEAM, ENDS._replace(end=EpochEndOffset(7, 499)), TOPIC, "up to 498"),
        (SEAM, ENDS._replace(end_before=EpochEndOffset(6, 500)), TOPIC, "leader epoch 6"),
    ],
)
def test_another_lineage_is_the_brokers(seam: TierEnd, ends: EpochEnds, topic_id: Uuid, text: str) -> None:
    """Otherwise records of another topic, cluster or abandoned leader are served as this log's."""
    found = state(topic_id=topic_id, ends=ends)
    assert text in fault_of_lineage(seam, found)
    assert chosen(seam=seam, state=found) == "upstream"


def test_the_borders_of_one_lineage() -> None:
    """Otherwise a whole tier is refused."""
    assert not fault_of_lineage(SEAM, state(ends=ENDS._replace(end=EpochEndOffset(7, 500))))
    assert not fault_of_lineage(SEAM, state(ends=ENDS._replace(end_before=EpochEndOffset(6, 499))))
    assert not fault_of_lineage(SEAM, state(ends=ENDS._replace(end_before=EpochEndOffset(-1, -1))))


#: A log as the leader epoch of each record.
logs = st.lists(st.integers(0, 3), min_size=1, max_size=12).map(sorted)


def end_of(log: list[int], epoch: int) -> EpochEndOffset:
    """As Kafka's LeaderEpochFileCache answers a follower or a client."""
    if epoch < 0 or epoch > log[-1]:
        return EpochEndOffset(-1, -1)
    at_or_below = [one for one in log if one <= epoch]
    if not at_or_below:
        return EpochEndOffset(epoch, 0)
    return EpochEndOffset(at_or_below[-1], len(at_or_below))


@given(logs, logs)
def test_one_record_decides(tier: list[int], broker: list[int]) -> None:
    """Otherwise the rule accepts a log whose last record is another one, or refuses a beginning. (Records of one epoch
    at one offset are equal: that is Kafka's promise.)
    """
    epoch = tier[-1]
    ends = EpochEnds(epoch, end_of(broker, epoch), end_of(broker, epoch - 1))
    fault = fault_of_lineage(TierEnd(TOPIC, len(tier), len(tier), epoch), state(ends=ends))
    has_last_record = len(broker) >= len(tier) and broker[len(tier) - 1] == epoch
    assert (not fault) == has_last_record
