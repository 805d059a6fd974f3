"""What lies in the store against what metadata own: invariant 5, and the tier's half of 9 and 10."""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from tests.simulation.facts import ReplicaView, Violation
from tests.simulation.judge.segments import DELETING, FINISHED, STARTED, PartitionId, Segment, SegmentTable

#: A segment's id, as text, stands behind its base offset in the names of its objects.
_KEY = re.compile(r"/\d{20}-([A-Za-z0-9_-]{22})\.([a-z-]+)$")
#: What each segment in the tier has at least.
_PARTS = {"log", "indexes", "rsm-manifest"}
#: How long a copy, or a deletion, may take.
_UNDER_WAY_MS = 3_000


def segment_of(key: str) -> tuple[bytes, str] | None:
    """The segment's id and the part that an object's key names; None: it is no object of a segment."""
    found = _KEY.search(key)
    return None if found is None else (base64.urlsafe_b64decode(found[1] + "=="), found[2])


class StoredObjects:
    """The store's history: who put what when, and what a lifecycle rule took.

    Attributes:
        orphans: Keys that a life put after it had ended, or after the deletion of that object or of the segment, with
            that life, or None if it did not wait for the answer any more: allowed once it has ended, and counted. One
            that goes on, and had the answer, has to find that it came too late: while it is paused it cannot, and then
            it has to once it runs again.
    """

    def __init__(self, tier: SegmentTable) -> None:
        self._tier = tier
        self._lives: dict[int, int] = {}
        self._paused: set[int] = set()
        self._expired: set[bytes] = set()
        self.orphans: dict[str, tuple[int, int] | None] = {}
        self.late_puts = 0
        self._deleted_keys: set[str] = set()

    def began(self, broker: int, life: int) -> None:
        """A broker's life began."""
        self._lives[broker] = life

    def ended(self, broker: int) -> None:
        """A broker's life ended."""
        self._lives.pop(broker, None)
        self._paused.discard(broker)

    def paused(self, broker: int) -> None:
        """A broker's life stands still."""
        self._paused.add(broker)

    def resumed(self, broker: int) -> None:
        """A paused broker goes on."""
        self._paused.discard(broker)

    def put(self, key: str, broker: int, life: int, *, is_awaited: bool) -> None:
        """The store has an object."""
        found = segment_of(key)
        if found is None:
            raise Violation(5, "unknown object", f"broker {broker} put {key}")
        segment = self._tier.segments.get(found[0])
        is_going = segment is not None and segment.state == DELETING and key in self._deleted_keys
        is_late = is_going or found[0] in self._tier.deleted
        self.late_puts += is_late
        if self._lives.get(broker) != life or is_late:
            self.orphans[key] = (broker, life) if is_awaited else None

    def deleted(self, key: str, by: str) -> None:
        """The store has it no more, or had it not when it was to be deleted."""
        self.orphans.pop(key, None)
        self._deleted_keys.add(key)
        found = segment_of(key)
        if by == "lifecycle" and found is not None:
            self._expired.add(found[0])
        elif found is not None:
            self._check_deletable(found[0], key, by)

    def end_of_expired(self, partition: PartitionId, offset: int) -> int:
        """The offset behind the segments from an offset on that a lifecycle rule took objects of; it: none."""
        at = -1
        while at < offset:
            at = offset
            for each in self._tier.of(partition):
                if each.segment_id in self._expired and each.start_offset <= offset <= each.end_offset:
                    offset = each.end_offset + 1
        return offset

    def _check_deletable(self, segment_id: bytes, key: str, by: str) -> None:
        """Nothing is deleted that readers find."""
        segment = self._tier.segments.get(segment_id)
        if segment is not None and segment.state == FINISHED:
            raise Violation(1, "lost write", f"{by} deleted {key}, which is finished in the tier")

    def check(self, stored: Mapping[str, int]) -> None:
        """Invariant 5, of a settled cluster."""
        parts: dict[bytes, set[str]] = {}
        for key in stored:
            found = segment_of(key)
            if found is None:
                raise Violation(5, "unknown object", key)
            parts.setdefault(found[0], set()).add(found[1])
            if found[0] not in self._tier.segments and not self._is_forgiven(key):
                state = "deleted" if found[0] in self._tier.deleted else "unknown"
                raise Violation(5, "orphaned object", f"{key} is in the store, its segment is {state}")
        for segment in self._tier.segments.values():
            missing = _PARTS - parts.get(segment.segment_id, set())
            if segment.state == FINISHED and missing and segment.segment_id not in self._expired:
                name = base64.urlsafe_b64encode(segment.segment_id).decode()
                raise Violation(5, "lost object", f"segment {name} of offset {segment.start_offset} lacks {missing}")

    def _is_forgiven(self, key: str) -> bool:
        if key not in self.orphans:
            return False
        putter = self.orphans[key]
        return putter is None or putter[0] in self._paused or self._lives.get(putter[0]) != putter[1]

    def has_late(self, stored: Mapping[str, int]) -> bool:
        """Whether an object is in the store that landed behind the deletion of its segment's objects, of a life that
        runs.
        """
        keys = [(key, found[0]) for key in stored if (found := segment_of(key)) is not None]
        return any(each not in self._tier.segments and not self._is_forgiven(key) for key, each in keys)

    def check_settled(self, now_ms: int, untiered: AbstractSet[bytes]) -> None:
        """Invariant 10: nothing is half copied or deleted, but what was begun just now, or is of topics that left the
        tier: their leader removes it, and nobody does if that crashes before (Kafka's too).
        """
        segments = [each for each in self._tier.segments.values() if each.partition[0] not in untiered]
        states = Counter(each.state for each in segments if each.since_ms < now_ms - _UNDER_WAY_MS)
        if states[STARTED] or states[DELETING]:
            text = f"{states[STARTED]} copies and {states[DELETING]} deletions never ended"
            raise Violation(10, "stuck tier", text)


def check_copied_below_stable(segment: Segment, copier: ReplicaView | None) -> None:
    """Invariant 9: when a segment became FINISHED, it lay below its copier's last stable offset."""
    if copier is None or segment.state != FINISHED or copier.role != "leader":
        return
    if segment.end_offset >= copier.last_stable_offset:
        text = f"{segment.start_offset}..{segment.end_offset} is finished, the last stable offset of broker"
        raise Violation(9, "unstable copy", f"{copier.partition}: {text} {copier.broker} {copier.last_stable_offset}")
