"""What retention may delete and has to: invariant 7.

What goes is judged by the batches in front of the new log start, as far as they are known: those that the judge saw in
logs and answers. A run of offsets that it never saw is not judged, and counted.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tests.simulation.facts import ReplicaView, TopicFacts, Violation
from tests.simulation.judge.batches import Batch


@dataclass(slots=True)
class Sizes:
    """The batches of a partition that were seen: first and last offset, newest timestamp, bytes.

    Attributes:
        asked_start: The highest offset that an admin asked to delete up to.
        unjudged: How often a start rose over offsets that were never seen.
    """

    asked_start: int = 0
    unjudged: int = 0
    start: int = 0
    _batches: dict[int, tuple[int, int, int]] = field(default_factory=dict)

    def saw(self, batches: Iterable[Batch]) -> None:
        """Take batches of below the high watermark."""
        for batch in batches:
            self._batches[batch.base_offset] = batch.last_offset, batch.max_timestamp, len(batch.raw)

    def cut(self, offset: int) -> None:
        """An unclean election took what lies behind an offset."""
        self._batches = {base: each for base, each in self._batches.items() if each[0] < offset}

    def span(self, start: int, end: int) -> tuple[int, int, bool]:
        """Newest timestamp and bytes of the batches in a range, and whether all of it was seen."""
        newest, size, at = -1, 0, start
        bases = sorted(self._batches)
        for base in bases[max(0, bisect.bisect_right(bases, start) - 1) :]:
            last, timestamp, bytes_ = self._batches[base]
            if base >= end:
                break
            if last < start:
                continue
            if base > at:
                return newest, size, False
            newest, size, at = max(newest, timestamp), size + bytes_, last + 1
        return newest, size, at >= end


def check_rise(sizes: Sizes, facts: Sequence[TopicFacts], view: ReplicaView) -> None:
    """A leader's log start rose: by an admin, or by retention, which may not delete what it has to leave.

    Args:
        sizes: What was seen of the partition; its start becomes the view's.
        facts: Of the topic, as it is and as it lately was: brokers learn of a change one after the other.
        view: The leader.
    """
    before, start = sizes.start, view.log_start_offset
    sizes.start = max(before, start)
    if start <= before or start <= sizes.asked_start or facts[-1].is_compacted or _was_untiered(facts):
        return
    newest, _, is_seen = sizes.span(max(before, sizes.asked_start), start)
    behind = _bytes_behind(sizes, view)
    if not is_seen or behind is None:
        sizes.unjudged += 1
        return
    age_ms = view.clock_ms - newest
    if any(_is_due(each, age_ms, behind) for each in facts):
        return
    text = f"its start rose from {before} to {start}, its newest record there is {age_ms} ms old"
    bounds = [(each.retention_ms, each.retention_bytes) for each in facts]
    raise Violation(7, "early deletion", f"{_where(view)}: {text}; bounds {bounds}, {behind} bytes are left")


def _was_untiered(facts: Sequence[TopicFacts]) -> bool:
    """Whether tiering ended, which takes what is in the tier alone."""
    return len({each.is_tiered for each in facts}) > 1


def _is_due(facts: TopicFacts, age_ms: int, behind: int) -> bool:
    bounds_ms, bounds_bytes = {facts.retention_ms}, {facts.retention_bytes}
    if facts.is_copy_disabled:  # then local retention deletes what is not in the tier, and the log begins behind it
        bounds_ms.add(facts.local_retention_ms)
        bounds_bytes.add(facts.local_retention_bytes)
    return any(0 <= each < age_ms for each in bounds_ms) or any(0 <= each <= behind for each in bounds_bytes)


def _bytes_behind(sizes: Sizes, view: ReplicaView) -> int | None:
    """Bytes of a log from its start on; None: not all of them were seen."""
    start = view.log_start_offset
    local = sum(size for base, size in view.segments if base >= start)
    if not view.segments or view.segments[0][0] <= start:
        return local
    _, tiered, is_seen = sizes.span(start, view.segments[0][0])
    return tiered + local if is_seen else None


def _where(view: ReplicaView) -> str:
    return f"broker {view.broker}, leader of {view.partition}"


def check_bounds(sizes: Sizes, facts: TopicFacts, view: ReplicaView, *, slack_ms: int, is_copied: bool) -> None:
    """Of a settled cluster: the leader's log is within its bounds.

    Args:
        sizes: What was seen of the partition.
        facts: Of the topic.
        view: The leader.
        slack_ms: How much older than its bound a record may be: the task's intervals.
        is_copied: Whether all closed segments are in the tier.
    """
    if facts.is_compacted or len(view.segments) < 2:
        return
    where = _where(view)
    local_size = sum(size for _, size in view.segments)
    first_size, second_base = view.segments[0][1], view.segments[1][0]
    bytes_bound, ms_bound = facts.retention_bytes, facts.retention_ms
    if facts.is_tiered:
        bytes_bound = bytes_bound if facts.local_retention_bytes == -2 else facts.local_retention_bytes
        ms_bound = ms_bound if facts.local_retention_ms == -2 else facts.local_retention_ms
    if second_base > view.high_watermark or (facts.is_tiered and not is_copied):
        return
    if 0 <= bytes_bound <= local_size - first_size:
        text = f"{local_size} local bytes, {bytes_bound} are the bound; segments {view.segments}"
        text = f"{text}, log start {view.log_start_offset}, copied {view.copied_offset}, high {view.high_watermark}"
        raise Violation(7, "late deletion", f"{where}: {text}")
    newest, _, is_seen = sizes.span(view.segments[0][0], second_base)
    if is_seen and ms_bound >= 0 and newest < view.clock_ms - ms_bound - slack_ms:
        text = f"{view.clock_ms - newest} ms old is the newest of its first segment, {ms_bound} is the bound"
        raise Violation(7, "late deletion", f"{where}: {text}")
