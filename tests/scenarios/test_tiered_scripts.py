"""The KIP's scripts over brokers with a tier: 1 to 5, F, and the two stories of leader epochs; both columns.

By default what a reader is given is the KIP's; with the compatibility key it is what Kafka 4.3 does, if that differs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pytest

from tests.scenarios.two_brokers import Cluster
from tests.support.tiered_brokers import CONFIG, END, partition_of
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.local.log_errors import KafkaError, OffsetOutOfRangeError
from tierlog.records.decoding import decode
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata
from tierlog.remote.manager.expiry_plan import find_unreferenced
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.tiered_lineage import epochs_with_records, is_within
from tierlog.replication import (
    AskEpochEnd,
    AskOffset,
    BuildAuxState,
    EpochEnd,
    FetchRecords,
    FollowerRequest,
    ReplicationError,
)

A: Final = 1
B: Final = 2
both_columns = pytest.mark.parametrize("as_kafka", [False, True], ids=["kip", "kafka"])


@contextmanager
def brokers(as_kafka: bool) -> Iterator[Cluster]:
    """Brokers A and B, whose retention is what a script says."""
    config = RemoteLogManagerConfig(kafka_semantics=as_kafka)
    with Cluster(config=replace(CONFIG, local_retention_bytes=1 << 40), manager_config=config) as cluster:
        yield cluster


def lead(cluster: Cluster, broker: int, *values: bytes, in_sync: tuple[int, ...] = ()) -> None:
    """A broker leads a new epoch, and writes values."""
    cluster.elect(broker, in_sync=in_sync or (broker,))
    for value in values:
        cluster.append(0, value)


def drop_local(cluster: Cluster, broker: int, offset: int) -> None:
    """Local retention deletes what lies below an offset."""
    log = cluster.replica(broker).log
    kept = sum(each.size_bytes for each in log.log_segments() if each.base_offset >= offset)
    log.update_config(replace(log.config, local_retention_bytes=kept))
    log.delete_old_segments()
    log.update_config(replace(log.config, local_retention_bytes=1 << 40))
    assert log.local_log_start_offset == offset, log.offsets


class Tier:
    """The segments by the names of the script."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.segments: dict[str, RemoteLogSegmentMetadata] = {}

    def copied(self, *names: str) -> None:
        """The leader copies so many segments."""
        found = self._cluster.tier()
        assert len(found) == len(names), found
        self.segments |= dict(zip(names, found, strict=True))

    def meta(self, name: str) -> tuple[int, int, dict[int, int]]:
        segment = self.segments[name]
        return segment.start_offset, segment.end_offset, dict(segment.segment_leader_epochs)

    def checkpoint(self, name: str) -> dict[int, int]:
        """The lineage beside a segment."""
        with self._cluster.brokers[A].storage.fetch_index(self.segments[name], IndexType.LEADER_EPOCH) as stream:
            return dict(parse_leader_epochs(stream.read()))

    def lookup(self, broker: int, epoch: int, offset: int) -> str | None:
        self._cluster.brokers[broker].wait_ready(0)
        found = self._cluster.brokers[broker].metadata.remote_log_segment_metadata(partition_of(), epoch, offset)
        ids = {each.remote_log_segment_id: name for name, each in self.segments.items()}
        return None if found is None else ids[found.remote_log_segment_id]

    def is_within(self, broker: int, name: str) -> bool:
        replica = self._cluster.replica(broker)
        epochs = epochs_with_records(replica.epochs.items())
        return is_within(self.segments[name], epochs, log_end_offset=replica.log.log_end_offset)


def given(cluster: Cluster, broker: int, offset: int) -> list[bytes] | KafkaError:
    """The values of one answer to a consumer's fetch."""
    try:
        data = b"".join(cluster.brokers[broker].read(0, offset))
    except OffsetOutOfRangeError as error:
        return error.error
    return [row["value"] for row in decode(data, columns=["value"], from_offset=offset).to_pylist()]


def first_given(cluster: Cluster, broker: int, offset: int) -> bytes | KafkaError:
    found = given(cluster, broker, offset)
    return found if isinstance(found, KafkaError) else found[0]


