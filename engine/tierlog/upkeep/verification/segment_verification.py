"""Verifying one segment: each of its checks in one pass over the log; and that work as a job's, here or elsewhere.

Checks of a segment: each batch's checksum, payload and records; each index entry against the log; the producer
snapshot; leader epochs; the footer, if there is one; sizes and checksums of objects against their description; chunks
and their authenticity (by reading them all). Logs are streamed: memory is some windows, the largest batch, the indexes
of a segment and, for its footer, some bytes a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace

from typing_extensions import Buffer

from tierlog._native import indexes
from tierlog._native.checksums import crc32c
from tierlog.errors import CorruptIndexError, TierlogError
from tierlog.log.checks.findings import Finding, Report, Severity, fault, fault_of, finding_of, note
from tierlog.log.checks.index_checks import LiveIndexCheck, OffsetIndexCheck, TimeIndexCheck, is_untrimmed
from tierlog.log.checks.segment_walk import SegmentCheck
from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.formats.producer_snapshot import parse_producer_snapshot
from tierlog.log.formats.segment_indexes import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from tierlog.remote.api import IndexType
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.objects.object_keys import parse_log_dir
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.scheduling import Lock
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.waiting.threads import Event
from tierlog.scan.history import SINGLE_LOG_LAYOUTS
from tierlog.upkeep.segment_work import KeptOutcome, LedgerKey, SegmentWork, WorkOrder, log_requests, part_requests
from tierlog.upkeep.verification.footer_check import FooterCheck
from tierlog.upkeep.verification.log_walk import FILE_WINDOW_BYTES, LogWalk
from tierlog.upkeep.verification.segment_checks import EpochCheck, ProducerChecks, RangeCheck

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


#: A segment, or a log of a broker's disk that readers leave out.
Verified = StoredSegment | ObjectInfo


class VerifyWork(SegmentWork[Verified, Report]):
    """The verification of single segments.

    Args:
        tier: The caller closes it.
        order: As for SegmentWork.
    """

    def __init__(self, tier: Tier, order: WorkOrder[Verified, Report] | None = None) -> None:
        super().__init__(order)
        self._tier = tier
        self._stopped = Event(tier.machine.scheduler)
        self._large_batch = tier.machine.scheduler.lock()

    def do(self, item: Verified) -> Report:
        """Check a segment, or a log that is left out. Errors of the store are findings."""
        if isinstance(item, ObjectInfo):
            return verify_left_out(self._tier, item, large_batch=self._large_batch)
        return verify_segment(self._tier, item, stopped=self._stopped, large_batch=self._large_batch)

    def key(self, item: Verified) -> LedgerKey:
        """Return the name of the segment, or of the log."""
        if isinstance(item, ObjectInfo):
            return LedgerKey(item.key, item.size_bytes, item.last_modified_ms)
        return LedgerKey.of(item)

    def requests(self, item: Verified) -> int:
        """Return about how many requests the check sends."""
        if isinstance(item, ObjectInfo):
            return -(-item.size_bytes // FILE_WINDOW_BYTES)
        footer = 2 if item.footer is not None else 0  # its head, its batches
        return log_requests(self._tier, item) + part_requests(item) + footer

    def kept(self, outcome: Report) -> Mapping[str, object] | None:
        """Return the report; None if something could not be checked."""
        if outcome.count(Severity.ERROR):
            return None
        return {
            "findings": [finding.as_dict() for finding in outcome.findings],
            "sizeBytes": outcome.size_bytes,
            "batches": outcome.batches,
            "records": outcome.records,
        }

    def recalled(self, item: Verified, kept: KeptOutcome) -> Report:
        """Return the report that was kept."""
        return Report(
            item.key if isinstance(item, ObjectInfo) else item.name,
            [_finding(kept.part(each)) for each in kept.several("findings")],
            kept.number("sizeBytes"),
            kept.number("batches"),
            kept.number("records"),
        )

    def stop(self) -> None:
        """Let running checks end early."""
        self._stopped.set()


def _finding(kept: KeptOutcome) -> Finding:
    severity = kept.text("severity")
    if severity not in (Severity.FAULT, Severity.NOTE):
        raise kept.refuse(f"{severity!r:.40} is no severity that is kept")
    return Finding(
        Severity(severity),
        kept.text("kind"),
        kept.text("text"),
        kept.text("where"),
        topic=kept.optional_text("topic") or "",
        partition=kept.optional_number("partition", -1),
        position=kept.optional_number("position", -1),
        offset=kept.optional_number("offset", -1),
        expected=kept.number_or_text("expected"),
        found=kept.number_or_text("found"),
    )
