"""Verify a tier: its segments, several side by side, and that together they are a log without holes.

Checks of a segment: each batch's checksum, payload and records; each index entry against the log; the producer
snapshot; leader epochs; the footer, if there is one; sizes and checksums of objects against their description; chunks
and their authenticity (by reading them all). Logs are streamed: memory is some windows, the largest batch, the indexes
of a segment and, for its footer, some bytes a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog._native.checksums import crc32c
from tierlog.arguments import require_ints, require_path, require_text
from tierlog.errors import CorruptIndexError, TierlogError, UnknownTopicError
from tierlog.log.checks.findings import Finding, Report, Severity, fault, fault_of, finding_of, note
from tierlog.log.checks.index_checks import LiveIndexCheck, OffsetIndexCheck, TimeIndexCheck, is_untrimmed
from tierlog.log.checks.segment_walk import SegmentCheck
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from tierlog.opening import Config, Metadata, Path, given_machine, names_file, open_path
from tierlog.remote.api import IndexType
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.objects.object_keys import parse_log_dir
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.scheduling import Lock, Pool
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.waiting.threads import Arrivals, Event
from tierlog.scan.history import SINGLE_LOG_LAYOUTS, PartitionHistory, TierHistory
from tierlog.upkeep.verification.file_verification import verify_file
from tierlog.upkeep.verification.footer_check import FooterCheck
from tierlog.upkeep.verification.log_walk import FILE_WINDOW_BYTES, LogWalk
from tierlog.upkeep.verification.segment_checks import EpochCheck, ProducerChecks, RangeCheck

#: Findings of one result; the others are counted.
FINDINGS_MAX: Final = 10_000
REQUIRED_PARTS = (IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH)
#: Layouts that say where a segment ends; of the others its end was read from its own log.
DESCRIBING_LAYOUTS = frozenset({"aiven", "kafka"})
_PART_NAMES = {
    IndexType.OFFSET: "offset index",
    IndexType.TIMESTAMP: "time index",
    IndexType.TRANSACTION: "transaction index",
    IndexType.PRODUCER_SNAPSHOT: "producer snapshot",
    IndexType.LEADER_EPOCH: "leader epochs",
}


def verify_segment(
    tier: Tier, segment: StoredSegment, *, stopped: Event | None = None, large_batch: Lock | None = None
) -> Report:
    """Check one segment with all its parts. When ``stopped`` is set, it returns early with the findings so far.

    Args:
        tier: The segment's tier.
        segment: The segment to check.
        stopped: Set when the caller does not want the report any more.
        large_batch: The lock that LogWalk takes.

    Errors of the store and of keys become findings of severity ERROR: the segment could not be checked.
    """
    check = _SegmentVerification(tier, segment, stopped, large_batch)
    check.run()
    partition = segment.topic_id_partition
    check.report.findings = [f.placed(partition.topic, partition.partition) for f in check.report.findings]
    return check.report


class _StoppedEarly(Exception):
    """The caller does not want the report any more."""


class _SegmentVerification:
    def __init__(self, tier: Tier, segment: StoredSegment, stopped: Event | None, large_batch: Lock | None) -> None:
        self._tier = tier
        self._segment = segment
        self._stopped = stopped
        self._large_batch = large_batch
        self._single = segment.layout in SINGLE_LOG_LAYOUTS
        self.report = Report(segment.name)

    def _say(self, *findings: Finding) -> None:
        self.report.findings.extend(findings)

    def run(self) -> None:
        self._check_sizes()
        checks = self._checks()
        walk = LogWalk(
            self._windows(),
            self._segment.name,
            live=self._single and not self._segment.closed,
            large_batch=self._large_batch,
        )
        try:
            for run in walk:
                for check in checks:
                    self._say(*check.observe(run))
        except _StoppedEarly:
            return  # a part that was not read is not missing
        except TierlogError as error:
            self._say(finding_of(error, self._segment.name))
        self._say(*walk.findings)
        for check in checks:
            self._say(*check.finish(walk))
        self.report.size_bytes = walk.end_position
        self.report.batches, self.report.records = walk.batches, walk.records

    def _windows(self) -> Iterator[memoryview]:
        """Yield all bytes of the log, also the torn end of an active segment, which a reader would leave out."""
        segment = self._segment
        whole = segment.log.object_size_bytes
        if self._single and whole > segment.size_bytes:
            segment = replace(segment, metadata=replace(segment.metadata, segment_size_in_bytes=whole))
        with closing(self._tier.iter_log_windows(segment)) as windows:
            checksum, expected = 0, segment.log.crc32c
            for _, window in windows:
                if self._stopped is not None and self._stopped.is_set:
                    raise _StoppedEarly
                if expected is not None:
                    checksum = crc32c(window, checksum)
                yield window
            self._compare_checksum(expected, checksum, self._segment.name)

    def _compare_checksum(self, expected: int | None, found: int, where: str) -> None:
        if expected not in (None, found):
            self._say(
                fault(
                    "PART_CRC",
                    "the checksum is not what the segment's description says",
                    where,
                    expected=f"0x{expected:08x}",
                    found=f"0x{found:08x}",
                )
            )

    def _check_sizes(self) -> None:
        """Compare the sizes of objects in the description with those of the listing."""
        log = self._segment.log
        if not self._single and log.object_size_bytes >= 0 and log.object_size_bytes != log.size_bytes:
            self._say(
                fault(
                    "OBJECT_SIZE",
                    "the size of the log object is not what the segment's description says",
                    self._segment.name,
                    expected=log.size_bytes,
                    found=log.object_size_bytes,
                )
            )
        for kind, part in self._segment.parts:
            end = part.position + part.size_bytes
            if 0 <= part.object_size_bytes < end:
                self._say(
                    fault(
                        "OBJECT_SIZE",
                        "the object ends before this part does",
                        self._name(kind),
                        position=part.position,
                        expected=f"at least {end}",
                        found=part.object_size_bytes,
                    )
                )

    def _name(self, kind: IndexType) -> str:
        return f"{self._segment.name} ({_PART_NAMES[kind]})"

    def _checks(self) -> list[SegmentCheck]:
        segment, metadata = self._segment, self._segment.metadata
        parts = {kind: self._fetch(kind) for kind in IndexType}
        self._missing(parts)
        described = segment.layout in DESCRIBING_LAYOUTS
        checks: list[SegmentCheck] = [
            RangeCheck(
                segment.name,
                start_offset=segment.start_offset,
                end_offset=segment.end_offset if described else None,
                max_timestamp_ms=metadata.max_timestamp_ms if described else None,
            )
        ]
        offset_index, time_index = parts[IndexType.OFFSET], parts[IndexType.TIMESTAMP]
        live = self._single and not segment.closed
        if offset_index is not None:
            where = self._name(IndexType.OFFSET)
            positions = OffsetIndexCheck(offset_index, segment.start_offset, where)
            untrimmed = is_untrimmed(offset_index, OFFSET_ENTRY_BYTES, indexes.offset_index_entries)
            checks.append(LiveIndexCheck(positions, where) if live and untrimmed else positions)
        if time_index is not None:
            where = self._name(IndexType.TIMESTAMP)
            times = TimeIndexCheck(time_index, segment.start_offset, where)
            untrimmed = is_untrimmed(time_index, TIME_ENTRY_BYTES, indexes.time_index_entries)
            checks.append(LiveIndexCheck(times, where) if live and untrimmed else times)
        checks += self._epoch_checks(parts[IndexType.LEADER_EPOCH])
        checks.append(self._producer_checks(parts))
        checks += self._footer_checks()
        return checks

    def _footer_checks(self) -> Iterator[SegmentCheck]:
        """Yield the check of a footer; one that readers pass over is reported at once."""
        try:
            found = self._tier.footers.read(self._segment)
        except TierlogError as error:
            self._say(finding_of(error, self._segment.name))
            return
        if found is not None:
            head, batches = found
            yield FooterCheck(head.totals, batches, f"{self._segment.name} (footer)")

    def _fetch(self, kind: IndexType) -> memoryview | bytes | None:
        part = self._segment.part(kind)
        try:
            data = self._tier.fetch_index(self._segment, kind)
        except TierlogError as error:
            self._say(finding_of(error, self._name(kind)))
            return None
        if data is not None and part is not None and part.crc32c is not None:
            self._compare_checksum(part.crc32c, crc32c(data), self._name(kind))
        return data

    def _missing(self, parts: dict[IndexType, memoryview | bytes | None]) -> None:
        """Report parts that the description lacks. A broker makes lost indexes anew; nothing does in a tier."""
        for kind in REQUIRED_PARTS:
            if self._segment.part(kind) is not None or parts[kind] is not None:
                continue
            if not self._single:
                self._say(fault("MISSING_PART", "the segment lacks this part", self._name(kind)))
            elif kind is not IndexType.PRODUCER_SNAPSHOT:
                self._say(note("MISSING_PART", "there is no such file beside the log", self._name(kind)))

    def _epoch_checks(self, data: memoryview | bytes | None) -> Iterator[SegmentCheck]:
        segment = self._segment
        if segment.metadata.segment_leader_epochs and not self._single:
            yield EpochCheck(dict(segment.metadata.segment_leader_epochs), segment.name, "the segment's description")
        if data is None:
            return
        try:
            epochs = {entry.epoch: entry.start_offset for entry in parse_leader_epochs(data)}
        except CorruptIndexError as error:
            self._say(fault_of(error, self._name(IndexType.LEADER_EPOCH)))
            return
        yield EpochCheck(epochs, segment.name, "the leader-epoch checkpoint")

    def _producer_checks(self, parts: dict[IndexType, memoryview | bytes | None]) -> ProducerChecks:
        transactions = parts[IndexType.TRANSACTION]
        absent = transactions is None and self._segment.part(IndexType.TRANSACTION) is None
        if absent and parts[IndexType.OFFSET] is not None:
            transactions = b""  # known to be absent, so no transaction was aborted here; a bare .log says nothing
        entries = None
        data = parts[IndexType.PRODUCER_SNAPSHOT]
        if data is not None:
            try:
                entries = parse_producer_snapshot(data).entries
            except CorruptIndexError as error:
                self._say(fault_of(error, self._name(IndexType.PRODUCER_SNAPSHOT)))
        return ProducerChecks(
            transaction_index=transactions,
            transaction_index_where=self._name(IndexType.TRANSACTION),
            snapshot=entries,
            snapshot_where=self._name(IndexType.PRODUCER_SNAPSHOT),
            end_offset=self._segment.end_offset,
        )


def verify_left_out(tier: Tier, info: ObjectInfo, *, large_batch: Lock | None = None) -> Report:
    """Check a log of a broker's disk that readers leave out because no batch of it counts; as ``verify_segment``."""

    def windows() -> Iterator[Buffer]:
        for start in range(0, info.size_bytes, FILE_WINDOW_BYTES):
            end = min(start + FILE_WINDOW_BYTES, info.size_bytes)
            yield tier.store.fetch_range(info.key, start_position=start, end_position_exclusive=end)

    report = Report(info.key)
    key = parse_log_dir(info.key)
    walk = LogWalk(windows(), info.key, live=True, large_batch=large_batch)
    try:
        for _ in walk:
            pass
    except TierlogError as error:
        report.findings.append(finding_of(error, info.key))
    report.findings += walk.findings
    if key is not None:
        partition = key.topic_id_partition
        report.findings = [finding.placed(partition.topic, partition.partition) for finding in report.findings]
    report.size_bytes, report.batches, report.records = walk.end_position, walk.batches, walk.records
    return report


