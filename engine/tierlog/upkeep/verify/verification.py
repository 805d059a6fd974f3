"""Verify a tier: its segments, several side by side, and that together they are a log without holes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from functools import partial

from tierlog.errors import TierlogError, UnknownTopicError
from tierlog.log.checks.findings import Report, fault, finding_of, note
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.objects.object_keys import parse_log_dir
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.scheduling import Arrivals, Event, Pool
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.scan.history import SINGLE_LOG_LAYOUTS, PartitionHistory, TierHistory
from tierlog.upkeep.verify.segment_verification import verify_left_out, verify_segment


class Verification:
    """Verifies the segments of a tier, several side by side.

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
            # A broker's disk has gaps between segments after compaction; what is tiered is not compacted.
            say, kind = (note, "OFFSET_GAP") if single else (fault, "MISSING_OFFSETS")
            text = f"no segment holds offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}"
            told.append(say(kind, text, where, offset=gap.first_offset))
        self._listing.findings += [finding.placed(partition.topic, partition.partition) for finding in told]

    def __iter__(self) -> Iterator[Report]:
        """A report of the listing, then one of each segment, as soon as it is done."""
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
    """The logs of a broker's disk that are not empty. Readers leave out an active segment without a valid batch; a
    verifier must report why it has none.
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
