"""The topic-backed manager on a real Kafka: the contract, restarts, and Kafka's own manager on the same topic.

The scenarios of Kafka's TopicBasedRemoteLogMetadataManagerTest, its RestartTest and MultipleSubscriptionsTest that need
a cluster are here under their names; those of one manager's answers are in the contract.
"""

from __future__ import annotations

import pathlib
import random
import time
from collections.abc import Callable, Iterator

import pytest

from tests.contract.metadata_events import (
    DELETED,
    DELETING,
    FINISHED,
    OTHER,
    PARTITION,
    REMOVAL,
    WAIT_SECONDS,
    add,
    bring,
    finish,
    found,
    ids,
    lead,
    listed,
    put,
    removal,
    segment,
    to,
    update,
)
from tests.contract.metadata_manager_suite import MetadataManagerContract
from tests.support.metadata_cluster import PARTITIONS, admin_of, delete_topic, make_topic, manager_keys, needs_a_broker
from tests.support.peers import broker, metadata_peer
from tests.support.peers.metadata_peer import MetadataPeer, PeerError
from tests.support.waiting import ends
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentMetadata,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.metadata.metadata_log import METADATA_TOPIC, metadata_partition
from tierlog.remote.metadata.record_serde import encode_record
from tierlog.remote.metadata.topic_backed.kafka_metadata_log import open_cluster_log
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager

pytestmark = pytest.mark.interop

Start = Callable[..., TopicBasedRemoteLogMetadataManager]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    needs_a_broker()
    with broker.running(tmp_path_factory.mktemp("broker"), heap="512m") as running:
        yield running.bootstrap


@pytest.fixture(autouse=True)
def _no_topic(bootstrap: str) -> None:
    delete_topic(bootstrap)


@pytest.fixture
def start(bootstrap: str, tmp_path: pathlib.Path) -> Iterator[Start]:
    """Starts managers, each over a folder of its own unless it is named."""
    started: list[TopicBasedRemoteLogMetadataManager] = []

    def make(folder: str | None = None, **keys: object) -> TopicBasedRemoteLogMetadataManager:
        manager = TopicBasedRemoteLogMetadataManager()
        started.append(manager)
        where = tmp_path / (folder or f"log-dir-{len(started)}")
        where.mkdir(exist_ok=True)
        manager.configure(manager_keys(bootstrap, where, **keys))
        return manager

    yield make
    for manager in started:
        manager.close()


def eventually(answer: Callable[[], object], expected: object, seconds: float = WAIT_SECONDS) -> None:
    """Other brokers follow."""
    until = time.monotonic() + seconds
    while (last := answer()) != expected:
        assert time.monotonic() < until, f"{last!r} instead of {expected!r}"
        time.sleep(0.02)


class TestContract(MetadataManagerContract):
    """What every manager owes to a broker, with its events in a real Kafka."""

    @pytest.fixture
    def manager(self, start: Start) -> RemoteLogMetadataManager:
        return start(kafka_semantics=self.as_kafka)


