"""One connection to a broker: a client's requests pass on it as bytes, the front's own questions between them."""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from tierlog.broker.handling import UpstreamError
from tierlog.broker.protocol.entities import request_entities_of
from tierlog.broker.protocol.fetch_client import MalformedResponseError
from tierlog.broker.protocol.peer_answers import (
    body_position,
    decode_answer,
    encode_request_body,
    encode_request_head,
)
from tierlog.broker.protocol.requests import RequestHeader
from tierlog.runtime.waiting.loops import LoopCalls, LoopFuture, SharedCall
from tierlog.serving.outgoing import OutgoingConnection, OutgoingError, ReceivedFrame
from tierlog.serving.response_writer import Reply

_LENGTH: Final = struct.Struct(">i")
_CORRELATION: Final = struct.Struct(">i")
_CORRELATION_IDS: Final = 1 << 31
_API_VERSIONS: Final = 18
#: How long a client's request may be at work: as long as a connection may be without a byte either way.
RELAY_SECONDS: Final = 600.0
#: How long a broker may take no byte of a request that is not answered.
PASS_SECONDS: Final = 60.0


class UpstreamConnection:
    """A connection to one broker, opened by the first request. For the loop's thread.

    Requests go out one at a time, in the order of the calls, and each answer is for the request before it. A
    connection that has failed stays so.

    Args:
        connect: Makes the connection.
        memory_key: Memory for answers is granted in turns that go round these: the host of the client.

    Attributes:
        lost: Called once, when an opened connection is closed.
        client_id: In the front's own questions: that of the client, as its quota is by it.
        versions: Of the broker, by API; empty until they are known.

    Raises, each call:
        UpstreamError: the connection is of no use any more, and closed.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[OutgoingConnection]],
        *,
        memory_key: str,
    ) -> None:
        self._connect = connect
        self._opening = SharedCall(self._opened)
        self._calls = LoopCalls()
        self._memory_key = memory_key
        self._connection: OutgoingConnection | None = None
        self._is_closed = False
        self._correlation_id = 0
        self._questions = 0
        self._passing = 0
        self._is_finishing = False
        self.lost: Callable[[], None] = lambda: None
        self.client_id = ""
        self.versions: Mapping[int, range] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a question of the front's own is under way."""
        return self._questions > 0

    @property
    def is_passing(self) -> bool:
        """Whether a request that is not answered is on its way."""
        return self._passing > 0

    @property
    def is_closed(self) -> bool:
        """Whether the connection is closed, or was never opened and is not to be any more."""
        return self._is_closed or (self._connection is not None and self._connection.is_lost)

    async def relay(self, header: RequestHeader, frame: memoryview) -> ReceivedFrame:
        """Pass a request on as it is, and return the answer as it is, its length included. A call that is cancelled
        closes the connection.

        Args:
            header: Of the request.
            frame: The request behind its length.
        """
        buffers = (_LENGTH.pack(len(frame)), frame)
        return await self._exchange(buffers, _LENGTH.size + len(frame), header.correlation_id, RELAY_SECONDS)

    async def pass_on(self, frame: memoryview) -> None:
        """Pass on a request that is not answered. It goes on where the call is cancelled: for its client it was done
        when it was sent.
        """
        done: LoopFuture[UpstreamError | None] = LoopFuture()
        self._start_passing([frame], done)
        error = await done.wait()
        if error is not None:
            raise error

    def finish(self, frames: Sequence[memoryview]) -> None:
        """Close the connection, behind unanswered requests: ``frames``, and one that is passed on now."""
        self._is_finishing = True
        if frames:
            self._start_passing(frames, LoopFuture())
        elif not self._passing:
            self.close()

    def _start_passing(self, frames: Sequence[memoryview], done: LoopFuture[UpstreamError | None]) -> None:
        self._passing += 1  # now, and not when the task begins: the client may have gone by then
        self._calls.start(self._pass_on(frames, done))

    async def _pass_on(self, frames: Sequence[memoryview], done: LoopFuture[UpstreamError | None]) -> None:
        error: UpstreamError | None = None
        try:
            connection = await self._open()
            for frame in frames:
                size_bytes = _LENGTH.size + len(frame)
                await connection.send((_LENGTH.pack(len(frame)), frame), size_bytes, seconds=PASS_SECONDS)
        except (UpstreamError, OutgoingError) as failure:
            error = UpstreamError(str(failure))
        self._passing -= 1
        done.give(error)
        if self._is_finishing and not self._passing:
            self._is_closed = True
            if self._connection is not None:
                self._connection.close()

    async def ask(self, api_key: int, api_version: int, body: bytes, *, seconds: float = RELAY_SECONDS) -> Reply:
        """Ask a question of the front's own, as ``broker.handling.Upstream`` has it."""
        question = _Question()
        self._calls.start(self._ask(question, api_key, api_version, body, seconds))
        try:
            return await question.result()
        except BaseException:
            question.drop()
            raise

    async def ask_entity(self, request: Any, *, seconds: float) -> Any:
        """Ask a question, an entity of kio's, and return that of its answer. Both are short: they are encoded and
        decoded on the loop.
        """
        api_key, api_version = request.__api_key__, request.__version__
        reply = await self.ask(api_key, api_version, encode_request_body(request), seconds=seconds)
        try:
            (body,) = reply.buffers
            return decode_answer(api_key, api_version, memoryview(body))  # type: ignore[arg-type]  # no part of a file
        except MalformedResponseError as error:
            self.close()
            raise UpstreamError(str(error)) from error
        finally:
            reply.release()

    async def learn_versions(self, *, seconds: float) -> None:
        """Ask for the broker's versions, unless they are known."""
        if not self.versions:
            self.note_versions(await self.ask_entity(request_entities_of(_API_VERSIONS, 0).request(), seconds=seconds))

    def note_versions(self, answer: Any) -> None:
        """Take the broker's versions from an answer to ApiVersions."""
        self.versions = {each.api_key: range(each.min_version, each.max_version + 1) for each in answer.api_keys}

    def close(self) -> None:
        """Close the connection; idempotent. What is under way fails."""
        self._is_closed = True
        if self._connection is not None:
            self._connection.abort()

    async def _open(self) -> OutgoingConnection:
        if self._is_closed:
            raise UpstreamError("the connection to the broker is closed")
        return self._connection or await self._opening.result()

    async def _opened(self) -> OutgoingConnection:
        try:
            connection = await self._connect()
        except OutgoingError as error:
            raise UpstreamError(str(error)) from error
        if self._is_closed:  # meanwhile: the client has gone
            connection.abort()
            raise UpstreamError("the connection to the broker is closed")
        connection.lost = self.lost
        self._connection = connection
        return connection

    async def _ask(self, question: _Question, api_key: int, api_version: int, body: bytes, seconds: float) -> None:
        self._questions += 1
        try:
            self._correlation_id = correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
            head = encode_request_head(api_key, api_version, correlation_id, self.client_id, body_size_bytes=len(body))
            answer = await self._exchange((head, body), len(head) + len(body), correlation_id, seconds)
            try:
                position = body_position(api_key, api_version, answer.data)
            except MalformedResponseError as error:
                answer.release()
                self.close()
                raise UpstreamError(str(error)) from error
            question.give(Reply((answer.data[position:],), len(answer.data) - position, answer.release))
        except UpstreamError as error:
            question.give(error)
        finally:
            self._questions -= 1

    async def _exchange(
        self, buffers: tuple[Any, ...], size_bytes: int, correlation_id: int, seconds: float
    ) -> ReceivedFrame:
        connection = await self._open()
        try:
            answer = await connection.exchange(buffers, size_bytes, memory_key=self._memory_key, seconds=seconds)
        except OutgoingError as error:
            raise UpstreamError(str(error)) from error
        data = answer.data
        if len(data) < _LENGTH.size + _CORRELATION.size:
            text = f"an answer of {len(data)} bytes has no header"
        else:
            (found,) = _CORRELATION.unpack_from(data, _LENGTH.size)
            if found == correlation_id:
                return answer
            text = f"an answer to request {found}, and not to {correlation_id}"
        answer.release()
        self.close()
        raise UpstreamError(text)


class _Question:
    """A question whose answer is dropped, its memory released, where nobody waits for it any more."""

    __slots__ = ("_answer", "_future", "_is_dropped")

    def __init__(self) -> None:
        self._future: LoopFuture[None] = LoopFuture()
        self._answer: Reply | UpstreamError | None = None
        self._is_dropped = False

    def give(self, answer: Reply | UpstreamError) -> None:
        self._answer = answer
        if self._is_dropped:
            self.drop()
        else:
            self._future.give(None)

    def drop(self) -> None:
        self._is_dropped = True
        answer, self._answer = self._answer, None
        if isinstance(answer, Reply):
            answer.release()

    async def result(self) -> Reply:
        await self._future.wait()
        answer, self._answer = self._answer, None
        if isinstance(answer, Reply):
            return answer
        raise answer or UpstreamError("the connection to the broker is closed")
