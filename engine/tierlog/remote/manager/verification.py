"""Verify: every byte of a segment against every other that speaks of it.

What is checked: each batch's checksum, payload and records; each index entry against the log; the producer snapshot;
leader epochs; sizes of objects against their description; chunks and their authenticity (by reading them all). What is
read is streamed: memory is some windows and the largest batch a worker, and the indexes of its segment.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import replace

from tierlog.errors import CorruptIndexError, TierlogError
from tierlog.log.leader_epochs import parse_leader_epochs
from tierlog.log.producer_snapshot import parse_producer_snapshot
from tierlog.remote.api import IndexType
from tierlog.remote.manager.findings import Finding, Report, fault, fault_of, finding_of, note
from tierlog.remote.manager.index_checks import OffsetIndexCheck, SegmentCheck, TimeIndexCheck
from tierlog.remote.manager.log_walk import LogWalk
from tierlog.remote.manager.producer_checks import ProducerChecks
from tierlog.remote.manager.segment_checks import EpochCheck, RangeCheck
from tierlog.remote.metadata.history import SINGLE_LOG_LAYOUTS, TierHistory
from tierlog.remote.storage.segment import StoredSegment
from tierlog.remote.storage.tier import Tier

REQUIRED_PARTS = (IndexType.OFFSET, IndexType.TIMESTAMP, IndexType.PRODUCER_SNAPSHOT, IndexType.LEADER_EPOCH)
_PART_NAMES = {
    IndexType.OFFSET: "offset index",
    IndexType.TIMESTAMP: "time index",
    IndexType.TRANSACTION: "transaction index",
    IndexType.PRODUCER_SNAPSHOT: "producer snapshot",
    IndexType.LEADER_EPOCH: "leader epochs",
}


class Verification:
    """Verifies the segments of a tier, several side by side.

    Args:
        tier: Stays the caller's.
        topic: One topic by name; all if None.
        partitions: Only these.
        workers: Segments under way at once. Each holds some windows of its log and the largest of its batches.

    Raises (when iterated):
        UnknownTopicError: the topic is not there.
        StoreError and its kinds: the listing failed. What fails later is a finding.
    """

    def __init__(
        self, tier: Tier, *, topic: str | None = None, partitions: Collection[int] | None = None, workers: int = 1
    ) -> None:
        self._tier = tier
        self._workers = workers
        self._stopped = threading.Event()
        self._listing = Report(tier.describe())
        self.segments = self._list(topic, partitions)

    @property
    def size_bytes(self) -> int:
        """Of all logs to read."""
        return sum(segment.size_bytes for segment in self.segments)

    def _list(self, topic: str | None, partitions: Collection[int] | None) -> list[StoredSegment]:
        errors: list[TierlogError] = []
        history = TierHistory(self._tier, faults=errors)
        names = None if topic is None else [topic]
        assigned = None if topic is None or partitions is None else {topic: partitions}
        found = history.partitions(None if assigned else names, assigned=assigned)
        self._listing.findings += [finding_of(error, self._tier.describe()) for error in errors]
        segments: list[StoredSegment] = []
        for partition in found:
            if partitions is not None and partition.partition not in partitions:
                continue
            spans = {id(span.segment): span.segment for span in partition.lineage.spans}
            held = [*spans.values(), *partition.unreferenced]
            segments += sorted(held, key=lambda s: (s.start_offset, str(s.metadata.remote_log_segment_id.id)))
            single = any(segment.layout in SINGLE_LOG_LAYOUTS for segment in held)
            for gap in partition.gaps:
                # A broker's disk has gaps between segments after compaction; what is tiered is not compacted.
                say = note if single else fault
                found_gap = say(
                    "OFFSET_GAP" if single else "MISSING_OFFSETS",
                    f"no segment holds offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}",
                    f"{partition.topic}-{partition.partition}",
                    offset=gap.first_offset,
                )
                self._listing.findings.append(found_gap.placed(partition.topic, partition.partition))
            for warning in partition.warnings:
                about = note("LINEAGE", warning, f"{partition.topic}-{partition.partition}")
                self._listing.findings.append(about.placed(partition.topic, partition.partition))
        return segments

    def __iter__(self) -> Iterator[Report]:
        """A report of the listing, then one a segment, as they are done."""
        yield self._listing
        with ThreadPoolExecutor(self._workers, thread_name_prefix="tierlog-verify") as pool:
            try:
                yield from self._run(pool)
            finally:
                self._stopped.set()

    def _run(self, pool: ThreadPoolExecutor) -> Iterator[Report]:
        waiting = iter(self.segments)
        running: set[Future[Report]] = set()
        while True:
            for segment in waiting:
                running.add(pool.submit(verify_segment, self._tier, segment, self._stopped))
                if len(running) > self._workers:
                    break
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


def verify_segment(tier: Tier, segment: StoredSegment, stopped: threading.Event | None = None) -> Report:
    """Check one segment with all its parts; early, with what it has by then, when ``stopped`` is set.

    Errors of the store and of keys become findings of severity ERROR: the segment could not be checked.
    """
    check = _SegmentVerification(tier, segment, stopped or threading.Event())
    check.run()
    partition = segment.topic_id_partition
    check.report.findings = [f.placed(partition.topic, partition.partition) for f in check.report.findings]
    return check.report


class _SegmentVerification:
    def __init__(self, tier: Tier, segment: StoredSegment, stopped: threading.Event) -> None:
        self._tier = tier
        self._segment = segment
        self._stopped = stopped
        self._single = segment.layout in SINGLE_LOG_LAYOUTS
        self.report = Report(segment.name)

    def _say(self, *findings: Finding) -> None:
        self.report.findings.extend(findings)

    def run(self) -> None:
        self._check_sizes()
        checks = self._checks()
        walk = LogWalk(self._windows(), self._segment.name, live=self._single and not self._segment.closed)
        try:
            for run in walk:
                for check in checks:
                    self._say(*check.observe(run))
        except TierlogError as error:
            self._say(finding_of(error, self._segment.name))
        self._say(*walk.findings)
        for check in checks:
            self._say(*check.finish(walk))
        self.report.size_bytes = walk.end_position
        self.report.batches, self.report.records = walk.batches, walk.records

    def _windows(self) -> Iterator[memoryview]:
        """All bytes of the log, also those of an active segment that a reader would leave out as torn."""
        segment = self._segment
        whole = segment.log.object_size_bytes
        if self._single and whole > segment.size_bytes:
            segment = replace(segment, metadata=replace(segment.metadata, segment_size_in_bytes=whole))
        with closing(self._tier.iter_log_windows(segment)) as windows:
            for _, window in windows:
                if self._stopped.is_set():
                    return
                yield window

    def _check_sizes(self) -> None:
        """What the description says of objects against what the listing found."""
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
        checks: list[SegmentCheck] = [
            RangeCheck(
                segment.name,
                start_offset=segment.start_offset,
                end_offset=None if self._single else segment.end_offset,
                max_timestamp_ms=None if self._single else metadata.max_timestamp_ms,
            )
        ]
        offset_index, time_index = parts[IndexType.OFFSET], parts[IndexType.TIMESTAMP]
        if offset_index is not None:
            checks.append(OffsetIndexCheck(offset_index, segment.start_offset, self._name(IndexType.OFFSET)))
        if time_index is not None:
            checks.append(TimeIndexCheck(time_index, segment.start_offset, self._name(IndexType.TIMESTAMP)))
        checks += self._epoch_checks(parts[IndexType.LEADER_EPOCH])
        checks.append(self._producer_checks(parts))
        return checks

    def _fetch(self, kind: IndexType) -> memoryview | bytes | None:
        try:
            return self._tier.fetch_index(self._segment, kind)
        except TierlogError as error:
            self._say(finding_of(error, self._name(kind)))
            return None

    def _missing(self, parts: dict[IndexType, memoryview | bytes | None]) -> None:
        """Parts that the description does not have. A broker makes lost indexes anew, a tier has nobody who would."""
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
