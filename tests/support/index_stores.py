"""Stores of a broker whose indexes come late, damaged, or never."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, cast

from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, SegmentStream
from tierlog.remote.storage.fetch.segment_stream import bytes_stream, same_error
from tierlog.testing.memory_storage_manager import MemoryStorageManager

if TYPE_CHECKING:
    from tests.support.tiered_brokers import Broker


class IndexStore(MemoryStorageManager):
    """A store that calls something before it gives an index, and changes what it gives. The broker works with it from
    now on.

    Attributes:
        held: The kind that is given once this is another one.
        asked: The number of questions.
    """

    def __init__(self, broker: Broker) -> None:
        super().__init__(machine=broker.machine, segments=broker.cluster.store.segments)
        self.configure({})
        self._clock = broker.machine.clock
        self.asked = 0
        self.held: IndexType | None = None
        self.before: Callable[[RemoteLogSegmentMetadata], object] = lambda _: None
        self.damage: Callable[[IndexType, bytes], bytes] = lambda _, whole: whole
        broker.change_storage(self)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        self.asked += 1
        self.before(metadata)
        while self.held is index_type:
            self._clock.sleep(0.1)
        with super().fetch_index(metadata, index_type) as stream:
            return bytes_stream(self.damage(index_type, stream.read()), translate=same_error)


class HangingStore(IndexStore):
    """A store whose indexes never come."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.stream = HangingStream(broker)

    def fetch_index(self, metadata: RemoteLogSegmentMetadata, index_type: IndexType) -> SegmentStream:
        return cast("SegmentStream", self.stream)


class HangingStream:
    """A stream that gives nothing until it is closed."""

    def __init__(self, broker: Broker) -> None:
        self._changed = broker.machine.scheduler.condition()
        self.is_read = self.is_closed = False

    def buffers(self, max_bytes: int | None = None) -> Iterator[memoryview]:
        with self._changed:
            self.is_read = True
            while not self.is_closed:
                self._changed.wait()
        raise ValueError("the stream is closed")
        yield memoryview(b"")

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
