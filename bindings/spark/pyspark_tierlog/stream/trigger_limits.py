"""How many offsets a trigger takes: the limits of Spark's Kafka source."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark_tierlog.options.offset_options import TopicPartition
from pyspark_tierlog.stream.stream_offsets import StreamOffsets

if TYPE_CHECKING:
    from pyspark_tierlog.options.source_options import ReadOptions
    from tierlog.runtime.machine.clock import Clock


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The limits of one trigger.

    Attributes:
        max_offsets: At most about so many in all, shared by the partitions as what each has; None for no limit.
        min_offsets: No batch with fewer, unless the delay is over; None for no limit.
        max_delay_ms: Time since the last batch after which there is one with fewer.
    """

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_delay_ms: int = 0

    def to_json(self) -> dict[str, int | None]:
        """Return the limits as JSON."""
        return {"max_offsets": self.max_offsets, "min_offsets": self.min_offsets, "max_delay_ms": self.max_delay_ms}

    def is_too_early(self, start: StreamOffsets, end: StreamOffsets, since_ms: int) -> bool:
        """Whether a batch waits for more; it does not for a partition without a start, which is a new one.

        Args:
            start: Where the batch begins.
            end: What there is.
            since_ms: Time since the last batch.
        """
        if self.min_offsets is None or since_ms >= self.max_delay_ms or end.keys() - start.keys():
            return False
        return sum(max(0, offset - start[partition]) for partition, offset in end.items()) < self.min_offsets

    def limited(self, start: StreamOffsets, end: StreamOffsets) -> dict[TopicPartition, int]:
        """Return ends that are together about ``max_offsets`` behind the starts: each partition gets its share of what
        there is, and one offset at least.

        Args:
            start: Of each partition in ``end``.
            end: What there is.
        """
        sizes = {partition: offset - start[partition] for partition, offset in end.items() if offset > start[partition]}
        total = sum(sizes.values())
        if self.max_offsets is None or total <= self.max_offsets:
            return dict(end)
        limited = dict(end)
        for partition, size in sizes.items():
            share = self.max_offsets * size / total
            count = math.ceil(share) if share < 1 else math.floor(share)
            limited[partition] = min(end[partition], start[partition] + count)
        return limited


class Trigger:
    """Decides how much each batch has.

    Args:
        clock: Its monotonic time counts.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._batch_ms: int | None = None

    def next_end(
        self,
        start: StreamOffsets,
        end: StreamOffsets,
        firsts: StreamOffsets,
        limits: TriggerLimits | None,
        *,
        is_last: bool,
    ) -> dict[TopicPartition, int]:
        """Find the end of the next batch.

        Args:
            start: Of the batch; a partition without one begins at its first offset.
            end: What there is, nowhere in front of the start.
            firsts: The first offsets of partitions.
            limits: None: the batch has all that there is.
            is_last: Whether nothing comes behind the end, so that nothing is waited for.
        """
        if limits is None:
            return dict(end)
        now_ms = int(self._clock.monotonic_seconds() * 1000)
        is_early = self._batch_ms is not None and limits.is_too_early(start, end, now_ms - self._batch_ms)
        if is_early and not is_last:
            return dict(start)
        self._batch_ms = now_ms
        return limits.limited(dict.fromkeys(end, 0) | dict(firsts) | dict(start), end)


def trigger_limits(options: ReadOptions) -> TriggerLimits:
    """Return the limits that the options give."""
    return TriggerLimits(options.max_offsets_per_trigger, options.min_offsets_per_trigger, options.max_trigger_delay)