def diverging(cluster: Cluster, broker: int, offset: int, last_epoch: int) -> EpochEnd | KafkaError | None:
    """A leader's answer to a fetch that names the epoch of the record in front."""
    leader = cluster.replica(broker).leader
    asked = FetchRecords(leader.leader_epoch, offset, last_epoch, 0)
    try:
        return leader.fetch(A if broker == B else B, asked, max_bytes=1 << 20, now_ms=cluster.now_ms).diverging
    except ReplicationError as error:
        return error.error


def kinds(asked: list[FollowerRequest]) -> list[type]:
    return [type(each) for each in asked]


def restarted(cluster: Cluster, broker: int) -> None:
    """A broker starts again, and hears who leads."""
    cluster.brokers[broker].start()
    cluster.hear(broker)


def until_built(cluster: Cluster, broker: int) -> list[FollowerRequest]:
    """Let a follower ask until it has begun anew behind the tier."""
    cluster.brokers[broker].wait_ready(0)
    asked: list[FollowerRequest] = []
    while True:
        request = cluster.exchange(broker)
        asked += [] if request is None else [request]
        build = cluster.replica(broker).build
        if build is not None:
            assert build[1].exception(60) is None
            cluster.exchange(broker)
            return asked
        assert len(asked) < 20, asked
        cluster.machine.clock.sleep(0.1)


@both_columns
def test_script_1_a_new_follower(as_kafka: bool) -> None:
    """KIP scenario 1: it never holds what only the tier has, and serves it all the same."""
    with brokers(as_kafka) as cluster:
        tier = Tier(cluster)
        lead(cluster, A, b"m0", b"m1", b"m2")
        cluster.roll(brokers=[A])
        lead(cluster, A, b"m3", b"m4")
        lead(cluster, A, b"m5")
        cluster.roll(brokers=[A])
        cluster.append(0, b"m6")
        lead(cluster, A, b"m7")
        tier.copied("u1", "u2")
        drop_local(cluster, A, 3)
        a, b = cluster.replica(A), cluster.replica(B)
        assert (a.epochs, a.log.offsets[:5]) == ({0: 0, 1: 3, 2: 5, 3: 7}, (0, 3, 8, 8, 8))
        assert (tier.meta("u1"), tier.meta("u2")) == ((0, 2, {0: 0}), (3, 5, {1: 3, 2: 5}))
        assert (tier.checkpoint("u1"), tier.checkpoint("u2")) == ({0: 0}, {0: 0, 1: 3, 2: 5})

        asked = until_built(cluster, B)
        assert kinds(asked) == [FetchRecords, AskOffset, AskOffset, AskEpochEnd, BuildAuxState]
        assert diverging(cluster, A, 0, -1) is KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE
        ask = a.leader.list_offset
        assert (ask(-2, isolation=END).offset, ask(-4, isolation=END)) == (0, (3, 1))
        assert a.leader.end_offset_for_epoch(0) == (0, 3)
        build = asked[-1]
        assert isinstance(build, BuildAuxState)
        assert (build.epoch, build.offset, tier.lookup(B, 0, 2)) == (0, 2, "u1")
        assert b.log.offsets[:5] == (0, 3, 3, 3, 3)
        assert b.epochs == {0: 0}, "Kafka's; the KIP also shows epoch 1, which has no record yet"
        assert b.log.snapshot_at(3) is not None

        cluster.settle()
        assert (b.epochs, b.log.offsets[:5]) == ({0: 0, 1: 3, 2: 5, 3: 7}, (0, 3, 8, 8, 8))
        assert b.log.log_segments()[0].base_offset == 3
        assert first_given(cluster, B, 1) == b"m1"
        assert cluster.values(A) == cluster.values(B) == [b"m%d" % at for at in range(8)]


