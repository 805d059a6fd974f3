"""Footers for segments that are in a bucket already, whoever wrote them: one pass over each log, and one small object.

Every batch is checked before it counts: its checksum, that offsets rise, and that all of them lie within the segment. A
footer is put beside its segment, or, for a bucket that may not be written to, under the same name at another place,
where readers find it by ``footer.path``. A run that goes on behind another one leaves alone what has a footer that can
be believed.

A segment may go, or be rewritten, while its log is read. The description is fetched again behind the footer: where it
is another one, the footer goes again.
"""

from __future__ import annotations

import enum
import hashlib
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tierlog.arguments import require_flag, require_ints, require_path, require_text
from tierlog.errors import (
    ConfigError,
    CorruptDataError,
    CorruptObjectError,
    CorruptRecordError,
    EncryptionKeyError,
    ObjectConflictError,
    ObjectNotFoundError,
    TierlogError,
    UnknownTopicError,
    first_of,
)
from tierlog.log.checks.segment_walk import SegmentWalk
from tierlog.opening import Config, Path, config_keys, given_machine, open_path
from tierlog.records.batch_runs import BatchRuns
from tierlog.remote.metadata.metadata_view import partition_key
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.aiven import MANIFEST
from tierlog.remote.tier.layouts.kafka import DESCRIPTION
from tierlog.remote.tier.layouts.listing import Candidate, SegmentFilter
from tierlog.remote.tier.objects.footer import BATCHES_MAX, SegmentFooter, encode_footer
from tierlog.remote.tier.objects.footer_builder import FooterBuilder
from tierlog.remote.tier.objects.object_keys import FOOTER, LOG, PARSERS
from tierlog.remote.tier.tier import Tier
from tierlog.remote.tier.tier_footers import unit_sealer
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.store_urls import local_path
from tierlog.runtime.waiting.threads import Arrivals, Event
from tierlog.scan.scan_request import TopicName

#: Layouts whose segments have footers.
LAYOUTS: Final = ("aiven", "kafka")
_ID_CHARACTERS: Final = 22
#: Of these one segment suffers; whatever else is raised ends the run.
_OF_ONE_SEGMENT: Final = (CorruptDataError, EncryptionKeyError, ObjectConflictError, ObjectNotFoundError)


class FooterState(enum.StrEnum):
    """The outcome of one segment."""

    PRESENT = "present"
    """The segment has a footer whose checksum matches."""
    PENDING = "pending"
    """It has none, or it is gone and its footer is not; nothing was done about it, since the run was a dry one."""
    WRITTEN = "written"
    UNFIT = "unfit"
    """The segment cannot have a footer."""
    FAILED = "failed"
    """Its log is damaged, or it has changed or gone meanwhile; the error says what."""
    REMOVED = "removed"
    """The segment is gone, and so is its footer now, which was at another place than the bucket."""


@dataclass(frozen=True, slots=True)
class FooterOutcome:
    """The outcome of one segment, with its details.

    Attributes:
        name: The footer's key, for messages.
        segment: The segment; None if its description cannot be read, or it is gone.
        size_bytes: Of the footer; 0 where it was not written.
        reason: Why the segment cannot have one; "" else.
        error: Why it failed.
    """

    name: str
    state: FooterState
    segment: StoredSegment | None = None
    size_bytes: int = 0
    reason: str = ""
    error: TierlogError | None = None


class _StoppedEarly(Exception):
    """The caller does not want the outcome any more."""


