"""Stored bytes in order, cut into parts that are uploaded side by side while the next ones are made.

A part is sent from the very memory that it was made in. There is one buffer that the copy owns from its start, so that
it can always go on, and more of them as long as memory is free that no other copy waits for.
"""

from __future__ import annotations

import collections
from typing import Any

from tierlog.errors import StoreError, StoreNotReachedError
from tierlog.remote.storage.copy.running_copies import CopyRequests, RunningCopy
from tierlog.remote.storage.copy.upload_buffers import LentBuffer, UploadBuffers
from tierlog.runtime.machine.scheduling import Future
from tierlog.runtime.stores.protocol.object_store import ABSENT, ObjectStore, StoredObject, Upload
from tierlog.runtime.stores.wrappers.rate_limiter import RateLimiter


class PartStream:
    """An object that is being uploaded, invisible until ``make_visible``. One thread.

    Args:
        store: Gets it.
        key: Of the object.
        part_bytes: Of all parts but the last; an object that fits into one is a single PUT.
        parallel: Parts under way at once, at most.
        buffer: Of ``part_bytes``, or as large as the object if that is smaller; returned by ``close``.
        buffers: Where more of them come from.
        running: The copy that this belongs to: cancelled with it.
        requests: Its requests.
        limiter: Asked before each part, and before each try of it.
    """

    def __init__(
        self,
        store: ObjectStore,
        key: str,
        *,
        part_bytes: int,
        parallel: int,
        buffer: LentBuffer,
        buffers: UploadBuffers,
        running: RunningCopy,
        requests: CopyRequests,
        limiter: RateLimiter,
    ) -> None:
        self._store = store
        self._key = key
        self._part_bytes = part_bytes
        self._parallel = parallel
        self._buffers = buffers
        self._running = running
        self._requests = requests
        self._limiter = limiter
        self._own: LentBuffer | None = buffer
        self._free = [buffer]
        self._current: LentBuffer | None = None
        self._filled = 0
        self._number = 0
        self._under_way: collections.deque[tuple[Future[None], LentBuffer]] = collections.deque()
        self._filling: list[Future[Any]] = []
        self._upload: Upload | None = None
        self._lock = running.machine.scheduler.lock()
        self._made: Upload | None = None
        self._given_up = False
        self._in_doubt = False  # an upload may have been begun whose answer was lost
        self.size_bytes = 0

    @property
    def is_multipart(self) -> bool:
        return self._upload is not None

    def space(self) -> memoryview:
        """Return the memory for the next bytes, at least one; a full part is sent."""
        if self._current is not None and self._filled == self._part_bytes:
            self._send()
        if self._current is None:
            self._current = self._next_buffer()
            self._filled = 0
        return self._current.view[self._filled : self._part_bytes]

    def reserve(self, size_bytes: int) -> memoryview | None:
        """Reserve the next bytes for a worker that fills them later; pass its future to ``await_before_sending``.

        Returns:
            None if they do not fit into one part: use ``append``, once earlier reservations are filled.
        """
        space = self.space()
        if len(space) < size_bytes:
            return None
        self.advance(size_bytes)
        return space[:size_bytes]

    def await_before_sending(self, future: Future[Any]) -> None:
        """Hold the part back until a future is done: the last reservation is filled then."""
        self._filling.append(future)

    def advance(self, size_bytes: int) -> None:
        """Note that so many bytes of ``space`` are filled."""
        self._filled += size_bytes
        self.size_bytes += size_bytes

    def append(self, data: memoryview) -> None:
        """Append bytes that were made elsewhere."""
        while data:
            space = self.space()
            step = min(len(space), len(data))
            space[:step] = data[:step]
            self.advance(step)
            data = data[step:]

    def flush(self) -> None:
        """Send all but the bytes of a single PUT, and wait for that. Raises what sending raised."""
        self._wait_filled()
        if self._upload is not None and self._current is not None:
            self._send()
        while self._under_way:
            self._free.append(self._harvest())

    def make_visible(self, *, only_if_absent: bool) -> StoredObject:
        """Make the object visible, after ``flush``.

        Raises:
            ObjectConflictError: a single PUT found another object (``only_if_absent``).
            StoreError: the store confirms another size than was sent; and its kinds.
        """
        if self._upload is None:
            data = memoryview(b"") if self._current is None else self._current.view[: self._filled]
            condition = ABSENT if only_if_absent else None

            def put() -> StoredObject:
                with self._limiter.granted(len(data), check=self._running.check):
                    return self._requests.store(
                        self._key, lambda: self._store.put(self._key, data, expected_etag=condition)
                    )

            future = self._requests.submit(put)
        else:
            complete = self._upload.complete
            future = self._requests.submit(lambda: self._requests.store(self._key, complete))
        try:
            stored = self._running.wait_for(future)
        finally:
            if not future.done() and self._current is not None:
                # Cancelled: while the request runs the buffer is the store's.
                buffer, self._current = self._current, None
                future.add_done_callback(lambda _: buffer.give_back())
        if stored.size_bytes != self.size_bytes:
            raise StoreError(f"{self._key}: {self.size_bytes} bytes were sent, the store has {stored.size_bytes}")
        self._running.stored_bytes += stored.size_bytes if self._upload is None else 0
        return stored

    def _send(self) -> None:
        """Send the current buffer as the next part."""
        self._wait_filled()
        upload = self._begun()
        buffer, size = self._current, self._filled
        assert buffer is not None
        number, view = self._number + 1, buffer.view[:size]

        def send() -> None:
            with self._limiter.granted(size, check=self._running.check):
                upload.put_part(number, [view])
            self._running.stored_bytes += size

        self._under_way.append((self._requests.submit(send), buffer))
        self._current = None  # until here it is this stream's to give back
        self._running.part = self._number = number

    def _wait_filled(self) -> None:
        for future in self._filling:
            self._running.wait_for(future)
        self._filling.clear()

    def _begun(self) -> Upload:
        if self._upload is None:
            self._upload = self._requests.call(self._begin)
        return self._upload

    def _begin(self) -> Upload:
        """Begin the upload in the pool: the copy may be cancelled before the store has answered."""
        self._in_doubt = True
        try:
            upload = self._store.begin_upload(self._key, part_bytes=self._part_bytes)
        except StoreError as error:
            self._in_doubt = not (error.refused or isinstance(error, StoreNotReachedError))
            raise
        self._in_doubt = False
        with self._lock:
            self._made = upload
            given_up = self._given_up
        if given_up:
            upload.abort()
        return upload

    def _next_buffer(self) -> LentBuffer:
        if self._free:
            return self._free.pop()
        if len(self._under_way) < self._parallel and not self._under_way[0][0].done():
            extra = self._buffers.try_borrow(self._part_bytes)
            if extra is not None:
                return extra
        return self._harvest()

    def _harvest(self) -> LentBuffer:
        """Wait for the oldest part, and free its buffer."""
        future, buffer = self._under_way[0]
        self._running.wait_for(future)
        self._under_way.popleft()
        if buffer is not self._own and self._buffers.is_wanted and self._under_way:
            buffer.give_back()
            return self._harvest()
        return buffer

    @property
    def may_have_parts(self) -> bool:
        """Whether ``abort`` has parts to delete."""
        return self._made is not None or self._in_doubt

    def abort(self) -> None:
        """Abort an invisible upload; no effect after ``make_visible``; idempotent.

        Raises StoreError: parts may be left.
        """
        with self._lock:
            self._given_up = True
            upload = self._made
        if upload is not None:
            upload.abort()
        elif self._in_doubt:
            for found in list(self._store.iter_uploads(self._key)):
                self._store.abort_upload(found)

    def close(self) -> None:
        """Return all buffers, those in use as soon as they are done."""
        if self._current is not None:
            self._current.give_back()
            self._current = None
        for buffer in self._free:
            buffer.give_back()
        self._free.clear()
        self._own = None  # or a reference to this, for a later abort, would hold the memory
        while self._under_way:
            future, buffer = self._under_way.popleft()
            future.cancel()
            future.add_done_callback(lambda _, buffer=buffer: buffer.give_back())  # type: ignore[misc]
