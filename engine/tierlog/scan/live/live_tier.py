"""A tier that goes on, for a reader that follows it: what may be read of each partition now, where brokers go on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from tierlog.errors import DataLossError, TierlogError, UnknownTopicError
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.process import Closeable
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.following.followed_tier import FollowedTier, Look
from tierlog.scan.history import PartitionHistory
from tierlog.scan.live.loss_report import LossReport
from tierlog.scan.live.seams import BrokerFacts, last_epoch, require_one_log, seam_offset
from tierlog.scan.scan_request import IsolationLevel, TopicSelection
from tierlog.scan.transaction_history import find_last_stable_offset

if TYPE_CHECKING:
    from tierlog.remote.metadata.metadata_view import MetadataView

Place = tuple[str, int]
"""Topic and partition."""

Offsets = Mapping[Place, int]

#: Partitions whose last stable offset is found at once.
_CONCURRENCY: Final = 16


@dataclass(frozen=True, slots=True)
class _StableEnd:
    """The last stable offset of a history."""

    history: PartitionHistory
    offset: int


class Seam(NamedTuple):
    """Where the tier's part of a partition ends within what is read.

    Attributes:
        offset: Records below it are the tier's, the others the brokers'.
        is_unchecked: Whether nobody has compared what the tier has now with the brokers' log.
    """

    offset: int
    is_unchecked: bool


class LiveTier(Closeable):
    """Some topics of a tier, looked at as often as a reader wants to know of new segments.

    A listing that fails for a while changes nothing: what the last one found counts. Offsets that no segment holds are
    waited for as long as one may come that does.

    Args:
        tier: Closed with this.
        topics: Which ones.
        losses: Where faults of single partitions go.
        isolation_level: Which records are read.
        refresh_seconds: The least time between two looks.
        topic_ids: Of topics that were read before.
        read: Of partitions that were read before, the last record with its leader epoch.
        log_start_offsets: Topic -> partition -> offset below which records are deleted.
        may_lack: A topic or partition that was named may have nothing in the tier yet.
        read_metadata: See FollowedTier.

    Attributes:
        tier: As it was opened.
        topic_ids: By topic, of those that were seen.
        read: By topic and partition, (offset, leader epoch) of the last record that was read: where the tier has
            another epoch, it is no longer of the log that was read.

    Thread safety: one thread at a time.
    """

    def __init__(
        self,
        tier: Tier,
        topics: TopicSelection,
        losses: LossReport,
        *,
        isolation_level: IsolationLevel = "read_uncommitted",
        refresh_seconds: float,
        topic_ids: Mapping[str, str] | None = None,
        read: Mapping[Place, tuple[int, int]] | None = None,
        log_start_offsets: Mapping[str, Mapping[int, int]] | None = None,
        may_lack: bool = False,
        read_metadata: Callable[[], MetadataView] | None = None,
    ) -> None:
        self.tier = tier
        self.topic_ids = dict(topic_ids or {})
        self.read = dict(read or {})
        self._followed = FollowedTier(
            tier, topics, log_start_offsets=log_start_offsets, may_lack=may_lack, read_metadata=read_metadata
        )
        self._losses = losses
        self._is_committed = isolation_level == "read_committed"
        self._refresh_seconds = refresh_seconds
        self._look: Look | None = None
        self._due = 0.0
        self._stable: dict[TopicIdPartition, _StableEnd] = {}
        self._checked: dict[Place, tuple[str, int | None]] = {}

    def close(self) -> None:
        """Close the tier."""
        self.tier.close()

    def histories(self, *, is_first: bool = False, is_fresh: bool = False) -> dict[Place, PartitionHistory]:
        """Return the partitions that have something.

        Args:
            is_first: Look now, and raise what else is waited for: that the store is away, or has not what was named.
            is_fresh: Look now, and not only if the time between two looks is over.

        Raises:
            DataLossError: a topic was made anew; or a partition is damaged, and losses fail. CorruptDataError,
                ConfigError, StoreError and their kinds, those that trying again does not cure. UnknownTopicError.
        """
        clock = self.tier.machine.clock
        if self._look is None or is_first or is_fresh or clock.monotonic_seconds() >= self._due:
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
            self._due = clock.monotonic_seconds() + self._refresh_seconds
        found = {} if self._look is None else self._look.partitions
        return {
            (partition.topic, partition.partition): resolution.history
            for partition, resolution in found.items()
            if resolution.history is not None
        }

    def ends(self, histories: Sequence[PartitionHistory]) -> dict[Place, int]:
        """Return where partitions end: see ``end_of``."""
        if unknown := [each for each in histories if self._known_end(each) is None]:
            with self.tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-ends") as pool:
                list(run_all(pool, self.end_of, unknown))
        return {(each.topic, each.partition): self.end_of(each) for each in histories}

    def end_of(self, history: PartitionHistory) -> int:
        """Return where a partition ends: for read_committed at its last stable offset."""
        offset = self._known_end(history)
        if offset is None:
            offset = min(find_last_stable_offset(self.tier, history), history.end_offset_exclusive)
            self._stable[history.topic_id_partition] = _StableEnd(history, offset)
        return offset

    def _known_end(self, history: PartitionHistory) -> int | None:
        if not self._is_committed:
            return history.end_offset_exclusive
        known = self._stable.get(history.topic_id_partition)
        return known.offset if known is not None and known.history is history else None

    def seams(self, start: Offsets, end: Offsets, *, local_starts: Offsets | None = None) -> dict[Place, Seam]:
        """Find where the tier's part of what is read ends, of the partitions of which it has one.

        Args:
            start: Of what is read; a partition without one begins at its first offset.
            end: Of the same, exclusive.
            local_starts: Where the brokers' local logs begin, of which they give all; a partition that is not among
                them is theirs alone. None: the tier gives all that it has.

        Raises:
            As ``histories``.
        """
        found = {}
        for place, history in self.histories().items():
            if place not in end:
                continue
            first = start.get(place, history.earliest_offset)
            local_start = None if local_starts is None else local_starts.get(place, 0)
            # What a hole lacks, and what lies behind it, brokers have.
            holes = [gap.first_offset for gap in history.gaps if gap.end_offset_exclusive > first]
            offset = seam_offset(first, end[place], min([self.end_of(history), *holes]), local_start)
            if offset > first:
                found[place] = Seam(offset, self._checked.get(place) != _log_of(history))
        return found

    def require_one_log(self, history: PartitionHistory, facts: BrokerFacts) -> None:
        """Check that a partition is of the log that brokers have; once it was, seams of it count as checked until the
        tier has records of a later leader.

        Raises:
            ConfigError: it is not.
        """
        require_one_log(history, facts)
        if facts.end_offset is not None:
            self._checked[history.topic, history.partition] = _log_of(history)

    def note_read(self, history: PartitionHistory, end_offset: int) -> None:
        """Note that a partition is read up to an offset, exclusive."""
        epoch = history.lineage.epochs.epoch_for_offset(end_offset - 1)
        if epoch is not None:
            self.read[history.topic, history.partition] = end_offset - 1, epoch

    def _require_as_read(self, history: PartitionHistory) -> None:
        """Check that the tier has the log that was read. Raises DataLossError: it has another, and losses fail."""
        place = history.topic, history.partition
        offset, epoch = self.read.get(place, (-1, -1))
        if not history.earliest_offset <= offset < history.end_offset_exclusive:
            return
        now = history.lineage.epochs.epoch_for_offset(offset)
        if now is not None and now != epoch:
            self._losses.lose(
                f"{history.topic_id_partition}: offset {offset} was read as of leader epoch {epoch}, and is of {now}: "
                "an unclean election has taken records that were read, and others may be in their place"
            )
            del self.read[place]

    def _take(self, look: Look) -> None:
        for partition, resolution in look.partitions.items():
            topic_id = str(partition.topic_id)
            known = self.topic_ids.setdefault(partition.topic, topic_id)
            if known != topic_id:
                raise DataLossError(
                    f"topic {partition.topic} was deleted and made anew: its id was {known} and is {topic_id}; its "
                    "offsets are other ones, so that it takes a new query with a checkpoint of its own"
                )
            if resolution.history is not None:
                self._require_as_read(resolution.history)
            if resolution.held is not None:
                gap = resolution.held.gap
                self._losses.say(f"{partition} waits for offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}")
        for partition, fault in look.faults.items():
            if self._losses.fails and not fault.retriable:
                raise fault
            self._losses.say(f"{partition} is left out for now: {fault}")
        self._look = look
        self._stable = {each: end for each, end in self._stable.items() if each in look.partitions}


def _log_of(history: PartitionHistory) -> tuple[str, int | None]:
    """What a partition's records belong to: a later leader may have another log."""
    return str(history.topic_id_partition.topic_id), last_epoch(history)
