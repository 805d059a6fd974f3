"""Verify a tier: its segments, several side by side, and that together they are a log without holes."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from tierlog.arguments import require_flag, require_ints, require_path, require_text
from tierlog.errors import ConfigError, TierlogError, UnknownTopicError
from tierlog.log.checks.findings import Finding, Report, Severity, fault, finding_of, note
from tierlog.opening import Config, Metadata, Path, TierLocation, config_keys, given_machine, names_file, open_path
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.listing import SegmentFilter
from tierlog.remote.tier.objects.object_keys import LOG
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.scan.history import SINGLE_LOG_LAYOUTS, PartitionHistory, TierHistory
from tierlog.scan.scan_request import TopicName
from tierlog.upkeep.job_ledger import ledgered
from tierlog.upkeep.segment_work import Executor, JobEstimate, ThreadExecutor, TierOrder, WorkOrder
from tierlog.upkeep.verification.file_verification import verify_file
from tierlog.upkeep.verification.segment_verification import Verified, VerifyWork

#: Findings of one result; the others are counted.
FINDINGS_MAX: Final = 10_000


class Verification:
    """The verification of a tier's segments, several side by side.

    Args:
        tier: The caller closes it.
        topic: One topic by name; all if None.
        partitions: The partitions to verify; None for all.
        workers: Segments under way at once. Each holds some windows of its log and the largest of its batches.
        executor: Checks the segments; None for so many threads.
        order: Opens the tier where the executor needs it elsewhere.

    Raises (when iterated):
        UnknownTopicError: the topic does not exist.
        StoreError and its kinds: the listing failed. Later failures are findings.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        topic: str | None = None,
        partitions: Collection[int] | None = None,
        workers: int = 1,
        executor: Executor | None = None,
        order: WorkOrder[Verified, Report] | None = None,
    ) -> None:
        self._tier = tier
        self._executor = executor or ThreadExecutor(tier.machine.scheduler, workers, name="tierlog-verify")
        self._work = VerifyWork(tier, order)
        self._listing = Report(tier.describe())
        self._left_out = _logs_of_a_disk(tier, topic, partitions)
        self.segments = self._list(topic, partitions)

    @property
    def size_bytes(self) -> int:
        """Size of all logs to read."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def estimate(self) -> JobEstimate:
        """Segments, requests and bytes of the run, before it begins."""
        items = list(self._items())
        sizes = (each.size_bytes if isinstance(each, ObjectInfo) else each.log.size_bytes for each in items)
        return JobEstimate(len(items), sum(map(self._work.requests, items)), sum(sizes))

    def _items(self) -> Iterator[Verified]:
        yield from self.segments
        known = {segment.log.key for segment in self.segments}
        yield from (info for info in self._left_out if info.key not in known)

    def _list(self, topic: str | None, partitions: Collection[int] | None) -> list[StoredSegment]:
        errors: list[TierlogError] = []
        segments: list[StoredSegment] = []
        for partition in self._histories(topic, partitions, errors):
            spans = {id(span.segment): span.segment for span in partition.lineage.spans}
            held = [*spans.values(), *partition.unreferenced]
            segments += sorted(held, key=lambda s: (s.start_offset, s.name))
            self._tell_of(partition, single=held[0].layout in SINGLE_LOG_LAYOUTS)
        self._listing.findings += [finding_of(error, self._tier.describe()) for error in errors]
        return segments

    def _histories(
        self, topic: str | None, partitions: Collection[int] | None, errors: list[TierlogError]
    ) -> list[PartitionHistory]:
        history = TierHistory(self._tier, faults=errors)
        if topic is None:
            return [each for each in history.partitions() if partitions is None or each.partition in partitions]
        try:
            return (
                history.partitions([topic]) if partitions is None else history.partitions(assigned={topic: partitions})
            )
        except UnknownTopicError:
            if errors or self._left_out:
                return []  # it is there, and unreadable: that is what there is to say
            raise

    def _tell_of(self, partition: PartitionHistory, *, single: bool) -> None:
        where = f"{partition.topic}-{partition.partition}"
        told = [note("LINEAGE", warning, where) for warning in partition.warnings]
        for gap in partition.gaps:
            # A broker's disk has gaps between segments after compaction; tiered topics are not compacted.
            say, kind = (note, "OFFSET_GAP") if single else (fault, "MISSING_OFFSETS")
            text = f"no segment holds offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}"
            told.append(say(kind, text, where, offset=gap.first_offset))
        self._listing.findings += [finding.placed(partition.topic, partition.partition) for finding in told]

    def __iter__(self) -> Iterator[Report]:
        """Yield a report of the listing, then one of each segment, as soon as it is done."""
        yield self._listing
        with closing(self._executor.run(self._work, self._items())) as done:
            for _, report in done:
                yield report


def _logs_of_a_disk(tier: Tier, topic: str | None, partitions: Collection[int] | None) -> list[ObjectInfo]:
    """Return the logs of a broker's disk that are not empty. Readers leave out an active segment without a valid batch;
    a verifier must report why it has none.
    """
    if tier.layout != "log-dir":
        return []
    name = None if topic is None else TopicName.parse(topic)
    wanted = SegmentFilter.of(None, None if name is None else re.escape(name.name), partitions)
    found = tier.find_candidates(wanted)
    logs = [each.objects[LOG] for each in found if name is None or name.accepts(each.topic_id_partition)]
    return [info for info in logs if info.size_bytes]


@dataclass(slots=True)
class VerifyResult:
    """The counts of a verification, and its first findings.

    Attributes:
        faults: Things that are wrong.
        errors: Things that could not be checked.
        notes: Things that are odd but legal.
        findings: The first 10,000 of all three.
        segments: Segments that were read; None if one file was.
        batches, records, size_bytes: How much of the logs was read.
    """

    faults: int = 0
    errors: int = 0
    notes: int = 0
    findings: list[Finding] = field(default_factory=list)
    segments: int | None = None
    batches: int = 0
    records: int = 0
    size_bytes: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether all was checked and nothing is wrong."""
        return not self.faults and not self.errors

    def add(self, report: Report) -> None:
        """Count a report in."""
        self.faults += report.count(Severity.FAULT)
        self.errors += report.count(Severity.ERROR)
        self.notes += report.count(Severity.NOTE)
        self.findings += report.findings[: max(0, FINDINGS_MAX - len(self.findings))]
        self.batches += report.batches
        self.records += report.records
        self.size_bytes += report.size_bytes


