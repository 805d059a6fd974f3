"""The judge's knowledge of one partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from tests.simulation.facts import ReplicaView, TopicFacts
from tests.simulation.judge.batches import Batch
from tests.simulation.judge.contents import Contents
from tests.simulation.judge.producers import Producers
from tests.simulation.judge.retention import Sizes, check_rise
from tests.simulation.judge.segments import SegmentTable
from tests.simulation.trace import Trace


@dataclass
class JudgedPartition:
    """What is known of one partition.

    Attributes:
        epochs: By epoch: whether the election was unclean.
        epoch: The newest that a leader was seen to begin.
        in_sync: As the controller has it.
        leader: The controller's.
        current: The controller's epoch.
        left_start: The highest local start of a replica when the topic left the tier: in front of it that replica has
            nothing until a leader has copied it again.
        high_watermark: The highest of a leader.
        own_starts: By broker, where its log starts by its own retention, as nothing is copied: judged as it rose.
        skipped: Offsets that nobody could read, as a lifecycle rule took an object, and where to go on.
    """

    contents: Contents
    sizes: Sizes = field(default_factory=Sizes)
    producers: Producers = field(default_factory=Producers)
    epochs: dict[int, bool] = field(default_factory=dict)
    epoch: int = -1
    current: int = -1
    leader: int | None = None
    in_sync: frozenset[int] = frozenset()
    left_start: int = 0
    high_watermark: int = 0
    consumers: dict[str, int] = field(default_factory=dict)
    skipped: dict[int, int] = field(default_factory=dict)
    own_starts: dict[int, int] = field(default_factory=dict)
    _out_of_sync_ms: dict[int, int] = field(default_factory=dict)

    @property
    def published_start(self) -> int:
        """The highest log start of a leader."""
        return self.contents.published_start

    @published_start.setter
    def published_start(self, offset: int) -> None:
        self.contents.published_start = offset

    def were_out_of_sync(self, replicas: Iterable[int], now_ms: int) -> None:
        """Another in-sync set comes: replicas that were out of the one of before were so until now."""
        self._out_of_sync_ms |= dict.fromkeys(set(replicas) - self.in_sync, now_ms)

    def was_out_of_sync(self, broker: int, since_ms: int) -> bool:
        """Whether a replica is out of sync, or was since a time."""
        return broker not in self.in_sync or self._out_of_sync_ms.get(broker, -1) >= since_ms

    def has_next_leader(self, leader_epoch: int) -> bool:
        """Whether a leader is none any more, and may not have heard that what it had copied has left the tier: with its
        topic, or as what the next leader took for given up before it was finished after all.
        """
        return leader_epoch < self.current

    def latest_start(
        self, facts: Sequence[TopicFacts], view: ReplicaView | None, tier: SegmentTable, told_start: int = 0
    ) -> int:
        """Where a replica's log may start: up to a start of a leader, which the present one may not have heard of, or
        where it was local when its tier went. Where nothing is copied a replica deletes by its own retention, whose
        segments end elsewhere than the leader's; up to ``told_start``, which the leader has published in the middle of
        a change, the leader is judged when that has ended. Raises Violation: that deleted what it has to leave.
        """
        own = 0 if view is None else self.own_starts.get(view.broker, 0)
        start = max(self.published_start, self.left_start, own)
        copies = facts[-1].is_tiered and not facts[-1].is_copy_disabled
        if view is None or copies or view.log_start_offset <= start:
            return start
        if view.log_start_offset > told_start:
            check_rise(replace(self.sizes, start=start), facts, view, tier)
        self.own_starts[view.broker] = view.log_start_offset
        return view.log_start_offset

    def take_start(self, view: ReplicaView, facts: list[TopicFacts], tier: SegmentTable, trace: Trace) -> None:
        """A leader has published its start, maybe one that is none any more and has not heard of it. Its deletions are
        of its own bounds, and by its clock: the present leader finds them in the tier. Raises Violation.
        """
        self.published_start = max(self.published_start, view.log_start_offset)
        own = min(view.log_start_offset, self.own_starts.get(view.broker, 0))
        self.sizes.start = max(self.sizes.start, own)  # judged as it rose, by the bounds of then
        if view.log_start_offset > self.sizes.start:
            trace.note(view.partition, "starts at", view.log_start_offset, "by broker", view.broker)
        check_rise(self.sizes, facts, view, tier)

    def saw(self, batches: list[Batch]) -> None:
        """Batches of below the high watermark were read, of a branch that no unclean election took."""
        self.sizes.saw(batches)
        is_old = self.contents.is_of_old_branch
        self.producers.saw(each for each in batches if not is_old(each.leader_epoch, each.last_offset))
