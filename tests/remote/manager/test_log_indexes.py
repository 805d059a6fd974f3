"""The remote log indexes that a manager writes beside its logs: what they have, when, and what becomes of damage."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.living_logs import batch_of
from tests.support.manager_configs import BASE, ZSTD
from tests.support.tiered_log import LOGS, TieredBroker
from tierlog.errors import ConfigError, StoreError
from tierlog.log.formats.leader_epochs import LeaderEpochs
from tierlog.log.formats.remote_log_index_entry import RemoteLogIndexEntry, parse_identifier
from tierlog.remote.api import (
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    RetriableRemoteStorageException,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.log_index.partition_index import RemoteLogIndex
from tierlog.remote.manager.log_indexes import LogIndexes, indexed_segments, match_entries
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.partition_stops import StopPartition
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic
from tierlog.testing.memory_storage_manager import MemoryStorageManager

ON = RemoteLogManagerConfig(task_interval_ms=1000, log_index_enable=True)
SHIPS: Mapping[str, object] = {"log.index.object.enabled": "true"}
FOLDER: Mapping[str, object] = BASE | {
    "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
    "storage.root": "/store",
}
STATE = RemoteLogSegmentState


class Indexing:
    """A broker whose partition's index is written behind the runs of its tasks."""

    def __init__(self, broker: TieredBroker) -> None:
        self.broker = broker
        self.partition = broker.partition()
        self.log = broker.logs[self.partition]

    def lead(self) -> None:
        self.broker.manager.on_leadership_change(frozenset({self.partition}), frozenset())

    def follow(self) -> None:
        self.broker.manager.on_leadership_change(frozenset(), frozenset({self.partition}))

    def pass_time(self, seconds: float = 5.0) -> None:
        self.broker.machine.clock.sleep(seconds)

    def entries(self) -> list[RemoteLogIndexEntry]:
        """The entries of the files, as a program would read them."""
        return list(RemoteLogIndex(self.log.folder, check_all=True, machine=self.broker.machine).iter_entries())

    def ranges(self) -> list[tuple[int, int]]:
        return [(entry.first_offset, entry.last_offset) for entry in self.entries()]

    def objects(self) -> list[str]:
        return [parse_identifier(entry.identifier)[0] for entry in self.entries()]

    def listed(self) -> list[RemoteLogSegmentMetadata]:
        found = self.broker.metadata.list_remote_log_segments(self.partition)
        return sorted(found, key=lambda each: each.start_offset)

    def copied(self) -> list[RemoteLogSegmentMetadata]:
        return [each for each in self.listed() if each.state is STATE.COPY_SEGMENT_FINISHED]

    def index_files(self) -> list[str]:
        names = [info.name for info in self.broker.machine.files.iter_directory(self.log.folder)]
        return sorted(name for name in names if name.endswith(".remoteLogIndex"))

    def fetched(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """First offsets of the segments whose entries are fetched from now on."""
        storage, found = self.broker.storage, []
        assert isinstance(storage, TieredStorageManager)
        fetch = storage.fetch_log_index

        def fetching(segment: RemoteLogSegmentMetadata) -> tuple[RemoteLogIndexEntry, ...]:
            found.append(segment.start_offset)
            return fetch(segment)

        monkeypatch.setattr(storage, "fetch_log_index", fetching)
        return found

    @property
    def errors(self) -> float:
        return self.broker.manager.metrics.value("log_index_errors")


def started(
    machine: Machine,
    topic: MemoryMetadataTopic,
    config: RemoteLogManagerConfig = ON,
    keys: Mapping[str, object] = SHIPS,
) -> Indexing:
    """A broker on a machine, with Tierlog's storage manager."""
    machine.files.make_directories("/store")
    storage = TieredStorageManager(machine=machine)
    storage.configure({**FOLDER, **keys})
    return Indexing(TieredBroker(machine, topic=topic, storage=storage, config=config))


@contextlib.contextmanager
def indexing(
    config: RemoteLogManagerConfig = ON, keys: Mapping[str, object] = SHIPS, *, seed: int = 1
) -> Iterator[Indexing]:
    """A broker in memory; at its end no task of it is left."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        made = started(machine, MemoryMetadataTopic(3, machine=machine), config, keys)
        yield made
        made.broker.close()
        machine.clock.sleep(100)
        assert scheduler.unfinished == []


@pytest.mark.parametrize("keys", [{}, ZSTD | {"key.prefix": "a/", "key.prefix.mask": "true"}, {"layout": "kafka"}])
def test_a_leader_appends_what_it_has_copied(keys: Mapping[str, object]) -> None:
    """If this fails, a program that reads the tier by these files does not find the latest segments."""
    with indexing(keys={**SHIPS, **keys}) as made:
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        assert made.ranges() == [(0, 9), (10, 19), (20, 29)]
        for entry, segment in zip(made.objects(), made.listed(), strict=True):
            assert made.broker.machine.files.find(f"/store/{entry}") is not None
            assert str(segment.remote_log_segment_id.id) in entry
        made.broker.produce(made.partition, 1)
        made.pass_time()
        assert made.ranges()[-1] == (30, 40)
        assert made.errors == 0


def test_an_entry_comes_behind_its_segments_last_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, the index leads readers to a segment that another leader removes as unfinished."""
    with indexing() as made:
        made.broker.produce(made.partition, 1)

        def fails(_: object) -> None:
            raise RetriableRemoteStorageException("the topic is away")

        monkeypatch.setattr(made.broker.metadata, "update_remote_log_segment_metadata", fails)
        made.lead()
        made.pass_time(0.4)
        assert [each.state for each in made.listed()] == [STATE.COPY_SEGMENT_STARTED]
        assert made.ranges() == []
        monkeypatch.undo()
        made.pass_time()
        assert made.ranges() == [(0, 9)]


def test_it_is_off_unless_asked_for() -> None:
    """If this fails, every log directory has files more that Kafka does not know."""
    with indexing(RemoteLogManagerConfig(task_interval_ms=1000)) as made:
        made.broker.produce(made.partition, 2)
        made.lead()
        made.pass_time()
        assert len(made.listed()) == 2
        assert made.index_files() == []


@pytest.mark.parametrize("ours", [True, False])
def test_a_storage_manager_that_ships_none_is_refused(ours: bool) -> None:
    """If this fails, the files stay empty for ever and nobody says why."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        machine.files.make_directories("/store")
        storage: Any = TieredStorageManager(machine=machine) if ours else MemoryStorageManager(machine=machine)
        storage.configure(FOLDER if ours else {})
        topic = MemoryMetadataTopic(3, machine=machine)
        with pytest.raises(ConfigError, match=r"log\.index\.object\.enabled"):
            TieredBroker(machine, topic=topic, storage=storage, config=ON)
        storage.close()


def test_a_follower_fetches_the_entries() -> None:
    """If this fails, a broker that follows has no index when it leads."""
    with indexing() as made:
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        before = made.entries()
        made.follow()
        RemoteLogIndex(made.log.folder, machine=made.broker.machine).truncate_from_end(0)
        made.pass_time()
        assert made.entries() == before
        assert made.errors == 0


def test_a_follower_takes_no_segment_behind_its_log() -> None:
    """If this fails, a follower that is behind has entries of offsets that its log may never get."""
    with indexing() as made:
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        made.follow()
        made.log.truncate_to(25)
        made.pass_time()
        assert made.ranges() == [(0, 9), (10, 19)]


def test_a_log_that_was_cut_drops_the_other_branch() -> None:
    """If this fails, the index leads to records that were never committed."""
    with indexing() as made:
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        stale = made.objects()[1]
        made.follow()
        made.pass_time()
        made.log.truncate_to(15)
        made.log.assign_epoch_start_offset(1, 15)
        for _ in range(2):
            made.log.append_as_leader(batch_of(*[b"new"] * 5), leader_epoch=1)
            made.log.roll()
        made.lead()
        made.pass_time()
        assert made.ranges() == [(0, 9), (10, 19), (20, 24)]
        assert stale not in made.objects()
        assert made.errors == 0


def test_a_log_that_is_cut_within_a_term_drops_the_other_branch() -> None:
    """A follower's term outlasts its leaders' terms: if this fails, its index keeps a branch until it starts anew."""
    with indexing(RemoteLogManagerConfig(task_interval_ms=1000)) as made:  # the index is written here alone
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        indexes = LogIndexes(made.broker.manager._services)
        term = TieredPartition(made.partition, Role.FOLLOWER, made.broker.machine.scheduler)
        assert not indexes.update(term)
        stale = made.objects()[1:]
        assert len(stale) == 2
        made.follow()
        made.pass_time()
        made.log.truncate_to(15)
        made.log.assign_epoch_start_offset(1, 15)
        for _ in range(2):
            made.log.append_as_leader(batch_of(*[b"new"] * 5), leader_epoch=1)
            made.log.roll()
        made.lead()
        made.pass_time()
        assert not indexes.update(term)
        assert made.ranges() == [(0, 9), (10, 19), (20, 24)]
        assert not set(stale) & set(made.objects())


def test_a_start_finds_the_index_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a start fetches the entries of all segments again: a request each."""
    with indexing() as made:
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        fetched = made.fetched(monkeypatch)
        indexes = LogIndexes(made.broker.manager._services)
        term = TieredPartition(made.partition, Role.FOLLOWER, made.broker.machine.scheduler)
        assert not indexes.update(term)
        assert fetched == []
        assert len(made.ranges()) == 3


def test_segments_without_entries_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a bucket that was filled before the key was set is asked for them for ever."""
    with indexing() as made:
        made.broker.produce(made.partition, 4)
        made.lead()
        made.pass_time()
        files = made.broker.machine.files
        keys = made.objects()
        for number in (0, 2):
            files.remove(f"/store/{keys[number].removesuffix('log')}remoteLogIndex")
        RemoteLogIndex(made.log.folder, machine=made.broker.machine).truncate_from_end(0)
        fetched = made.fetched(monkeypatch)
        indexes = LogIndexes(made.broker.manager._services)
        term = TieredPartition(made.partition, Role.FOLLOWER, made.broker.machine.scheduler)
        indexes.update(term)
        indexes.update(term)
        assert made.ranges() == [(10, 19), (30, 39)]
        assert fetched == [0, 10, 20, 30]
        indexes.update(TieredPartition(made.partition, Role.FOLLOWER, made.broker.machine.scheduler))
        assert fetched == [0, 10, 20, 30]


def test_expired_entries_go_with_their_files() -> None:
    """If this fails, the files grow for as long as the topic lives."""
    with indexing() as made:
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        made.broker.alter(made.partition, retention_ms=1)
        made.broker.produce(made.partition, 1)
        made.broker.machine.clock.sleep(60)
        assert made.log.log_start_offset > 20
        assert [each for each in made.ranges() if each[0] >= made.log.log_start_offset] == [
            (each.start_offset, each.end_offset) for each in made.listed()
        ]
        assert made.errors == 0


def test_a_logs_folder_goes_with_its_index() -> None:
    """If this fails, a deleted topic leaves a folder behind, or a log with index files does not open."""
    with indexing() as made:
        made.broker.produce(made.partition, 2)
        made.lead()
        made.pass_time()
        made.broker.manager.stop_partitions([StopPartition(made.partition)]).result(10)
        folder, directory = made.log.folder, made.broker.directory
        made.log.close()
        again = directory.log(made.partition.topic, made.partition.partition)
        assert again is not made.log
        assert again.log_end_offset == made.log.log_end_offset
        assert len(made.ranges()) == 2
        directory.delete_log(made.partition.topic, made.partition.partition)
        made.pass_time(120)
        assert made.broker.machine.files.find(folder) is None
        assert not [info.name for info in made.broker.machine.files.iter_directory(LOGS) if info.is_directory]


def test_damage_is_made_good_from_the_tier() -> None:
    """If this fails, one bad sector ends the index for ever."""
    with indexing() as made:
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        (name,) = made.index_files()
        with made.broker.machine.files.open_update(f"{made.log.folder}/{name}") as opened:
            opened.truncate(opened.size_bytes - 50)
        made.broker.produce(made.partition, 1)
        made.pass_time()
        made.pass_time()
        assert made.ranges() == [(0, 9), (10, 19), (20, 29), (30, 40)]
        assert made.errors == 1


@pytest.mark.parametrize("error", [RetriableRemoteStorageException("away"), StoreError("refused"), ValueError("bug")])
def test_no_error_of_it_stops_copies(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a tier whose index objects cannot be read gets no segment any more."""
    with indexing() as made:

        def fails(_: object) -> None:
            raise error

        monkeypatch.setattr(made.broker.storage, "fetch_log_index", fails)
        made.broker.produce(made.partition, 3)
        made.lead()
        made.pass_time()
        assert made.log.highest_offset_in_remote_storage == 29
        assert made.ranges() == []
        assert (made.errors > 0) != isinstance(error, RetriableRemoteStorageException)
        monkeypatch.undo()
        made.pass_time()
        assert made.ranges() == [(0, 9), (10, 19), (20, 29)]


def test_an_ended_term_writes_nothing() -> None:
    """If this fails, the run of an earlier term writes into files that the next one has open."""
    with indexing() as made:
        made.broker.produce(made.partition, 1)
        made.lead()
        made.pass_time()
        RemoteLogIndex(made.log.folder, machine=made.broker.machine).truncate_from_end(0)
        indexes = LogIndexes(made.broker.manager._services)
        term = TieredPartition(made.partition, Role.FOLLOWER, made.broker.machine.scheduler)
        term.end()
        assert not indexes.update(term)
        assert made.ranges() == []


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_leaves_an_index_that_goes_on(seed: int) -> None:
    """If this fails, a broker whose power failed has an index with a hole, or none any more."""
    machine, scheduler = ManualScheduler.machine(seed)
    with scheduler:
        topic = MemoryMetadataTopic(3, machine=machine)
        made = started(machine, topic)
        made.lead()
        rng = machine.rng
        for _ in range(4):
            made.broker.produce(made.partition, 1)
            made.log.flush()
            made.pass_time(rng.uniform(0, 1.2))
        files = machine.files
        assert isinstance(files, MemoryFiles)
        left = replace(machine, files=files.crash(rng))
        with contextlib.suppress(StoreError):
            made.broker.close()
        again = started(left, topic)
        found = again.ranges()
        assert [first for first, _ in found] == [0, *(last + 1 for _, last in found[:-1])][: len(found)]
        again.lead()
        again.pass_time()
        assert again.ranges() == [(each.start_offset, each.end_offset) for each in again.copied()]
        assert len(again.ranges()) == 4
        assert again.errors == 0
        again.broker.close()


# ---- the rules


def segment(
    start: int, end: int, number: int, *, state: STATE = STATE.COPY_SEGMENT_FINISHED, event_ms: int = 1
) -> RemoteLogSegmentMetadata:
    partition = TopicIdPartition(Uuid(bytes(15) + b"\1"), "orders", 0)
    begun = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid(number.to_bytes(16, "big"))),
        start_offset=start,
        end_offset=end,
        max_timestamp_ms=1,
        broker_id=1,
        event_timestamp_ms=event_ms,
        segment_size_in_bytes=1,
        segment_leader_epochs={0: start},
    )
    return replace(begun, state=state)


