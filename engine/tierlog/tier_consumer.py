"""A consumer of a tier and of brokers, by the calls of Kafka's consumers; polls return Arrow."""

from __future__ import annotations

import collections
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NoReturn, Protocol

import pyarrow as pa

from tierlog.errors import ConfigError, UnknownTopicError
from tierlog.runtime.kafka.kafka_errors import PositionOutOfRangeError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.scan.history import PartitionHistory
from tierlog.scan.live.live_tier import LiveTier, Place
from tierlog.scan.live.loss_report import LossReport
from tierlog.scan.live.seams import BrokerFacts
from tierlog.scan.planning.plan import prepare_scan, resolve_bounds
from tierlog.scan.reading.parallel_scan import ParallelScan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import IsolationLevel, ScanRequest, TopicSelection

if TYPE_CHECKING:
    from tierlog.scan.live.broker_logs import BrokerLogs

Start = Literal["earliest", "latest"]

#: Places of an assignment that are no offsets, by Kafka's numbers.
OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_STORED: Final = -1000
OFFSET_INVALID: Final = -1001

#: Bytes of one range, and of one batch, as of ``tierlog.read``.
_RANGE_BYTES: Final = 16 << 20
_BATCH_BYTES: Final = 2 << 20
#: How long one topic's brokers are waited for before another's are asked.
_TURN_SECONDS: Final = 0.1


class TopicPartitionOffset(NamedTuple):
    """A partition with an offset, or another number that a call gives with it.

    The consumer takes any object that has these three attributes, such as confluent-kafka's.
    """

    topic: str
    partition: int
    offset: int = OFFSET_INVALID