@both_columns
def test_script_2_a_follower_out_of_sync(as_kafka: bool) -> None:
    """KIP scenario 2: what it had lies in the tier by now, and goes."""
    with brokers(as_kafka) as cluster:
        tier = Tier(cluster)
        lead(cluster, A, b"m0", b"m1", b"m2")
        cluster.roll(brokers=[A])
        lead(cluster, A, b"m3")
        cluster.settle()
        a, b = cluster.replica(A), cluster.replica(B)
        assert (b.epochs, b.log.log_end_offset) == ({0: 0, 1: 3}, 4)
        cluster.append(0, b"m4")
        lead(cluster, A, b"m5")
        cluster.roll(brokers=[A])
        cluster.append(0, b"m6")
        lead(cluster, A, b"m7", b"m8")
        tier.copied("u1", "u2")
        assert a.leader.end_offset_for_epoch(1) == (1, 5)
        assert diverging(cluster, A, 4, 1) is None
        cluster.roll(brokers=[A])
        cluster.append(0, b"m9")
        tier.copied("u3")
        cluster.append(0, b"m10")
        cluster.append(0, b"m11")
        drop_local(cluster, A, 9)
        assert (tier.meta("u3"), tier.checkpoint("u3")) == ((6, 8, {2: 6, 3: 7}), {0: 0, 1: 3, 2: 5, 3: 7})

        asked = until_built(cluster, B)
        assert isinstance(asked[0], FetchRecords)
        assert (asked[0].offset, asked[0].last_fetched_epoch) == (4, 1)
        assert kinds(asked) == [FetchRecords, AskOffset, AskOffset, AskEpochEnd, BuildAuxState]
        build = asked[-1]
        assert isinstance(build, BuildAuxState)
        assert a.leader.end_offset_for_epoch(2) == (2, 7)
        assert (build.epoch, build.offset) == (3, 8)
        assert {at: tier.lookup(B, *at) for at in ((3, 8), (2, 6), (2, 5), (2, 7))} == {
            (3, 8): "u3",
            (2, 6): "u3",
            (2, 5): "u2",
            (2, 7): None,
        }
        assert b.log.offsets[:5] == (0, 9, 9, 9, 9)
        assert b.epochs == {0: 0, 1: 3, 2: 5, 3: 7}
        cluster.settle()
        assert b.log.log_end_offset == 12
        assert cluster.values(A) == cluster.values(B) == [b"m%d" % at for at in range(12)]


@both_columns
def test_script_3_several_hard_failures(as_kafka: bool) -> None:
    """KIP scenario 3: the tail of a segment in the tier was lost by both brokers, and written otherwise since."""
    with brokers(as_kafka) as cluster:
        tier = Tier(cluster)
        lead(cluster, A, b"m0", in_sync=(A, B))
        cluster.settle()
        cluster.replica(B).log.flush()
        cluster.append(0, b"m1")
        cluster.settle()
        cluster.roll(brokers=[A])
        cluster.append(0, b"m2")
        cluster.settle()
        tier.copied("u1")
        assert tier.meta("u1") == (0, 1, {0: 0})
        cluster.replica(A).log.flush()
        cluster.brokers[A].crash()
        cluster.brokers[B].crash()
        cluster.written[0].lose(1)

        cluster.brokers[B].start()
        b = cluster.replica(B)
        assert (b.log.log_end_offset, b.epochs) == (1, {0: 0})
        b.log.roll()
        lead(cluster, B, b"m3")
        assert b.epochs == {0: 0, 1: 1}
        b.log.roll()
        restarted(cluster, A)
        a = cluster.replica(A)
        assert (a.log.log_end_offset, a.epochs) == (3, {0: 0})
        assert b.leader.end_offset_for_epoch(0) == (0, 1)
        cluster.settle()
        assert (a.epochs, cluster.values(A)) == ({0: 0, 1: 1}, [b"m0", b"m3"])
        a.log.roll()
        cluster.append(0, b"m4")
        cluster.settle()
        assert [each.base_offset for each in b.log.log_segments()] == [0, 1, 2]
        cluster.brokers[B].wait_ready(0)
        assert cluster.brokers[B].copied_offset() == (0, 0)
        tier.copied("u2")
        assert (tier.meta("u2"), tier.checkpoint("u2")) == ((1, 1, {1: 1}), {0: 0, 1: 1})
        for broker in (A, B):
            drop_local(cluster, broker, 2)

        for broker in (A, B):
            assert (tier.lookup(broker, 0, 0), tier.lookup(broker, 1, 1)) == ("u1", "u2")
            assert tier.lookup(broker, 1, 2) is None
            assert cluster.replica(broker).log.leader_epoch_cache.epoch_for_offset(1) == 1
            assert given(cluster, broker, 0) == ([b"m0", b"m1"] if as_kafka else [b"m0", b"m3"])
            assert first_given(cluster, broker, 1) == b"m3"
            assert not tier.is_within(broker, "u1")
            assert tier.is_within(broker, "u2")
        assert diverging(cluster, B, 2, 0) == (0, 1)
        assert b.leader.end_offset_for_epoch(0) == (0, 1)
        assert cluster.replica(B).leader.end_offset_for_epoch(1) == (1, 3)
        assert not find_unreferenced(tier.segments.values(), epochs_with_records(b.epochs.items()))
        b.log.maybe_increment_log_start_offset(1, "records were deleted")
        found = find_unreferenced(tier.segments.values(), epochs_with_records(b.epochs.items()))
        assert [each.segment for each in found] == [tier.segments["u1"]]
        if not as_kafka:
            assert cluster.values(A) == [b"m0", b"m3", b"m4"]