class TestScenarios:
    """Kafka's own tests of its manager, as a table of ours."""

    def test_with_no_assigned_partitions(self, start: Start) -> None:
        """Nothing is read for a broker that leads and follows nothing, and nothing can be asked."""
        manager = start()
        manager.on_partition_leadership_changes(frozenset(), frozenset())
        time.sleep(0.5)
        with pytest.raises(RemoteResourceNotFoundException):
            listed(manager)

    def test_new_partition_updates(self, start: Start) -> None:
        """A leader's and a follower's partition, told one after the other, are both there once they are ready."""
        manager = start()
        lead(manager, PARTITION)
        lead(manager, OTHER, follow=True)
        first, second = segment(1, 0, 100), segment(2, 0, 100, partition=OTHER)
        add(manager, first, second)
        assert list(manager.list_remote_log_segments(PARTITION)) == [first]
        assert list(manager.list_remote_log_segments(OTHER)) == [second]

    @pytest.mark.parametrize("given", [None, 1, 2])
    def test_remote_log_metadata_topic_min_isr(self, start: Start, bootstrap: str, given: int | None) -> None:
        """Never more than the topic's one replica: brokers before 3.7 would refuse every write."""
        from confluent_kafka.admin import ConfigResource

        lead(start(**({} if given is None else {"topic_min_isr": given})), PARTITION)
        admin, which = admin_of(bootstrap), ConfigResource(ConfigResource.Type.TOPIC, METADATA_TOPIC)
        config = admin.describe_configs([which])[which].result(30)
        assert config["min.insync.replicas"].value == "1"

    def test_initialization_failure(self, start: Start, bootstrap: str) -> None:
        """A wrong number of partitions ends Kafka's process; here every call says why."""
        make_topic(bootstrap, partitions=PARTITIONS - 1)
        manager = start()
        manager.on_partition_leadership_changes(frozenset({PARTITION}), frozenset())
        until = time.monotonic() + WAIT_SECONDS
        text = ""
        while "has 4 partitions" not in text:
            assert time.monotonic() < until
            with pytest.raises(RemoteStorageException) as raised:
                listed(manager)
            text = str(raised.value)
        assert not raised.value.retriable

    @pytest.mark.parametrize("folder", ["the same", None])
    def test_restart(self, start: Start, folder: str | None) -> None:
        """RestartTest: the state is rebuilt from the topic, and from the topic behind a snapshot."""
        first = start("the same")
        lead(first, PARTITION, OTHER)
        finish(first, segment(1, 0, 99), segment(2, 100, 199))
        bring(first, segment(3, 0, 9, partition=OTHER), DELETING)
        put(first, REMOVAL.DELETE_PARTITION_MARKED)
        first.close()
        second = start(folder)
        lead(second, PARTITION, OTHER)
        assert (listed(second), found(second, 0, 150)) == ([1, 2], 2)
        assert (second.metrics.value("metadata_events_applied_total") == 0) == (folder is not None)
        assert [each.state for each in second.list_remote_log_segments(OTHER)] == [DELETING]
        assert list(second.pending_removals()) == [removal(REMOVAL.DELETE_PARTITION_MARKED)]
        finish(second, segment(4, 200, 299))
        assert (listed(second), found(second, 0, 299)) == ([1, 2, 4], 4)

    def test_multiple_subscriptions(self, start: Start) -> None:
        """MultipleSubscriptionsTest: partitions that share a metadata partition, the second one assigned later."""
        writer, reader = start(), start()
        partitions = [TopicIdPartition(Uuid(bytes(15) + b"\7"), "orders", number) for number in range(12)]
        lead(writer, *partitions)
        for number, each in enumerate(partitions):
            finish(writer, segment(number + 1, 0, 9, partition=each))
        for number, each in enumerate(partitions):
            lead(reader, each, follow=True)
            finish(writer, segment(number + 101, 10, 19, partition=each))
            for known, earlier in enumerate(partitions[: number + 1]):
                eventually(
                    lambda earlier=earlier: ids(reader.list_remote_log_segments(earlier, 0)), [known + 1, known + 101]
                )
        with pytest.raises(RemoteResourceNotFoundException):
            list(reader.list_remote_log_segments(TopicIdPartition(Uuid(bytes(15) + b"\7"), "orders", 12)))