def entry_of(of: RemoteLogSegmentMetadata) -> RemoteLogIndexEntry:
    key = f"orders/{of.start_offset}-{of.remote_log_segment_id.id}.log#0"
    return RemoteLogIndexEntry(of.start_offset, of.end_offset, -1, -1, 1, key.encode())


EPOCHS = LeaderEpochs([(0, 0)])


def test_segments_of_an_index() -> None:
    """Duplicates of a retry, overlaps of another leader, what is not copied, and what lies behind the log."""
    rows = [
        segment(0, 9, 1),
        segment(0, 9, 2, event_ms=2),
        segment(5, 14, 3),
        segment(6, 8, 4),
        segment(15, 19, 5, state=STATE.COPY_SEGMENT_STARTED),
        segment(15, 19, 6, state=STATE.DELETE_SEGMENT_STARTED),
        segment(15, 24, 7),
        segment(25, 34, 8),
    ]
    chosen = indexed_segments(reversed(rows), EPOCHS, log_end_offset=30)
    assert [each.remote_log_segment_id.id[-1] for each in chosen] == [2, 3, 7]


@given(st.lists(st.booleans(), min_size=1, max_size=12), st.integers(0, 12), st.booleans())
def test_an_index_matches_up_to_its_first_other_entry(shipped: list[bool], at: int, is_damaged: bool) -> None:
    """For any row of segments, of which some have no entries, and any entry of another segment in it."""
    rows = [segment(10 * number, 10 * number + 9, number + 1) for number in range(len(shipped))]
    entries = [entry_of(row) for row, has in zip(rows, shipped, strict=True) if has]
    if is_damaged and at < len(entries):
        other = segment(entries[at].first_offset, entries[at].last_offset, 99)
        damaged = [*entries[:at], entry_of(other), *entries[at + 1 :]]
        matched = match_entries(damaged, rows)
        assert matched.cut_offset == entries[at].first_offset
        assert matched.segments == (entries[at - 1].first_offset // 10 + 1 if at else 0)
    else:
        last = max((number for number, has in enumerate(shipped) if has), default=-1)
        assert match_entries(entries, rows) == (last + 1, None)
