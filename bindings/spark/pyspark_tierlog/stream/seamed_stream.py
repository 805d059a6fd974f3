"""A query's stream over brokers and their tier, on the driver of the Python path.

Offsets are those of the brokers, whose log has all of the tier's. The jar asks Spark's own Kafka source for them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark_tierlog.options.java_patterns import name_pattern
from pyspark_tierlog.options.offset_options import EARLIEST_OFFSET, LATEST_OFFSET, PartitionNumbers, TopicPartition
from pyspark_tierlog.request import EVERYTHING, broker_keys
from pyspark_tierlog.stream.stream_offsets import StreamOffsets
from pyspark_tierlog.stream.tier_stream import TierStream
from pyspark_tierlog.stream.trigger_limits import Trigger, TriggerLimits
from pyspark_tierlog.tasks import BrokerTask
from tierlog.errors import ConfigError, DataLossError, UnknownTopicError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.scan.live.broker_logs import BrokerLogs
from tierlog.scan.live.live_tier import Seam
from tierlog.scan.live.loss_report import LossReport
from tierlog.scan.live.seams import BrokerFacts
from tierlog.scan.planning.plan import PreparedScan

if TYPE_CHECKING:
    from pyspark_tierlog.options.source_options import ReadOptions
    from tierlog.scan.scan_request import RecordFilter


class SeamedPlan(NamedTuple):
    """What a batch reads: of the tier, None for nothing, and of brokers."""

    tier: PreparedScan | None
    brokers: tuple[BrokerTask, ...]


class SeamedStream(Closeable):
    """A stream over the one path of some options, which were checked, and over the brokers that they name.

    Args:
        options: Of the load.
        machine: By default this machine.

    Attributes:
        tier_stream: The tier's part; None in mode local-only.

    Raises:
        ConfigError: this path cannot obey the mode. Else as TierStream and as BrokerLogs.

    Thread safety: one thread at a time.
    """

    def __init__(self, options: ReadOptions, *, machine: Machine | None = None) -> None:
        if options.mode == "local-preferred":
            raise ConfigError(
                "mode=local-preferred needs the jar: librdkafka, which reads here, cannot ask where local logs begin"
            )
        machine = machine or Machine()
        self._options = options
        self._losses = LossReport(fails=options.fail_on_data_loss)
        self._trigger = Trigger(machine.clock)
        self._topic_ids: dict[str, str | None] = {}
        self._brokers = BrokerLogs(broker_keys(options), machine=machine)
        try:
            self.tier_stream = None if options.mode == "local-only" else TierStream(options, machine=machine)
        except BaseException:
            self._brokers.close()
            raise

    def close(self) -> None:
        """Close the tier and the clients."""
        self._brokers.close()
        if self.tier_stream is not None:
            self.tier_stream.close()

    def initial_offsets(self) -> dict[TopicPartition, int]:
        """Find where a new query begins. Raises: as ``find_offsets``."""
        options = self._options
        start = "latest" if options.starting_offsets is None else options.starting_offsets
        return self.find_offsets(start, options.starting_timestamp, options.starting_offsets_by_timestamp)

    def find_offsets(
        self,
        bound: str | PartitionNumbers,
        timestamp: int | None,
        by_timestamp: PartitionNumbers | None,
        *,
        strategy: str | None = None,
    ) -> dict[TopicPartition, int]:
        """Find the offsets for which a bound stands.

        Args:
            bound: A word, or offsets by partition.
            timestamp: Of all partitions, ms since 1970; counts before the others.
            by_timestamp: By partition; counts before ``bound``.
            strategy: What a time behind all records means: "error" or "latest"; by default the option's.

        Raises:
            ConfigError: it names other partitions than those that are read, or a time behind all records with the
                strategy "error". DataLossError: an offset is not there, and ``failOnDataLoss``. UnknownTopicError.
                StoreUnavailableError: no broker answers.
        """
        logs = self._logs()
        if timestamp is not None:
            by_timestamp = dict.fromkeys(logs, timestamp)
        given = bound if by_timestamp is None else by_timestamp
        if isinstance(given, Mapping) and given.keys() != logs.keys():
            named = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(given.keys() ^ logs.keys()))
            raise ConfigError(f"offsets are given for other partitions than those that are read: {named}")
        if by_timestamp is not None:
            strategy = strategy or self._options.starting_offsets_by_timestamp_strategy
            return self._by_time(logs, by_timestamp, is_strict=strategy == "error")
        found = {}
        for place, (start, end) in logs.items():
            asked = bound[place] if isinstance(bound, Mapping) else bound
            if asked in ("earliest", EARLIEST_OFFSET):
                found[place] = start
            elif asked in ("latest", LATEST_OFFSET):
                found[place] = end
            else:
                found[place] = min(max(int(asked), start), end)
                if found[place] != asked:
                    self._losses.lose(f"{place[0]}-{place[1]} has no offset {asked}: its log has {start} to {end - 1}")
        return found

    def tier_ends(self, *, is_fresh: bool = False) -> dict[TopicPartition, int]:  # noqa: ARG002  brokers are always asked
        """Find where the brokers' logs end: for read_committed at their last stable offsets.

        Raises: as ``find_offsets``.
        """
        return {place: end for place, (_, end) in self._logs().items()}

    def next_offsets(
        self, start: StreamOffsets, limits: TriggerLimits | None = None, *, final: StreamOffsets | None = None
    ) -> dict[TopicPartition, int]:
        """Find the end of the next batch, nowhere in front of its start; the arguments are those of TierStream.

        Raises: as ``find_offsets``.
        """
        logs = self._logs()
        ends = {place: end for place, (_, end) in logs.items()} if final is None else final
        end = dict(start) | {place: max(offset, start.get(place, 0)) for place, offset in ends.items()}
        firsts = {place: first for place, (first, _) in logs.items()}
        return self._trigger.next_end(start, end, firsts, limits, is_last=final is not None)

    def plan(self, start: StreamOffsets, end: StreamOffsets, *, record_filter: RecordFilter = EVERYTHING) -> SeamedPlan:
        """Plan a batch; a partition without a start begins at its first offset. What is not in the filter is left out
        of the tier's part.

        Raises:
            ConfigError: the brokers' log is another one than the tier's. Else as TierStream.plan, and as
                ``find_offsets``.
        """
        heads = {place: first for place, (first, _) in self._logs().items()}
        firsts = heads | dict(start)
        for place in end.keys() - start.keys():
            if firsts.get(place, 0) > 0:
                self._losses.lose(f"{place[0]}-{place[1]} is new and begins at offset {firsts[place]}, not at 0")
        seams = {} if self.tier_stream is None else self.tier_stream.live.seams(firsts, end)
        begun = dict(end) | firsts | {place: seam.offset for place, seam in seams.items()}
        for place in sorted(end):
            head = min(heads.get(place, 0), end[place])
            if begun[place] < head:
                self._losses.lose_range(*place, begun[place], head)
                begun[place] = head
        ranges = [BrokerTask(*place, begun[place], end[place]) for place in sorted(end) if begun[place] < end[place]]
        if self.tier_stream is None or not seams:
            return SeamedPlan(None, tuple(ranges))
        tier_end = {place: seam.offset for place, seam in seams.items()}
        tier_start = {place: firsts[place] for place in seams if place in firsts}
        facts = self._facts(seams)
        planned = self.tier_stream.plan(tier_start, tier_end, brokers=facts, record_filter=record_filter)
        return SeamedPlan(planned, tuple(ranges))

    def told(self, warnings: Sequence[str]) -> None:
        """Report the warnings of a plan, each once."""
        for warning in warnings:
            self._losses.say(warning)

    # ---- the brokers

    def _facts(self, seams: Mapping[TopicPartition, Seam]) -> dict[TopicPartition, BrokerFacts]:
        asked: defaultdict[str, dict[int, int | None]] = defaultdict(dict)
        for (topic, partition), seam in seams.items():
            asked[topic][partition] = seam.offset if seam.is_unchecked else None
        return {
            (topic, partition): facts
            for topic, of_topic in asked.items()
            for partition, facts in self._brokers.facts(topic, of_topic).items()
        }

    def _by_time(
        self, logs: Mapping[TopicPartition, tuple[int, int]], asked: PartitionNumbers, *, is_strict: bool
    ) -> dict[TopicPartition, int]:
        times: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for (topic, partition), time_ms in asked.items():
            times[topic][partition] = time_ms
        found = {}
        for topic, of_topic in times.items():
            for partition, offset in self._brokers.offsets_by_time(topic, of_topic).items():
                if offset is None and is_strict:
                    raise ConfigError(
                        f"{topic}-{partition} has no record of time {of_topic[partition]} or later; "
                        "startingOffsetsByTimestampStrategy=latest begins at the end then"
                    )
                found[topic, partition] = logs[topic, partition][1] if offset is None else offset
        return found

    def _logs(self) -> dict[TopicPartition, tuple[int, int]]:
        """First offset and end of all partitions that are read."""
        return {
            (topic, partition): log
            for topic, partitions in self._partitions().items()
            for partition, log in self._brokers.offsets(topic, partitions).items()
        }

    def _partitions(self) -> dict[str, Sequence[int]]:
        options = self._options
        if options.assign is not None:
            assigned: defaultdict[str, list[int]] = defaultdict(list)
            for topic, partition in sorted(options.assign):
                if partition not in self._described(topic):
                    raise UnknownTopicError(f"the brokers have no partition {partition} of topic {topic}")
                assigned[topic].append(partition)
            return dict(assigned)
        if options.subscribe is not None:
            names: Sequence[str] = options.subscribe
        else:
            pattern = re.compile(name_pattern(options.subscribe_pattern or ""))
            names = [name for name in self._brokers.topic_names() if pattern.fullmatch(name)]
            if not names:
                raise UnknownTopicError(f"the brokers have no topic like {options.subscribe_pattern}")
        return {name: self._described(name) for name in names}

    def _described(self, topic: str) -> Sequence[int]:
        """A topic's partitions, of the one topic of this name that this run of the query has seen."""
        topic_id, partitions = self._brokers.partitions(topic)
        known = self._topic_ids.setdefault(topic, topic_id)
        if known != topic_id:
            raise DataLossError(
                f"topic {topic} was deleted and made anew: its id was {known} and is {topic_id}; its offsets are other "
                "ones, so that it takes a new query with a checkpoint of its own"
            )
        return partitions
