"""Footers for segments that are in a bucket already, whoever wrote them: one pass over each log, and one small object.

Every batch is checked before it counts: its checksum, that offsets rise, and that all of them lie within the segment. A
footer is put beside its segment, or, for a bucket that may not be written to, under the same name at another place,
where readers find it by ``footer.path``. A run that goes on behind another one leaves alone what has a footer that can
be believed.

A segment may go, or be rewritten, while its log is read. The description is fetched again behind the footer: where it
is another one, the footer goes again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tierlog.arguments import require_flag, require_ints, require_path, require_text
from tierlog.errors import ConfigError, TierlogError, UnknownTopicError, first_of
from tierlog.opening import Config, Path, TierLocation, config_keys, given_machine, open_path
from tierlog.remote.metadata.metadata_view import partition_key
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.listing import Candidate, SegmentFilter
from tierlog.remote.tier.objects.object_keys import FOOTER, LOG, PARSERS
from tierlog.remote.tier.tier import REMOTE_WINDOW_BYTES, Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.store_urls import local_path
from tierlog.scan.scan_request import TopicName
from tierlog.upkeep.footer_work import FooterOutcome, FooterState, FooterWork
from tierlog.upkeep.job_ledger import ledgered
from tierlog.upkeep.segment_work import Executor, JobEstimate, ThreadExecutor, TierOrder, WorkOrder

#: Layouts whose segments have footers.
LAYOUTS: Final = ("aiven", "kafka")
#: Of a segment whose footer is written: its description, the footer, the description again.
_REQUESTS_A_FOOTER: Final = 3


class FooterBackfill:
    """One run over the segments of a bucket.

    Args:
        tier: The bucket, whose segments know where their footers would be; the caller closes it.
        topic: One topic by name, or as ``ID:TOPIC``; None for all.
        partitions: Only these; None for all.
        dry_run: Whether to leave everything as it is.
        workers: Segments under way at once.
        on_bytes: Called, in any thread, with the number of log bytes that were read.
        executor: Does the segments; None for so many threads.
        order: Opens the tier where the executor needs it elsewhere.

    Attributes:
        candidates: The segments to look at, by topic, partition and offset.

    Raises:
        ConfigError: a layout whose segments have no footers. UnknownTopicError. StoreError and its kinds: the listing
            failed.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        topic: str | None = None,
        partitions: Collection[int] | None = None,
        dry_run: bool = False,
        workers: int = 1,
        on_bytes: Callable[[int], None] = lambda _: None,
        executor: Executor | None = None,
        order: WorkOrder[StoredSegment, FooterOutcome] | None = None,
    ) -> None:
        if tier.layout not in LAYOUTS:
            raise ConfigError(f"{tier.describe()}: footers are of the layouts {' and '.join(LAYOUTS)}")
        self._tier = tier
        self._dry_run = dry_run
        self._executor = executor or ThreadExecutor(tier.machine.scheduler, workers, name="tierlog-index")
        self._work = FooterWork(tier, dry_run=dry_run, on_bytes=on_bytes, order=order)
        self._unreadable: list[FooterOutcome] = []
        # Elsewhere first: what is written meanwhile has a segment that is listed behind it.
        self._elsewhere = list(self._footers_elsewhere())
        self.candidates = self._list(topic, partitions)
        self._is_all = topic is None and partitions is None

    @property
    def stored_bytes(self) -> int:
        """Size of the logs as stored, of all segments that are looked at."""
        return sum(each.objects[LOG].size_bytes for each in self.candidates if LOG in each.objects)

    def _list(self, topic: str | None, partitions: Collection[int] | None) -> list[Candidate]:
        name = None if topic is None else TopicName.parse(topic)
        wanted = SegmentFilter.of(None, None if name is None else re.escape(name.name), partitions)
        found = list(self._tier.find_candidates(wanted))
        if name is None:
            return found
        found = [each for each in found if name.accepts(each.topic_id_partition)]
        if not found:
            known = first_of(sorted({each.name for each in self._tier.topics()}), 20)
            raise UnknownTopicError(f"{self._tier.describe()}: no segments of {topic}; there are: {known or 'none'}")
        return found

    def __iter__(self) -> Iterator[FooterOutcome]:
        """Yield the outcome of each segment, as soon as it is done; those that are gone come last.

        Raises:
            StoreError and its kinds: the store fails in a way that every segment would meet.
        """
        with closing(self._executor.run(self._work, self._segments())) as done:
            for _, outcome in done:
                yield from self._taken_unreadable()
                yield outcome
        yield from self._taken_unreadable()
        yield from self._remove_gone()

    def _segments(self) -> Iterator[StoredSegment]:
        """Yield the segments as their descriptions come; keep those without a readable one apart."""
        with closing(self._tier.iter_loads(self.candidates)) as loads:
            for candidate, loaded in zip(self.candidates, loads, strict=True):
                if isinstance(loaded, StoredSegment):
                    yield loaded
                elif loaded is not None:
                    self._unreadable.append(
                        FooterOutcome(self._name_of(candidate), FooterState.FAILED, error=_own(loaded))
                    )

    def _taken_unreadable(self) -> list[FooterOutcome]:
        found, self._unreadable = self._unreadable, []
        return found

    @property
    def estimate(self) -> JobEstimate:
        """What the run will do, if the footers that lie there can be believed."""
        there = {key.rpartition("/")[2] for key in self._elsewhere}
        lacking = [each for each in self.candidates if not self._has_footer(each, there)]
        sizes = [each.objects[LOG].size_bytes for each in lacking if LOG in each.objects]
        logs = sum(-(-size // REMOTE_WINDOW_BYTES) for size in sizes)
        # Of each its description, and of those with a footer that.
        looks = 2 * len(self.candidates) - len(lacking)
        return JobEstimate(len(self.candidates), looks + logs + _REQUESTS_A_FOOTER * len(lacking), sum(sizes))

    def _has_footer(self, candidate: Candidate, there: set[str]) -> bool:
        return FOOTER in candidate.objects or f"{candidate.segment_path.rpartition('/')[2]}.{FOOTER}" in there

    def _name_of(self, candidate: Candidate) -> str:
        scope = self._tier.scope
        return scope.name(f"{scope.key_prefix}{candidate.segment_path}.{FOOTER}", scope.key_prefix)

    def _footers_elsewhere(self) -> Iterable[str]:
        store = self._tier.footers.elsewhere
        return () if store is None else (info.key for info in store.iter_objects() if info.key.endswith(f".{FOOTER}"))

    def _remove_gone(self) -> Iterator[FooterOutcome]:
        """Remove footers at another place whose segments are gone, of partitions that are there: other buckets may have
        theirs in the same place. Only by a run over all topics, whose listing shows what is gone.
        """
        store = self._tier.footers.elsewhere
        if store is None or not self._is_all:
            return
        there = {each.segment_id for each in self.candidates}
        partitions = {partition_key(each.topic_id_partition) for each in self.candidates}
        for key in self._elsewhere:
            parsed = PARSERS[self._tier.layout](key)
            if parsed is None or partition_key(parsed.topic_id_partition) not in partitions:
                continue
            if parsed.segment_id not in there:
                if not self._dry_run:
                    store.delete([key])
                yield FooterOutcome(key, FooterState.PENDING if self._dry_run else FooterState.REMOVED)


def _own(error: object) -> TierlogError | None:
    return error if isinstance(error, TierlogError) else None


@dataclass(slots=True)
class IndexResult:
    """The counts of a run.

    Attributes:
        segments: Segments that were looked at.
        present, pending, written, unfit, failed, removed: As FooterState says.
        written_bytes: Size of the footers that were written.
        failures: The first 1,000 outcomes that failed.
    """

    segments: int = 0
    present: int = 0
    pending: int = 0
    written: int = 0
    unfit: int = 0
    failed: int = 0
    removed: int = 0
    written_bytes: int = 0
    failures: list[FooterOutcome] = field(default_factory=list)

    def add(self, outcome: FooterOutcome) -> None:
        """Count an outcome in."""
        setattr(self, outcome.state.value, getattr(self, outcome.state.value) + 1)
        self.segments += outcome.state is not FooterState.REMOVED
        self.written_bytes += outcome.size_bytes
        if outcome.state is FooterState.FAILED and len(self.failures) < _FAILURES_MAX:
            self.failures.append(outcome)


_FAILURES_MAX: Final = 1000


def _place(path: str, to: str, machine: Machine) -> str:
    """Return the place of footers, which is made if it is a local folder. Raises ConfigError: it lies in the bucket."""
    if f"{to.rstrip('/')}/".startswith(f"{path.rstrip('/')}/"):
        raise ConfigError(f"{to} lies in {path}: without another place each footer is put beside its segment")
    folder = local_path(to)
    if folder is not None:
        machine.files.make_directories(folder)
    return to


def index(
    path: Path,
    topic: str | None = None,
    *,
    to: Path | None = None,
    partitions: Iterable[int] | None = None,
    config: Config | None = None,
    layout: str = "auto",
    dry_run: bool = False,
    workers: int | None = None,
    executor: Executor | None = None,
    ledger: Path | None = None,
    on_estimate: Callable[[JobEstimate], None] = lambda _: None,
    on_segment: Callable[[FooterOutcome], None] = lambda _: None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
    machine: Machine | None = None,
) -> IndexResult:
    """Write the footers that segments of a bucket lack: what readers count and cut by without reading.

    Every batch is checked before it counts. Segments that have a footer are left alone, so that the same call continues
    a run that was interrupted.

    Args:
        path: A bucket, or a folder in it.
        topic: Its name; ``<topic id>:<topic>`` where a bucket holds two topics of that name; None for all.
        to: Where the footers are put, with the same keys of the store: another bucket, or a folder; readers are given
            it as ``footer.path``. None puts each beside its segment. Footers there of segments that are gone are
            removed by a run over all topics and partitions.
        partitions: The partitions to index; None for all.
        config: As for ``tierlog.read``.
        layout: As for ``tierlog.read``.
        dry_run: Say what would be done, and write nothing.
        workers: Segments under way at once; None for one a core.
        executor: Does the segments, as ``pyspark_tierlog.jobs`` has one; None for threads of this process.
        ledger: A file, or a folder for it, that remembers what is done: of segments in it not even the footer is read.
        on_estimate: Called once with what the job will do, before it does.
        on_segment: Called with the outcome of each segment as soon as it is known.
        on_bytes: Called, in any thread, with the stored bytes of logs that were read since the last call, and with
            those of all.
        machine: The machine that the job runs on; this machine by default.

    Returns:
        The counts, and the segments that failed.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError, UnknownTopicError, StoreError and its
        kinds: the tier cannot be opened or listed, or a store fails in a way that every segment would meet.
    """
    require_flag("dry_run", dry_run)
    machine = given_machine(machine)
    name = None if topic is None else require_text("topic", topic)
    chosen = None if partitions is None else require_ints("partitions", partitions)
    keys: Mapping[str, str] = config_keys(config) or {}
    if to is not None:
        keys = {**keys, "footer.path": _place(require_path("path", path), require_path("to", to), machine)}
    result = IndexResult()
    with open_path(path, config=keys, layout=layout, machine=machine, all_footers=True) as tier:
        workers = workers or machine.scheduler.cores
        threads = executor or ThreadExecutor(machine.scheduler, workers, name="tierlog-index")
        asked = {"job": "index", "path": tier.describe(), "to": "" if to is None else require_path("to", to)}
        with ledgered(threads, ledger, asked, machine) as by:
            run = FooterBackfill(
                tier,
                topic=name,
                partitions=chosen,
                dry_run=dry_run,
                on_bytes=lambda done: on_bytes(done, run.stored_bytes),
                executor=by,
                order=TierOrder(
                    TierLocation(tier.url, tier.layout, dict(keys), all_footers=True),
                    partial(FooterWork, dry_run=dry_run),
                ),
            )
            on_estimate(run.estimate)
            for outcome in run:
                result.add(outcome)
                on_segment(outcome)
    return result