def verify(
    path: Path,
    topic: str | None = None,
    *,
    partitions: Iterable[int] | None = None,
    config: Config | None = None,
    layout: str = "auto",
    metadata: Metadata | None = None,
    metadata_client: Mapping[str, str] | None = None,
    workers: int | None = None,
    executor: Executor | None = None,
    ledger: Path | None = None,
    dry_run: bool = False,
    on_estimate: Callable[[JobEstimate], None] = lambda _: None,
    on_report: Callable[[Report], None] = lambda _: None,
    on_bytes: Callable[[int, int], None] = lambda _done, _all: None,
    machine: Machine | None = None,
) -> VerifyResult:
    """Check every batch, record, index entry, snapshot, checkpoint, chunk and size of a tier, also against each other.

    Args:
        path: A bucket, a folder in it, a broker's log directory, or one file of a log directory.
        topic: Its name; ``<topic id>:<topic>`` where a bucket holds two topics of that name; None for all.
        partitions: The partitions to verify; None for all.
        config: As for ``tierlog.read``.
        layout: As for ``tierlog.read``.
        metadata: As for ``tierlog.read``.
        metadata_client: As for ``tierlog.read``.
        workers: Segments that are checked side by side; None for one a core.
        executor: Checks the segments, as ``pyspark_tierlog.jobs`` has one; None for threads of this process.
        ledger: A file, or a folder for it, that remembers what is checked: the same call goes on where one was
            interrupted. What was checked before is reported again. Segments that could not be checked are not in it.
        dry_run: List, and read nothing else.
        on_estimate: Called once with what the job will read, before it does.
        on_report: Called with the findings of the listing, then with those of each segment as soon as it is checked.
        on_bytes: Called with the bytes of logs that were read since the last call, and with the bytes of all logs.
        machine: The machine that the job runs on; this machine by default.

    Returns:
        The counts, and the first findings. A log that ends inside a batch is a note if it is the active segment of a
        log directory, and a fault anywhere else.

    Raises:
        TypeError: an argument is of another type; it is named. ConfigError, UnknownTopicError, StoreError and its
        kinds: the tier cannot be opened or listed. What fails later is a finding.
    """
    where, machine = require_path("path", path), given_machine(machine)
    chosen = None if partitions is None else require_ints("partitions", partitions)
    result = VerifyResult()
    if topic is None and metadata is None and names_file(where, machine):
        if executor or ledger or dry_run:
            raise ConfigError(f"{where} is one file, which this process checks at once")
        result.add(report := verify_file(machine.files, where))
        on_report(report)
        return result
    name = None if topic is None else require_text("topic", topic)
    keys = config_keys(config) or {}
    with open_path(
        where, config=keys, layout=layout, metadata=metadata, metadata_client=metadata_client, machine=machine
    ) as tier:
        workers = workers or machine.scheduler.cores
        threads = executor or ThreadExecutor(machine.scheduler, workers, name="tierlog-verify")
        with ledgered(threads, ledger, {"job": "verify", "path": tier.describe()}, machine) as by:
            location = TierLocation(tier.url, tier.layout, dict(keys))
            order = None if tier.layout == "file" else TierOrder(location, VerifyWork)
            run = Verification(tier, topic=name, partitions=chosen, executor=by, order=order)
            result.segments = len(run.segments)
            on_estimate(run.estimate)
            for report in () if require_flag("dry_run", dry_run) else run:
                result.add(report)
                on_report(report)
                on_bytes(report.size_bytes, run.size_bytes)
    return result