class TestClusters:
    """Several managers, and a cluster that does not stay."""

    def test_two_managers_converge(self, start: Start) -> None:
        """Both believe that they lead: their answers are the same in the end, and no deleted segment comes back."""
        one, two = start(), start()
        lead(one, PARTITION)
        lead(two, PARTITION)
        for number in range(1, 21):
            of = segment(number, 10 * number, 10 * number + 14)
            add(one, of)
            eventually(lambda number=number: number in listed(two), expected=True)
            futures = [
                one.update_remote_log_segment_metadata(to(of, FINISHED)),
                two.update_remote_log_segment_metadata(to(of, DELETING)),
                two.update_remote_log_segment_metadata(to(of, DELETED)),
            ]
            for future in futures:
                future.exception(WAIT_SECONDS)  # refused or not: whose came first is chance
            late = one.update_remote_log_segment_metadata(to(of, FINISHED))
            assert late.exception(WAIT_SECONDS) is not None, "what comes too late is told to who sent it"
        eventually(lambda: listed(one) == listed(two) == [], expected=True)
        assert one.highest_offset_for_epoch(PARTITION, 0) == two.highest_offset_for_epoch(PARTITION, 0)

    def test_a_topic_that_is_made_anew_under_a_manager(self, start: Start, bootstrap: str) -> None:
        """Somebody deleted it: what it said is gone, which is logged; the manager goes on with what comes."""
        manager = start()
        lead(manager, PARTITION)
        finish(manager, segment(1, 0, 9), segment(2, 10, 19))
        delete_topic(bootstrap)
        make_topic(bootstrap)
        eventually(lambda: _listed_at_last(manager), [])
        finish(manager, segment(3, 20, 29))
        assert listed(manager) == [3]

    def test_a_broker_that_is_stopped_and_started_under_a_manager(self, tmp_path: pathlib.Path) -> None:
        """Questions go on being answered, and what is stored meanwhile is stored once it is back, or refused."""
        port = broker.free_port()
        keys = manager_keys(f"127.0.0.1:{port}", tmp_path, consume_wait_ms=60_000)
        with TopicBasedRemoteLogMetadataManager() as manager:
            with broker.running(tmp_path / "broker", heap="512m", port=port):
                manager.configure(keys)
                lead(manager, PARTITION)
                finish(manager, segment(1, 0, 9))
            assert (found(manager, 0, 5), listed(manager)) == (1, [1])
            future = manager.add_remote_log_segment_metadata(segment(2, 10, 19))
            time.sleep(1)
            assert not future.done()
            with broker.running(tmp_path / "broker", heap="512m", port=port):
                future.result(60)
                update(manager, segment(2, 10, 19), FINISHED)
                assert (found(manager, 0, 15), listed(manager)) == (2, [1, 2])
        with ends():
            manager.close()


def _listed_at_last(manager: RemoteLogMetadataManager) -> list[int] | None:
    try:
        return listed(manager)
    except RemoteStorageException:
        return None


class TestKafkasOwnManager:
    """Kafka 4.3.1's TopicBasedRemoteLogMetadataManager on the same topic, which it makes: with one replica, and two
    that have to be in sync.
    """

    @pytest.fixture
    def peer(self, bootstrap: str, tmp_path: pathlib.Path) -> Iterator[MetadataPeer]:
        keys = manager_keys(bootstrap, tmp_path) | {"broker.id": 2}
        with metadata_peer.running(keys) as peer:
            yield peer

    def test_it_answers_as_ours_does(self, peer: MetadataPeer, start: Start) -> None:
        """Half of the segments are written by each; every lookup of both managers is the same bytes afterwards."""
        ours = start(kafka_semantics=True)
        lead(ours, PARTITION)
        peer.lead(PARTITION)
        eventually(lambda: peer.is_ready(PARTITION), expected=True)
        rng = random.Random(13)
        written = [_any_segment(rng, number) for number in range(1, 41)]
        for of in written:
            custom = rng.choice([None, b"", b"\x01custom"])
            states = (FINISHED, DELETING, DELETED)[: rng.choice([0, 1, 1, 1, 1, 2, 3])]
            if rng.random() < 0.5:
                add(ours, of)
                for state in states:
                    update(ours, of, state, custom)
            else:
                peer.put(of)
                for state in states:
                    peer.put(to(of, state, custom))
        last = segment(99, 500, 509, {9: 500})
        finish(ours, last)
        peer.put(segment(98, 510, 519, {9: 510}))
        eventually(lambda: len(peer.list(PARTITION, 9)), 2)
        eventually(lambda: len(list(ours.list_remote_log_segments(PARTITION, 9))), 2)
        _require_same_answers(ours, peer)
        peer.put(to(segment(98, 510, 519, {9: 510}), FINISHED))
        eventually(lambda: found(ours, 9, 515), 98)

        later = start(kafka_semantics=True)
        lead(later, PARTITION)
        _require_same_answers(later, peer)

    def test_a_removal_of_either_is_seen_by_ours(self, peer: MetadataPeer, start: Start) -> None:
        """A partition whose topic was deleted by a broker of Kafka's."""
        ours = start()
        lead(ours, PARTITION)
        peer.lead(PARTITION)
        eventually(lambda: peer.is_ready(PARTITION), expected=True)
        peer.put(removal(REMOVAL.DELETE_PARTITION_MARKED))
        eventually(lambda: [each.state for each in ours.pending_removals()], [REMOVAL.DELETE_PARTITION_MARKED])
        put(ours, REMOVAL.DELETE_PARTITION_STARTED)
        put(ours, REMOVAL.DELETE_PARTITION_FINISHED)
        assert ours.pending_removals() == ()

        def asked() -> str | None:
            """Kafka's forgets the partition with the last event; until it has read that, there is no segment."""
            try:
                assert peer.find(PARTITION, 0, 0) is None
            except PeerError as error:
                return error.kind
            return None

        eventually(asked, "RemoteResourceNotFoundException")

    def test_a_zombies_late_events_change_nothing_for_anybody(
        self, peer: MetadataPeer, start: Start, bootstrap: str
    ) -> None:
        """A broker that believes it still leads, and wakes up after its segment was deleted: records of Kafka's topic
        hold no leader epoch, so that every reader must come to the same by itself.
        """
        ours = start()
        lead(ours, PARTITION)
        peer.lead(PARTITION)
        eventually(lambda: peer.is_ready(PARTITION), expected=True)
        gone, kept = segment(1, 0, 9), segment(2, 10, 19)
        bring(ours, gone, DELETED)
        with open_cluster_log(bootstrap, writable=True) as zombie:
            place = metadata_partition(PARTITION, zombie.partition_count)
            for record in (to(gone, FINISHED), to(gone, DELETING), to(gone, FINISHED)):
                zombie.append(place, encode_record(record)).result(30)
        finish(ours, kept)
        eventually(lambda: ids(peer.list(PARTITION)), [2])
        later = start()
        lead(later, PARTITION)
        for manager in (ours, later):
            assert (listed(manager), found(manager, 0, 5), found(manager, 0, 15)) == ([2], None, 2)
        assert peer.find(PARTITION, 0, 5) is None

    def test_it_refuses_and_is_unready_where_ours_is(self, peer: MetadataPeer, start: Start) -> None:
        """The same question to a partition that is not assigned."""
        ours = start()
        lead(ours, OTHER)
        peer.lead(OTHER)
        eventually(lambda: peer.is_ready(OTHER), expected=True)
        assert not peer.is_ready(PARTITION)
        with pytest.raises(PeerError) as raised:
            peer.list(PARTITION)
        assert raised.value.kind == "RemoteResourceNotFoundException"
        with pytest.raises(RemoteResourceNotFoundException):
            listed(ours)


