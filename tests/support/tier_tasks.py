"""A tiered log of which a test runs the tasks: a real log, its copies, the managers, and one term of its leader.

Every call of a manager is recorded and can be made to fail, to hang or to be late (``Hooked``).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast

from tests.contract.metadata_events import PARTITION
from tests.support.living_logs import batch_of
from tests.support.metadata_rig import Rig, rig
from tests.support.tiered_log import TieredLogs
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentMetadataUpdate,
    RemoteLogSegmentState,
    RemoteStorageManager,
    TopicIdPartition,
)
from tierlog.remote.manager.expirations import Expirations
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig
from tierlog.remote.manager.manager_metrics import ManagerMetrics
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.testing.memory_storage_manager import MemoryStorageManager

STATE = RemoteLogSegmentState
BROKER, OTHER_BROKER = 1, 2
RECORDS = 10
MINUTE_MS = 60_000
SHORT = {
    "remote.log.manager.unfinished.copy.retention.ms": f"{MINUTE_MS}",
    "remote.log.manager.clock.jump.max.ms": f"{MINUTE_MS}",
}


class Hooked:
    """A manager whose calls are recorded, and go through a function of the test's first: what it returns, but for
    None, is the answer.
    """

    def __init__(self, inner: object, calls: list[tuple[str, Any]]) -> None:
        self._inner: Any = inner
        self._calls = calls
        self.hooks: dict[str, Callable[..., Any]] = {}

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._inner, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **named: Any) -> Any:
            self._calls.append((name, args[0] if args else None))
            answer = self.hooks[name](*args, **named) if name in self.hooks else None
            return attribute(*args, **named) if answer is None else answer

        return call


def failing(error: BaseException) -> Callable[..., Any]:
    """A hook that raises."""

    def fail(*_: object, **__: object) -> None:
        raise error

    return fail


class TaskTier(TieredLogs):
    """One leader's partition, in its first term. A segment has RECORDS offsets."""

    def __init__(self, made: Rig, *, manager: dict[str, str] | None = None, **limits: int) -> None:
        super().__init__(made.machine)
        self.rig = made
        self.calls: list[tuple[str, Any]] = []
        self.starts: list[int] = []
        self.store = MemoryStorageManager(machine=made.machine)
        self.store.configure({})
        self.metadata = Hooked(made.leader(), self.calls)
        self.storage = Hooked(self.store, self.calls)
        self.logs[PARTITION] = self.directory.log("orders", 0, topic_id=PARTITION.topic_id)
        self.limit(**limits)
        self.services = TierServices(
            config=RemoteLogManagerConfig.read(SHORT | (manager or {})),
            storage=cast("RemoteStorageManager", self.storage),
            metadata=cast("RemoteLogMetadataManager", self.metadata),
            find_log=self.logs.get,
            broker_id=BROKER,
            machine=made.machine,
            metrics=ManagerMetrics(made.machine),
            on_log_start_offset=lambda _, start: self._published(start),
        )
        self.expirations = Expirations(self.services)
        self.term = self.new_term()

    def _published(self, start: int) -> None:
        self.starts.append(start)
        self.calls.append(("published", start))

    def new_term(self) -> TieredPartition:
        """End the present term and begin another one."""
        if hasattr(self, "term"):
            self.term.end()
        self.term = TieredPartition(PARTITION, Role.LEADER, self.machine.scheduler)
        return self.term

    @property
    def log(self) -> UnifiedLog:
        return self.logs[PARTITION]

    def limit(self, **limits: int) -> None:
        """Change the topic's limits: ``retention_bytes``, ``retention_ms``."""
        self.alter(PARTITION, **limits)

    # ---- the log and its copies

    def append(self, *, segments: int = 1, epoch: int = 0) -> None:
        """Append closed segments."""
        for _ in range(segments):
            self.log.append_as_leader(batch_of(*[b"v" * 90] * RECORDS, timestamp_ms=self.now_ms), leader_epoch=epoch)
            self.log.roll()

    def begin_copy(
        self, base: int, end: int, *, epochs: dict[int, int] | None = None, broker_id: int = BROKER
    ) -> RemoteLogSegmentMetadata:
        """A copy of offsets [base, end) that has begun."""
        known = self.log.leader_epoch_cache.epoch_entries_in_range(base, end)
        size = sum(each.size_bytes for each in self.log.log_segments(base, end)) or 1000
        made = RemoteLogSegmentMetadata(
            RemoteLogSegmentId.generate_new(PARTITION, rng=self.machine.rng),
            start_offset=base,
            end_offset=end - 1,
            max_timestamp_ms=max((each.largest_timestamp_ms for each in self.log.log_segments(base, end)), default=0),
            broker_id=broker_id,
            event_timestamp_ms=self.now_ms,
            segment_size_in_bytes=size,
            segment_leader_epochs=epochs or {entry.epoch: entry.start_offset for entry in known},
        )
        self.metadata.add_remote_log_segment_metadata(made).result(60)
        return made

    def finish_copy(self, segment: RemoteLogSegmentMetadata, state: STATE = STATE.COPY_SEGMENT_FINISHED) -> None:
        update = RemoteLogSegmentMetadataUpdate(
            segment.remote_log_segment_id,
            event_timestamp_ms=self.now_ms,
            custom_metadata=None,
            state=state,
            broker_id=segment.broker_id,
        )
        self.metadata.update_remote_log_segment_metadata(update).result(60)

    def copy(self) -> list[RemoteLogSegmentMetadata]:
        """Copy all closed segments that are not copied."""
        made = []
        for segment, end in self.log.closed_segments(self.log.highest_offset_in_remote_storage + 1):
            metadata = self.begin_copy(segment.base_offset, end)
            with self.log.lease(segment) as files:
                self.store.copy_log_segment_data(metadata, files)
            self.finish_copy(metadata)
            self.log.update_highest_offset_in_remote_storage(end - 1)
            made.append(metadata)
        self.calls.clear()
        return made

    def filled(self, segments: int, *, epoch: int = 0) -> list[RemoteLogSegmentMetadata]:
        """Append segments and copy them."""
        self.append(segments=segments, epoch=epoch)
        return self.copy()

    # ---- the task

    def run(self) -> float | None:
        return self.expirations.run(self.term)

    def settle(self, runs: int = 200) -> None:
        """Run the task until it has nothing to do at once."""
        for _ in range(runs):
            pause = self.run()
            if pause is None or pause > 0:
                return
        raise AssertionError("the task finds no end")

    # ---- what is there

    def pass_time(self, ms: int) -> None:
        self.machine.clock.sleep(ms / 1000)

    def listed(self) -> list[tuple[int, STATE]]:
        """(first offset, state) of the segments that the metadata has, by offset."""
        found = self.metadata._inner.list_remote_log_segments(PARTITION)
        return [(each.start_offset, each.state) for each in sorted(found, key=lambda each: each.start_offset)]

    def starts_listed(self) -> list[int]:
        return [start for start, _ in self.listed()]

    def stored(self) -> int:
        """The number of segments in the store."""
        return len(self.store.segment_ids)

    def states_of(self, calls: list[tuple[str, Any]]) -> list[str]:
        """The names of what happened, state changes by their state, without questions."""
        names = []
        for name, subject in calls:
            if name == "update_remote_log_segment_metadata":
                names.append(subject.state.name)
            elif name in ("delete_log_segment_data", "published"):
                names.append(name)
        return names

    def value(self, name: str) -> float:
        return self.services.metrics.value(name)


