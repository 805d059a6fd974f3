"""Copying one segment into a bucket, checked on its way and read back; and that work as a job's, here or elsewhere.

Order: the parts beside the log are read and checked (an index that is missing or does not fit is built anew and
reported); then SegmentCopier's order; then the copy is read from the target and compared with the source. A copy that
differs is removed again.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Final

import xxhash

from tierlog.errors import (
    CorruptDataError,
    CorruptIndexError,
    CorruptObjectError,
    DataLossError,
    EncryptionKeyError,
    ObjectNotFoundError,
    TierlogError,
)
from tierlog.opening import TierLocation
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, Uuid
from tierlog.remote.metadata.record_serde import decode_record, encode_record
from tierlog.remote.storage.copy.copy_checks import LogCheck, check_index_parts
from tierlog.remote.storage.copy.copy_target import CopyTarget, StoredCopy, open_copy_target
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.cancelling import CancelScope, cancelled_by, require_wanted
from tierlog.upkeep.copying.index_repair import digested
from tierlog.upkeep.copying.replica_parts import find_contradiction, is_same_part
from tierlog.upkeep.copying.segment_source import LAYOUTS_WITHOUT_IDS, SegmentSource, TopicMap, digest_log
from tierlog.upkeep.segment_work import (
    KeptOutcome,
    LedgerKey,
    SegmentWork,
    WorkOrder,
    log_requests,
    part_requests,
)

#: Of these one segment suffers; whatever else is raised ends the run.
_OF_ONE_SEGMENT: Final = (CorruptDataError, DataLossError, EncryptionKeyError, ObjectNotFoundError)
#: Of a segment, beside the parts of its log: the look for it, indexes, description; beginning and end of the upload.
_REQUESTS_A_COPY: Final = 5


class CopyState(enum.StrEnum):
    """The outcome of one segment."""

    COPIED = "copied"
    PRESENT = "present"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CopiedObjects:
    """The objects of a segment that is whole in the target.

    Attributes:
        name: Of the log's object, for messages.
        stored_bytes: Of all objects.
        custom_metadata: The bytes that a broker would store with the segment's metadata; None for none.
    """

    name: str
    stored_bytes: int
    custom_metadata: bytes | None

    @classmethod
    def of(cls, stored: StoredCopy) -> CopiedObjects:
        return cls(stored.segment.name, stored.stored_bytes, stored.custom_metadata)


@dataclass(frozen=True, slots=True)
class SegmentOutcome:
    """The outcome of one segment, with its details.

    Args:
        source: The segment.
        metadata: Its metadata in the target; None if it failed before it had an id.
        stored: Its objects in the target; None if it failed.
        notes: Parts that were built anew.
        kept: Parts that the target had already and that differ in the source, as parts of two replicas may.
        error: Why it failed.
    """

    source: StoredSegment
    state: CopyState
    metadata: RemoteLogSegmentMetadata | None = None
    stored: CopiedObjects | None = None
    notes: tuple[str, ...] = ()
    kept: tuple[IndexType, ...] = ()
    error: TierlogError | None = None


class CopyWork(SegmentWork[StoredSegment, SegmentOutcome]):
    """Copies of single segments.

    Args:
        source: Their tier. The caller closes it, and the target.
        target: Where they go. Closed by ``stop`` if copies run.
        topic_map: Topic ids that become others in the target.
        recheck: Whether to read segments again that are whole in the target already.
        on_bytes: Called, in any thread, with the number of log bytes that were read from the source.
        order: As for SegmentWork.
    """

    def __init__(
        self,
        source: Tier,
        target: CopyTarget,
        *,
        topic_map: TopicMap | None = None,
        recheck: bool = True,
        on_bytes: Callable[[int], None] = lambda _: None,
        order: WorkOrder[StoredSegment, SegmentOutcome] | None = None,
    ) -> None:
        super().__init__(order)
        self._source = source
        self._target = target
        self._topic_map = topic_map or TopicMap()
        self._recheck = recheck
        self._on_bytes = on_bytes
        self._stopped = CancelScope(source.machine.scheduler)
        self._has_failed = False

    def do(self, item: StoredSegment) -> SegmentOutcome:
        """Copy a segment, unless it is whole in the target."""
        try:
            with self._stopped.entered(self._target.close):
                return self._copy(item)
        except _OF_ONE_SEGMENT as error:
            return SegmentOutcome(item, CopyState.FAILED, error=error)
        except BaseException:
            self._has_failed = True
            raise

    def key(self, item: StoredSegment) -> LedgerKey:
        """Return the name of the segment."""
        return LedgerKey.of(item)

    def kept(self, outcome: SegmentOutcome) -> Mapping[str, object] | None:
        """Return the outcome, unless the segment failed."""
        if outcome.metadata is None or outcome.stored is None:
            return None
        custom = outcome.stored.custom_metadata
        return {
            "state": str(outcome.state),
            "metadata": _base64(encode_record(outcome.metadata)),
            "object": outcome.stored.name,
            "storedBytes": outcome.stored.stored_bytes,
            "customMetadata": None if custom is None else _base64(custom),
            "notes": list(outcome.notes),
            "kept": [kind.value for kind in outcome.kept],
        }

    def recalled(self, item: StoredSegment, kept: KeptOutcome) -> SegmentOutcome:
        """Return the outcome that was kept."""
        state = kept.text("state")
        if state not in (CopyState.COPIED, CopyState.PRESENT):
            raise kept.refuse(f"{state!r:.40} is no state that is kept")
        notes, parts = kept.several("notes"), kept.several("kept")
        if not all(isinstance(note, str) for note in notes) or not all(part in _KINDS for part in parts):
            raise kept.refuse("notes and kept are lists of texts")
        custom = kept.optional_text("customMetadata")
        try:
            metadata = decode_record(base64.b64decode(kept.text("metadata"), validate=True))
            custom_metadata = None if custom is None else base64.b64decode(custom, validate=True)
        except ValueError as error:
            raise kept.refuse(str(error)) from error
        partition = self._topic_map.new(item.topic_id_partition)
        if not isinstance(metadata, RemoteLogSegmentMetadata) or metadata.topic_id_partition != partition:
            raise kept.refuse("the metadata is of something else")
        return SegmentOutcome(
            item,
            CopyState(state),
            metadata,
            CopiedObjects(kept.text("object"), kept.number("storedBytes"), custom_metadata),
            tuple(map(str, notes)),
            tuple(_KINDS[str(part)] for part in parts),
        )

    def passed(self, item: StoredSegment) -> None:
        """Count the log's bytes in."""
        self._on_bytes(item.size_bytes)

    def stop(self) -> None:
        """End the reads and the copies that run, which closes the target; copies are undone. Where the run ends since
        a store failed, they end as they can: it would fail their undo too.
        """
        if not self._has_failed:
            self._stopped.cancel()

    def _copy(self, segment: StoredSegment) -> SegmentOutcome:
        with cancelled_by(self._stopped):  # not the copy, whose undo has requests too
            require_wanted()
            source = SegmentSource(self._source, segment, topics=self._topic_map, on_bytes=self._on_bytes)
            metadata = source.metadata
            present = self._target.find(metadata)
            if present is not None:
                kept = self._check_present(source, present) if self._recheck else ()
                self._on_bytes(segment.size_bytes)
                return SegmentOutcome(segment, CopyState.PRESENT, metadata, CopiedObjects.of(present), kept=kept)
        source.require_snapshot()
        try:
            self._target.copy(metadata, source.data, source)
        except CorruptIndexError:
            if not source.rebuild_wrong_indexes():
                raise
            self._target.copy(metadata, source.data, source)
        try:
            with cancelled_by(self._stopped):
                stored = self._read_back(source)
        except CorruptDataError:
            self._target.remove(metadata)
            raise
        return SegmentOutcome(segment, CopyState.COPIED, metadata, CopiedObjects.of(stored), tuple(source.notes))

    def _read_back(self, source: SegmentSource) -> StoredCopy:
        """Compare the target's bytes with those that were read from the source. Raises CorruptObjectError."""
        stored = self._target.find(source.metadata)
        if stored is None:
            text = "was stored, and is not there as it was stored"
            raise CorruptObjectError(text, fault="NOT_EQUAL", where=source.data.log_segment)
        found = digest_log(self._target.tier, stored.segment)
        if found != source.digest:
            text = "the log does not come back as it went"
            raise CorruptObjectError(text, fault="NOT_EQUAL", where=stored.segment.name)
        for kind in IndexType:
            self._compare(source, stored, kind)
        return stored

    def _compare(self, source: SegmentSource, stored: StoredCopy, kind: IndexType) -> None:
        if not is_same_part(source.parts.get(kind), self._target.tier.fetch_index(stored.segment, kind)):
            text = f"the {kind.value} part does not come back as it went"
            raise CorruptObjectError(text, fault="NOT_EQUAL", where=stored.segment.name)

    def _check_present(self, source: SegmentSource, present: StoredCopy) -> tuple[IndexType, ...]:
        """Check that the copy of an earlier run is sound and of the same segment: every batch and index entry is read
        again.

        Returns:
            The parts that differ from the source's, as those of two replicas may.

        Raises:
            CorruptDataError: the copy is not sound; it has to be removed before the segment can be copied anew.
        """
        tier, name = self._target.tier, present.segment.name
        parts: dict[IndexType, bytes] = {}
        for kind in IndexType:
            data = tier.fetch_index(present.segment, kind)
            if data is not None:
                parts[kind] = bytes(data)
        paths = {kind: f"{name} ({kind.value})" for kind in IndexType}
        check_index_parts(parts, source.metadata, paths)
        digest = xxhash.xxh3_128()
        with closing(digested(tier, present.segment, digest)) as windows:
            LogCheck(source.metadata, parts, paths, name).follow(windows)
        if source.known_digest not in (None, digest.digest()):
            raise CorruptObjectError("the copied log differs from the source's", fault="NOT_EQUAL", where=name)
        differing = [kind for kind in IndexType if not is_same_part(source.parts.get(kind), parts.get(kind))]
        for kind in differing:
            contradiction = find_contradiction(kind, source.parts.get(kind), parts.get(kind), source.metadata)
            if contradiction is not None:
                raise CorruptObjectError(contradiction, fault="NOT_EQUAL", where=paths[kind])
        return tuple(differing)