def _any_segment(rng: random.Random, number: int) -> RemoteLogSegmentMetadata:
    start = rng.randrange(0, 200)
    end = start + rng.randrange(1, 60)
    epochs = {rng.randrange(0, 3): start}
    if end - start > 4 and rng.random() < 0.6:
        epochs[max(epochs) + rng.randrange(1, 3)] = rng.randrange(start + 1, end)
    return segment(number, start, end, epochs, size=rng.randrange(1, 9999), txn_idx_empty=rng.random() < 0.5)


def _require_same_answers(ours: TopicBasedRemoteLogMetadataManager, peer: MetadataPeer) -> None:
    def by_id(segments: list[RemoteLogSegmentMetadata]) -> list[RemoteLogSegmentMetadata]:
        return sorted(segments, key=lambda each: each.remote_log_segment_id.id.raw)

    hits = 0
    for epoch in range(10):
        for offset in range(0, 300, 7):
            theirs = peer.find(PARTITION, epoch, offset)
            assert ours.remote_log_segment_metadata(PARTITION, epoch, offset) == theirs, (epoch, offset)
            hits += theirs is not None
            theirs = peer.next_with_txn_index(PARTITION, epoch, offset)
            assert ours.next_segment_with_txn_index(PARTITION, epoch, offset) == theirs, (epoch, offset)
        assert ours.highest_offset_for_epoch(PARTITION, epoch) == peer.highest(PARTITION, epoch), epoch
        assert ours.remote_log_size(PARTITION, epoch) == peer.size(PARTITION, epoch), epoch
        mine, theirs_of_epoch = list(ours.list_remote_log_segments(PARTITION, epoch)), peer.list(PARTITION, epoch)
        assert by_id(mine) == by_id(theirs_of_epoch), epoch
        starts = [each.start_offset for each in mine]
        assert starts == sorted(starts), epoch
    assert by_id(list(ours.list_remote_log_segments(PARTITION))) == by_id(peer.list(PARTITION))
    assert hits > 50
