"""Consumers, which read every partition from leaders and followers, and clients that look offsets up by time.

Source: Kafka OffsetFetcher, FetchCollector (the resets), SubscriptionState.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tests.simulation.client import RETRY_MS, Client, Network, broker_name
from tests.simulation.facts import Judge
from tests.simulation.messages import Fetch, Fetched, ListedOffset, ListOffset, Partition
from tests.simulation.settings import Settings
from tierlog._native.checksums import crc32c

EARLIEST: Final = -2
LATEST: Final = -1
MAX_TIMESTAMP: Final = -3
_SPECIAL: Final = (LATEST, EARLIEST, MAX_TIMESTAMP, -4, -5, -6)
_FETCH_TIMEOUT_MS: Final = 2_500
_PAUSE_MS: Final = 20
_WATCH_MS: Final = 500
_JUMP_RATE: Final = 0.01
_BATCH_HEAD: Final = struct.Struct(">qi")
_LAST_OFFSET_DELTA: Final = struct.Struct(">i")
_BATCH_OVERHEAD: Final = 12
_MAGIC_POSITION, _MAGIC = 16, 2
_CHECKSUM: Final = struct.Struct(">I")
_CHECKSUM_POSITION, _COVERED_POSITION, _DELTA_POSITION = 17, 21, 23


def next_offset_behind(data: bytes, offset: int) -> int | None:
    """The offset behind the last whole batch of an answer, the given one if it has none; None: a checksum is wrong, or
    a magic, which none covers (Kafka's ByteBufferLogInputStream).
    """
    position = 0
    while position + _BATCH_OVERHEAD <= len(data):
        base_offset, size_bytes = _BATCH_HEAD.unpack_from(data, position)
        end = position + _BATCH_OVERHEAD + size_bytes
        if size_bytes <= 0 or end > len(data):
            break
        (checksum,) = _CHECKSUM.unpack_from(data, position + _CHECKSUM_POSITION)
        is_known = data[position + _MAGIC_POSITION] == _MAGIC
        if not is_known or crc32c(data[position + _COVERED_POSITION : end]) != checksum:
            return None
        (delta,) = _LAST_OFFSET_DELTA.unpack_from(data, position + _DELTA_POSITION)
        offset = max(offset, base_offset + delta + 1)
        position = end
    return offset


@dataclass(slots=True, eq=False)
class Position:
    """How far a consumer is in a partition.

    Attributes:
        offset: Of its next fetch.
        read_from: A follower that it reads from; None = the leader.
        bounds: Log start and high watermark, as the last answer had them.
    """

    partition: Partition
    offset: int
    read_from: int | None = None
    bounds: tuple[int, int] = (0, 0)


class Consumer(Client):
    """A consumer of all partitions of some topics.

    Args:
        topics: That it reads.
        is_committed: Whether it reads committed records alone.
    """

    def __init__(
        self,
        name: str,
        settings: Settings,
        network: Network,
        judge: Judge,
        *,
        topics: tuple[str, ...],
        is_committed: bool,
    ) -> None:
        super().__init__(name, settings, network, judge)
        self._topics = topics
        self._is_committed = is_committed
        self._start_at = self.chance.one_of((EARLIEST, EARLIEST, LATEST))
        self._is_roaming = self.chance.happens(0.5) or not is_committed  # one at least, of every run
        self._max_bytes = self.chance.one_of((1, 500, 4_000, 100_000))
        self._seen: set[Partition] = set()

    def begin(self) -> None:
        """Take up partitions that are new, now and then."""
        for partition in self.known.partitions(self._topics):
            if partition not in self._seen:
                self._seen.add(partition)
                self._find(partition, self._start_at, None, "start")
        self.after(_WATCH_MS, lambda: self.known.refresh(self.begin))

    # ---- a position that is looked for

    def _find(self, partition: Partition, timestamp: int, before: int | None, why: str) -> None:
        """Ask the leader where to go on. ``before`` is the position that is left; None: there was none."""
        leader, _ = self.known.leader(partition)
        if leader is None:
            if not self.known.is_gone(partition):
                self._refreshed(lambda: self._find(partition, timestamp, before, why))
            return

        def found(answer: ListedOffset | None) -> None:
            if answer is None or answer.error is not None or answer.offset < 0:
                self._refreshed(lambda: self._find(partition, timestamp, before, why))
                return
            if before is not None:
                self.judge.position_reset(self.name, partition, before, answer.offset, why, self.now_ms)
            self._fetch(Position(partition, answer.offset, bounds=(answer.offset, answer.offset)))

        request = ListOffset(partition, timestamp, self._is_committed)
        self.ask(broker_name(leader), request, found, timeout_ms=_FETCH_TIMEOUT_MS)

    def _refreshed(self, then: object) -> None:
        assert callable(then)
        self.after(RETRY_MS, lambda: self.known.refresh(then))

    # ---- fetches

    def _fetch(self, position: Position) -> None:
        partition = position.partition
        leader, epoch = self.known.leader(partition)
        broker = leader if position.read_from is None else position.read_from
        if broker is None:
            if not self.known.is_gone(partition):
                self._refreshed(lambda: self._fetch(position))
            return
        request = Fetch(
            partition,
            position.offset,
            max_bytes=self._max_bytes,
            max_wait_ms=self.settings.fetch_max_wait_ms,
            leader_epoch=epoch if self.chance.happens(0.8) else -1,
            is_committed=self._is_committed,
        )
        self.ask(
            broker_name(broker),
            request,
            lambda answer: self._fetched(position, broker, answer),
            timeout_ms=_FETCH_TIMEOUT_MS,
        )

    def _fetched(self, position: Position, broker: int, answer: Fetched | None) -> None:
        if answer is None or answer.error is not None:
            self._failed(position, None if answer is None else answer.error)
            return
        next_offset = next_offset_behind(answer.data, position.offset)
        if next_offset is None:  # a disk rots: another replica may have it whole
            position.read_from = self.chance.one_of(self.known.replicas[position.partition])
            self.after(_PAUSE_MS, lambda: self._fetch(position))
            return
        self.judge.polled(
            self.name,
            position.partition,
            broker=broker,
            offset=position.offset,
            is_committed=self._is_committed,
            data=answer.data,
            aborted=answer.aborted,
            high_watermark=answer.high_watermark,
            last_stable_offset=answer.last_stable_offset,
            log_start_offset=answer.log_start_offset,
            is_remote=answer.is_remote,
            now_ms=self.now_ms,
        )
        position.offset = next_offset
        position.bounds = answer.log_start_offset, answer.high_watermark
        self._choose(position)
        self.after(_PAUSE_MS if answer.data else self.chance.around(100), lambda: self._fetch(position))

    def _failed(self, position: Position, error: str | None) -> None:
        """Go on elsewhere; out of range of a follower's log, the leader is asked before the position is reset."""
        was_follower, position.read_from = position.read_from is not None, None
        if error == "OFFSET_OUT_OF_RANGE" and not was_follower:
            self._find(position.partition, EARLIEST, position.offset, "out of range")
        elif not self.known.is_gone(position.partition):
            self._refreshed(lambda: self._fetch(position))

    def _choose(self, position: Position) -> None:
        """Read from another replica, or from elsewhere, now and then."""
        partition = position.partition
        if self.chance.happens(0.2):
            replicas = self.known.replicas.get(partition, ())
            position.read_from = self.chance.one_of(replicas) if replicas and self.chance.happens(0.7) else None
        low, high = position.bounds
        is_at_end = position.offset >= high
        if self._is_roaming and high > low and self.chance.happens(_JUMP_RATE + 0.1 * is_at_end):
            target = low + self.chance.below(high - low)
            self.judge.position_reset(self.name, partition, position.offset, target, "random", self.now_ms)
            position.offset = target


class Lookups(Client):
    """A client that asks for offsets by time, and for Kafka's special ones."""

    def __init__(
        self, name: str, settings: Settings, network: Network, judge: Judge, *, topics: tuple[str, ...]
    ) -> None:
        super().__init__(name, settings, network, judge)
        self._topics = topics
        self._begun_ms = self.now_ms

    def begin(self) -> None:
        if self.is_stopped:
            return
        self.known.refresh_at_times()
        led = [each for each in self.known.partitions(self._topics) if self.known.leader(each)[0] is not None]
        if not led:
            self.known.refresh(lambda: self.after(RETRY_MS, self.begin))
            return
        partition = self.chance.one_of(led)
        leader, _ = self.known.leader(partition)
        assert leader is not None
        timestamp = self.chance.one_of(_SPECIAL)
        if self.chance.happens(0.7):
            timestamp = self.chance.between(self._begun_ms - 100, self.now_ms + 100)
        request = ListOffset(partition, timestamp, self.chance.happens(0.3))
        broker = leader

        def found(answer: ListedOffset | None) -> None:
            if answer is not None and answer.error is None:
                self.judge.looked_up(
                    self.name,
                    request,
                    answer,
                    broker=broker,
                    now_ms=self.now_ms,
                )
            self.after(self.chance.around(400), self.begin)

        self.ask(broker_name(broker), request, found, timeout_ms=_FETCH_TIMEOUT_MS)