@both_columns
def test_script_4_an_unclean_election_with_a_cut(as_kafka: bool) -> None:
    """KIP scenario 4: the leader that returns cuts what was in the tier alone, and begins behind the new tier."""
    with brokers(as_kafka) as cluster:
        tier = Tier(cluster)
        lead(cluster, A, b"m0")
        cluster.settle()
        cluster.append(0, b"m1")
        cluster.append(0, b"m2")
        cluster.roll(brokers=[A])
        cluster.append(0, b"m3")
        assert (cluster.replica(A).log.high_watermark, cluster.replica(B).log.log_end_offset) == (4, 1)
        tier.copied("u1")
        assert tier.meta("u1") == (0, 2, {0: 0})
        cluster.brokers[A].stop()
        cluster.written[0].lose(1)

        lead(cluster, B, b"m4")
        cluster.roll(brokers=[B])
        cluster.append(0, b"m5")
        b = cluster.replica(B)
        assert (b.epochs, b.log.offsets[3:5]) == ({0: 0, 1: 1}, (3, 3))
        cluster.brokers[B].wait_ready(0)
        assert cluster.brokers[B].copied_offset() == (0, 0)
        tier.copied("u2")
        assert tier.meta("u2") == (0, 1, {0: 0, 1: 1})
        drop_local(cluster, B, 2)
        known = {at: tier.lookup(B, *at) for at in ((0, 0), (0, 1), (0, 2), (1, 1), (1, 2))}
        if as_kafka:
            assert known == {(0, 0): "u2", (0, 1): None, (0, 2): None, (1, 1): "u2", (1, 2): None}
        else:
            assert known[0, 0] in ("u1", "u2")
            assert (known[1, 1], known[1, 2]) == ("u2", None)
        assert first_given(cluster, B, 0) == b"m0"
        assert first_given(cluster, B, 1) == b"m4"
        assert diverging(cluster, B, 2, 0) == (0, 1)
        assert not tier.is_within(B, "u1")
        assert tier.is_within(B, "u2")
        listed = {
            each.remote_log_segment_id for each in cluster.brokers[B].metadata.list_remote_log_segments(partition_of())
        }
        assert listed == {each.remote_log_segment_id for each in tier.segments.values()}, "u1 stays known"

        restarted(cluster, A)
        a = cluster.replica(A)
        assert a.log.log_end_offset == 4
        asked = cluster.settle()
        build = next(each for each in asked if isinstance(each, BuildAuxState))
        assert (build.epoch, build.offset) == (1, 1)
        assert (a.epochs, a.log.offsets[:2], a.log.log_end_offset) == ({0: 0, 1: 1}, (0, 2), 3)
        assert cluster.values(A) == cluster.values(B) == [b"m0", b"m4", b"m5"]