class FooterBackfill:
    """One run over the segments of a bucket.

    Args:
        tier: The bucket, whose segments know where their footers would be; the caller closes it.
        topic: One topic by name, or as ``ID:TOPIC``; None for all.
        partitions: Only these; None for all.
        dry_run: Whether to leave everything as it is.
        workers: Segments under way at once.
        on_bytes: Called, in any thread, with the number of log bytes that were read.

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
    ) -> None:
        if tier.layout not in LAYOUTS:
            raise ConfigError(f"{tier.describe()}: footers are of the layouts {' and '.join(LAYOUTS)}")
        self._tier = tier
        self._dry_run = dry_run
        self._workers = workers
        self._on_bytes = on_bytes
        self._stopped = Event(tier.machine.scheduler)
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
        with self._tier.machine.scheduler.pool(self._workers, name="tierlog-index") as pool:
            running: Arrivals[FooterOutcome] = Arrivals(self._tier.machine.scheduler)
            try:
                with closing(self._tier.iter_loads(self.candidates)) as loads:
                    for candidate, loaded in zip(self.candidates, loads, strict=True):
                        if isinstance(loaded, StoredSegment):
                            running.add(pool.submit(partial(self._outcome, loaded)))
                        elif loaded is not None:
                            yield FooterOutcome(self._name_of(candidate), FooterState.FAILED, error=_own(loaded))
                        if len(running) > self._workers:
                            yield running.take().result()
                while running:
                    yield running.take().result()
            finally:
                self._stopped.set()
        yield from self._remove_gone()

    def _name_of(self, candidate: Candidate) -> str:
        scope = self._tier.scope
        return scope.name(f"{scope.key_prefix}{candidate.segment_path}.{FOOTER}", scope.key_prefix)

    def _outcome(self, segment: StoredSegment) -> FooterOutcome:
        name = f"{segment.name[: -len(LOG)]}{FOOTER}"
        try:
            return self._index(segment, name)
        except _OF_ONE_SEGMENT as error:
            return FooterOutcome(name, FooterState.FAILED, segment, error=error)

    def _index(self, segment: StoredSegment, name: str) -> FooterOutcome:
        if self._has_sound_footer(segment):
            self._on_bytes(segment.log.size_bytes)
            return FooterOutcome(name, FooterState.PRESENT, segment)
        if self._dry_run:
            return FooterOutcome(name, FooterState.PENDING, segment)
        builder = FooterBuilder()
        with closing(self._checked_windows(segment)) as windows:
            for run in BatchRuns(windows):
                builder.add(run)
        footer = builder.finish()
        if footer is None:
            return FooterOutcome(name, FooterState.UNFIT, segment, reason=builder.unfit or "")
        return FooterOutcome(name, FooterState.WRITTEN, segment, self._write(segment, footer))

    def _has_sound_footer(self, segment: StoredSegment) -> bool:
        try:
            found = self._tier.footers.read(segment)
        except CorruptObjectError:
            return False
        return found is not None and (found[1] is not None or found[0].totals.batches > BATCHES_MAX)

    def _checked_windows(self, segment: StoredSegment) -> Generator[memoryview]:
        """Yield the log, each window behind the check of the batches that end in it.

        Raises:
            CorruptRecordError: a batch that is damaged, or out of place.
        """
        walk = SegmentWalk(
            position=0,
            first_offset=segment.start_offset,
            last_offset=segment.end_offset,
            size_bytes=segment.size_bytes,
            name=segment.name,
            kind=CorruptRecordError,
        )
        stored_a_byte = segment.log.size_bytes / max(1, segment.size_bytes)
        with closing(self._tier.iter_log_windows(segment)) as windows:
            for _, window in windows:
                if self._stopped.is_set:
                    raise _StoppedEarly
                walk.feed(window)
                yield window
                self._on_bytes(int(len(window) * stored_a_byte))
        if walk.is_inside_batch:
            text = "the log ends inside a batch"
            raise CorruptRecordError(text, fault="TRUNCATED", position=walk.end_position, where=segment.name)

    def _write(self, segment: StoredSegment, footer: SegmentFooter) -> int:
        """Store a footer, and take it back if the segment is no longer what it was made of. Returns its size.

        Raises:
            ObjectConflictError: it is not. ObjectNotFoundError: it is gone. StoreError and its kinds.
        """
        assert segment.footer is not None, "the tier was opened for all footers"
        tier = self._tier
        if segment.footer.size_bytes >= 0 and tier.footers.elsewhere is not None:
            text = "a footer that cannot be believed lies beside the segment, where readers look first: delete it"
            raise ObjectConflictError(f"{segment.name[: -len(LOG)]}{FOOTER}: {text}, or index that place")
        place = tier.footers.place(segment, segment.footer)
        seal = unit_sealer(tier.key_ring, segment.encryption, tier.machine.rng)
        data = encode_footer(footer, tier.footers.binding(segment, segment.footer), seal=seal)
        place.store.put(place.part.key, data)
        try:
            description = tier.store.fetch(_description_key(segment))
        except ObjectNotFoundError:
            place.store.delete([place.part.key])
            raise
        if hashlib.sha256(description).digest() != segment.footer.description_digest:
            place.store.delete([place.part.key])
            raise ObjectConflictError(f"{segment.name}: it was written anew meanwhile: run again")
        return len(data)

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
        there = {each.segment_path[-_ID_CHARACTERS:] for each in self.candidates}
        partitions = {partition_key(each.topic_id_partition) for each in self.candidates}
        for key in self._elsewhere:
            parsed = PARSERS[self._tier.layout](key)
            if parsed is None or partition_key(parsed.topic_id_partition) not in partitions:
                continue
            if str(parsed.segment_id) not in there:
                if not self._dry_run:
                    store.delete([key])
                yield FooterOutcome(key, FooterState.PENDING if self._dry_run else FooterState.REMOVED)


def _own(error: object) -> TierlogError | None:
    return error if isinstance(error, TierlogError) else None


def _description_key(segment: StoredSegment) -> str:
    """Return the key of the object that describes a segment."""
    if segment.layout == "kafka":
        return f"{segment.log.key.rpartition('/')[0]}/{DESCRIPTION}"
    return f"{segment.log.key[: -len(LOG)]}{MANIFEST}"


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
        workers: Segments under way at once; None for one a core, and one more that waits for its footer to be stored.
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
        run = FooterBackfill(
            tier,
            topic=name,
            partitions=chosen,
            dry_run=dry_run,
            workers=workers or machine.scheduler.cores + 1,
            on_bytes=lambda done: on_bytes(done, run.stored_bytes),
        )
        for outcome in run:
            result.add(outcome)
            on_segment(outcome)
    return result
