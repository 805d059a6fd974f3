"""Which partitions a request is about, and which of their answers are sent (Kafka's FetchManager and FetchContext)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from tierlog.broker.fetching.fetch_request import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
)
from tierlog.broker.fetching.fetch_session import FetchSession, FetchSessionCache, next_epoch
from tierlog.broker.partition_watches import PartitionKey, PartitionWatch
from tierlog.broker.partitions import UNKNOWN
from tierlog.broker.protocol.fetch_response import FetchablePartition

#: A partition of a request, and what is answered of it.
PartitionAnswer = tuple[FetchPartition, FetchablePartition]

NO_ERROR: Final = 0


class ContextAnswer(NamedTuple):
    """What is sent: an error of the whole answer, the session's id, and partitions in order."""

    error_code: int
    session_id: int
    partitions: Sequence[PartitionAnswer]


class FetchContext:
    """One request, seen as Kafka sees it: with a session, without one, or as the error that its session has."""

    def partitions(self) -> Sequence[FetchPartition]:
        """The partitions that the fetch reads, in the order in which they are read."""
        return ()

    def quiet_watch(self, is_read_committed: bool) -> PartitionWatch | None:
        """The watch of a session whose partitions have nothing to say until it rings; None if that is not known."""
        del is_read_committed
        return None

    def answer(self, answers: Sequence[PartitionAnswer]) -> ContextAnswer:
        """What is sent of the answers for all partitions; a session notes what its client knows then. Called once."""
        raise NotImplementedError

    def note_quiet(self, watch: PartitionWatch, is_read_committed: bool) -> bool:
        """Note that there was nothing to say when a watch over all partitions was opened. Whether a session owns the
        watch from here on.
        """
        del watch, is_read_committed
        return False


class SessionErrorContext(FetchContext):
    """A request whose session is not there, or not where the client believes it to be."""

    def __init__(self, error: ErrorCode) -> None:
        self._error = error

    def answer(self, answers: Sequence[PartitionAnswer]) -> ContextAnswer:
        del answers  # none: nobody knows which partitions were meant
        return ContextAnswer(self._error.value, NO_SESSION, ())


class SessionlessContext(FetchContext):
    """A request that names all its partitions and wants no session."""

    def __init__(self, wanted: dict[PartitionKey, FetchPartition]) -> None:
        self._wanted = list(wanted.values())

    def partitions(self) -> Sequence[FetchPartition]:
        return self._wanted

    def answer(self, answers: Sequence[PartitionAnswer]) -> ContextAnswer:
        return ContextAnswer(NO_ERROR, NO_SESSION, answers)


class FullContext(SessionlessContext):
    """A request that names all its partitions and would have a session of them."""

    def __init__(
        self,
        wanted: dict[PartitionKey, FetchPartition],
        sessions: FetchSessionCache,
        principal: str,
        uses_topic_ids: bool,
    ) -> None:
        super().__init__(wanted)
        self._sessions = sessions
        self._principal = principal
        self._uses_topic_ids = uses_topic_ids

    def answer(self, answers: Sequence[PartitionAnswer]) -> ContextAnswer:
        for wanted, told in answers:
            wanted.high_watermark = told.high_watermark
            wanted.log_start_offset = told.log_start_offset
        session = self._sessions.create(
            self._principal, self._uses_topic_ids, {wanted.key: wanted for wanted, _ in answers}
        )
        return ContextAnswer(NO_ERROR, NO_SESSION if session is None else session.session_id, answers)


class IncrementalContext(FetchContext):
    """A request that goes on with a session: only partitions with something new are answered.

    Args:
        session: After the request's changes.
        epoch: Of the session from this request on; another one at the answer says that the client has asked again.
    """

    def __init__(self, session: FetchSession, epoch: int) -> None:
        self._session = session
        self._epoch = epoch

    def partitions(self) -> Sequence[FetchPartition]:
        return list(self._session.partitions.values())

    def quiet_watch(self, is_read_committed: bool) -> PartitionWatch | None:
        quiet = self._session.quiet
        if quiet is None or quiet[0].has_rung or quiet[1] != is_read_committed:
            return None
        return quiet[0]

    def note_quiet(self, watch: PartitionWatch, is_read_committed: bool) -> bool:
        if self._session.epoch != self._epoch:
            return False
        self._session.set_quiet((watch, is_read_committed))
        return True

    def answer(self, answers: Sequence[PartitionAnswer]) -> ContextAnswer:
        session = self._session
        if session.epoch != self._epoch:
            return ContextAnswer(ErrorCode.invalid_fetch_session_epoch.value, session.session_id, ())
        sent: list[PartitionAnswer] = []
        for wanted, told in answers:
            known = session.partitions.get(wanted.key)
            if known is None or not _is_news(known, told):
                continue
            sent.append((wanted, told))
            if told.size_bytes:
                session.move_to_end(wanted.key)
        return ContextAnswer(NO_ERROR, session.session_id, sent)


def has_news(answers: Sequence[PartitionAnswer]) -> bool:
    """Whether a client in a session learns anything from answers for partitions of it."""
    return any(
        told.size_bytes
        or told.error_code
        or told.diverging_epoch is not None
        or told.high_watermark != wanted.high_watermark
        or told.log_start_offset != wanted.log_start_offset
        for wanted, told in answers
    )


def _is_news(known: FetchPartition, told: FetchablePartition) -> bool:
    """Whether an answer says more than the client knows; from here on it knows it."""
    is_news = bool(told.size_bytes) or told.diverging_epoch is not None
    if known.high_watermark != told.high_watermark:
        known.high_watermark = told.high_watermark
        is_news = True
    if known.log_start_offset != told.log_start_offset:
        known.log_start_offset = told.log_start_offset
        is_news = True
    if told.error_code:
        known.high_watermark = UNKNOWN  # so that the client is told once the error has gone
        is_news = True
    return is_news


class FetchManager:
    """Finds the context of each request. Used on the event loop alone."""

    def __init__(self, sessions: FetchSessionCache) -> None:
        self._sessions = sessions

    def context_of(self, request: FetchRequest, principal: str) -> FetchContext:
        """The context of a request; its changes to a session are made.

        Args:
            request: The request.
            principal: Who asks: the sessions of others do not exist.
        """
        session = None
        if request.session_id != NO_SESSION:
            session = self._sessions.find(request.session_id, principal)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None:
                self._sessions.remove(session)
            if request.session_epoch == FINAL_EPOCH:
                return SessionlessContext(request.partitions)
            return FullContext(request.partitions, self._sessions, principal, request.uses_topic_ids)
        if session is None:
            return SessionErrorContext(ErrorCode.fetch_session_id_not_found)
        if session.epoch != request.session_epoch:
            return SessionErrorContext(ErrorCode.invalid_fetch_session_epoch)
        if session.uses_topic_ids != request.uses_topic_ids:
            return SessionErrorContext(ErrorCode.fetch_session_topic_id_error)
        session.update(request.partitions, request.forgotten)
        if not session.partitions:
            self._sessions.remove(session)
            return SessionlessContext(request.partitions)
        if not self._sessions.note_use(session):
            return SessionErrorContext(ErrorCode.fetch_session_id_not_found)
        session.epoch = next_epoch(session.epoch)
        return IncrementalContext(session, session.epoch)
