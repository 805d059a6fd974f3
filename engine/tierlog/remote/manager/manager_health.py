"""The health of a RemoteLogManager: its backlog, and the reasons, for operators and for the gauges of its metrics."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tierlog.errors import TierlogError
from tierlog.log.partition_log import PartitionLog
from tierlog.remote.api import TopicIdPartition
from tierlog.remote.manager.clock_check import ClockCheck
from tierlog.remote.manager.copy_candidates import find_copy_candidate
from tierlog.remote.manager.manager_metrics import PartitionFigures
from tierlog.remote.manager.metadata_notices import MetadataNotices
from tierlog.remote.manager.partition_terms import PartitionTerms, Term
from tierlog.remote.manager.task_schedule import TaskSchedule
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_partition import Role

_log = logging.getLogger(__name__)

#: A run that goes on for longer is shown: a call of a manager may hang in it.
LONG_RUN_SECONDS: Final = 60.0


class Uncopied(NamedTuple):
    """A partition with closed segments that are not copied.

    Attributes:
        age_seconds: Of the newest record in the oldest of them.
        reason: Why it is not copied now, for people.
        failure: The error of its last copy; None: it had none.
    """

    topic_id_partition: TopicIdPartition
    age_seconds: float
    bytes: int
    segments: int
    reason: str
    failure: Exception | None


class LongRun(NamedTuple):
    """A run of a task that goes on for long.

    Attributes:
        task: "copy", "expiration" or "follower".
    """

    topic_id_partition: TopicIdPartition
    task: str
    seconds: float


@dataclass(frozen=True, slots=True)
class ManagerHealth:
    """The state of a manager at one moment.

    Attributes:
        leaders, followers: The number of tiered partitions.
        loading: Of them, those whose metadata is still loaded.
        uncopied: The partition whose oldest segment that is not copied is the oldest of all; None: all is copied.
        uncopied_count: The number of partitions that have any.
        copying_stopped: Partitions that copy no more until an operator acts, with the error.
        long_runs: Runs of more than a minute, longest first.
        waiting_runs: Tasks that are due and wait for a thread, by kind.
        notices: The number of partitions of whose role the metadata manager has yet to hear.
        notice_seconds: How long the present notice is under way; the metadata manager may hang in it.
        notice_failure: Why the metadata manager has not taken the last notice; None: it has.
        clock_is_off: Whether nothing expires by time, since the broker's clock differs too much from the store's.
    """

    leaders: int
    followers: int
    loading: int
    uncopied: Uncopied | None
    uncopied_count: int
    copying_stopped: Mapping[TopicIdPartition, Exception | None]
    long_runs: tuple[LongRun, ...]
    waiting_runs: Mapping[str, int]
    notices: int
    notice_seconds: float
    notice_failure: BaseException | None
    clock_is_off: bool = False


class HealthCheck:
    """Looks at the terms of a manager and their logs, when it is asked.

    Args:
        services: What the manager works with.
        terms: Of the partitions.
        notices: To the metadata manager.
        schedules: "copy", "expiration" and "follower".
        clock_check: Of the expiration task.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        services: TierServices,
        terms: PartitionTerms,
        notices: MetadataNotices,
        schedules: Mapping[str, TaskSchedule],
        clock_check: ClockCheck | None = None,
    ) -> None:
        self._services = services
        self._terms = terms
        self._notices = notices
        self._schedules = schedules
        self._clock_check = clock_check

    def figures(self, *, by_partition: bool) -> Iterator[tuple[TopicIdPartition, PartitionFigures]]:
        """Yield the figures of the partitions that this broker leads, as ManagerMetrics collects them."""
        for term, log in self._led():
            partition = term.partition.topic_id_partition
            try:
                size, segments = _lag(log)
                logs = self._log_figures(partition, log) if by_partition else {}
            except TierlogError as error:
                _log.debug("%s: no figures: %s", partition, error)  # offline, or closed meanwhile
                continue
            yield partition, PartitionFigures({"copy_lag_bytes": size, "copy_lag_segments": segments}, logs)

    def _log_figures(self, partition: TopicIdPartition, log: PartitionLog) -> dict[str, float]:
        size, config = log.size(), log.config
        figures: dict[str, float] = {
            "log_segments": len(log.log_segments()),
            "log_start_offset": log.log_start_offset,
            "log_end_offset": log.log_end_offset,
            "local_size_bytes": size,
        }
        if config.retention_bytes > 0:
            tiered = self._services.metrics.last_set("log_size_bytes", partition)
            figures["retention_size_ratio"] = (log.only_local_log_segments_size() + tiered) / config.retention_bytes
        local = config.retention_bytes if config.local_retention_bytes == -2 else config.local_retention_bytes
        if local > 0:
            figures["local_retention_size_ratio"] = size / local
        return figures

    def uncopied_age_seconds(self) -> float:
        """Return the age of the oldest segment that is not copied; 0: all are."""
        found = max(self._uncopied(), key=lambda each: each.age_seconds, default=None)
        return 0.0 if found is None else found.age_seconds

    def copying_stopped(self) -> dict[TopicIdPartition, Exception | None]:
        """Return the partitions that copy no more until an operator acts, with the error."""
        stopped = (term.partition for term in self._terms.all() if term.partition.copying_stopped)
        return {each.topic_id_partition: each.failure for each in stopped if each.failure is not None}

    def look(self) -> ManagerHealth:
        """Return the state as of now. Cost: some microseconds a partition."""
        terms = self._terms.all()
        uncopied = list(self._uncopied())
        leaders = sum(term.partition.role is Role.LEADER for term in terms)
        return ManagerHealth(
            leaders=leaders,
            followers=len(terms) - leaders,
            loading=sum(not term.has_begun for term in terms),
            uncopied=max(uncopied, key=lambda each: each.age_seconds, default=None),
            uncopied_count=len(uncopied),
            copying_stopped=self.copying_stopped(),
            long_runs=tuple(sorted(self._long_runs(terms), key=lambda run: -run.seconds)),
            waiting_runs={name: schedule.waiting for name, schedule in self._schedules.items()},
            notices=self._notices.waiting,
            notice_seconds=self._notices.running_seconds,
            notice_failure=self._notices.failure,
            clock_is_off=self._clock_check is not None and self._clock_check.is_off,
        )

    def _led(self) -> Iterator[tuple[Term, PartitionLog]]:
        for term in self._terms.all():
            if term.partition.role is Role.LEADER:
                log = self._services.find_log(term.partition.topic_id_partition)
                if log is not None and log.remote_log_enabled() and not log.config.remote_log_copy_disable:
                    yield term, log

    def _uncopied(self) -> Iterator[Uncopied]:
        now_ms = self._services.machine.clock.time_ms()
        for term, log in self._led():
            try:
                size, segments = _lag(log)
                if not segments:
                    continue
                first = next(iter(log.log_segments(log.highest_offset_in_remote_storage + 1)))
                age = (now_ms - first.largest_timestamp_ms) / 1000
            except (TierlogError, StopIteration) as error:
                _log.debug("%s: its lag is not known: %s", term.partition.topic_id_partition, error)
                continue
            partition = term.partition
            reason = self._reason(term, log)
            yield Uncopied(partition.topic_id_partition, max(age, 0.0), size, segments, reason, partition.failure)

    def _reason(self, term: Term, log: PartitionLog) -> str:
        """Return why a term's segments are not copied now."""
        partition, task = term.partition, term.copying
        if not term.has_begun:
            return "the partition's metadata is still loaded"
        if partition.copying_stopped:
            return f"copying has stopped: {partition.failure}"
        if partition.failure is not None:
            return f"the last copy failed, and is tried again: {partition.failure}"
        if partition.being_copied:
            return "it is being copied"
        now_ms = self._services.machine.clock.time_ms()
        if find_copy_candidate(log, copied_offset=log.highest_offset_in_remote_storage, now_ms=now_ms) is None:
            return "its topic delays copies, or a transaction is open"
        if task is not None and task.is_held:
            return "a copy of an earlier term still runs"
        return "it waits for a thread" if task is not None and task.is_queued else "it waits for its next run"

    def _long_runs(self, terms: Iterable[Term]) -> Iterator[LongRun]:
        now = self._services.machine.clock.monotonic_seconds()
        present = ((term.partition.topic_id_partition, task) for term in terms for task in term.tasks)
        names = {schedule: name for name, schedule in self._schedules.items()}
        for partition, task in (*present, *self._terms.lingering_runs()):
            if 0 <= task.began_seconds <= now - LONG_RUN_SECONDS:
                yield LongRun(partition, names[task.schedule], now - task.began_seconds)


def _lag(log: PartitionLog) -> tuple[int, int]:
    """Return bytes and number of a log's closed segments that are not copied, as Kafka counts them."""
    if log.highest_offset_in_remote_storage + 1 >= log.active_segment.base_offset:
        return 0, 0  # as a rule: ten thousand partitions are collected with every scrape
    size = max(0, log.only_local_log_segments_size() - log.active_segment.size_bytes)
    return size, max(0, log.only_local_log_segments_count() - 1)
