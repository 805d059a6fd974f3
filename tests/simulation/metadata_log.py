"""The metadata topic behind the network: a node that has it, and a MetadataLog for a broker that asks the node.

A broker's call waits for the answer; one that is lost is a retriable error, whether the record was appended or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.cluster_messages import MetadataCall, Outcome
from tests.simulation.facts import Judge
from tests.simulation.network import Answer, Network
from tests.simulation.trace import Trace
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.remote.metadata.metadata_log import LogBounds, MetadataBatches, MetadataValues, OffsetsLostError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.machine.scheduling import Future
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

_APPEND_TIMEOUT_MS: Final = 2_000
_OPEN_TIMEOUT_MS: Final = 1_000
#: Beyond what a read waits for records.
_READ_TIMEOUT_MS: Final = 500
_RUN_BYTES_MAX: Final = 1 << 20


class MetadataNode:
    """The node that has the topic. Nothing of it is lost, ever.

    Attributes:
        on_appended: Called with each record, and the broker that wrote it.

    Args:
        network: Its calls.
        judge: Is told each record.
        trace: Counts.
        partitions: Of the topic.
        machine: Has the time. Its scheduler is not the cluster's: nothing waits here.
    """

    def __init__(self, network: Network, judge: Judge, trace: Trace, partitions: int, machine: Machine) -> None:
        self._network = network
        self._judge = judge
        self._trace = trace
        self.topic = MemoryMetadataTopic(partitions, machine=machine)
        self._readers: list[_Reader] = []
        self.on_appended: Callable[[int, bytes], None] = lambda _broker, _value: None
        network.serve("metadata", self._handle)

    def values(self) -> list[list[bytes]]:
        """All records, by partition."""
        return [
            [value for _, value in self.topic.values(partition) if value is not None]
            for partition in range(self.topic.partition_count)
        ]

    def _handle(self, _source: str, call: MetadataCall, answer: Answer) -> None:
        arguments = call.arguments
        if call.verb == "append":
            partition, value = arguments
            offset = self.topic.append(partition, value)
            self._judge.metadata_appended(call.broker, partition, value, self._network.now_ms)
            self.on_appended(call.broker, value)
            self._trace.count("metadata records")
            answer(Outcome(offset))
            for reader in list(self._readers):
                self._serve(reader)
        elif call.verb == "bounds":
            answer(Outcome({each: self.topic.bounds(each) for each in arguments[0]}))
        elif call.verb == "read":
            positions, wait_ms = arguments
            reader = _Reader(positions, answer)
            self._readers.append(reader)
            if not self._serve(reader):
                self._network.after(wait_ms, lambda: self._expire(reader))
        else:
            answer(Outcome(self.topic.partition_count))

    def _serve(self, reader: _Reader) -> bool:
        """Answer a read if there is something."""
        found = []
        share = _RUN_BYTES_MAX // max(1, len(reader.positions))
        try:
            for partition, position in reader.positions:
                run = self.topic.run(partition, position, share)
                if run is not None:
                    found.append(run)
        except OffsetsLostError as error:
            self._end(reader, Outcome(raised=error))
            return True
        if found:
            self._end(reader, Outcome(found))
        return bool(found)

    def _expire(self, reader: _Reader) -> None:
        if reader in self._readers:
            self._end(reader, Outcome([]))

    def _end(self, reader: _Reader, outcome: Outcome) -> None:
        self._readers.remove(reader)
        reader.answer(outcome)


class _Reader:
    """A read that waits at the node."""

    def __init__(self, positions: Sequence[tuple[int, int]], answer: Answer) -> None:
        self.positions = positions
        self.answer = answer


class RemoteMetadataLogs:
    """The opener of the topic, for one life of a broker (MetadataLogs)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def open(self, *, timeout_seconds: float) -> RemoteMetadataLog:
        """Ask the node for the number of partitions."""
        log = RemoteMetadataLog(self._broker, self._broker.settings.metadata_partitions)
        log.ask("count", (), timeout_ms=min(timeout_seconds * 1000, _OPEN_TIMEOUT_MS))
        return log


class RemoteMetadataLog(Closeable):
    """The topic, as one life of a broker sees it (MetadataLog)."""

    identity = "the cluster's"

    def __init__(self, broker: Broker, partition_count: int) -> None:
        self._broker = broker
        self.partition_count = partition_count
        self._reading: Any = None
        self._woken = False
        self._closed = False

    def _check(self) -> None:
        if self._closed:
            raise RemoteStorageException("the metadata log is closed")

    def _start(self, verb: str, arguments: tuple[Any, ...], timeout_ms: float, then: Answer) -> None:
        self._check()
        broker = self._broker
        call = MetadataCall(broker.broker_id, verb, arguments)
        network = broker.world.network
        network.call(broker.name, "metadata", call, then, timeout_ms=timeout_ms, may_double=False)

    def ask(self, verb: str, arguments: tuple[Any, ...], *, timeout_ms: float) -> Any:
        """Make a call, and wait for its answer."""
        waiter = self._broker.group.future()
        self._start(verb, arguments, max(1.0, timeout_ms), waiter.set_result)
        return _value(waiter.result())

    def append(self, partition: int, value: bytes) -> Future[int]:
        """Append a record, as MetadataLog says."""
        appended = self._broker.group.future()

        def then(outcome: Outcome | None) -> None:
            if outcome is None:
                appended.set_exception(RetriableRemoteStorageException("the append was not acknowledged in time"))
            else:
                appended.set_result(outcome.value)

        self._start(
            "append",
            (partition, value),
            _APPEND_TIMEOUT_MS,
            lambda outcome: self._broker.io.put(lambda: then(outcome)),
        )
        return appended

    def bounds(self, partitions: Sequence[int], *, timeout_seconds: float) -> Mapping[int, LogBounds]:
        """Return the bounds of some partitions now, as MetadataLog says."""
        timeout_ms = min(timeout_seconds * 1000, _OPEN_TIMEOUT_MS)
        found: Mapping[int, LogBounds] = self.ask("bounds", (tuple(partitions),), timeout_ms=timeout_ms)
        return found

    def read(
        self, positions: Mapping[int, int], *, max_bytes: int, timeout_seconds: float
    ) -> Sequence[MetadataBatches | MetadataValues]:
        """Read records from these offsets on, as MetadataLog says."""
        assert max_bytes > 0
        self._check()
        if self._woken or not positions:
            self._woken = False
            if not positions:
                self._broker.clock.sleep(min(timeout_seconds, 0.05))
            return []
        wait_ms = timeout_seconds * 1000
        waiter = self._reading = self._broker.group.future()

        def then(outcome: Outcome | None) -> None:
            if self._reading is waiter:
                self._reading = None
                waiter.set_result(outcome)

        self._start("read", (tuple(sorted(positions.items())), wait_ms), wait_ms + _READ_TIMEOUT_MS, then)
        found: Sequence[MetadataBatches | MetadataValues] = _value(waiter.result())
        return found

    def wake(self) -> None:
        """End a read that waits, or the next one."""
        waiter, self._reading = self._reading, None
        if waiter is None:
            self._woken = True
        else:
            waiter.set_result(Outcome([]))

    def close(self) -> None:
        """End the calls under way. Idempotent."""
        self._closed = True
        waiter, self._reading = self._reading, None
        if waiter is not None:
            waiter.set_result(Outcome([]))


def _value(outcome: Outcome | None) -> Any:
    if outcome is None:
        raise RetriableRemoteStorageException("the metadata topic does not answer")
    if outcome.raised is not None:
        raise type(outcome.raised)(str(outcome.raised))
    return outcome.value
