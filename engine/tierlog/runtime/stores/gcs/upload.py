"""A resumable upload to Google Cloud Storage."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import Final

from tierlog._native.checksums import crc32c
from tierlog.errors import ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.stores.gcs.requests import GcsRequests
from tierlog.runtime.stores.protocol.object_store import StoredObject, views_of
from tierlog.runtime.stores.protocol.store_writer import PartedUpload, before_resending, crc32c_text
from tierlog.runtime.stores.writing.bucket_client import RequestRefusedError
from tierlog.runtime.stores.writing.http_client import HttpAnswer

#: All bytes but the last come in multiples of this.
_UNIT_BYTES: Final = 256 << 10
_MORE: Final = frozenset(("308",))
_GONE: Final = frozenset(("499", "404", "410"))
_RANGE: Final = re.compile(r"bytes=0-(\d+)")
_TRIES: Final = 5


class GcsUpload(PartedUpload):
    """An Upload whose parts wait for those before them. The bytes behind the last whole unit go with the next part.

    Args:
        session: The address of the upload; it needs no other right.
    """

    def __init__(self, requests: GcsRequests, key: str, part_bytes: int, session: str) -> None:
        self._turn = requests.machine.scheduler.condition()
        super().__init__(key, part_bytes, place=requests.client.place(key), lock=self._turn)
        self._requests = requests
        self._session = session
        self._scope = requests.client.scope()
        self._next = 1
        self._sending = False
        self._sent = 0
        self._rest = b""
        self._crc = 0

    def _send(self, number: int, views: list[memoryview]) -> None:
        """Raises StoreError also where the parts before it do not come in time."""
        if not self._wait_for_turn(number):
            return  # it is there already: sent bytes cannot be sent again
        try:
            self._send_units(views)
            for view in views:
                self._crc = crc32c(view, self._crc)
            self._next = number + 1
        finally:
            with self._turn:
                self._sending = False
                self._turn.notify_all()

    def _wait_for_turn(self, number: int) -> bool:
        clock = self._requests.machine.clock
        deadline = clock.monotonic_seconds() + self._requests.settings.turn_seconds
        with self._turn:
            while True:
                self._check_open()
                if number < self._next:
                    return False
                if number == self._next and not self._sending:
                    self._sending = True
                    return True
                if clock.monotonic_seconds() > deadline:
                    raise StoreError(f"{self._place}: part {number}: part {self._next} did not come before it")
                self._turn.wait(1.0)

    def _send_units(self, views: Sequence[memoryview]) -> None:
        """Send the stored rest and the views, as far as they fill units; store the new rest."""
        pieces = [memoryview(self._rest), *views] if self._rest else list(views)
        total = sum(len(piece) for piece in pieces)
        whole = total - total % _UNIT_BYTES
        start = self._sent
        for tries in range(_TRIES):
            if self._sent == start + whole:
                self._rest = b"".join(_cut(pieces, whole, total))
                return
            if tries:
                before_resending()
            sent = self._send_from(pieces, self._sent - start, whole)
            if not self._sent <= sent <= start + whole:
                raise StoreError(f"{self._place}: the store says that it has {sent} bytes, {start + whole} were sent")
            self._sent = sent
        raise StoreUnavailableError(f"{self._place}: the store takes {self._sent} of {start + whole} bytes")

    def _send_from(self, pieces: Sequence[memoryview], begin: int, end: int) -> int:
        """Send a part of the pieces; return the number of bytes that the store has. It passes over bytes that it has
        already.
        """
        body = _cut(pieces, begin, end)
        headers = {"Content-Range": f"bytes {self._sent}-{self._sent + end - begin - 1}/*"}
        try:
            self._requests.send(self.key, "PUT", self._session, headers, body, self._scope, passing=_MORE)
        except RequestRefusedError as more:
            return _sent_of(more.answer)
        raise StoreError(f"{self._place}: the store ended the upload before its end")

    def _finish(self, parts: list[None]) -> StoredObject:  # noqa: ARG002 - the store has put them together
        """Asking again is answered with the object."""
        size = self._sent + len(self._rest)
        span = f"{self._sent}-{size - 1}" if self._rest else "*"
        headers = {"Content-Range": f"bytes {span}/{size}"}
        try:
            answer = self._requests.send(
                self.key, "PUT", self._session, headers, views_of(self._rest), self._scope, passing=_MORE
            )
        except RequestRefusedError as more:
            raise StoreUnavailableError(f"{self._place}: {_sent_of(more.answer)} of {size} bytes came") from None
        except ObjectNotFoundError:  # perhaps since it was completed already, and the answer got lost
            found = self._requests.find_ours(self.key, crc32c_text(self._crc))
            if found is None:
                raise
            return found
        return self._requests.confirmed(self.key, answer, crc32c_text(self._crc), size)

    def _drop(self) -> None:
        with self._turn:
            self._turn.notify_all()
        self._scope.cancel()
        with contextlib.suppress(RequestRefusedError):  # 499 is how Google says that it is done
            self._requests.send(self.key, "DELETE", self._session, {}, (), passing=_GONE)


def _sent_of(answer: HttpAnswer) -> int:
    """Return the number of bytes that the store has."""
    found = _RANGE.fullmatch(answer.headers.get("range", ""))
    return int(found[1]) + 1 if found else 0


def _cut(pieces: Sequence[memoryview], begin: int, end: int) -> list[memoryview]:
    """Cut the bytes ``begin`` to ``end`` of the pieces, as they lie."""
    found = []
    position = 0
    for piece in pieces:
        first, last = max(begin - position, 0), min(end - position, len(piece))
        if first < last:
            found.append(piece[first:last])
        position += len(piece)
    return found
