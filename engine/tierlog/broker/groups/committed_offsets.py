"""Committed offsets: the right to commit, the stored values, and their expiry.

The rules are those of Kafka's OffsetMetadataManager. Reads see durable offsets: a commit shows when it is stored.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.group import Group, GroupState
from tierlog.broker.groups.group_config import GroupConfig, GroupsMemory
from tierlog.broker.groups.stored_state import Change, CommittedOffset, DeleteOffsets, SaveOffsets
from tierlog.runtime.machine.clock import Clock

Write = Callable[[Sequence[Change], Callable[[Exception | None], None]], None]
#: (topic, partition)
TopicPartition = tuple[str, int]
Offsets = Mapping[TopicPartition, CommittedOffset]
_NOTHING: Final[Offsets] = {}


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """Offsets that a client wants to be stored: (topic, partition, offset) each."""

    group_id: str
    member_id: str
    generation_id: int
    group_instance_id: str | None
    api_version: int
    offsets: Sequence[tuple[str, int, CommittedOffset]]


def commit_fault(group: Group | None, request: CommitRequest) -> ErrorCode:
    """Check that a client may commit for a group: as one of its members, or without a member id while it has none."""
    is_nobody = request.generation_id < 0
    if group is None:
        if is_nobody:
            return ErrorCode.none
        return ErrorCode.group_id_not_found if request.api_version >= 9 else ErrorCode.illegal_generation
    if is_nobody and group.state is GroupState.EMPTY:
        return ErrorCode.none
    if is_nobody and not request.member_id and request.group_instance_id is None:
        return ErrorCode.unknown_member_id
    fault = group.fault_of(request.member_id, request.group_instance_id)
    if fault is not ErrorCode.none:
        return fault
    if request.generation_id != group.generation_id:
        return ErrorCode.illegal_generation
    return ErrorCode.rebalance_in_progress if group.state is GroupState.COMPLETING_REBALANCE else ErrorCode.none


class CommittedOffsets:
    """The offsets of all groups. Used on the event loop alone."""

    def __init__(
        self,
        config: GroupConfig,
        clock: Clock,
        budget: GroupsMemory,
        *,
        write: Write,
    ) -> None:
        self._config = config
        self._clock = clock
        self._budget = budget
        self._write = write
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        self._writing: collections.Counter[str] = collections.Counter()

    def load(self, offsets: Mapping[str, Offsets]) -> None:
        """Take over the stored offsets."""
        for group_id, of_group in offsets.items():
            self._put(group_id, of_group.items())

    def has(self, group_id: str) -> bool:
        """Whether a group has offsets, or is about to."""
        return group_id in self._offsets or group_id in self._writing

    def is_writing(self, group_id: str) -> bool:
        """Whether changes of a group's offsets are on their way to the store."""
        return group_id in self._writing

    def of(self, group_id: str) -> Offsets:
        """Return the offsets of a group that are stored."""
        return self._offsets.get(group_id, _NOTHING)

    # ------------------------------------------------------------ commits

    def is_too_large(self, metadata: str) -> bool:
        """Whether a client's text is longer than it may be, in UTF-16 units as Kafka counts."""
        limit = self._config.offset_metadata_max_bytes
        return len(metadata) > limit or (not metadata.isascii() and len(metadata.encode("utf-16-le")) > 2 * limit)

    def growth_bytes(self, group_id: str, offsets: Sequence[tuple[str, int, CommittedOffset]]) -> int:
        """Return the approximate memory that more offsets would take, in bytes."""
        before = self.of(group_id)
        return sum(
            offset.memory_bytes - (kept.memory_bytes if (kept := before.get((topic, partition))) else 0)
            for topic, partition, offset in offsets
        )

    def commit(
        self,
        group_id: str,
        offsets: Sequence[tuple[str, int, CommittedOffset]],
        answer: Callable[[ErrorCode], None],
    ) -> None:
        """Store offsets; ``answer`` is called once they are durable, or are not."""

        def stored() -> None:
            self._put(group_id, [((topic, partition), offset) for topic, partition, offset in offsets])

        self._change(SaveOffsets(group_id, offsets), stored, answer)

    def delete(self, group_id: str, partitions: Sequence[TopicPartition], answer: Callable[[ErrorCode], None]) -> None:
        """Delete offsets; ``answer`` is called once they are gone, or are not."""
        self._change(DeleteOffsets(group_id, partitions), lambda: self._remove(group_id, partitions), answer)

    def settle(self, group_id: str, answer: Callable[[], None]) -> None:
        """Call when all commits so far of a group are answered: at once if there are none."""
        if group_id in self._writing:
            self._write([], lambda _: answer())
        else:
            answer()

    def _change(
        self, change: SaveOffsets | DeleteOffsets, stored: Callable[[], None], answer: Callable[[ErrorCode], None]
    ) -> None:
        group_id = change.group_id
        self._writing[group_id] += 1

        def done(error: Exception | None) -> None:
            self._writing[group_id] -= 1
            if not self._writing[group_id]:
                del self._writing[group_id]
            if error is None:
                stored()
            answer(ErrorCode.none if error is None else ErrorCode.coordinator_not_available)

        self._write([change], done)

    def _put(self, group_id: str, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> None:
        kept = self._offsets.setdefault(group_id, {})
        for place, offset in offsets:
            before = kept.get(place)
            kept[place] = offset
            self._budget.take(offset.memory_bytes - (before.memory_bytes if before else 0))

    def _remove(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        kept = self._offsets.get(group_id)
        if kept is None:
            return
        for place in partitions:
            gone = kept.pop(place, None)
            if gone is not None:
                self._budget.take(-gone.memory_bytes)
        if not kept:
            del self._offsets[group_id]

    def forget(self, group_id: str) -> None:
        """Note that all offsets of a group are deleted from the store."""
        self._remove(group_id, list(self.of(group_id)))

    # ------------------------------------------------------------ retention

    def expire(self, group: Group) -> bool:
        """Delete the offsets of a group whose time is over.

        Returns:
            Whether the group stays: it has members, or offsets, or may have. Else the caller deletes it, with all.
        """
        kept = self.of(group.group_id)
        if self.is_writing(group.group_id):
            return True
        over = [place for place, offset in kept.items() if self._is_over(group, place[0], offset)]
        stays = len(over) < len(kept) or group.state is not GroupState.EMPTY
        if over and stays:
            self.delete(group.group_id, over, lambda _: None)
        return stays

    def _is_over(self, group: Group, topic: str, offset: CommittedOffset) -> bool:
        if group.is_subscribed(topic):
            return False
        if group.protocol_type is None:
            since_ms = offset.commit_timestamp_ms
        elif group.state is GroupState.EMPTY:
            since_ms = group.state_timestamp_ms
        elif group.state is GroupState.STABLE and group.subscribed is not None:
            since_ms = offset.commit_timestamp_ms
        else:
            return False
        now_ms = self._clock.time_ms()
        if offset.expire_timestamp_ms is not None:
            return now_ms >= offset.expire_timestamp_ms
        return now_ms - since_ms >= self._config.offsets_retention_ms
