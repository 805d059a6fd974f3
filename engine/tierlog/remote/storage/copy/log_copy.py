"""A log into the stored form of its object: read by pread, checked, transformed side by side, in parts.

The copy's own thread reads and checks; a pool compresses and encrypts; another one sends. All memory is lent by
UploadBuffers, in one piece at the start: nothing here grows with the segment.
"""

from __future__ import annotations

import collections
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from tierlog._native.checksums import crc32c
from tierlog._native.codecs import compress_bound
from tierlog.errors import CorruptObjectError
from tierlog.remote.storage.copy.part_stream import PartStream
from tierlog.remote.storage.copy.running_copies import RunningCopy
from tierlog.remote.storage.copy.upload_buffers import LentBuffer
from tierlog.remote.tier.chunks.key_ring import UNIT_OVERHEAD_BYTES
from tierlog.remote.tier.layouts.segment_objects import SegmentObjects, StoredLog
from tierlog.runtime.machine.files import ReadableFile
from tierlog.runtime.machine.scheduling import Future, Pool
from tierlog.runtime.stores.protocol.object_store import ObjectStore, UploadLimits

#: Of a plain log: each window costs some tens of microseconds beside its bytes.
_PLAIN_WINDOW_BYTES: Final = 4 << 20
#: Small chunks are transformed so many bytes at a time: a call for each would cost more than its work.
_BUNDLE_BYTES: Final = 1 << 20
#: A folder is written in pieces that the processor's cache holds; it has no requests to save.
_LOCAL_PART_BYTES: Final = 4 << 20
_LOCAL_BUNDLE_BYTES_MAX: Final = 16 << 20


@dataclass(frozen=True, slots=True)
class LogSizes:
    """The memory that the copy of one log needs.

    Args:
        log_bytes: Of the file.
        chunk_bytes: Original bytes of a chunk, at most the file.
        bundle_chunks: Chunks that are transformed in one call.
        stored_chunk_bytes: The most that one of them takes when stored.
        part_bytes: Of one part; see PartStream.
        first_part_bytes: Of the buffer that the copy owns: less than ``part_bytes`` for a small log.
        bundles: Under way at once.
        compressed: Whether a chunk's stored size is unknown before.
    """

    log_bytes: int
    chunk_bytes: int
    bundle_chunks: int
    stored_chunk_bytes: int
    part_bytes: int
    first_part_bytes: int
    bundles: int
    compressed: bool = False

    @property
    def bundle_bytes(self) -> int:
        return self.chunk_bytes * self.bundle_chunks

    def borrowed(self) -> list[int]:
        """Return the sizes of all buffers that the copy needs: the part's, then source and result in turn."""
        pair = [self.bundle_bytes, self.stored_chunk_bytes * self.bundle_chunks]
        return [self.first_part_bytes, *pair * self.bundles]


