"""A query's stream over a tier, on the driver: where it begins, what the tier has gained, what a batch reads.

Both engines ask this class: the Python path in Spark's own process for the stream, the jar in its planner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark_tierlog.options.offset_options import EARLIEST_OFFSET, LATEST_OFFSET, TopicPartition
from pyspark_tierlog.request import first_request, log_start_offsets, stream_request, tier_config, topic_selection
from pyspark_tierlog.stream.loss_report import LossReport
from pyspark_tierlog.stream.stream_offsets import StreamOffsets, by_topic
from pyspark_tierlog.stream.trigger_limits import Trigger, TriggerLimits
from tierlog.errors import DataLossError, TierlogError, UnknownTopicError
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.following.followed_tier import FollowedTier, Look
from tierlog.scan.history import PartitionHistory
from tierlog.scan.live.seams import BrokerFacts, last_epoch, require_one_log, seam_offset
from tierlog.scan.planning.plan import PreparedScan, check_named, prepare_scan, resolve_bounds
from tierlog.scan.transaction_history import find_last_stable_offset

if TYPE_CHECKING:
    from pyspark_tierlog.options.source_options import ReadOptions
    from tierlog.remote.metadata.metadata_view import MetadataView

#: Partitions whose last stable offset is found at once.
_CONCURRENCY: Final = 16


@dataclass(frozen=True, slots=True)
class _StableEnd:
    """The last stable offset of a history."""

    history: PartitionHistory
    offset: int


class Seam(NamedTuple):
    """Where the tier's part of a partition ends within a batch.

    Attributes:
        offset: Records below it are the tier's, the others the brokers'.
        is_unchecked: Whether nobody has compared what the tier has now with the brokers' log.
    """

    offset: int
    is_unchecked: bool


class TierStream(Closeable):
    """A stream over the one path of some options, which were checked.

    A listing that fails for a while changes nothing: the stream has what the last one found. Offsets that no segment
    holds are waited for as long as one may come that does; behind that they are lost, which ``failOnDataLoss`` decides.

    Args:
        options: Of the load.
        topic_ids: Of the topics that an earlier run of the query has read.
        machine: By default this machine.

    Attributes:
        tier: As it was opened.
        topic_ids: Of the topics that the stream has seen.

    Raises:
        ConfigError, StoreError and their kinds: as ``open_tier``.

    Thread safety: one thread at a time.
    """

    def __init__(
        self, options: ReadOptions, *, topic_ids: dict[str, str] | None = None, machine: Machine | None = None
    ) -> None:
        self._options = options
        self._machine = machine or Machine()
        read_metadata = self._metadata_reader()
        self.tier = open_tier(
            options.paths[0],
            layout=options.layout,
            config=tier_config(options),
            known=None if read_metadata is None else read_metadata(),
            machine=self._machine,
        )
        self.topic_ids = dict(topic_ids or {})
        self._followed = FollowedTier(
            self.tier,
            topic_selection(options),
            log_start_offsets=log_start_offsets(options),
            may_lack=options.asks_brokers,
            read_metadata=read_metadata,
        )
        self._look: Look | None = None
        self._due = 0.0
        self._stable: dict[TopicIdPartition, _StableEnd] = {}
        self._trigger = Trigger(self._machine.clock)
        self._losses = LossReport(fails=options.fail_on_data_loss)
        self._checked: dict[TopicPartition, tuple[str, int | None]] = {}

    def close(self) -> None:
        """Close the tier."""
        self.tier.close()

    def initial_offsets(self) -> dict[TopicPartition, int]:
        """Find where a new query begins.

        Raises:
            UnknownTopicError: a topic or partition that was named is not there. ConfigError: the options contradict the
                tier. DataLossError: an offset is not there, and ``failOnDataLoss``. CorruptDataError, StoreError and
                their kinds.
        """
        options, request = self._options, first_request(self._options)
        histories = self._histories(is_first=True)
        check_named(request, histories)
        bounds = resolve_bounds(self.tier, request, histories, self._losses.lose)
        start = "latest" if options.starting_offsets is None else options.starting_offsets
        is_by_time = request.starting_timestamps is not None
        found = {}
        for each in bounds:
            place = each.topic, each.partition
            asked = start if isinstance(start, str) else start[place]
            is_latest = not is_by_time and asked in ("latest", LATEST_OFFSET)
            found[place] = each.latest_offset if is_latest else each.first_offset
        return found

    def tier_ends(self, *, is_fresh: bool = False) -> dict[TopicPartition, int]:
        """Find where the partitions of the tier end: for read_committed at their last stable offsets.

        Args:
            is_fresh: Look at the tier now, and not only if ``refreshInterval`` is over.

        Raises:
            DataLossError: a topic was made anew; or a partition is damaged, and ``failOnDataLoss``. CorruptDataError,
                ConfigError, StoreError and their kinds, those that trying again does not cure.
        """
        return self._ends(self._histories(is_fresh=is_fresh))

    def next_offsets(
        self, start: StreamOffsets, limits: TriggerLimits | None = None, *, final: StreamOffsets | None = None
    ) -> dict[TopicPartition, int]:
        """Find the end of the next batch, nowhere in front of its start.

        Args:
            start: Where the batch begins; a partition without one begins at its first offset.
            limits: Of the trigger; None: all that there is.
            final: Where the query ends; nothing is waited for then.

        Raises:
            As ``tier_ends``.
        """
        histories = self._histories()
        ends = self._ends(histories) if final is None else final
        end = dict(start) | {place: max(offset, start.get(place, 0)) for place, offset in ends.items()}
        for place, offset in ends.items():
            if offset < start.get(place, 0):
                at = start[place]
                self._losses.say(f"{_name(place)}: the tier ends at offset {offset}, the query is at {at}: it waits")
        firsts = {(each.topic, each.partition): each.earliest_offset for each in histories}
        return self._trigger.next_end(start, end, firsts, limits, is_last=final is not None)

    def seams(
        self, start: StreamOffsets, end: StreamOffsets, *, local_starts: StreamOffsets | None = None
    ) -> dict[TopicPartition, Seam]:
        """Find where the tier's part of a batch ends, of the partitions of which it has one.

        Args:
            start: Of the batch; a partition without one begins at its first offset.
            end: Of the batch, exclusive.
            local_starts: Where the brokers' local logs begin, of which they give all; a partition that is not among
                them is theirs alone. None: the tier gives all that it has.

        Raises:
            As ``tier_ends``.
        """
        found = {}
        for history in self._histories():
            place = history.topic, history.partition
            if place not in end:
                continue
            first = start.get(place, history.earliest_offset)
            local_start = None if local_starts is None else local_starts.get(place, 0)
            offset = seam_offset(first, end[place], self._end_of(history), local_start)
            if offset > first:
                found[place] = Seam(offset, self._checked.get(place, ()) != _log_of(history))
        return found

    def plan(
        self,
        start: StreamOffsets,
        end: StreamOffsets,
        *,
        brokers: Mapping[TopicPartition, BrokerFacts] = MappingProxyType({}),
    ) -> PreparedScan:
        """Plan a batch, or the tier's part of one; a partition without a start begins at its first offset.

        Args:
            start: Of what is read from the tier.
            end: Of the same, exclusive.
            brokers: Facts of partitions whose records behind the end are read from brokers.

        Raises:
            ConfigError: the brokers' log is another one than the tier's. DataLossError: offsets are not there, and
                ``failOnDataLoss``; or the tier has not come to the batch's end. CorruptDataError, StoreError and their
                kinds: as ``prepare_scan``.
        """
        for place, offset in start.items():
            if end.get(place, -1) < offset:  # as Spark 4.0 and 4.1 have it, which tell no start
                raise DataLossError(f"{_name(place)}: the tier ends in front of offset {offset}, where the query is")
        histories = {(each.topic, each.partition): each for each in self._histories()}
        wanted = {place: offset for place, offset in end.items() if offset > start.get(place, -1)}
        if any(place not in histories or self._end_of(histories[place]) < wanted[place] for place in wanted):
            histories = {(each.topic, each.partition): each for each in self._histories(is_fresh=True)}
        for place, facts in brokers.items():
            if place in histories:
                require_one_log(histories[place], facts)
                if facts.end_offset is not None:
                    self._checked[place] = _log_of(histories[place])
        starts, ends, news = {}, {}, []
        for place, offset in wanted.items():
            history, first = histories.get(place), start.get(place, EARLIEST_OFFSET)
            if history is None:
                self._losses.lose(f"{_name(place)}: offsets {max(first, 0)} to {offset - 1} have gone from the tier")
                continue
            have = self._end_of(history)
            if have < offset:
                raise DataLossError(
                    f"{_name(place)}: the batch ends at offset {offset}, the tier at {have}: the query can go on when "
                    "the tier has come so far"
                )
            if first == EARLIEST_OFFSET and history.earliest_offset > 0:
                self._losses.lose(f"{_name(place)} is new and begins at offset {history.earliest_offset}, not at 0")
            starts[place], ends[place] = first, offset
            news.append(history)
        return prepare_scan(self.tier, stream_request(self._options, by_topic(starts), by_topic(ends)), histories=news)

    def told(self, warnings: Sequence[str]) -> None:
        """Report the warnings of a plan, each once."""
        for warning in warnings:
            self._losses.say(warning)

    # ---- the tier

    def _histories(self, *, is_first: bool = False, is_fresh: bool = False) -> list[PartitionHistory]:
        now = self._machine.clock.monotonic_seconds()
        if self._look is None or is_first or is_fresh or now >= self._due:
            try:
                self._take(self._followed.look())
            except UnknownTopicError as error:
                if is_first:
                    raise
                self._losses.say(str(error))
                self._look = Look({}, {})  # what comes again goes on where it ended
            except TierlogError as error:
                if is_first or not error.retriable:
                    raise
                self._losses.say(f"{error}; the tier is looked at again")
            self._due = self._machine.clock.monotonic_seconds() + self._options.refresh_interval / 1000
        found = [] if self._look is None else self._look.partitions.values()
        return [each.history for each in found if each.history is not None]

    def _take(self, look: Look) -> None:
        for partition, resolution in look.partitions.items():
            topic_id = str(partition.topic_id)
            known = self.topic_ids.setdefault(partition.topic, topic_id)
            if known != topic_id:
                raise DataLossError(
                    f"topic {partition.topic} was deleted and made anew: its id was {known} and is {topic_id}; its "
                    "offsets are other ones, so that it takes a new query with a checkpoint of its own"
                )
            if resolution.held is not None:
                gap = resolution.held.gap
                self._losses.say(f"{partition} waits for offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}")
        for partition, fault in look.faults.items():
            if self._options.fail_on_data_loss and not fault.retriable:
                raise fault
            self._losses.say(f"{partition} is left out for now: {fault}")
        self._look = look
        self._stable = {each: end for each, end in self._stable.items() if each in look.partitions}

    def _ends(self, histories: Sequence[PartitionHistory]) -> dict[TopicPartition, int]:
        with self._machine.scheduler.pool(_CONCURRENCY, name="tierlog-stream") as pool:
            ends = run_all(pool, self._end_of, histories)
            return {(each.topic, each.partition): end for each, end in zip(histories, ends, strict=True)}

    def _end_of(self, history: PartitionHistory) -> int:
        """The end of what a stream may read of a partition."""
        if self._options.isolation_level == "read_uncommitted":
            return history.end_offset_exclusive
        known = self._stable.get(history.topic_id_partition)
        if known is None or known.history is not history:
            offset = min(find_last_stable_offset(self.tier, history), history.end_offset_exclusive)
            known = self._stable[history.topic_id_partition] = _StableEnd(history, offset)
        return known.offset

    def _metadata_reader(self) -> Callable[[], MetadataView] | None:
        options = self._options
        if options.metadata is None:
            return None
        from tierlog.scan.following.known_partitions import FollowedMetadata

        keys = {name: value.get_secret_value() for name, value in options.metadata_client.items()}
        return FollowedMetadata(options.metadata, client_keys=keys, machine=self._machine).read


def _log_of(history: PartitionHistory) -> tuple[str, int | None]:
    """What a partition's records belong to: a later leader may have another log."""
    return str(history.topic_id_partition.topic_id), last_epoch(history)


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
