"""Copies of segments: all of one, or nothing that a reader could see.

The order of one copy, and why:

1. Memory, all that it needs, before anything else. The indexes, read and checked. The choice of compression, the key.
2. The log: read, checked, transformed and sent as invisible parts. Nothing is visible while a part of the segment is
unchecked, so that a bad one never was there. 3. The files are looked at again: a changed or missing one means that the
sent segment never existed. 4. The first object that becomes visible is stored only if nothing has its key (the log,
where that is one PUT; else the
   first small object). That asks, without a request of its own, whether this id was copied before: then the earlier
   copy is verified and returned, or, if it is no whole segment, removed. A live log is never overwritten, and a request
   of an earlier attempt that lands late does not replace anything.
5. The log and the rest, each confirmed by the store with its size; the description last.

A failed copy is undone, the description first, and for no longer than the caller can wait. Where the first object's
request failed without saying whether its key was free, the objects there may be an earlier copy: they are one if they
have a description, and stay. Objects that could not be removed are named in the error, the log and a metric, tried
again later (``leftovers``), and found by ``tierlog orphans``.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Final

from tierlog.errors import ObjectConflictError, PoolClosedError, StoreError
from tierlog.marks import mark
from tierlog.records.batch_runs import BatchRuns
from tierlog.remote.api import IndexType, LogSegmentData, RemoteLogSegmentMetadata
from tierlog.remote.config import StorageConfig
from tierlog.remote.storage.copy.copied_segment import (
    CopiedSegment,
    find_copied_before,
    first_timestamp_ms,
    segment_entry,
)
from tierlog.remote.storage.copy.copy_checks import (
    LogCheck,
    SourceFiles,
    check_index_parts,
    check_size,
    is_mostly_compressed,
)
from tierlog.remote.storage.copy.leftovers import Leftovers, Remains
from tierlog.remote.storage.copy.log_copy import LogCopy, LogSizes, plan_sizes
from tierlog.remote.storage.copy.part_stream import PartStream
from tierlog.remote.storage.copy.running_copies import CopyRequests, RunningCopies, RunningCopy
from tierlog.remote.storage.copy.upload_buffers import LentBuffer, process_buffers
from tierlog.remote.storage.storage_errors import CopyDeadlineError
from tierlog.remote.storage.storage_metrics import StorageMetrics
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.layouts.segment_objects import (
    SegmentObjects,
    StoredLog,
    custom_metadata_of,
    largest_custom_metadata_bytes,
    plan_objects,
    plan_removal,
)
from tierlog.remote.tier.objects.footer_builder import FooterBuilder
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import ReadableFile, ReadableFiles
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.stores.protocol.object_store import ABSENT, ObjectStore, StoredObject
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter

_log = logging.getLogger(__name__)

_INDEX_BYTES_MAX: Final = 2**31 - 1
#: Requests under way, of all copies: parts are bounded by memory, the rest is small.
_SENDERS: Final = 32


@dataclass(slots=True)
class _Attempt:
    """The resources and the stored objects of one copy so far.

    Attributes:
        owns_id: Its first object is stored, so that no other copy's is there.
    """

    metadata: RemoteLogSegmentMetadata
    data: LogSegmentData
    running: RunningCopy
    paths: dict[IndexType, str]
    files: ReadableFiles
    requests: CopyRequests
    stream: PartStream | None = None
    description_key: str = ""
    owns_id: bool = False
    stored_bytes: int = 0
    beside: tuple[tuple[str, bytes], ...] = ()
    footer: FooterBuilder | None = None


class SegmentCopier:
    """The copier of segments into one store.

    Args:
        store: Gets the objects; it stays the caller's.
        config: Their form, and the deadline of a copy.
        key_ring: Wraps data keys, where segments are encrypted.
        limiter: Of uploads.
        leftovers: Undoes what fails; closed with this.
        metrics: Where copies are counted.
        machine: Its files hold the segments unless a copy says otherwise, its threads work.
        longest_seconds: That one copy may take, where the configuration has no deadline.
        on_idle: Called when nothing was copied for a while.

    Attributes:
        deadline_seconds: That one copy may take.
        buffers: Memory of all copies of the process.
        running: The copies that are under way.

    Thread safety: any number of threads; each copies in its own.
    """

    def __init__(
        self,
        store: ObjectStore,
        config: StorageConfig,
        key_ring: KeyRing,
        *,
        limiter: RateLimiter,
        leftovers: Leftovers,
        metrics: StorageMetrics,
        machine: Machine,
        longest_seconds: float,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        deadline_ms = config.copy_deadline_ms
        self.deadline_seconds = longest_seconds if deadline_ms is None else deadline_ms / 1000
        self.buffers = process_buffers(config.upload_buffer_bytes, machine)
        self.running = RunningCopies(metrics, machine=machine, deadline_seconds=self.deadline_seconds, on_idle=on_idle)
        self._store = store
        self._config = config
        self._key_ring = key_ring
        self._limiter = limiter
        self._metrics = metrics
        self._machine = machine
        self._cores = machine.scheduler.cores
        self._transformers = machine.scheduler.pool(self._cores, name="tierlog-transform")
        self._senders = machine.scheduler.pool(_SENDERS, name="tierlog-upload")
        self._leftovers = leftovers

    def copy(
        self, metadata: RemoteLogSegmentMetadata, data: LogSegmentData, *, files: ReadableFiles | None = None
    ) -> bytes | None:
        """Copy a segment, as RemoteStorageManager.copy_log_segment_data does.

        Args:
            metadata: Of the segment.
            data: Names its files.
            files: Where they are; by default the machine's.

        Raises:
            CorruptDataError: the segment, or an index of it, is damaged. ObjectNotFoundError: a file of it is gone.
                StoreError and its kinds; StoreUnavailableError where a later attempt may work. ConfigError.
        """
        clock = self._machine.clock
        began = clock.monotonic_seconds()
        running = self.running.begin(metadata.remote_log_segment_id)
        try:
            self._leftovers.begin_copy(metadata.remote_log_segment_id)
            requests = CopyRequests(running, self._senders)
            attempt = _Attempt(metadata, data, running, _index_paths(data), files or self._machine.files, requests)
            try:
                custom_metadata = self._copied(attempt)
            except BaseException as error:
                if isinstance(error, CopyDeadlineError):
                    self._metrics.add("copies_overdue_total")
                mark("storage: a copy is undone")
                self._undo(attempt, error)
                raise
        finally:
            self.running.end(running)
        self._metrics.add("copies_total")
        self._metrics.add("copy_bytes_total", metadata.segment_size_in_bytes)
        self._metrics.observe("copy_seconds", clock.monotonic_seconds() - began)
        return custom_metadata

    def _copied(self, attempt: _Attempt) -> bytes | None:
        try:
            return self._copy(attempt)
        except PoolClosedError as cause:  # a read of its disk delayed it until no caller waited any more
            attempt.running.call_off("the manager was closed")
            raise attempt.running.abandoned() from cause

    def _copy(self, attempt: _Attempt) -> bytes | None:
        metadata, running = attempt.metadata, attempt.running
        path = attempt.data.log_segment
        sources = SourceFiles.of(attempt.files, attempt.data)
        with ExitStack() as held, attempt.files.open_read(path) as log:
            check_size(log, path, metadata)
            sizes = self._plan(metadata)
            first, *scratch = self._borrow(sizes, running)
            until_sent = held.enter_context(ExitStack())
            until_sent.callback(first.give_back)
            for buffer in scratch:
                held.callback(buffer.give_back)
            running.phase = "checking"
            objects, parts, compression = self._objects(attempt, log)
            sizes = replace(sizes, compressed=compression)
            attempt.stream = stream = self._stream(objects.log_key, sizes, first, attempt)
            held.callback(stream.close)
            until_sent.pop_all()  # the stream gives it back: a request may read it for longer
            if objects.assembler is None:
                while scratch:
                    scratch.pop().give_back()
            copier = LogCopy(log, path, objects, sizes, stream, scratch, running=running, pool=self._transformers)
            held.callback(copier.wait_idle)
            running.phase = "log"
            self._draw(attempt, copier, parts)
            stored = copier.finish(compression=compression)
            if self._config.log_index_object_enabled:
                attempt.beside = ((objects.log_index_key, _log_index(metadata, objects, stored, log)),)
            sources.check_unchanged()
            description = objects.description(stored)
            attempt.beside += self._footer(attempt, objects, description)
            known = self._make_visible(attempt, objects, description)
            if known is None:
                known = CopiedSegment(attempt.stored_bytes, hashlib.sha256(description).digest())
        return custom_metadata_of(self._config, objects, stored_bytes=known.stored_bytes, digest=known.digest)

    def _plan(self, metadata: RemoteLogSegmentMetadata) -> LogSizes:
        return plan_sizes(
            self._store,
            log_bytes=metadata.segment_size_in_bytes,
            chunk_size=self._config.chunk_size,
            part_bytes=self._config.part_bytes,
            cores=self._cores,
            compressed=self._config.compression_enabled,
            encrypted=self._config.encryption_enabled,
        )

    def _borrow(self, sizes: LogSizes, running: RunningCopy) -> list[LentBuffer]:
        clock = self._machine.clock
        since = clock.monotonic_seconds()
        lent = self.buffers.borrow(sizes.borrowed(), check=running.check)
        self._metrics.add("upload_buffer_wait_seconds_total", clock.monotonic_seconds() - since)
        return lent

    def _objects(self, attempt: _Attempt, log: ReadableFile) -> tuple[SegmentObjects, dict[IndexType, bytes], bool]:
        """Return the objects to be stored, the indexes as read and checked, and whether chunks are compressed."""
        metadata, config = attempt.metadata, self._config
        files, paths = attempt.files, attempt.paths
        parts = {kind: files.read_whole(path, limit_bytes=_INDEX_BYTES_MAX) for kind, path in paths.items()}
        parts[IndexType.LEADER_EPOCH] = attempt.data.leader_epoch_index
        if config.copy_source_verification_enabled:
            check_index_parts(parts, metadata, paths)
        compression = config.compression_enabled
        if compression and config.compression_heuristic_enabled:
            compression = not is_mostly_compressed(log, parts[IndexType.OFFSET], base_offset=metadata.start_offset)
        objects = plan_objects(
            config,
            metadata,
            parts,
            compression=compression and metadata.segment_size_in_bytes > 0,
            segment_key=self._key_ring.new_segment_key() if config.encryption_enabled else None,
            rng=self._machine.rng,
        )
        limit = config.custom_metadata_bytes_max
        if (most := largest_custom_metadata_bytes(config, objects, metadata)) > limit:
            _log.warning(
                "%s: custom metadata of up to %d bytes; the broker takes %d and would undo the copy: "
                "see remote.log.metadata.custom.metadata.max.bytes",
                metadata.remote_log_segment_id,
                most,
                limit,
            )
        return objects, parts, compression and metadata.segment_size_in_bytes > 0

    def _stream(self, key: str, sizes: LogSizes, first: LentBuffer, attempt: _Attempt) -> PartStream:
        return PartStream(
            self._store,
            key,
            part_bytes=sizes.part_bytes,
            parallel=self._config.upload_parallel_parts,
            buffer=first,
            buffers=self.buffers,
            running=attempt.running,
            requests=attempt.requests,
            limiter=self._limiter,
        )

    def _draw(self, attempt: _Attempt, copier: LogCopy, parts: dict[IndexType, bytes]) -> None:
        """Send the log to the store, as invisible parts, through the checks."""
        windows = copier.windows()
        if self._config.copy_source_verification_enabled:
            checked = LogCheck(attempt.metadata, parts, attempt.paths, attempt.data.log_segment).checked(windows)
            if self._config.footer_object_enabled:
                attempt.footer = FooterBuilder()
                for run in BatchRuns(checked):
                    attempt.footer.add(run)
            for _ in checked:
                pass
        for _ in windows:  # windows that the checks did not draw: without them, all
            pass

    def _footer(self, attempt: _Attempt, objects: SegmentObjects, description: bytes) -> tuple[tuple[str, bytes], ...]:
        """Return the footer's object; none where it is not asked for, or cannot be."""
        made = None if attempt.footer is None else attempt.footer.finish()
        if attempt.footer is not None and made is None:
            _log.info("%s gets no footer: %s", attempt.metadata.remote_log_segment_id, attempt.footer.unfit)
        return () if made is None else ((objects.footer_key, objects.footer(made, description)),)

    def _make_visible(self, attempt: _Attempt, objects: SegmentObjects, description: bytes) -> CopiedSegment | None:
        """Store the objects that make the segment visible. Returns an earlier copy, if that is whole."""
        try:
            self._store_objects(attempt, objects, description)
        except ObjectConflictError:
            attempt.running.phase = "checking"
            key = objects.description_key
            call = attempt.requests.call
            known = call(lambda: find_copied_before(self._store, self._config, attempt.metadata, key))
            if known is not None:
                _log.info("%s was copied before and is whole", attempt.metadata.remote_log_segment_id)
                self._remove(attempt, objects=False)
                return known
            removal = plan_removal(self._config, attempt.metadata)
            call(lambda: self._store.delete(removal.descriptions))
            call(lambda: self._store.delete(removal.others))
            self._store_objects(attempt, objects, description)
        return None

    def _store_objects(self, attempt: _Attempt, objects: SegmentObjects, description: bytes) -> None:
        """Store the objects in the module's order. Raises ObjectConflictError if the first is there already."""
        assert attempt.stream is not None
        attempt.description_key = objects.description_key
        small = [*objects.small_objects(), *attempt.beside]
        if attempt.stream.is_multipart:
            attempt.running.phase = "indexes"
            self._put(attempt, *small.pop(0), kind="indexes", only_if_absent=True)
            attempt.owns_id = True
        attempt.running.phase = "log"
        stored = attempt.stream.make_visible(only_if_absent=not attempt.stream.is_multipart)
        attempt.owns_id = True
        self._count(attempt, stored, "log")
        attempt.running.phase = "indexes"
        for key, data in small:
            self._put(attempt, key, data, kind="indexes")
        attempt.running.phase = "manifest"
        self._put(attempt, objects.description_key, description, kind="manifest")

    def _put(self, attempt: _Attempt, key: str, data: bytes, *, kind: str, only_if_absent: bool = False) -> None:
        condition = ABSENT if only_if_absent else None

        def put() -> StoredObject:
            with self._limiter.granted(len(data), check=attempt.running.check):
                return attempt.requests.store(key, lambda: self._store.put(key, data, expected_etag=condition))

        stored = attempt.requests.call(put)
        if stored.size_bytes != len(data):
            raise StoreError(f"{key}: {len(data)} bytes were sent, the store has {stored.size_bytes}")
        attempt.running.stored_bytes += len(data)
        self._count(attempt, stored, kind)

    def _count(self, attempt: _Attempt, stored: StoredObject, kind: str) -> None:
        attempt.stored_bytes += stored.size_bytes
        self._metrics.add("upload_objects_total", label=kind)
        self._metrics.add("upload_bytes_total", stored.size_bytes, label=kind)

    def _undo(self, attempt: _Attempt, error: BaseException) -> None:
        """Remove the stored objects, the description first. What is left, or may be stored yet, is noted in the error:
        an error without notes is of a copy that has left nothing. Never raises a StoreError.
        """
        attempt.running.phase = "removing"
        left = self._remove(attempt, pending=attempt.requests.end())
        if left:
            text = f"could not be removed again: {'; '.join(left)}; {self._leftovers.remedy()}"
            error.add_note(text)
            _log.warning("%s: the copy failed, and some of it %s", attempt.metadata.remote_log_segment_id, text)
        elif attempt.requests.doubtful:
            error.add_note(f"a request that was not answered may store an object yet: {self._leftovers.remedy()}")

    def _remove(self, attempt: _Attempt, *, objects: bool = True, pending: Sequence[Future[object]] = ()) -> list[str]:
        """Remove the upload, and the objects. Returns those that stay."""
        stream, requests, description_key = attempt.stream, attempt.requests, attempt.description_key
        segment_id = attempt.metadata.remote_log_segment_id

        def names() -> list[str]:
            parts = ["its parts"] if stream is not None and stream.may_have_parts else []
            return [*parts, *(requests.tried_keys if objects else [])]

        def remove(copied_again: bool) -> list[str]:
            left: list[str] = []
            if stream is not None:
                _try(left, "its parts", stream.abort)
            keys = requests.tried_keys if objects and not copied_again else []
            if keys and not attempt.owns_id:
                try:
                    if self._store.find(description_key) is not None:
                        return left  # of an earlier copy, as its first object is: this one stores its own last
                except StoreError as error:
                    return [*left, f"{', '.join(keys)} ({error})"]
            others = [key for key in keys if key != description_key]
            if len(others) < len(keys) and not _try(
                left, description_key, lambda: self._store.delete([description_key])
            ):
                return left + others  # the segment may be whole and seen: half of it must not stay
            if others:
                _try(left, ", ".join(others), lambda: self._store.delete(others))
            return left

        if not names() and not pending:
            return []
        remains = Remains(str(segment_id), remove, names, pending, requests.doubtful and objects, segment_id)
        return self._leftovers.undo(remains, seconds_left=attempt.running.undo_seconds_left)

    def end(self) -> None:
        """Cancel running copies, and wait for their undo, which needs the store; idempotent."""
        self.running.close()
        self._leftovers.close()

    def close(self) -> None:
        """Release the threads, behind ``end``; idempotent."""
        self._transformers.close()
        self._senders.close(wait_seconds=0)


def _try(left: list[str], what: str, call: Callable[[], object]) -> bool:
    try:
        call()
    except StoreError as error:
        left.append(f"{what} ({error})")
        return False
    return True


def _log_index(
    metadata: RemoteLogSegmentMetadata, objects: SegmentObjects, stored: StoredLog, log: ReadableFile
) -> bytes:
    return segment_entry(
        metadata,
        log_key=objects.log_key,
        stored_bytes=stored.size_bytes,
        first_timestamp_ms=first_timestamp_ms(log),
    ).encode()


def _index_paths(data: LogSegmentData) -> dict[IndexType, str]:
    paths = {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
    }
    if data.transaction_index is not None:
        paths[IndexType.TRANSACTION] = data.transaction_index
    return paths