@both_columns
def test_script_5_a_divergence_in_the_tier(as_kafka: bool) -> None:
    """KIP scenario 5: Kafka loses what lies in a segment whose start another one has too."""
    with brokers(as_kafka) as cluster:
        tier = Tier(cluster)
        lead(cluster, A, b"m0", b"m1")
        cluster.settle()
        for value in (b"m2", b"m3"):
            cluster.append(0, value)
        cluster.roll(brokers=[A])
        cluster.append(0, b"m4a")
        tier.copied("u1")
        cluster.brokers[A].stop()
        cluster.written[0].lose(2)

        lead(cluster, B, b"m4", b"m5")
        cluster.roll(brokers=[B])
        cluster.append(0, b"m6")
        b = cluster.replica(B)
        assert b.epochs == {0: 0, 1: 2}
        cluster.brokers[B].wait_ready(0)
        assert cluster.brokers[B].copied_offset() == (1, 0)
        tier.copied("u2")
        assert (tier.meta("u1"), tier.meta("u2")) == ((0, 3, {0: 0}), (0, 3, {0: 0, 1: 2}))
        cluster.brokers[B].stop()
        cluster.written[0].lose(2)

        cluster.brokers[A].start()
        lead(cluster, A, b"m7")
        cluster.roll(brokers=[A])
        cluster.append(0, b"m8")
        a = cluster.replica(A)
        assert (a.epochs, a.log.log_end_offset) == ({0: 0, 2: 5}, 7)
        cluster.brokers[A].wait_ready(0)
        assert cluster.brokers[A].copied_offset() == (3, 0)
        tier.copied("u3")
        assert (tier.meta("u3"), tier.checkpoint("u3")) == ((4, 5, {0: 4, 2: 5}), {0: 0, 2: 5})
        drop_local(cluster, A, 6)

        cluster.brokers[B].start()
        cluster.brokers[B].wipe(0)
        cluster.hear(B)
        asked = cluster.settle()
        build = next(each for each in asked if isinstance(each, BuildAuxState))
        assert (build.epoch, build.offset, a.leader.end_offset_for_epoch(1)) == (2, 5, (0, 5))
        b = cluster.replica(B)
        assert (b.epochs, b.log.local_log_start_offset, b.log.log_end_offset) == ({0: 0, 2: 5}, 6, 7)

        lost = KafkaError.OFFSET_OUT_OF_RANGE
        expected = [b"m0", b"m1", *([lost, lost] if as_kafka else [b"m2", b"m3"]), b"m4a", b"m7", b"m8"]
        for broker in (A, B):
            assert [first_given(cluster, broker, at) for at in range(7)] == expected
            assert [tier.is_within(broker, name) for name in ("u1", "u2", "u3")] == [True, False, True]
        assert diverging(cluster, A, 3, 1) == (0, 5)
        if not as_kafka:
            assert cluster.values(A) == cluster.values(B)
            cluster.check_committed(B)


