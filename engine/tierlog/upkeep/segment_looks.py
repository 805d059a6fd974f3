"""What small reads show of single segments beside their descriptions: the time of the first record, the footer's sums.

``tierlog ls --times --records`` asks for them; as a job's work, here or elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

from tierlog.errors import CorruptDataError, ObjectNotFoundError, TierlogError
from tierlog.opening import Path, TierLocation
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.objects.footer import FooterTotals
from tierlog.remote.tier.tier import Tier, iter_batch_runs
from tierlog.scan.reading.tables import footer_totals
from tierlog.upkeep.job_ledger import ledgered
from tierlog.upkeep.segment_work import (
    Executor,
    JobEstimate,
    KeptOutcome,
    LedgerKey,
    SegmentWork,
    ThreadExecutor,
    TierOrder,
    WorkOrder,
)

#: Segments that are looked at at once: each waits for its requests.
WORKERS: Final = 16
_FIRST_BATCH_BYTES: Final = 1 << 14
_FOOTER_BYTES: Final = 4 << 10
#: Of a batch: its first time holds something else.
_DELETE_HORIZON: Final = 0x40


@dataclass(frozen=True, slots=True)
class Wanted:
    """The small reads that are asked for: the time of the first record, the sums of the footer."""

    times: bool = False
    records: bool = False

    def __bool__(self) -> bool:
        return self.times or self.records

    def estimate(self, segments: int, footers: int) -> JobEstimate:
        """Return what they take, with the segments' descriptions.

        Args:
            segments: To look at.
            footers: Of them have one.
        """
        footers = footers if self.records else 0
        firsts = segments if self.times else 0
        size_bytes = firsts * _FIRST_BATCH_BYTES + footers * _FOOTER_BYTES
        return JobEstimate(segments, segments + firsts + footers, size_bytes)


@dataclass(frozen=True, slots=True)
class SegmentLook:
    """What was seen of a segment.

    Attributes:
        first_timestamp_ms: Time of the first record; None where it was not asked for, or none is known.
        totals: The footer's; None where they were not asked for, or there is none that can be believed.
        error: Why the first record cannot be read: its batch is damaged, or the segment is gone since it was listed.
    """

    first_timestamp_ms: int | None = None
    totals: FooterTotals | None = None
    error: TierlogError | None = None


class LookWork(SegmentWork[StoredSegment, SegmentLook]):
    """Looks at single segments.

    Args:
        tier: The caller closes it.
        wanted: What to look for.
        order: As for SegmentWork.
    """

    side_by_side = WORKERS

    def __init__(self, tier: Tier, wanted: Wanted, order: WorkOrder[StoredSegment, SegmentLook] | None = None) -> None:
        super().__init__(order)
        self._tier = tier
        self._wanted = wanted

    def do(self, item: StoredSegment) -> SegmentLook:
        """Look at a segment.

        Raises:
            EncryptionKeyError: no key opens the first batch. StoreError and its kinds.
        """
        first, failed = None, None
        try:
            first = self._first_timestamp_ms(item) if self._wanted.times else None
        except (CorruptDataError, ObjectNotFoundError) as error:
            failed = error
        return SegmentLook(first, footer_totals(self._tier, item) if self._wanted.records else None, failed)

    def _first_timestamp_ms(self, segment: StoredSegment) -> int | None:
        """Return the time of the first record, from the header of the first batch."""
        runs = iter_batch_runs(self._tier, segment, window_bytes=_FIRST_BATCH_BYTES)
        with closing(runs):  # type: ignore[type-var]
            for run in runs:
                time_ms = int(run.column("base_timestamp")[0])
                return None if int(run.column("attributes")[0]) & _DELETE_HORIZON or time_ms < 0 else time_ms
        return None

    def key(self, item: StoredSegment) -> LedgerKey:
        """Return the name of the segment."""
        return LedgerKey.of(item)

    def cost_bytes(self, item: StoredSegment) -> int:
        """Return the bytes of a look, which do not grow with the segment."""
        return self._wanted.estimate(1, item.footer is not None).size_bytes

    def kept(self, outcome: SegmentLook) -> Mapping[str, object] | None:
        """Return what was seen; None if something could not be."""
        if outcome.error is not None:
            return None
        totals = None if outcome.totals is None else asdict(outcome.totals)
        return {"firstTimestampMs": outcome.first_timestamp_ms, "totals": totals}

    def recalled(self, item: StoredSegment, kept: KeptOutcome) -> SegmentLook:  # noqa: ARG002 - a look names no segment
        """Return what was kept."""
        first = kept.number_or_none("firstTimestampMs")
        told = kept.part_or_none("totals")
        if told is None:
            return SegmentLook(first)
        totals = FooterTotals(
            batches=told.number("batches"),
            base_offset=told.number("base_offset"),
            last_offset=told.number("last_offset"),
            records=told.number("records"),
            least_offset=told.number_or_none("least_offset"),
            greatest_offset=told.number_or_none("greatest_offset"),
            least_timestamp_ms=told.number_or_none("least_timestamp_ms"),
            greatest_timestamp_ms=told.number_or_none("greatest_timestamp_ms"),
            has_transactions=told.flag("has_transactions"),
        )
        return SegmentLook(first, totals)


def look_at(
    tier: Tier,
    segments: Sequence[StoredSegment],
    wanted: Wanted,
    *,
    config: Mapping[str, str],
    workers: int = WORKERS,
    executor: Executor | None = None,
    ledger: Path | None = None,
    on_estimate: Callable[[JobEstimate], None] = lambda _: None,
) -> dict[str, SegmentLook]:
    """Look at segments.

    Args:
        tier: Theirs; the caller closes it.
        segments: Each once.
        wanted: What to look for; nothing is read where that is nothing.
        config: The keys with which the tier was opened.
        workers: Segments that are looked at at once.
        executor: Looks at them; None for threads of this process.
        ledger: A file, or a folder for it, that remembers what was seen.
        on_estimate: Called once with what it takes, before it begins.

    Returns:
        What was seen, by the segment's name.

    Raises:
        As ``LookWork.do``, of the first segment that fails; ConfigError, CorruptDataError: of the ledger.
    """
    if not wanted:
        return {}
    machine = tier.machine
    threads = executor or ThreadExecutor(machine.scheduler, workers, name="tierlog-look")
    looks = " ".join(name for name in ("times", "records") if getattr(wanted, name))
    location = TierLocation(tier.url, tier.layout, dict(config))
    order: TierOrder[StoredSegment, SegmentLook] = TierOrder(location, partial(LookWork, wanted=wanted))
    on_estimate(wanted.estimate(len(segments), sum(segment.footer is not None for segment in segments)))
    asked = {"job": "ls", "path": tier.describe(), "looks": looks}
    with (
        ledgered(threads, ledger, asked, machine) as by,
        closing(by.run(LookWork(tier, wanted, None if tier.layout == "file" else order), segments)) as done,
    ):
        return {segment.name: seen for segment, seen in done}
