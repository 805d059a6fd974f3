"""What retention may delete and has to: invariant 7.

What goes is judged by the batches in front of the new log start, as far as they are known: those that the judge saw in
logs and answers. A run of offsets that it never saw is not judged, and counted.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.facts import ReplicaView, TopicFacts, Violation
from tests.simulation.judge.batches import Batch
from tests.simulation.judge.segments import FINISHED, SegmentTable
from tests.simulation.messages import Partition


class _Risen(NamedTuple):
    """A replica's log when it was first seen with its start: the bytes from there on, and its broker's time."""

    start: int
    left: int | None
    clock_ms: int


@dataclass(slots=True)
class Sizes:
    """The batches of a partition that were seen: first and last offset, newest timestamp, bytes.

    Attributes:
        asked_start: The highest offset that an admin asked to delete up to; a topic that leaves the tier may begin
            where any replica is local.
        unjudged: How often a start rose over offsets that were never seen.
        start: The highest start that was seen; it rose to that at a broker's time.
        seen: By broker: how its log looked when its start had risen.
    """

    asked_start: int = 0
    unjudged: int = 0
    start: int = 0
    rose_ms: int = 0
    seen: dict[int, _Risen] = field(default_factory=dict)
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

    def newest_of_last(self, start: int, end: int, bytes_: float) -> int:
        """Newest timestamp of the last batches of a range that have so many bytes together; -1: none are needed."""
        newest, last = -1, end - 1
        for base in sorted((base for base in self._batches if base < end), reverse=True):
            if bytes_ <= 0 or last < start:
                break
            end_offset, timestamp, size = self._batches[base]
            if end_offset <= last:
                newest, bytes_, last = max(newest, timestamp), bytes_ - size, base - 1
        return newest


def note_start(sizes: Sizes, view: ReplicaView) -> None:
    """Note what a replica's log had left when its start rose, and when: before it leads its end may be cut, and its
    clock set back.
    """
    known = sizes.seen.get(view.broker)
    if known is None or known.start != view.log_start_offset:
        sizes.seen[view.broker] = _Risen(view.log_start_offset, _bytes_behind(sizes, view), view.clock_ms)


def check_rise(sizes: Sizes, facts: Sequence[TopicFacts], view: ReplicaView, tier: SegmentTable) -> None:
    """A leader's log start rose: by an admin, or by retention, which may not delete what it has to leave.

    By how many bytes two copies in the tier overlap nobody knows but by the number of offsets: so many bytes as such
    segments have, retention may be wrong by. (Kafka counts the bytes of both.)

    Args:
        sizes: What was seen of the partition; its start becomes the view's.
        facts: Of the topic, as it is and as it lately was: brokers learn of a change one after the other.
        view: The leader.
        tier: What metadata say.
    """
    before, start = sizes.start, view.log_start_offset
    sizes.start = max(before, start)
    if start > before:
        sizes.rose_ms = view.clock_ms
    if start <= before or start <= sizes.asked_start or facts[-1].is_compacted or was_untiered(facts):
        return
    first = max(before, sizes.asked_start)
    newest, _, is_seen = sizes.span(first, start)
    behind = _bytes_behind(sizes, view)
    clock_ms, risen = view.clock_ms, sizes.seen.get(view.broker)
    if risen is not None and risen.start == start:
        clock_ms = max(clock_ms, risen.clock_ms)
        if behind is not None and risen.left is not None:
            behind = max(behind, risen.left)
    if not is_seen or behind is None:
        sizes.unjudged += 1
        return
    unsure = tier.overlapping_bytes((facts[-1].topic_id, view.partition.number))
    for bound_ms, bound_bytes in (each for known in facts for each in _bounds(known)):
        # The oldest may go by the size, and others behind them by their age.
        lacking = bound_bytes - behind - unsure if bound_bytes >= 0 else math.inf
        newest_left = sizes.newest_of_last(first, start, lacking)
        if newest_left < 0 or 0 <= bound_ms < clock_ms - newest_left:
            return
    text = f"its start rose from {before} to {start}, its newest record there is {clock_ms - newest} ms old"
    bounds = [(each.retention_ms, each.retention_bytes) for each in facts]
    raise Violation(7, "early deletion", f"{_where(view)}: {text}; bounds {bounds}, {behind} bytes are left")


def was_untiered(facts: Sequence[TopicFacts]) -> bool:
    """Whether tiering ended, which takes what is in the tier alone."""
    return len({each.is_tiered for each in facts}) > 1


def _bounds(facts: TopicFacts) -> Iterator[tuple[int, int]]:
    """The bounds by time and by size; negative ones are none."""
    bounds_ms, bounds_bytes = {facts.retention_ms}, {facts.retention_bytes}
    if facts.is_copy_disabled:  # then local retention deletes what is not in the tier, and the log begins behind it
        bounds_ms.add(facts.local_retention_ms)
        bounds_bytes.add(facts.local_retention_bytes)
    return itertools.product(bounds_ms, bounds_bytes)


def _bytes_behind(sizes: Sizes, view: ReplicaView) -> int | None:
    """Bytes of a log from its start on; None: not all of them were seen."""
    start = view.log_start_offset
    local = sum(size for base, size in view.segments if base >= start)
    behind = [base for base, _ in view.segments if base >= start]
    _, front, is_seen = sizes.span(start, behind[0] if behind else view.log_end_offset)
    return front + local if is_seen else None


def _where(view: ReplicaView) -> str:
    return f"broker {view.broker}, leader of {view.partition}"


class Overdue(NamedTuple):
    """What retention has left although it was to go.

    Attributes:
        key: Says which segment, where.
    """

    key: str
    text: str


def overdue_locally(
    sizes: Sizes, facts: TopicFacts, view: ReplicaView, tier: SegmentTable, *, slack_ms: int
) -> Iterator[Overdue]:
    """The first segment of a leader's log, if it is to go.

    It has to be in the tier first. Where nothing more is copied it goes all the same, by its age once nothing in the
    tier lies in front: that may be newer.

    Args:
        sizes: What was seen of the partition.
        facts: Of the topic.
        view: The leader.
        tier: What metadata say.
        slack_ms: How much older than its bound a record may be: the task's intervals.
    """
    if facts.is_compacted or len(view.segments) < 2:
        return
    where = _where(view)
    local_size = sum(size for _, size in view.segments)
    first_base, first_size, second_base = *view.segments[0], view.segments[1][0]
    bytes_bound, ms_bound = facts.retention_bytes, facts.retention_ms
    if facts.is_tiered:
        bytes_bound = bytes_bound if facts.local_retention_bytes == -2 else facts.local_retention_bytes
        ms_bound = ms_bound if facts.local_retention_ms == -2 else facts.local_retention_ms
    copies = facts.is_tiered and not facts.is_copy_disabled
    if second_base > view.high_watermark or (copies and view.copied_offset < second_base - 1):
        return
    if 0 <= bytes_bound <= local_size - first_size:
        text = f"{local_size} local bytes, {bytes_bound} are the bound; segments {view.segments}"
        text = f"{text}, log start {view.log_start_offset}, copied {view.copied_offset}, high {view.high_watermark}"
        yield Overdue(f"local {first_base}", f"{where}: {text}")
    if facts.is_tiered and facts.is_copy_disabled and view.log_start_offset < view.local_log_start_offset:
        found = (facts.topic_id, view.partition.number), view.lineage, view.log_end_offset
        own = [(each.start_offset, each.end_offset + 1) for each in tier.finished_within(*found)]
        own += [(low, high) for low, high, _ in tier.partly_within(*found)]
        if any(low <= view.log_start_offset < high for low, high in own):
            return
    newest, _, is_seen = sizes.span(first_base, second_base)
    if is_seen and ms_bound >= 0 and newest < view.clock_ms - ms_bound - slack_ms:
        text = f"{view.clock_ms - newest} ms old is the newest of its first segment, {ms_bound} is the bound"
        yield Overdue(f"local {first_base}", f"{where}: {text}")


def overdue_in_tier(
    sizes: Sizes, tier: SegmentTable, facts: TopicFacts, view: ReplicaView, *, slack_ms: int
) -> Iterator[Overdue]:
    """What of a partition's tier is to go.

    Kafka's rule: the segments of the leader's lineage go from the lowest on, as long as one is too old, or what is left
    without it is not below ``retention.bytes``; those in front of the log start, and those of epochs that are older
    than the lineage, go too. One that is of another branch in part stays until its own epochs are in front; or until it
    is too old, where no whole one begins in front of the end of what the log has of it. (Kafka's stays.)

    Args:
        sizes: What was seen of the partition.
        tier: What metadata say.
        facts: Of the topic.
        view: The leader.
        slack_ms: How much older than its bound a record may be, and how long in front of the log: the task's intervals.
    """
    if not facts.is_tiered or not view.lineage:
        return
    partition, where = (facts.topic_id, view.partition.number), f"{_where(view)}: the tier"
    first_epoch, start = view.lineage[0][0], view.log_start_offset
    for each in tier.of(partition):
        newest_epoch = each.epochs[-1][0]
        is_in_front = newest_epoch < first_epoch or (newest_epoch == first_epoch and each.end_offset < start)
        if each.state == FINISHED and is_in_front and view.clock_ms - sizes.rose_ms >= slack_ms:
            text = f"{where} has {each}; the log starts at {start}: {view.lineage}"
            yield Overdue(f"tier {each.segment_id.hex()}", text)
    segments = list(tier.finished_within(partition, view.lineage, view.log_end_offset))
    others = tier.partly_within(partition, view.lineage, view.log_end_offset)
    others = [each for each in others if each[2].epochs[-1][0] <= view.lineage[-1][0]]
    others = [each for each in others if each[0] == others[0][0]]
    if others and (not segments or segments[0].start_offset >= max(high for _, high, _ in others)):
        age_ms = view.clock_ms - max(each.max_timestamp for _, _, each in others)
        if 0 <= facts.retention_ms < age_ms - slack_ms:
            text = f"{where} has {others[0][2]}, {age_ms} ms old, {facts.retention_ms} are the bound"
            yield Overdue(f"tier {others[0][2].segment_id.hex()}", text)
    left = [each for each in segments if each.start_offset > segments[0].start_offset]
    oldest = segments[: len(segments) - len(left)]
    if not oldest:
        return
    key, what = f"tier {oldest[0].segment_id.hex()}", f"{where} has {oldest[0]}"
    age_ms = view.clock_ms - max(each.max_timestamp for each in oldest)
    if 0 <= facts.retention_ms < age_ms - slack_ms:
        yield Overdue(key, f"{what}, {age_ms} ms old, {facts.retention_ms} are the bound")
    size, at = sum(size for base, size in view.segments if base > view.copied_offset), -1
    for each in left:  # offsets of two copies count once
        if each.start_offset > max(at, oldest[-1].end_offset):
            size, at = size + each.size_bytes, each.end_offset
    if 0 <= facts.retention_bytes <= size:
        yield Overdue(key, f"{what}, {size} bytes without it, {facts.retention_bytes} are the bound")


class Deadlines:
    """Since when something is overdue while nothing disturbs the cluster: it has the tasks' intervals to go, from the
    last time on that something of its partition went: one goes behind the other.
    """

    def __init__(self) -> None:
        self._since_ms: dict[str, int] = {}
        self._faults: set[str] = set()

    def disturb(self, *, began: str = "", ended: str = "") -> None:
        """Something happened to the cluster: a fault begins or ends, a broker, an election, a configuration."""
        self._since_ms = {}
        self._faults.discard(ended)
        self._faults |= {began} - {""}

    def check(self, partition: Partition, overdue: Iterable[Overdue], now_ms: int, *, within_ms: int) -> None:
        """Note what is overdue of a partition, and raise a Violation if it was so before ``within_ms``."""
        if self._faults:
            return
        found = {f"{partition} {each.key}": each.text for each in overdue}
        known = [key for key in self._since_ms if key.startswith(f"{partition} ")]
        for place in ("local", "tier"):
            before = [key for key in known if key.startswith(f"{partition} {place} ")]
            if not found.keys() >= {*before}:
                self._since_ms = {key: since for key, since in self._since_ms.items() if key not in before}
        for key, text in found.items():
            late_ms = now_ms - self._since_ms.setdefault(key, now_ms)
            if late_ms > within_ms:
                raise Violation(7, "late deletion", f"{text}; for {late_ms} ms, and nothing disturbed the cluster")


def lasting(name: str, text: str) -> str:
    """The name of a fault that lasts until it ends: of each cut, pause and disk its own; empty for one of a moment."""
    if name in ("cut", "pause", "disk failure", "stalls"):
        return f"{name} {text}"
    return name if name in ("network", "store") else ""