class PartitionLike(Protocol):
    """A partition as calls take it: ours, or confluent-kafka's TopicPartition."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def offset(self) -> int: ...


@dataclass(frozen=True, slots=True)
class ConsumerReading:
    """How a consumer reads records: the checked arguments of ``tierlog.consume``."""

    columns: tuple[str, ...]
    isolation_level: IsolationLevel
    verify_checksums: bool
    losses: LossReport


@dataclass(slots=True)
class _Assigned:
    """A partition of the assignment.

    Attributes:
        position: Offset of the next record that a poll returns.
        is_paused: Whether polls pass it over.
        is_live: Whether brokers give what comes next: the tier's part has ended.
        fetched: Where the next read from brokers begins.
        waiting: Batches that brokers gave, each with the position behind it.
    """

    position: int
    is_paused: bool = False
    is_live: bool = False
    fetched: int = 0
    waiting: collections.deque[tuple[int, pa.RecordBatch]] = field(default_factory=collections.deque)


@dataclass(slots=True)
class _TierRead:
    """The partition that is read from the tier now, up to its end there."""

    place: Place
    end: int
    scan: ParallelScan


class TierConsumer(Closeable):
    """A consumer of topics, named as confluent-kafka's; polls return Arrow batches. Made by :func:`tierlog.consume`.

    Each record of the assigned partitions is returned once, in the order of its partition's offsets: from the tier as
    far as that goes, then from brokers, if the mode has them. A batch is of one partition.

    Raises (all methods): StoreUnavailableError and its kinds, which are retriable: the store or the cluster is away for
    now; the same call goes on where it was. DataLossError: records are gone that should be there. ConfigError: the
    tier is not of the brokers' log. CorruptDataError, StoreError and their kinds. ValueError: it is closed, or a
    partition is not assigned.

    Thread safety: one thread at a time.

    Memory: that of ``tierlog.read`` for one partition, and 16 MiB of messages for each partition read from brokers.
    """

    def __init__(
        self,
        topics: Sequence[str],
        live: LiveTier | None,
        brokers: BrokerLogs | None,
        reading: ConsumerReading,
        *,
        start: Start,
        group: str | None,
        machine: Machine,
    ) -> None:
        self._topics = tuple(topics)
        self._live, self._brokers = live, brokers
        self._reading, self._start, self._group = reading, start, group
        self._clock = machine.clock
        self._asked = tuple(dict.fromkeys((*reading.columns, "offset")))
        self._assigned: dict[Place, _Assigned] = {}
        self._turns: collections.deque[Place] = collections.deque()
        self._read: _TierRead | None = None
        self._ended_reads = 0
        self._is_closed = False

    # ---- what is read

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        """Read these partitions, and no others.

        Args:
            partitions: Each with an offset to begin at, or OFFSET_BEGINNING, OFFSET_END, OFFSET_STORED. Without
                (OFFSET_INVALID) at the offset that the group has committed, else where ``start`` says.

        Raises:
            UnknownTopicError: one of them is not there.
        """
        self._require_open()
        asked = {(each.topic, each.partition): each.offset for each in partitions}
        logs = self._logs(asked)
        stored = [place for place, offset in asked.items() if offset in (OFFSET_STORED, OFFSET_INVALID)]
        committed = self._committed(stored) if self._group is not None and stored else {}
        found = {}
        for place, offset in asked.items():
            first, end = logs[place]
            if offset in (OFFSET_STORED, OFFSET_INVALID):
                known = committed.get(place)
                offset = known if known is not None else OFFSET_BEGINNING if self._start == "earliest" else OFFSET_END
            elif offset < 0 and offset not in (OFFSET_BEGINNING, OFFSET_END):
                raise ValueError(f"{offset} is no offset")
            found[place] = _Assigned(first if offset == OFFSET_BEGINNING else end if offset == OFFSET_END else offset)
        self._drop_read()
        self._assigned = found
        self._turns = collections.deque(found)

    def assign_all(self) -> None:
        """Read all partitions that the topics have now: as it is after ``consume``."""
        self.assign([TopicPartitionOffset(*place) for place in self._places()])

    def subscribe(self, topics: Sequence[str]) -> NoReturn:  # noqa: ARG002  the consumer's signature
        """Raise ConfigError, always."""
        raise ConfigError(
            "a group's members share partitions by a broker's word, which a tier cannot give: assign them yourself"
        )

    def assignment(self) -> list[TopicPartitionOffset]:
        """Return the assigned partitions, with their positions."""
        return [TopicPartitionOffset(*place, each.position) for place, each in self._assigned.items()]

    def seek(self, partition: PartitionLike) -> None:
        """Go on at an offset of an assigned partition."""
        place, state = self._state_of(partition)
        if partition.offset < 0:
            first, end = self._logs([place])[place]
            offset = first if partition.offset == OFFSET_BEGINNING else end
            if partition.offset not in (OFFSET_BEGINNING, OFFSET_END):
                raise ValueError(f"{partition.offset} is no offset")
        else:
            offset = partition.offset
        self._drop_read(place)
        self._assigned[place] = _Assigned(offset, state.is_paused)

    def position(self, partitions: Iterable[PartitionLike]) -> list[TopicPartitionOffset]:
        """Return the offsets of the records that come next."""
        return [TopicPartitionOffset(*place, state.position) for place, state in map(self._state_of, partitions)]

    def pause(self, partitions: Iterable[PartitionLike]) -> None:
        """Return no records of these partitions until ``resume``."""
        for place, state in map(self._state_of, partitions):
            state.is_paused = True
            self._drop_read(place)

    def resume(self, partitions: Iterable[PartitionLike]) -> None:
        """Return records of these partitions again."""
        for _, state in map(self._state_of, partitions):
            state.is_paused = False

    def poll(self, timeout: float = 1.0) -> pa.RecordBatch | None:
        """Return the next records of a partition; None: there were none within the time.

        Args:
            timeout: In seconds. A store or broker that is slow may take longer, within its own time limits.

        Returns:
            A batch of the columns that were chosen; never an empty one.
        """
        self._require_open()
        until = self._clock.monotonic_seconds() + timeout
        while True:
            ended = self._ended_reads
            for _ in range(len(self._turns)):
                place = self._turns[0]
                self._turns.rotate(-1)
                batch = self._next_of(place)
                if batch is not None:
                    return batch
            if ended != self._ended_reads:
                continue  # others may begin to be read now
            left = until - self._clock.monotonic_seconds()
            if not self._fetch(max(left, 0.0)) and left <= 0:
                return None

    # ---- offsets

    def offsets_for_times(self, partitions: Iterable[PartitionLike]) -> list[TopicPartitionOffset]:
        """Return for each partition the offset of its first record of a time or later.

        Args:
            partitions: With ms since 1970 in place of the offset.

        Returns:
            The same partitions with offsets; OFFSET_END where no record is that late.
        """
        asked = {(each.topic, each.partition): each.offset for each in partitions}
        times: collections.defaultdict[str, dict[int, int]] = collections.defaultdict(dict)
        for (topic, partition), time_ms in asked.items():
            times[topic][partition] = time_ms
        found: dict[Place, int | None] = {}
        if self._brokers is not None:
            for topic, of_topic in times.items():
                for partition, offset in self._brokers.offsets_by_time(topic, of_topic).items():
                    found[topic, partition] = offset
        else:
            found = self._tier_offsets_by_time(times)
        return [TopicPartitionOffset(*place, OFFSET_END if (at := found[place]) is None else at) for place in asked]

    def get_watermark_offsets(self, partition: PartitionLike) -> tuple[int, int]:
        """Return the first offset of a partition, and where its records end."""
        place = partition.topic, partition.partition
        return self._logs([place])[place]

    def committed(self, partitions: Iterable[PartitionLike]) -> list[TopicPartitionOffset]:
        """Return the offsets that the group has committed; OFFSET_INVALID where it has none.

        Raises:
            ConfigError: there is no group.
        """
        places = [(each.topic, each.partition) for each in partitions]
        found = self._committed(places)
        return [TopicPartitionOffset(*each, OFFSET_INVALID if (at := found[each]) is None else at) for each in places]

    def commit(self, offsets: Iterable[PartitionLike] | None = None) -> list[TopicPartitionOffset]:
        """Commit offsets for the group, and wait for it; by default the positions of all assigned partitions.

        Raises:
            ConfigError: there is no group, or it has members: another consumer subscribes by its name.
        """
        wanted = self.assignment() if offsets is None else list(offsets)
        brokers, group = self._group_of()
        brokers.commit(group, {(each.topic, each.partition): each.offset for each in wanted})
        return [TopicPartitionOffset(each.topic, each.partition, each.offset) for each in wanted]

    def close(self) -> None:
        """End what is read, and close the tier and the clients; idempotent. Nothing is committed."""
        self._is_closed = True
        self._drop_read()
        self._assigned.clear()
        self._turns.clear()
        if self._live is not None:
            self._live.close()
        if self._brokers is not None:
            self._brokers.close()

    # ---- reading

    def _next_of(self, place: Place) -> pa.RecordBatch | None:
        """The next batch of a partition that is there without waiting for brokers."""
        state = self._assigned[place]
        if state.is_paused:
            return None
        if state.waiting:
            state.position, batch = state.waiting.popleft()
            return batch
        if state.is_live or (self._read is not None and self._read.place != place):
            return None
        if self._read is None and not self._begin(place, state):
            return None
        read = self._read
        assert read is not None
        try:
            batch = next(read.scan, None)
        except BaseException:
            self._drop_read()  # it would raise this for ever: the next poll reads anew from the position
            raise
        if batch is None:
            state.position = max(state.position, read.end)
            self._drop_read()
            self._ended_reads += 1
            return None
        state.position = batch["offset"][-1].as_py() + 1
        return batch.select(self._reading.columns)

    def _begin(self, place: Place, state: _Assigned) -> bool:
        """Begin to read a partition's part of the tier; False: there is nothing more."""
        live = self._live
        history = None if live is None else live.histories().get(place)
        end = 0 if live is None or history is None else live.end_of(history)
        if live is None or history is None or state.position >= end:
            state.is_live, state.fetched = self._brokers is not None, state.position
            return False
        if self._brokers is not None:
            self._require_one_log(live, history, end)
        self._read = _TierRead(place, end, self._scan(live, history, state.position, end))
        return True

    def _require_one_log(self, live: LiveTier, history: PartitionHistory, end: int) -> None:
        place = history.topic, history.partition
        seam = live.seams({place: 0}, {place: end}).get(place)
        assert self._brokers is not None
        if seam is not None:
            asked = {history.partition: seam.offset if seam.is_unchecked else None}
            facts: BrokerFacts = self._brokers.facts(history.topic, asked)[history.partition]
            live.require_one_log(history, facts)

    def _scan(self, live: LiveTier, history: PartitionHistory, first: int, end: int) -> ParallelScan:
        reading, topic, partition = self._reading, history.topic, history.partition
        if first < history.earliest_offset:
            lost = f"{topic}-{partition}: offsets {first} to {history.earliest_offset - 1} have gone from the tier"
            reading.losses.lose(lost)
            first = history.earliest_offset
        request = ScanRequest(
            TopicSelection.assign({topic: (partition,)}),
            starting_offsets={topic: {partition: first}},
            ending_offsets={topic: {partition: end}},
            isolation_level=reading.isolation_level,
            max_bytes_per_range=_RANGE_BYTES,
            fail_on_data_loss=reading.losses.fails,
        )
        prepared = prepare_scan(live.tier, request, histories=[history])
        read_range = partial(
            read_scan_range,
            live.tier,
            columns=self._asked,
            verify_checksums=reading.verify_checksums,
            target_bytes=_BATCH_BYTES,
        )
        return ParallelScan(prepared.iter_ranges(), read_range, machine=live.tier.machine)

    def _fetch(self, seconds: float) -> bool:
        """Wait for brokers, or for the tier to grow; whether something may have come."""
        by_topic: collections.defaultdict[str, dict[int, int]] = collections.defaultdict(dict)
        for (topic, partition), state in self._assigned.items():
            if state.is_live and not state.is_paused and not state.waiting:
                by_topic[topic][partition] = state.fetched
        if not by_topic or self._brokers is None:
            self._clock.sleep(min(seconds, _TURN_SECONDS))
            return False
        found = False
        turn = seconds if len(by_topic) == 1 else min(seconds, _TURN_SECONDS)
        for topic, positions in by_topic.items():
            try:
                read = self._brokers.read(topic, positions, columns=self._asked, seconds=turn)
            except PositionOutOfRangeError as error:
                self._find_again((topic, error.partition))
                return True
            for partition, after, batch in read:
                state = self._assigned[topic, partition]
                state.fetched = after
                if batch is None:
                    state.position = after
                else:
                    state.waiting.append((after, batch.select(self._reading.columns)))
                    found = True
        return found

    def _find_again(self, place: Place) -> None:
        """Go on where records are, of a partition whose next one no broker has: in the tier, if that has it by now.

        Raises:
            DataLossError: it has gone, and losses fail.
        """
        state = self._assigned[place]
        history = None if self._live is None else self._live.histories(is_fresh=True).get(place)
        if history is None or not history.earliest_offset <= state.position < history.end_offset_exclusive:
            first, end = self._logs([place])[place]
            self._reading.losses.lose_range(*place, state.position, max(first, state.position + 1))
            state.position = first if state.position < first else end
        state.is_live = False

    def _drop_read(self, place: Place | None = None) -> None:
        """End the read from the tier, if it is of this partition."""
        if self._read is not None and place in (None, self._read.place):
            read, self._read = self._read, None
            read.scan.close()

    # ---- offsets

    def _places(self) -> list[Place]:
        if self._brokers is not None:
            return [(topic, number) for topic in self._topics for number in self._brokers.partitions(topic)[1]]
        assert self._live is not None
        return sorted(self._live.histories(is_first=True))

    def _logs(self, places: Iterable[Place]) -> dict[Place, tuple[int, int]]:
        """First offset and end of partitions. Raises UnknownTopicError: one is not there."""
        if self._brokers is not None:
            by_topic: collections.defaultdict[str, list[int]] = collections.defaultdict(list)
            for topic, partition in places:
                if partition not in self._brokers.partitions(topic)[1]:
                    raise UnknownTopicError(f"the brokers have no partition {partition} of topic {topic}")
                by_topic[topic].append(partition)
            return {
                (topic, partition): log
                for topic, partitions in by_topic.items()
                for partition, log in self._brokers.offsets(topic, partitions).items()
            }
        assert self._live is not None
        found, histories = {}, self._live.histories()
        for place in places:
            history = histories.get(place)
            if history is None:
                raise UnknownTopicError(f"the tier has no partition {place[1]} of topic {place[0]}")
            found[place] = history.earliest_offset, self._live.end_of(history)
        return found

    def _tier_offsets_by_time(self, times: Mapping[str, Mapping[int, int]]) -> dict[Place, int | None]:
        assert self._live is not None
        live, histories = self._live, self._live.histories()
        wanted = [history for place, history in histories.items() if place[1] in times.get(place[0], {})]
        request = ScanRequest(
            TopicSelection.of_names(times), starting_timestamps=times, no_match="latest", clamp_offsets=True
        )
        found: dict[Place, int | None] = {(topic, number): None for topic, of in times.items() for number in of}
        for each in resolve_bounds(live.tier, request, wanted, self._reading.losses.lose):
            at = each.first_offset
            found[each.topic, each.partition] = None if at >= each.latest_offset else at
        return found

    def _committed(self, places: Iterable[Place]) -> dict[Place, int | None]:
        brokers, group = self._group_of()
        return brokers.committed(group, places)

    def _group_of(self) -> tuple[BrokerLogs, str]:
        self._require_open()
        if self._brokers is None or self._group is None:
            raise ConfigError(
                "offsets are committed at brokers, for a group: kafka['group.id'] in a mode that asks them"
            )
        return self._brokers, self._group

    def _state_of(self, partition: PartitionLike) -> tuple[Place, _Assigned]:
        self._require_open()
        place = partition.topic, partition.partition
        state = self._assigned.get(place)
        if state is None:
            raise ValueError(f"{place[0]}-{place[1]} is not assigned")
        return place, state

    def _require_open(self) -> None:
        if self._is_closed:
            raise ValueError("the consumer is closed")