class Verification:
    """The verification of a tier's segments, several side by side.

    Args:
        tier: The caller closes it.
        topic: One topic by name; all if None.
        partitions: The partitions to verify; None for all.
        workers: Segments under way at once. Each holds some windows of its log and the largest of its batches.

    Raises (when iterated):
        UnknownTopicError: the topic does not exist.
        StoreError and its kinds: the listing failed. Later failures are findings.
    """

    def __init__(
        self, tier: Tier, *, topic: str | None = None, partitions: Collection[int] | None = None, workers: int = 1
    ) -> None:
        self._tier = tier
        self._workers = workers
        self._scheduler = tier.machine.scheduler
        self._stopped = Event(self._scheduler)
        self._large_batch = self._scheduler.lock()
        self._listing = Report(tier.describe())
        self._left_out = _logs_of_a_disk(tier, topic, partitions)
        self.segments = self._list(topic, partitions)

    @property
    def size_bytes(self) -> int:
        """Size of all logs to read."""
        return sum(segment.size_bytes for segment in self.segments)

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
        with self._scheduler.pool(self._workers, name="tierlog-verify") as pool:
            try:
                yield from self._run(pool)
            finally:
                self._stopped.set()

    def _run(self, pool: Pool) -> Iterator[Report]:
        known = {segment.log.key for segment in self.segments}
        works: list[Callable[[], Report]] = [
            partial(verify_segment, self._tier, segment, stopped=self._stopped, large_batch=self._large_batch)
            for segment in self.segments
        ]
        works += [
            partial(verify_left_out, self._tier, info, large_batch=self._large_batch)
            for info in self._left_out
            if info.key not in known
        ]
        running: Arrivals[Report] = Arrivals(self._scheduler)
        for work in works:
            running.add(pool.submit(work))
            if len(running) > self._workers:
                yield running.take().result()
        while running:
            yield running.take().result()


def _logs_of_a_disk(tier: Tier, topic: str | None, partitions: Collection[int] | None) -> list[ObjectInfo]:
    """Return the logs of a broker's disk that are not empty. Readers leave out an active segment without a valid batch;
    a verifier must report why it has none.
    """
    if tier.layout != "log-dir":
        return []
    found = []
    for info in tier.store.iter_objects():
        key = parse_log_dir(info.key)
        if key is None or key.suffix != "log" or info.size_bytes == 0:
            continue
        partition = key.topic_id_partition
        if topic in (None, partition.topic) and (partitions is None or partition.partition in partitions):
            found.append(info)
    return found


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
        result.add(report := verify_file(machine.files, where))
        on_report(report)
        return result
    name = None if topic is None else require_text("topic", topic)
    with open_path(
        where, config=config, layout=layout, metadata=metadata, metadata_client=metadata_client, machine=machine
    ) as tier:
        run = Verification(tier, topic=name, partitions=chosen, workers=workers or machine.scheduler.cores)
        result.segments = len(run.segments)
        for report in run:
            result.add(report)
            on_report(report)
            on_bytes(report.size_bytes, run.size_bytes)
    return result