_KINDS: Final = {kind.value: kind for kind in IndexType}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def copy_requests(source: Tier, segment: StoredSegment, part_bytes: int) -> int:
    """Return about how many requests a copy sends: the source is read, the target written and read back.

    Args:
        source: The segment's tier.
        segment: It.
        part_bytes: Of the target's uploads.
    """
    reads = log_requests(source, segment)
    if segment.layout in LAYOUTS_WITHOUT_IDS:
        reads *= 2  # once for the segment's id
    back = log_requests(source, segment) + part_requests(segment)
    return reads + part_requests(segment) + -(-segment.size_bytes // part_bytes) + _REQUESTS_A_COPY + back


@dataclass(frozen=True, slots=True)
class CopyOrder(WorkOrder[StoredSegment, SegmentOutcome]):
    """Opens the work in another process.

    Attributes:
        location: Of the source.
        dest: Path of the target.
        dest_config: Its keys, which may hold secrets and are in no ``repr``.
        new_ids: Those of the topic map.
        recheck: As for CopyWork.
    """

    location: TierLocation
    dest: str
    dest_config: Mapping[str, str] = field(repr=False)
    new_ids: Mapping[Uuid, Uuid]
    recheck: bool

    @contextmanager
    def opened(self) -> Generator[CopyWork]:
        """Open source and target, and close them at the end of the block."""
        with self.location.opened() as source, closing(open_copy_target(self.dest, config=self.dest_config)) as target:
            yield CopyWork(source, target, topic_map=TopicMap(self.new_ids), recheck=self.recheck)