@both_columns
def test_script_f_a_follower_becomes_leader(as_kafka: bool) -> None:
    """After the five: the new leader's segments have borders of their own."""
    with brokers(as_kafka) as cluster:
        tier = Tier(cluster)
        lead(cluster, A, b"m0", b"m1", b"m2", in_sync=(A, B))
        cluster.settle()
        cluster.roll()
        lead(cluster, A, b"m3", in_sync=(A, B))
        cluster.settle()
        cluster.roll(brokers=[B])
        cluster.append(0, b"m4")
        cluster.roll(brokers=[A])
        cluster.append(0, b"m5")
        lead(cluster, A, b"m6", in_sync=(A, B))
        cluster.settle()
        tier.copied("u1", "u2")
        assert (tier.meta("u1"), tier.meta("u2")) == ((0, 2, {0: 0}), (3, 4, {1: 3}))
        cluster.append(0, b"m7")
        cluster.append(0, b"m8")
        a, b = cluster.replica(A), cluster.replica(B)
        assert (a.epochs, a.log.log_end_offset, a.log.high_watermark) == ({0: 0, 1: 3, 2: 6}, 9, 7)
        assert b.log.offsets[3:5] == (7, 7)
        cluster.brokers[A].stop()

        lead(cluster, B)
        cluster.roll(brokers=[B])
        cluster.append(0, b"m7b")
        assert b.epochs == {0: 0, 1: 3, 2: 6, 3: 7}
        cluster.brokers[B].wait_ready(0)
        assert cluster.brokers[B].copied_offset() == (4, 1)
        assert [segment.base_offset for segment, _ in b.log.closed_segments(5)] == [4]
        tier.copied("u3")
        assert tier.meta("u3") == (4, 6, {1: 4, 2: 6})
        assert [tier.lookup(B, *at) for at in ((1, 3), (1, 4), (1, 5), (2, 6))] == ["u2", "u3", "u3", "u3"]
        metadata = cluster.brokers[B].metadata
        starts = [each.start_offset for each in metadata.list_remote_log_segments(partition_of(), 1)]
        assert starts == [3, 4]
        assert all(tier.is_within(B, name) for name in ("u2", "u3"))
        restarted(cluster, A)
        cluster.settle()
        drop_local(cluster, B, 7)
        values = [*(b"m%d" % at for at in range(7)), b"m7b"]
        assert cluster.values(A) == cluster.values(B) == values
        assert cluster.replica(A).epochs == b.epochs


@both_columns
def test_script_e1_a_high_watermark_that_lags_and_an_immediate_election(as_kafka: bool) -> None:
    """Seed 002's first story: a committed record is not cut."""
    with brokers(as_kafka) as cluster:
        lead(cluster, B, b"m1", in_sync=(A, B))
        cluster.settle()
        cluster.append(0, b"m2")
        for _ in range(2):
            cluster.exchange(A)  # A has m2, and B knows it; A does not know that it is committed
            if cluster.replica(B).log.high_watermark == 2:
                break
        a, b = cluster.replica(A), cluster.replica(B)
        assert (a.log.log_end_offset, b.log.log_end_offset) == (2, 2)
        cluster.brokers[A].stop()
        cluster.brokers[A].start()
        cluster.brokers[B].stop()
        lead(cluster, A)
        a = cluster.replica(A)
        assert a.epochs == {0: 0, 1: 2}
        assert (cluster.values(A), a.log.log_end_offset) == ([b"m1", b"m2"], 2)
        assert parse_leader_epochs(
            cluster.brokers[A].files.read_whole(f"{a.log.folder}/leader-epoch-checkpoint")
        ).entries == ((0, 0), (1, 2))
        restarted(cluster, B)
        assert a.leader.end_offset_for_epoch(0) == (0, 2)
        cluster.settle()
        assert cluster.values(B) == [b"m1", b"m2"]
        cluster.check_committed(B)


@both_columns
def test_script_e2_a_divergence_after_several_hard_failures(as_kafka: bool) -> None:
    """Seed 002's second story: the follower cuts to where the logs part."""
    with brokers(as_kafka) as cluster:
        lead(cluster, A, b"m1", in_sync=(A, B))
        cluster.settle()
        cluster.replica(B).log.flush()
        cluster.append(0, b"m2")
        cluster.settle()
        cluster.replica(A).log.flush()
        for broker in (A, B):
            cluster.brokers[broker].crash()
        cluster.written[0].lose(1)
        cluster.brokers[B].start()
        b = cluster.replica(B)
        assert b.log.log_end_offset == 1
        lead(cluster, B, b"m3")
        assert (b.epochs, b.log.high_watermark) == ({0: 0, 1: 1}, 2)
        restarted(cluster, A)
        a = cluster.replica(A)
        assert a.log.log_end_offset == 2
        assert b.leader.end_offset_for_epoch(0) == (0, 1)
        cluster.settle()
        assert list(cluster.served(A)) == list(cluster.served(B))
        assert cluster.values(A) == [b"m1", b"m3"], "m2 is nowhere"
        for broker in (A, B):
            path = f"{cluster.replica(broker).log.folder}/leader-epoch-checkpoint"
            assert parse_leader_epochs(cluster.brokers[broker].files.read_whole(path)).entries == ((0, 0), (1, 1))