def plan_sizes(
    store: ObjectStore,
    *,
    log_bytes: int,
    chunk_size: int,
    part_bytes: int,
    cores: int,
    compressed: bool,
    encrypted: bool,
) -> LogSizes:
    """Plan the cuts of a log, as configured: an upper bound of its stored size.

    Args:
        store: Gets it; its limits.
        log_bytes: Of the file.
        chunk_size: As configured.
        part_bytes: As configured; more where the store takes no more parts than that, less for a folder.
        cores: Bundles are transformed on so many.
        compressed: With zstd, perhaps.
        encrypted: With AES-GCM.
    """
    chunk_bytes = max(1, min(chunk_size, log_bytes))
    stored_chunk_bytes = compress_bound(chunk_bytes) if compressed else chunk_bytes
    stored_chunk_bytes += UNIT_OVERHEAD_BYTES if encrypted else 0
    chunks = -(-log_bytes // chunk_bytes)
    bound = chunks * stored_chunk_bytes
    bundle_chunks = max(1, min(_BUNDLE_BYTES // chunk_bytes, chunks))
    if store.is_local:
        part_bytes = _LOCAL_PART_BYTES
        bundle = bundle_chunks * stored_chunk_bytes
        if encrypted and not compressed and bundle <= _LOCAL_BUNDLE_BYTES_MAX:
            part_bytes = max(1, part_bytes // bundle) * bundle  # whole bundles are made in their place
    part_bytes = _fitting_part(store.upload_limits, part_bytes, bound)
    bundles = max(1, min(cores, -(-chunks // bundle_chunks))) if compressed or encrypted else 0
    return LogSizes(
        log_bytes=log_bytes,
        chunk_bytes=chunk_bytes,
        bundle_chunks=bundle_chunks,
        stored_chunk_bytes=stored_chunk_bytes,
        part_bytes=part_bytes,
        first_part_bytes=max(1, min(part_bytes, bound)),
        bundles=bundles,
        compressed=compressed,
    )


def _fitting_part(limits: UploadLimits, wanted: int, object_bytes: int) -> int:
    """Return a part size that the store takes, and of which a log has few enough."""
    least = max(limits.part_bytes_min, -(-object_bytes // limits.parts_max))
    return min(max(wanted, least), limits.part_bytes_max)


class LogCopy:
    """The copy of one log into a PartStream. One thread.

    Args:
        log: Open.
        path: Of it, for messages.
        objects: Say how it is stored.
        sizes: Of ``plan_sizes``.
        parts: Receives the stored bytes.
        scratch: The buffers of ``sizes.borrowed()`` behind the first; the borrower returns them.
        running: Cancelled with it.
        pool: Transforms.
    """

    def __init__(
        self,
        log: ReadableFile,
        path: str,
        objects: SegmentObjects,
        sizes: LogSizes,
        parts: PartStream,
        scratch: list[LentBuffer],
        *,
        running: RunningCopy,
        pool: Pool,
    ) -> None:
        self._log = log
        self._path = path
        self._objects = objects
        self._sizes = sizes
        self._parts = parts
        self._pairs = list(zip(scratch[::2], scratch[1::2], strict=True))
        self._running = running
        self._pool = pool
        self._under_way: collections.deque[tuple[Future[list[int]], LentBuffer, LentBuffer, bool]] = collections.deque()
        self._chunk_sizes: list[int] = []
        self._crc32c = 0

    def windows(self) -> Iterator[memoryview]:
        """Yield the log's bytes in order, each window until the next is drawn; drawn windows are being sent to the
        store.

        Raises:
            CorruptObjectError: the file ends early. StoreError: it cannot be read, or the store failed.
            CopyDeadlineError: cancelled.
        """
        yield from self._plain_windows() if self._objects.assembler is None else self._transformed_windows()

    def finish(self, *, compression: bool) -> StoredLog:
        """Finish after the last window: everything but what makes the object visible is done then."""
        self._parts.flush()
        return StoredLog(
            self._parts.size_bytes,
            self._chunk_sizes if compression else None,
            self._crc32c if self._objects.needs_checksum else None,
        )

    def wait_idle(self) -> None:
        """Wait until no worker touches the scratch buffers any more: they are of this process, so that is soon."""
        for future, _, _, _ in self._under_way:
            if not future.cancel():
                future.exception()
        self._under_way.clear()

    def _plain_windows(self) -> Iterator[memoryview]:
        """Read windows straight into the part that is sent: nothing is copied."""
        position = 0
        while position < self._sizes.log_bytes:
            self._running.check()
            space = self._parts.space()
            window = space[: min(_PLAIN_WINDOW_BYTES, self._sizes.log_bytes - position)]
            self._read(window, position)
            if self._objects.needs_checksum:
                self._crc32c = crc32c(window, self._crc32c)
            yield window
            self._parts.advance(len(window))
            position += len(window)

    def _transformed_windows(self) -> Iterator[memoryview]:
        position = 0
        while position < self._sizes.log_bytes:
            self._running.check()
            source, out = self._pairs.pop() if self._pairs else self._take_oldest()
            window = source.view[: min(self._sizes.bundle_bytes, self._sizes.log_bytes - position)]
            self._read(window, position)
            self._submit(window, source, out)
            yield window
            position += len(window)
        while self._under_way:
            self._take_oldest()

    def _submit(self, window: memoryview, source: LentBuffer, out: LentBuffer) -> None:
        """Submit a bundle: into the part itself if its stored size is known and fits, else into ``out``."""
        count = -(-len(window) // self._sizes.chunk_bytes)
        ivs = [self._objects.new_iv() for _ in range(count)]
        place = None
        if not self._sizes.compressed:
            place = self._parts.reserve(len(window) + count * UNIT_OVERHEAD_BYTES)
            if place is None:  # it straddles two parts: in order, so earlier reservations come first
                while self._under_way:
                    self._pairs.append(self._take_oldest())
        future = self._pool.submit(partial(self._transform, window, out.view if place is None else place, ivs))
        self._under_way.append((future, source, out, place is None))
        if place is not None:
            self._parts.await_before_sending(future)
        elif not self._sizes.compressed:
            self._pairs.append(self._take_oldest())

    def _read(self, window: memoryview, position: int) -> None:
        count = self._log.read_into(window, position=position)
        if count != len(window):
            text = f"the file ended at {position + count} while it was copied, {self._sizes.log_bytes} bytes expected"
            raise CorruptObjectError(text, fault="CHANGED", position=position + count, where=self._path)

    def _transform(self, window: memoryview, out: memoryview, ivs: list[bytes | None]) -> list[int]:
        """Transform the chunks of one bundle, one behind the other, in the pool; returns their stored sizes."""
        assembler = self._objects.assembler
        assert assembler is not None
        sizes: list[int] = []
        filled = 0
        for number, iv in enumerate(ivs):
            start = number * self._sizes.chunk_bytes
            size = assembler.transform(window[start : start + self._sizes.chunk_bytes], out[filled:], iv=iv)
            sizes.append(size)
            filled += size
        return sizes

    def _take_oldest(self) -> tuple[LentBuffer, LentBuffer]:
        """Send the chunks of the oldest bundle, unless they lie in the part already, and free its buffers."""
        future, source, out, is_apart = self._under_way[0]
        sizes = self._running.wait_for(future)
        self._under_way.popleft()
        self._chunk_sizes += sizes
        if is_apart:
            self._parts.append(out.view[: sum(sizes)])
        return source, out