@contextlib.contextmanager
def task_tier(seed: int = 1, *, manager: dict[str, str] | None = None, **limits: int) -> Iterator[TaskTier]:
    """An TaskTier; at its end nothing is left open."""
    with rig(seed) as made:
        tier = TaskTier(made, manager=manager, **limits)
        yield tier
        tier.directory.close()


def partition_of(number: int) -> TopicIdPartition:
    return TopicIdPartition(PARTITION.topic_id, PARTITION.topic, number)


def segment_bytes(segments: list[RemoteLogSegmentMetadata]) -> int:
    return segments[0].segment_size_in_bytes


def require_published(tier: TaskTier) -> None:
    """Let a deletion fail the test whose offsets the log has still."""

    def check(segment: RemoteLogSegmentMetadata) -> None:
        assert segment.end_offset < tier.log.log_start_offset, "deleted before the start was published"

    tier.storage.hooks["delete_log_segment_data"] = check


def reopened(tier: TaskTier, **limits: int) -> None:
    """Restart the broker: the log knows nothing of the tier."""
    tier.restart()
    tier.limit(**limits)
    assert tier.log.highest_offset_in_remote_storage == -1
    tier.new_term()


def moved_to_another_disk(tier: TaskTier) -> None:
    """Move the log to another log directory, in the same term."""
    tier.restart("/others")
