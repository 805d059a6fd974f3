"""The metadata topic in memory: what MetadataLog demands, and the faults that tests ask of it."""

from __future__ import annotations

import pytest

from tierlog.records.decoding import decode
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.remote.metadata.metadata_log import LogBounds, MetadataBatches, MetadataValues, OffsetsLostError
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.testing.memory_metadata_topic import MemoryMetadataLog, MemoryMetadataTopic


def opened(topic: MemoryMetadataTopic) -> MemoryMetadataLog:
    return topic.open(timeout_seconds=1)


def read(
    log: MemoryMetadataLog, positions: dict[int, int], *, max_bytes: int = 1 << 20
) -> list[MetadataBatches | MetadataValues]:
    return list(log.read(positions, max_bytes=max_bytes, timeout_seconds=0))


def test_records_come_back_in_order() -> None:
    """A manager that misses an event, or sees one twice, has another table than its brokers."""
    topic = MemoryMetadataTopic(3)
    log = opened(topic)
    assert [log.append(1, b"%d" % n).result() for n in range(3)] == [0, 1, 2]
    assert log.bounds([0, 1], timeout_seconds=1) == {0: LogBounds(0, 0), 1: LogBounds(0, 3)}
    (run,) = read(log, {0: 0, 1: 1, 2: 0})
    assert isinstance(run, MetadataValues)
    assert (run.partition, run.next_offset, list(run.offsets), list(run.values)) == (1, 3, [1, 2], [b"1", b"2"])
    assert read(log, {1: 3}) == []


def test_runs_of_batches() -> None:
    """The form in which log files have them: whole batches, from the one that holds the offset on."""
    topic = MemoryMetadataTopic(1, as_batches=True)
    topic.append(0, b"a", b"b")
    topic.append(0, b"c")
    (run,) = read(opened(topic), {0: 1})
    assert isinstance(run, MetadataBatches)
    records = decode(run.batches)
    assert records.column("offset").to_pylist() == [0, 1, 2]
    assert records.column("value").to_pylist() == [b"a", b"b", b"c"]
    assert run.next_offset == 3


def test_a_read_has_a_bound() -> None:
    """One batch at least, or it would stand still for ever."""
    topic = MemoryMetadataTopic(1)
    for _ in range(5):
        topic.append(0, b"x" * 100)
    log = opened(topic)
    (run,) = read(log, {0: 0}, max_bytes=250)
    assert run.next_offset == 2
    (run,) = read(log, {0: 2}, max_bytes=1)
    assert run.next_offset == 3


def test_offsets_without_records() -> None:
    """Markers of transactions take offsets; a reader that waits for the end would wait for ever."""
    topic = MemoryMetadataTopic(1)
    topic.append(0, b"a")
    topic.skip(0, 2)
    log = opened(topic)
    (run,) = read(log, {0: 0})
    assert run.next_offset == 3
    (run,) = read(log, {0: 1})
    assert (run.next_offset, list(run.offsets)) == (3, [])  # type: ignore[union-attr]


@pytest.mark.parametrize("position", [1, 6])
def test_offsets_that_are_lost(position: int) -> None:
    """Else a manager goes on behind a hole."""
    topic = MemoryMetadataTopic(1)
    for _ in range(7):
        topic.append(0, b"a")
    topic.expire(0, 2)
    topic.truncate(0, 5)
    log = opened(topic)
    assert log.bounds([0], timeout_seconds=1) == {0: LogBounds(2, 5)}
    with pytest.raises(OffsetsLostError):
        read(log, {0: position})
    topic.recreate()
    with pytest.raises(OffsetsLostError):
        read(log, {0: 3})
    assert opened(topic).identity != log.identity


def test_faults() -> None:
    """A lost acknowledgement and a lost record look the same to the appender."""
    topic = MemoryMetadataTopic(1)
    log = opened(topic)
    topic.lose_acknowledgements = topic.drop_appends = 1
    for _ in range(2):
        with pytest.raises(RetriableRemoteStorageException):
            log.append(0, b"a").result()
    assert topic.values(0) == [(0, b"a")]
    topic.unavailable = True
    for call in (lambda: log.append(0, b"a"), lambda: read(log, {0: 0}), lambda: opened(topic)):
        with pytest.raises(RetriableRemoteStorageException):
            call()
    topic.refuses = RemoteStorageException("no")
    with pytest.raises(RemoteStorageException, match="no"):
        opened(topic)
    log.close()
    with pytest.raises(RemoteStorageException):
        read(log, {0: 0})


def test_reads_wait_and_are_woken() -> None:
    """A broker that stops does not wait a second for it, and one that reads does not spin."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        topic = MemoryMetadataTopic(1, machine=machine)
        log = opened(topic)
        assert log.read({0: 0}, max_bytes=1, timeout_seconds=5) == []
        assert machine.clock.monotonic_seconds() == 5
        machine.scheduler.start(lambda: topic.append(0, b"a") and None, name="t")  # type: ignore[arg-type, func-returns-value]
        assert len(log.read({0: 0}, max_bytes=1, timeout_seconds=5)) == 1
        log.wake()
        assert log.read({0: 1}, max_bytes=1, timeout_seconds=5) == []
        assert machine.clock.monotonic_seconds() == 5


def test_late_acknowledgements() -> None:
    """Records can be read before their producer hears of it."""
    machine, scheduler = ManualScheduler.machine(1)
    with scheduler:
        topic = MemoryMetadataTopic(1, machine=machine)
        topic.acknowledge_after = lambda: 3
        log = opened(topic)
        future = log.append(0, b"a")
        assert len(read(log, {0: 0})) == 1
        assert future.result() == 0
        assert machine.clock.monotonic_seconds() == 3
