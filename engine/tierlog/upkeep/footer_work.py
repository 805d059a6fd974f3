"""Making and storing the footer of one segment; and that work as a job's, here or elsewhere.

Every batch is checked before it counts: its checksum, that offsets rise, and that all of them lie within the segment. A
segment may go, or be rewritten, while its log is read. The description is fetched again behind the footer: where it is
another one, the footer goes again.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from tierlog.errors import (
    CorruptDataError,
    CorruptObjectError,
    CorruptRecordError,
    EncryptionKeyError,
    ObjectConflictError,
    ObjectNotFoundError,
    TierlogError,
)
from tierlog.log.checks.segment_walk import SegmentWalk
from tierlog.records.batch_runs import BatchRuns
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.layouts.aiven import MANIFEST
from tierlog.remote.tier.layouts.kafka import DESCRIPTION
from tierlog.remote.tier.objects.footer import BATCHES_MAX, SegmentFooter, encode_footer
from tierlog.remote.tier.objects.footer_builder import FooterBuilder
from tierlog.remote.tier.objects.object_keys import FOOTER, LOG
from tierlog.remote.tier.tier import Tier
from tierlog.remote.tier.tier_footers import unit_sealer
from tierlog.runtime.waiting.threads import Event
from tierlog.upkeep.segment_work import KeptOutcome, LedgerKey, SegmentWork, WorkOrder

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


#: States of a segment for which there is nothing left to do.
_DONE: Final = (FooterState.PRESENT, FooterState.WRITTEN, FooterState.UNFIT)


class _StoppedEarly(Exception):
    """The caller does not want the outcome any more."""


class FooterWork(SegmentWork[StoredSegment, FooterOutcome]):
    """The footers of single segments.

    Args:
        tier: Its segments know where their footers would be; the caller closes it.
        dry_run: Whether to leave everything as it is.
        on_bytes: Called, in any thread, with the number of stored log bytes that were read.
        order: As for SegmentWork.
    """

    def __init__(
        self,
        tier: Tier,
        *,
        dry_run: bool = False,
        on_bytes: Callable[[int], None] = lambda _: None,
        order: WorkOrder[StoredSegment, FooterOutcome] | None = None,
    ) -> None:
        super().__init__(order)
        self._tier = tier
        self._dry_run = dry_run
        self._on_bytes = on_bytes
        self._stopped = Event(tier.machine.scheduler)

    def do(self, item: StoredSegment) -> FooterOutcome:
        """Index a segment that has no footer that can be believed."""
        name = _footer_name(item)
        try:
            return self._index(item, name)
        except _OF_ONE_SEGMENT as error:
            return FooterOutcome(name, FooterState.FAILED, item, error=error)

    def key(self, item: StoredSegment) -> LedgerKey:
        """Return the name of the segment."""
        return LedgerKey.of(item)

    def kept(self, outcome: FooterOutcome) -> Mapping[str, object] | None:
        """Return the outcome, if there is nothing left to do."""
        if outcome.state not in _DONE:
            return None
        return {"state": str(outcome.state), "sizeBytes": outcome.size_bytes, "reason": outcome.reason}

    def recalled(self, item: StoredSegment, kept: KeptOutcome) -> FooterOutcome:
        """Return the outcome that was kept."""
        state = kept.text("state")
        if state not in _DONE:
            raise kept.refuse(f"{state!r:.40} is no state that is kept")
        return FooterOutcome(
            _footer_name(item), FooterState(state), item, kept.number("sizeBytes"), kept.text("reason")
        )

    def passed(self, item: StoredSegment) -> None:
        """Count the log's bytes in."""
        self._on_bytes(item.log.size_bytes)

    def stop(self) -> None:
        """Let running reads end early."""
        self._stopped.set()

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


def _footer_name(segment: StoredSegment) -> str:
    return f"{segment.name[: -len(LOG)]}{FOOTER}"


def _description_key(segment: StoredSegment) -> str:
    """Return the key of the object that describes a segment."""
    if segment.layout == "kafka":
        return f"{segment.log.key.rpartition('/')[0]}/{DESCRIPTION}"
    return f"{segment.log.key[: -len(LOG)]}{MANIFEST}"
