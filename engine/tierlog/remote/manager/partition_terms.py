"""The partitions that this broker leads or follows, each in its present term, with the term's tasks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from tierlog.marks import mark
from tierlog.remote.api import RemoteResourceNotFoundException, TopicIdPartition
from tierlog.remote.manager.metadata_notices import MetadataNotices
from tierlog.remote.manager.task_schedule import ScheduledTask, TaskSchedule
from tierlog.remote.manager.tier_services import TierServices
from tierlog.remote.manager.tiered_partition import Role, TieredPartition
from tierlog.runtime.machine.scheduling import Future, PendingFuture

_log = logging.getLogger(__name__)

#: One run of a partition's task, as ``task_schedule.Run``.
PartitionRun = Callable[[TieredPartition], float | None]


class TermTask(NamedTuple):
    """A task that each term of a role has: its run, and its threads."""

    schedule: TaskSchedule
    run: PartitionRun


class Term:
    """A term and its tasks, which begin once the partition's metadata is there. Its attributes are PartitionTerms'."""

    __slots__ = ("copying", "has_begun", "other", "partition")

    def __init__(self, partition: TieredPartition) -> None:
        self.partition = partition
        self.has_begun = False
        self.copying: ScheduledTask | None = None
        self.other: ScheduledTask | None = None

    @property
    def tasks(self) -> list[ScheduledTask]:
        return [task for task in (self.copying, self.other) if task is not None]


class PartitionTerms:
    """The terms by partition. A partition of another topic id is another partition, and ends that of the earlier one.

    Args:
        services: What the manager works with.
        notices: Takes the roles to the metadata manager.
        copying, expiring: The tasks of a leader.
        following: The task of a follower.

    Thread safety: any number of threads.
    """

    def __init__(
        self,
        services: TierServices,
        notices: MetadataNotices,
        *,
        copying: TermTask,
        expiring: TermTask,
        following: TermTask,
    ) -> None:
        self._services = services
        self._notices = notices
        self._copying, self._expiring, self._following = copying, expiring, following
        self._lock = services.machine.scheduler.lock()
        self._terms: dict[TopicIdPartition, Term] = {}
        #: By topic and number: of one name there is one partition here, whatever its topic id.
        self._names: dict[str, dict[int, TopicIdPartition]] = {}
        #: Tasks of terms that have ended, whose last run goes on: no later term has another thread for the same.
        self._lingering: dict[tuple[TopicIdPartition, TaskSchedule], ScheduledTask] = {}
        #: Of terms that have not begun.
        self._waiting: dict[TopicIdPartition, PendingFuture[None]] = {}
        #: What the tasks of a partition's next term wait for.
        self._held: dict[TopicIdPartition, list[Future[None]]] = {}

    # ---- what there is

    def all(self) -> list[Term]:
        """Return the present terms, in no order."""
        with self._lock:
            return list(self._terms.values())

    def lingering_runs(self) -> list[tuple[TopicIdPartition, ScheduledTask]]:
        """Return the tasks of ended terms whose last run goes on, whatever it waits for."""
        with self._lock:
            return [(partition, task) for (partition, _), task in self._lingering.items()]

    def find(self, partition: TopicIdPartition) -> TieredPartition | None:
        """Return a partition's present term."""
        term = self._terms.get(partition)
        return None if term is None else term.partition

    def count(self, role: Role) -> int:
        """Return the number of terms of a role."""
        return sum(term.partition.role is role for term in self.all())

    def has_topic(self, topic: str) -> bool:
        """Whether there is a term of any partition of a topic."""
        with self._lock:
            return topic in self._names

    def has_begun(self, partition: TopicIdPartition) -> bool:
        """Whether the metadata manager has heard of a partition's present term, and has loaded its metadata, or cannot;
        True also without a term.
        """
        term = self._terms.get(partition)
        return term is None or term.has_begun

    def when_begun(self, partition: TopicIdPartition) -> Future[None] | None:
        """Return a future of that, which raises why the metadata cannot be loaded, or that the term has ended; None: it
        has begun.
        """
        with self._lock:
            if self.has_begun(partition):
                return None
            if partition not in self._waiting:
                self._waiting[partition] = self._services.machine.scheduler.future()
            return self._waiting[partition]

    def _settle(self, partition: TopicIdPartition, error: BaseException | None) -> None:
        with self._lock:
            future = self._waiting.pop(partition, None)
        if future is None:
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    # ---- changes

    def begin(self, leaders: AbstractSet[TopicIdPartition], followers: AbstractSet[TopicIdPartition]) -> None:
        """Begin terms of partitions whose role here is another one; the others go on, and copy again if an error had
        stopped that for the term.
        """
        ended: list[Term] = []
        begun: list[Term] = []
        with self._lock:
            for role, partitions in ((Role.FOLLOWER, followers), (Role.LEADER, leaders)):
                for partition in partitions:
                    before = self._of_name(partition)
                    if before is not None:
                        was = before.partition
                        if was.topic_id_partition == partition and was.role is role:
                            continue
                        ended.append(before)
                        self._take_out(was.topic_id_partition)
                    term = Term(TieredPartition(partition, role, self._services.machine.scheduler))
                    self._terms[partition] = term
                    self._names.setdefault(partition.topic, {})[partition.partition] = partition
                    begun.append(term)
        for term in ended:
            self._end(term)
            partition = term.partition.topic_id_partition
            if partition not in self._terms:
                _log.info("%s: its topic was made anew", partition)
                self._notices.stop(partition, lambda _: None, is_here=partial(self._terms.__contains__, partition))
        self._notices.begin(
            (term.partition.topic_id_partition, term.partition.role, partial(self._when_ready, term)) for term in begun
        )
        self.resume_copying(leaders)

    def _of_name(self, partition: TopicIdPartition) -> Term | None:
        known = self._names.get(partition.topic, {}).get(partition.partition)
        return None if known is None else self._terms.get(known)

    def _take_out(self, partition: TopicIdPartition) -> Term | None:
        term = self._terms.pop(partition, None)
        if term is not None:
            numbers = self._names[partition.topic]
            del numbers[partition.partition]
            if not numbers:
                del self._names[partition.topic]
        return term

    def end(self, partition: TopicIdPartition) -> Term | None:
        """End a partition's term, and return it: its reads are cancelled, its copy is called off, and no run of its
        tasks begins any more.
        """
        with self._lock:
            term = self._take_out(partition)
        if term is not None:
            self._end(term)
        return term

    def end_all(self) -> None:
        """End all terms."""
        for term in self.all():
            self.end(term.partition.topic_id_partition)

    def runs_of(self, term: Term) -> list[Future[None]]:
        """Return futures of the ends of a term's runs, which must have ended itself."""
        return [task.end() for task in term.tasks]

    def hold(self, partition: TopicIdPartition, until: Future[None]) -> None:
        """Let the tasks of a partition's next term begin behind a future, which raises nothing: its tier is deleted."""
        with self._lock:
            self._held.setdefault(partition, []).append(until)
        until.add_done_callback(lambda _: self._release(partition))

    def _release(self, partition: TopicIdPartition) -> None:
        with self._lock:
            held = [each for each in self._held.pop(partition, ()) if not each.done()]
            if held:
                self._held[partition] = held

    def stop_copying(self, partitions: Iterable[TopicIdPartition]) -> None:
        """End the copying of partitions, whose terms go on."""
        for partition in partitions:
            term = self._terms.get(partition)
            if term is not None and term.copying is not None:
                term.partition.copying_stopped = True
                term.copying.end()
                self._call_off(term.partition)

    def resume_copying(self, partitions: Iterable[TopicIdPartition]) -> None:
        """Copy again: partitions whose copying was ended, or had stopped for an error."""
        for partition in partitions:
            term = self._terms.get(partition)
            if term is None or not term.has_begun or term.partition.role is not Role.LEADER:
                continue
            before = term.copying
            if before is None:
                self._copy_again(term, None, None)
            elif before.is_ending or term.partition.copying_stopped:  # which removes the rests of its last copy still
                # Of a partition nothing runs twice at once.
                before.end().add_done_callback(partial(self._copy_again, term, before))

    def _copy_again(self, term: Term, before: ScheduledTask | None, _ended: object) -> None:
        if not self._copies(term.partition.topic_id_partition):
            return
        with self._lock:
            if term.copying is before and not term.partition.has_ended:
                term.partition.copying_stopped = False
                term.copying = self._add(self._copying, term.partition)

    # ---- tasks

    def _when_ready(self, term: Term, ready: Future[None] | None) -> None:
        if ready is None:
            self._when_free(term)
        else:  # where it fails, the tasks meet the same error, count it, and try again
            ready.add_done_callback(lambda done: self._when_free(term, done.exception()))

    def _when_free(self, term: Term, error: BaseException | None = None) -> None:
        with self._lock:
            held = self._held.get(term.partition.topic_id_partition, [])
            until = next((each for each in held if not each.done()), None)
        if until is None:
            self._begin_tasks(term, error)
        else:
            mark("terms: one waits until the tier of before is deleted")
            until.add_done_callback(lambda _: self._when_free(term, error))

    def _begin_tasks(self, term: Term, error: BaseException | None) -> None:
        partition = term.partition
        with self._lock:
            if partition.has_ended or term.has_begun or self._terms.get(partition.topic_id_partition) is not term:
                return
            term.has_begun = True
            if partition.role is Role.LEADER:
                term.other = self._add(self._expiring, partition)
            else:
                term.other = self._add(self._following, partition)
        self._settle(partition.topic_id_partition, error)
        self.resume_copying([partition.topic_id_partition])  # asked now: a change passes over terms that have not begun

    def _add(self, task: TermTask, partition: TieredPartition) -> ScheduledTask:
        """Add a task of a term, behind that of an earlier one which still runs. The caller holds the lock."""
        run = partial(task.run, partition)
        before = self._lingering.get((partition.topic_id_partition, task.schedule))
        return task.schedule.add(run) if before is None else task.schedule.add_behind(before, run)

    def _copies(self, partition: TopicIdPartition) -> bool:
        """Whether a partition's topic is copied."""
        log = self._services.find_log(partition)
        return log is None or not log.config.remote_log_copy_disable

    def _end(self, term: Term) -> None:
        for task in term.tasks:
            self._end_task(term.partition.topic_id_partition, task)
        term.partition.end()
        if not term.has_begun and self.find(term.partition.topic_id_partition) is None:
            partition = term.partition.topic_id_partition
            self._settle(partition, RemoteResourceNotFoundException(f"{partition} is neither led nor followed here"))
        self._call_off(term.partition)
        self._services.metrics.drop(term.partition.topic_id_partition)

    def _end_task(self, partition: TopicIdPartition, task: ScheduledTask) -> None:
        ended, key = task.end(), (partition, task.schedule)
        if ended.done():
            return
        with self._lock:
            self._lingering[key] = task
        ended.add_done_callback(lambda _: self._ran(key, task))

    def _ran(self, key: tuple[TopicIdPartition, TaskSchedule], task: ScheduledTask) -> None:
        with self._lock:
            if self._lingering.get(key) is task:
                del self._lingering[key]

    def _call_off(self, partition: TieredPartition) -> None:
        for segment_id in partition.being_copied:
            try:
                self._services.storage.call_off_copy(segment_id)
            except Exception as error:  # noqa: BLE001 - an optional call: the copy ends later then
                _log.debug("%s: the copy cannot be called off: %s", segment_id, error)
