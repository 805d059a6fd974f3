"""A query's stream over a tier, on the driver: where it begins, what the tier has gained, what a batch reads.

Both engines ask this class: the Python path in Spark's own process for the stream, the jar in its planner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark_tierlog.options.offset_options import EARLIEST_OFFSET, LATEST_OFFSET, TopicPartition
from pyspark_tierlog.request import (
    EVERYTHING,
    first_request,
    log_start_offsets,
    stream_request,
    tier_config,
    topic_selection,
)
from pyspark_tierlog.stream.stream_offsets import StreamOffsets, by_topic
from pyspark_tierlog.stream.trigger_limits import Trigger, TriggerLimits
from tierlog.errors import DataLossError
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import Closeable
from tierlog.scan.live.live_tier import LiveTier
from tierlog.scan.live.loss_report import LossReport
from tierlog.scan.live.seams import BrokerFacts
from tierlog.scan.planning.plan import PreparedScan, check_named, prepare_scan, resolve_bounds

if TYPE_CHECKING:
    from pyspark_tierlog.options.source_options import ReadOptions
    from tierlog.remote.metadata.metadata_view import MetadataView
    from tierlog.scan.scan_request import RecordFilter


class TierStream(Closeable):
    """A stream over the one path of some options, which were checked.

    A listing that fails for a while changes nothing: the stream has what the last one found. Offsets that no segment
    holds are waited for as long as one may come that does; behind that they are lost, which ``failOnDataLoss`` decides.

    Args:
        options: Of the load.
        topic_ids: Of the topics that an earlier run of the query has read.
        read: As of LiveTier, of that run.
        machine: By default this machine.

    Attributes:
        tier: As it was opened.
        live: What may be read of it.

    Raises:
        ConfigError, StoreError and their kinds: as ``open_tier``.

    Thread safety: one thread at a time.
    """

    def __init__(
        self,
        options: ReadOptions,
        *,
        topic_ids: Mapping[str, str] | None = None,
        read: Mapping[TopicPartition, tuple[int, int]] | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._options = options
        self._machine = machine or Machine()
        read_metadata = self._metadata_reader()
        self._losses = LossReport(fails=options.fail_on_data_loss)
        self._trigger = Trigger(self._machine.clock)
        self.tier = open_tier(
            options.paths[0],
            layout=options.layout,
            config=tier_config(options),
            known=None if read_metadata is None else read_metadata(),
            machine=self._machine,
        )
        self.live = LiveTier(
            self.tier,
            topic_selection(options),
            self._losses,
            isolation_level=options.isolation_level,
            refresh_seconds=options.refresh_interval / 1000,
            topic_ids=topic_ids,
            read=read,
            log_start_offsets=log_start_offsets(options),
            may_lack=options.asks_brokers,
            read_metadata=read_metadata,
        )

    def close(self) -> None:
        """Close the tier."""
        self.live.close()

    def initial_offsets(self) -> dict[TopicPartition, int]:
        """Find where a new query begins.

        Raises:
            UnknownTopicError: a topic or partition that was named is not there. ConfigError: the options contradict the
                tier. DataLossError: an offset is not there, and ``failOnDataLoss``. CorruptDataError, StoreError and
                their kinds.
        """
        options, request = self._options, first_request(self._options)
        histories = list(self.live.histories(is_first=True).values())
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
        return self.live.ends(list(self.live.histories(is_fresh=is_fresh).values()))

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
        histories = self.live.histories()
        ends = self.live.ends(list(histories.values())) if final is None else final
        end = dict(start) | {place: max(offset, start.get(place, 0)) for place, offset in ends.items()}
        for place, offset in ends.items():
            if offset < start.get(place, 0):
                at = start[place]
                self._losses.say(f"{_name(place)}: the tier ends at offset {offset}, the query is at {at}: it waits")
        firsts = {place: history.earliest_offset for place, history in histories.items()}
        return self._trigger.next_end(start, end, firsts, limits, is_last=final is not None)

    def plan(
        self,
        start: StreamOffsets,
        end: StreamOffsets,
        *,
        brokers: Mapping[TopicPartition, BrokerFacts] = MappingProxyType({}),
        record_filter: RecordFilter = EVERYTHING,
    ) -> PreparedScan:
        """Plan a batch, or the tier's part of one; a partition without a start begins at its first offset.

        Args:
            start: Of what is read from the tier.
            end: Of the same, exclusive.
            brokers: Facts of partitions whose records behind the end are read from brokers.
            record_filter: What is not in it is not read.

        Raises:
            ConfigError: the brokers' log is another one than the tier's. DataLossError: offsets are not there, and
                ``failOnDataLoss``; or the tier has not come to the batch's end. CorruptDataError, StoreError and their
                kinds: as ``prepare_scan``.
        """
        histories = self.live.histories()
        for place, offset in start.items():
            if place not in end and place in histories and histories[place].earliest_offset == offset:
                continue  # newer than a first batch that is planned again: a later one begins at its first offset
            if end.get(place, -1) < offset:  # as Spark 4.0 and 4.1 have it, which tell no start
                raise DataLossError(f"{_name(place)}: the tier ends in front of offset {offset}, where the query is")
        wanted = {place: offset for place, offset in end.items() if offset > start.get(place, -1)}
        if any(place not in histories or self.live.end_of(histories[place]) < wanted[place] for place in wanted):
            histories = self.live.histories(is_fresh=True)
        for place, facts in brokers.items():
            if place in histories:
                self.live.require_one_log(histories[place], facts)
        starts, ends, news = {}, {}, []
        for place, offset in wanted.items():
            history, first = histories.get(place), start.get(place, EARLIEST_OFFSET)
            if history is None:
                self._losses.lose(f"{_name(place)}: offsets {max(first, 0)} to {offset - 1} have gone from the tier")
                continue
            have = self.live.end_of(history)
            if have < offset:
                raise DataLossError(
                    f"{_name(place)}: the batch ends at offset {offset}, the tier at {have}: the query can go on when "
                    "the tier has come so far"
                )
            if first == EARLIEST_OFFSET and history.earliest_offset > 0:
                self._losses.lose(f"{_name(place)} is new and begins at offset {history.earliest_offset}, not at 0")
            starts[place], ends[place] = first, offset
            news.append(history)
            self.live.note_read(history, offset)
        request = stream_request(self._options, by_topic(starts), by_topic(ends), record_filter)
        return prepare_scan(self.tier, request, histories=news)

    def told(self, warnings: Sequence[str]) -> None:
        """Report the warnings of a plan, each once."""
        for warning in warnings:
            self._losses.say(warning)

    def _metadata_reader(self) -> Callable[[], MetadataView] | None:
        options = self._options
        if options.metadata is None:
            return None
        from tierlog.scan.following.known_partitions import FollowedMetadata

        keys = {name: value.get_secret_value() for name, value in options.metadata_client.items()}
        return FollowedMetadata(options.metadata, client_keys=keys, machine=self._machine).read


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
