"""What each replica has to keep at every moment: invariants 2, 3, 4, 9 and 13; and a leader in the end: 10."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tests.simulation.facts import ReplicaView, TopicFacts, Violation
from tests.simulation.judge.batches import Batch
from tests.simulation.judge.lineage import Lineage, divergence, pieces
from tests.simulation.judge.segments import SegmentTable


def check_offsets(view: ReplicaView) -> None:
    """Invariant 9: the offsets of a replica are in their order."""
    start, local, stable = view.log_start_offset, view.local_log_start_offset, view.last_stable_offset
    high, end = view.high_watermark, view.log_end_offset
    if not start <= local <= high <= end:
        text = f"log start {start}, local start {local}, high watermark {high}, log end {end}"
        raise Violation(9, "offsets out of order", f"{_name(view)}: {text}")
    if view.copied_offset >= end:
        raise Violation(9, "offsets out of order", f"{_name(view)}: copied {view.copied_offset}, log end {end}")
    if not start <= stable <= high:
        text = f"log start {start}, last stable offset {stable}, high watermark {high}"
        raise Violation(9, "offsets out of order", f"{_name(view)}: {text}")
    starts = [offset for _, offset in view.lineage]
    if sorted(starts) != starts or [*view.lineage] != sorted(view.lineage) or (starts and starts[-1] > end):
        raise Violation(9, "lineage out of order", f"{_name(view)}: {view.lineage}, log end {end}")


def check_high_watermark(view: ReplicaView, highest: int) -> None:
    """Invariant 9: a follower has its high watermark from a leader.

    Args:
        view: A replica.
        highest: The highest one that a leader of the partition had.
    """
    if view.high_watermark > highest:
        text = f"high watermark {view.high_watermark}, no leader had one above {highest}"
        raise Violation(9, "dirty read", f"{_name(view)}: {text}")


def check_lineage(view: ReplicaView) -> None:
    """Invariant 9, of a replica at rest: its lineage reaches back to its log start."""
    start = view.log_start_offset
    if start < view.log_end_offset and (not view.lineage or view.lineage[0][1] > start):
        raise Violation(9, "lineage begins late", f"{_name(view)}: the log starts at {start}, {view.lineage}")


def check_served(view: ReplicaView, batches: Iterable[Batch]) -> None:
    """Invariant 2: what a broker serves is of its own lineage."""
    known = list(pieces(view.lineage, view.log_end_offset))
    log_start = view.log_start_offset  # it may have risen while the tier was read: what lies below is nobody's now
    for batch in batches:
        first = max(batch.base_offset, log_start)
        if batch.last_offset >= log_start and not any(
            epoch == batch.leader_epoch and start <= first and batch.last_offset < end for epoch, start, end in known
        ):
            text = f"serves {batch.base_offset}..{batch.last_offset} of epoch {batch.leader_epoch}"
            raise Violation(2, "dead branch read", f"{_name(view)}: {text}, its lineage is {view.lineage}")


def check_tier(
    view: ReplicaView,
    facts: TopicFacts,
    tier: SegmentTable,
    published_start: int,
    left_start: int = 0,
    *,
    is_copied_judged: bool = True,
) -> None:
    """Invariants 3 and 4: what is copied is finished without a hole, and so is what went locally.

    Args:
        view: The replica.
        facts: Of its topic.
        tier: What metadata say.
        published_start: The highest log start that a leader of the partition had: in front of it the tier may be empty.
        left_start: Up to where a replica may lack what it had deleted when the topic left the tier.
        is_copied_judged: Whether what a leader counts as copied is judged.
    """
    if not facts.is_tiered:
        return
    partition = (facts.topic_id, view.partition.number)
    local = view.local_log_start_offset
    # Where the lineage was lost, what lies in front of the local log is judged once it is known again.
    start = max(view.log_start_offset, published_start, view.lineage[0][1] if view.lineage else local)
    kept = max(start, left_start)
    hole = tier.hole(partition, view.lineage, kept, local) if kept < local else None
    if hole is not None and not facts.is_copy_disabled:
        text = f"the local log begins at {local}, the log at {start}, and offset {hole} is not finished in the tier"
        text = f"{text}: {tier.around(partition, hole)}; lineage {view.lineage}"
        raise Violation(4, "lost write", f"{_name(view)}: {text}")
    copied = view.copied_offset + 1
    if view.role == "leader" and start < copied and is_copied_judged:
        hole = tier.hole(partition, view.lineage, start, copied)
        if hole is not None:
            text = f"copied up to {view.copied_offset}, the log begins at {start}, and offset {hole} is not finished"
            text = f"{text}: {tier.around(partition, hole)}; lineage {view.lineage}"
            raise Violation(3, "hole in the tier", f"{_name(view)}: {text}")


def check_agreement(one: ReplicaView, one_log: Iterable[Batch], other: ReplicaView, other_log: Iterable[Batch]) -> None:
    """Invariant 13: two replicas have the same below the high watermark.

    Args:
        one: A replica.
        one_log: Its local log.
        other: Another one.
        other_log: Its local log.
    """
    start = max(one.local_log_start_offset, other.local_log_start_offset)
    end = min(one.high_watermark, other.high_watermark)
    if start >= end:
        return
    where = f"{one.partition}, brokers {one.broker} and {other.broker}"
    parted = divergence(one.lineage, one.log_end_offset, other.lineage, other.log_end_offset, start)
    if parted < end:
        raise Violation(13, "parted logs", f"{where}: lineages {one.lineage} and {other.lineage} part at {parted}")
    ours, theirs = _between(one_log, start, end), _between(other_log, start, end)
    for offset in sorted(ours.keys() | theirs.keys()):
        mine, its = ours.get(offset), theirs.get(offset)
        if mine is not None and its is not None and mine.raw == its.raw:
            continue
        raise Violation(13, "parted logs", f"{where}: batch at {offset}: {_words(mine)} and {_words(its)}")


def _between(log: Iterable[Batch], start: int, end: int) -> Mapping[int, Batch]:
    return {each.base_offset: each for each in log if start <= each.base_offset and each.last_offset < end}


def check_held(view: ReplicaView, committed_end: int) -> None:
    """Invariant 13: an in-sync member that runs holds every committed record."""
    if view.log_end_offset < committed_end:
        text = f"in sync, its log ends at {view.log_end_offset}, and {committed_end - 1} is committed"
        raise Violation(13, "lost write", f"{_name(view)}: {text}")


def check_log(view: ReplicaView, log: Iterable[Batch], *, is_compacted: bool) -> None:
    """A replica's local log is whole: contiguous, and each batch of its lineage's epoch. What lies in front of its
    start waits to be deleted: a follower of another branch is cut to its leader's start, within a batch.
    """
    at = None
    known: Lineage = list(view.lineage)
    spans = list(pieces(known, view.log_end_offset))
    for batch in log:
        where = f"{_name(view)}: batch {batch.base_offset}..{batch.last_offset} of epoch {batch.leader_epoch}"
        lacks = at is not None and batch.base_offset > max(at, view.log_start_offset) and not is_compacted
        if at is not None and (batch.base_offset < at or lacks):
            raise Violation(13, "hole in a log", f"{where} behind {at}")
        at = batch.last_offset + 1
        if batch.base_offset < view.local_log_start_offset:
            continue
        if not any(epoch == batch.leader_epoch and start <= batch.base_offset < end for epoch, start, end in spans):
            raise Violation(13, "wrong lineage", f"{where}, lineage {view.lineage}")
    if at is not None and at > view.log_end_offset:
        raise Violation(13, "hole in a log", f"{_name(view)}: batches up to {at}, log end {view.log_end_offset}")


def check_settled(leader: ReplicaView, facts: TopicFacts, in_sync: frozenset[int], running: set[int]) -> None:
    """Invariant 10: all replicas that run are in sync, all is committed, stable, and copied.

    Args:
        leader: The view of the leader.
        facts: Of the topic.
        in_sync: As the controller has it.
        running: The brokers of which a replica runs.
    """
    partition = leader.partition
    if in_sync != leader.in_sync or not running <= in_sync:
        text = f"in sync are {sorted(in_sync)}, its leader says {sorted(leader.in_sync)}"
        text = f"{text} of {sorted(running)}, which run"
        raise Violation(10, "followers out of sync", f"{partition}: {text}")
    if leader.high_watermark != leader.log_end_offset:
        text = f"high watermark {leader.high_watermark}, log end {leader.log_end_offset}"
        raise Violation(10, "stuck high watermark", f"{partition}: {text}")
    if leader.last_stable_offset != leader.high_watermark:
        text = f"last stable offset {leader.last_stable_offset}, high watermark {leader.high_watermark}"
        raise Violation(10, "stuck transaction", f"{partition}: {text}, and every transaction has ended")
    copies = facts.is_tiered and not facts.is_copy_disabled
    closed = [base for base, _ in leader.segments[1:] if base <= leader.last_stable_offset]
    if copies and closed and leader.copied_offset < closed[-1] - 1:
        text = f"closed up to {closed[-1]}, stable up to {leader.last_stable_offset}"
        raise Violation(10, "stuck copies", f"{partition}: {text}, copied up to {leader.copied_offset}")


def _name(view: ReplicaView) -> str:
    return f"broker {view.broker}, {view.role} of {view.partition} in epoch {view.leader_epoch}"


def _words(batch: Batch | None) -> str:
    return "none" if batch is None else f"{batch.base_offset}..{batch.last_offset} of epoch {batch.leader_epoch}"
