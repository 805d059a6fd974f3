"""A follower of one partition: it cuts its log to where it agrees with the leader's, and appends what it fetches.

A machine without clock, file or socket: ``next_request`` says what to ask, ``on_answer`` and ``on_error`` take what
came back, and all of it acts on a ``PartitionLog``. One request is in flight at a time; after a change of leader the
answer of the earlier one changes nothing.

Source: Kafka AbstractFetcherThread, ReplicaFetcherThread, TierStateMachine (KIP-101, KIP-279, KIP-320, KIP-405).
"""

from __future__ import annotations

import enum
import logging
import struct
from collections.abc import Generator
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from typing_extensions import Buffer

from tierlog.arguments import require_buffer
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError, LogBusyError, LogClosedError, LogOfflineError
from tierlog.log.partition_log import PartitionLog
from tierlog.marks import mark
from tierlog.replication.aux_target import aux_target
from tierlog.replication.messages import (
    NO_EPOCH,
    AskEpochEnd,
    AskOffset,
    AuxStateBuilt,
    BuildAuxState,
    EpochEnd,
    FetchedRecords,
    FetchRecords,
    FollowerAnswer,
    FollowerRequest,
    OffsetAndEpoch,
    ReplicationError,
)

_log = logging.getLogger(__name__)

_LATEST: Final = -1
_EARLIEST: Final = -2

#: Of a batch's header: base offset, magic, last offset delta.
_OFFSETS: Final = struct.Struct(">q8xb6xi")
_MAGIC_V2: Final = 2

#: Errors of a fetch that this follower answers by more than asking again.
_OF_POSITION: Final = (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE)


class FollowerState(enum.Enum):
    """The states of a follower."""

    STOPPED = "stopped"
    """No leader is known."""
    TRUNCATING = "truncating"
    """Asks where its epochs end in the leader's log."""
    FETCHING = "fetching"
    """Fetches at its log's end."""
    OUT_OF_RANGE = "out of range"
    """Asks where the leader's log begins and ends."""
    MOVED_TO_TIER = "moved to tier"
    """Asks for the segment of the tier behind which its log has to begin."""
    BUILDING_AUX_STATE = "building aux state"
    """The RemoteLogManager begins its log anew, or completes its lineage."""
    FENCED = "fenced"
    """The leader is of a newer epoch: it waits for ``follow``."""
    FAILED = "failed"
    """Its log is offline or closed: it never goes on."""


@dataclass(frozen=True, slots=True)
class FollowerSettings:
    """The configuration of a follower.

    Attributes:
        fetch_backoff_ms: ``replica.fetch.backoff.ms``: pause after an error.
        fetch_last_tiered_offset: ``follower.fetch.last.tiered.offset.enable``: an empty log begins at the first offset
            that the tier does not have, not at the leader's local log start.
        lag_time_max_ms: ``replica.lag.time.max.ms``: a log whose lineage the tier has not completed for so long is
            begun anew, unless the replica is electable.
    """

    fetch_backoff_ms: int = 1000
    fetch_last_tiered_offset: bool = False
    lag_time_max_ms: int = 30_000


class _AskAgainError(Exception):
    """An answer that a leader gives for a while: asked again after the pause."""


Result = TypeVar("Result")

#: A part of the machine: it gives requests, takes their answers (of a fetch an error of ``_OF_POSITION`` too), and
#: ends with a result.
_Part = Generator[FollowerRequest, FollowerAnswer | KafkaError, Result]

_ANSWERS: Final[dict[type, type]] = {
    FetchRecords: FetchedRecords,
    AskEpochEnd: EpochEnd,
    AskOffset: OffsetAndEpoch,
    BuildAuxState: AuxStateBuilt,
}


class Follower:
    """A replica that follows its leader by leader epochs.

    Attributes:
        leader: Broker id of the leader; None while it follows nobody.
        leader_epoch: The latest that ``follow`` was called with; -1 = none yet.
        state: What it does.
        failure: Why it is FAILED; None in other states.
        lag: Offsets that it lacks of the leader's high watermark; None until the first answer.
        refusal: Why the log refused the records of the last answer; None: they were appended.
        wake_at_ms: The time before which ``next_request`` gives nothing, after an error.

    Raises (all methods): nothing that an answer, an error or a log can cause: a failing log ends in FAILED.

    Thread safety: one thread at a time. The log may be read, and its retention may run, meanwhile.
    """

    def __init__(self, log: PartitionLog, settings: FollowerSettings | None = None) -> None:
        self._log = log
        self._settings = settings or FollowerSettings()
        self._truncates_on_fetch = True
        self._in_flight: FollowerRequest | None = None
        self._steps: _Part[None] | None = None
        self._waiting: FollowerRequest | None = None
        self._incomplete_since_ms: int | None = None
        self._is_overdue = False
        self._is_electable = True
        self.leader: int | None = None
        self.leader_epoch = NO_EPOCH
        self.state = FollowerState.STOPPED
        self.failure: Exception | None = None
        self.lag: int | None = None
        self.refusal: AppendRefusedError | None = None
        self.wake_at_ms = self._paused_ms = 0

    # ---- leadership

    def follow(
        self, leader: int, leader_epoch: int, *, truncates_on_fetch: bool = True, is_electable: bool = True
    ) -> bool:
        """Follow a leader from now on; the answer to what is in flight changes nothing any more. To be called with each
        word of the controller on the partition.

        Args:
            leader: Its broker id.
            leader_epoch: Of its leadership. An earlier one changes nothing; the known one, but after ``stop``, only
                whether the replica is electable.
            truncates_on_fetch: Whether the leader tells of a divergence in its answers to fetches (Kafka 2.7).
            is_electable: Whether the controller may elect this replica and count on its records: it is in the in-sync
                set, or an eligible leader replica (KIP-966). Then they are never given up.

        Returns:
            Whether the follower began anew.
        """
        if leader_epoch < self.leader_epoch or self.state is FollowerState.FAILED:
            return False
        self._is_electable = is_electable
        if leader_epoch == self.leader_epoch and self.state is not FollowerState.STOPPED:
            return False
        self.leader, self.leader_epoch = leader, leader_epoch
        self._truncates_on_fetch = truncates_on_fetch
        self.lag = self.refusal = None
        self.wake_at_ms = 0
        self._incomplete_since_ms, self._is_overdue = None, False
        self._begin(self._started())
        return True

    def stop(self) -> None:
        """Follow nobody: this replica leads, or goes. The answer to what is in flight changes nothing any more."""
        if self.state is not FollowerState.FAILED:
            self.leader = self._steps = self._in_flight = self._waiting = None
            self.state = FollowerState.STOPPED

    # ---- requests and answers

    def next_request(self, now_ms: int, *, is_throttled: bool = False) -> FollowerRequest | None:
        """Return the request to send now; None: an answer is awaited, a pause is on, or no leader is known.

        Args:
            now_ms: Time. One before the error that a pause began with ends the pause: the clock was set back.
            is_throttled: Whether the quota of replication is used up: then a follower that lags does not fetch.
        """
        if self._in_flight is not None or self._paused_ms <= now_ms < self.wake_at_ms:
            return None
        if self._waiting is None:
            self._resume(None, now_ms)
        if self._waiting is None or (is_throttled and isinstance(self._waiting, FetchRecords) and self.lag != 0):
            return None
        self._in_flight, self._waiting = self._waiting, None
        return self._in_flight

    def on_answer(self, request: FollowerRequest, answer: FollowerAnswer, now_ms: int) -> None:
        """Take the leader's answer; one to a request that is no longer in flight changes nothing. Raises TypeError: it
        is no answer to that request; nothing has changed.
        """
        if not isinstance(answer, _ANSWERS[type(request)]):
            raise TypeError(f"{type(answer).__name__} is no answer to {type(request).__name__}")
        if isinstance(answer, FetchedRecords):
            for part in answer.records:
                require_buffer("a part of the records", part)
        if request is self._in_flight:
            self._in_flight = None
            self._resume(answer, now_ms)

    def on_error(self, request: FollowerRequest, error: KafkaError | None, now_ms: int) -> None:
        """Take the error of an answer; None: no answer came."""
        if request is not self._in_flight:
            return
        self._in_flight = None
        if isinstance(request, BuildAuxState) and request.keeps_records:
            self._note_incomplete(now_ms)
        if error in _OF_POSITION and isinstance(request, FetchRecords):
            self._resume(error, now_ms)
        elif error is KafkaError.FENCED_LEADER_EPOCH and request.leader_epoch == self.leader_epoch:
            mark("follower: is fenced")
            self.state, self._steps = FollowerState.FENCED, None
        else:
            self._pause(now_ms)

    def _note_incomplete(self, now_ms: int) -> None:
        """Note that the lineage could not be completed: after a while the records here may be given up."""
        since_ms = self._incomplete_since_ms
        if since_ms is None:
            self._incomplete_since_ms = since_ms = now_ms
        self._is_overdue = now_ms - since_ms >= self._settings.lag_time_max_ms

    def _begin(self, steps: _Part[None]) -> None:
        self._steps, self._in_flight, self._waiting = steps, None, None

    def _pause(self, now_ms: int) -> None:
        """Go on after the pause, from where the log is."""
        self._paused_ms, self.wake_at_ms = now_ms, now_ms + self._settings.fetch_backoff_ms
        self._begin(self._fetching() if self.state is FollowerState.FETCHING else self._started())

    def _resume(self, answer: FollowerAnswer | KafkaError | None, now_ms: int) -> None:
        """Go on up to the next request."""
        steps = self._steps
        if steps is None:
            return
        try:
            self._waiting = next(steps) if answer is None else steps.send(answer)
        except _AskAgainError:
            self._pause(now_ms)
        except LogBusyError as error:
            _log.warning("%s", error)
            self._pause(now_ms)
        except AppendRefusedError as error:
            _log.warning("%s: what broker %s sent is refused: %s", self._log.folder, self.leader, error)
            self.refusal = error.with_traceback(None)  # its frames hold the records
            self._pause(now_ms)
        except (LogOfflineError, LogClosedError) as error:
            _log.error("%s: the follower has failed: %s", self._log.folder, error)
            self.state, self._steps = FollowerState.FAILED, None
            self.failure = error.with_traceback(None)

    # ---- what it does, step by step

    @property
    def _last_fetched_epoch(self) -> int:
        latest = self._log.leader_epoch_cache.latest_entry
        return NO_EPOCH if latest is None else latest.epoch

    def _started(self) -> _Part[None]:
        """Begin to follow: the first fetch tells of a divergence, or the leader has to be asked before it."""
        self.state = FollowerState.TRUNCATING
        if self._log.must_be_rebuilt:
            yield from self._from_tier()
        epoch = self._last_fetched_epoch
        if epoch == NO_EPOCH:
            self._log.truncate_to(self._log.high_watermark)
        elif not self._truncates_on_fetch:
            yield from self._asking_for_epochs(epoch)
        yield from self._fetching()

    def _asking_for_epochs(self, epoch: int) -> _Part[None]:
        """Ask where the latest epoch ends, and again after a cut to an epoch that the leader does not know."""
        while epoch != NO_EPOCH:
            end = cast("EpochEnd", (yield AskEpochEnd(self.leader_epoch, epoch)))
            if (yield from self._truncated(end)):
                return
            epoch = self._last_fetched_epoch

    def _fetching(self) -> _Part[None]:
        log = self._log
        while True:
            self.state = FollowerState.FETCHING
            asked = FetchRecords(self.leader_epoch, log.log_end_offset, self._last_fetched_epoch, log.log_start_offset)
            answer = yield asked
            if answer is KafkaError.OFFSET_OUT_OF_RANGE:
                yield from self._out_of_range()
            elif answer is KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE:
                yield from self._from_tier()
            else:
                fetched = cast("FetchedRecords[Buffer]", answer)
                if fetched.diverging is None:
                    self._append(asked, fetched)
                    del answer, fetched  # else the received buffers live until the next answer
                    continue
                self.state = FollowerState.TRUNCATING
                before = log.log_end_offset, self._last_fetched_epoch
                yield from self._truncated(fetched.diverging)
                if before == (log.log_end_offset, self._last_fetched_epoch):
                    raise _AskAgainError  # a divergence that no cut ends: not asked again without a pause

    def _append(self, asked: FetchRecords, answer: FetchedRecords[Buffer]) -> None:
        """Append what was fetched. Raises AppendRefusedError. _AskAgainError: the log has changed meanwhile."""
        log = self._log
        if log.log_end_offset != asked.offset:
            raise _AskAgainError
        parts = [part for part in answer.records if memoryview(part).nbytes]
        if parts:
            data = parts[0] if len(parts) == 1 else b"".join(parts)  # a batch may lie in two of them
            self._begin_within(data, answer.log_start_offset)
            log.append_as_follower(data, leader_epoch=self.leader_epoch)
        self.refusal = None
        log.update_high_watermark(answer.high_watermark)
        high_watermark = log.high_watermark
        if answer.log_start_offset > log.log_start_offset:
            log.maybe_increment_log_start_offset(
                min(answer.log_start_offset, high_watermark), "the leader's log start rose"
            )
        self.lag = max(0, answer.high_watermark - log.log_end_offset)

    def _begin_within(self, data: Buffer, leader_log_start: int) -> None:
        """Begin anew at the begin of the first batch, if the log ends within that batch and has nothing that counts:
        records were deleted up to there, and it is empty, or was cut to where the leader's log and lineage start. The
        log start rises again with the answer's (Kafka appendRecordsToFollowerOrFutureReplica: only of an empty log).
        """
        log, view = self._log, memoryview(data).cast("B")
        end_offset = log.log_end_offset
        if max(log.log_start_offset, leader_log_start) < end_offset or len(view) < _OFFSETS.size:
            return
        base_offset, magic, last_offset_delta = _OFFSETS.unpack_from(view)
        if magic >= _MAGIC_V2 and 0 <= base_offset < end_offset <= base_offset + last_offset_delta:
            mark("follower: begins within a batch")
            log.truncate_fully_and_start_at(base_offset)

    # ---- truncation

    def _truncated(self, end: EpochEnd) -> _Part[bool]:
        """Cut the log by where the leader's epoch ends; whether the logs agree now up to this log's end."""
        log = self._log
        log_end = log.log_end_offset
        agrees = True
        if end.end_offset < 0:  # the leader cannot tell: as before there were epochs
            cut = log.high_watermark
        elif end.epoch < 0:
            cut = min(end.end_offset, log_end)
        else:
            own_epoch, own_end = log.end_offset_for_epoch(end.epoch)
            if own_end < 0:  # no epoch is known here
                cut = min(end.end_offset, log_end)
            elif own_epoch != end.epoch:
                cut, agrees = min(own_end, log_end), False
            else:
                cut = min(own_end, end.end_offset, log_end)
        if cut < log.high_watermark:
            _log.warning(
                "%s: cut to %d, below the high watermark %d, by epoch %d of broker %s, which ends at %d",
                log.folder, cut, log.high_watermark, end.epoch, self.leader, end.end_offset,
            )  # fmt: skip
        if log.truncate_to(cut):
            mark("follower: is cut to where it agrees")
            _log.info("%s: cut from %d to %d", log.folder, log_end, log.log_end_offset)
        if log.must_be_rebuilt:
            yield from self._from_tier()
            return True
        return agrees

    def _offset_of(self, timestamp: int) -> _Part[OffsetAndEpoch]:
        return cast("OffsetAndEpoch", (yield AskOffset(self.leader_epoch, timestamp)))

    # ---- a log that ends below, or begins behind, what the leader has here

    def _out_of_range(self) -> _Part[None]:
        """Go on from where the leader's log is: cut what lies behind its end, or begin anew at its start."""
        self.state = FollowerState.OUT_OF_RANGE
        log = self._log
        latest = yield from self._offset_of(_LATEST)
        if latest.offset < log.log_end_offset:
            _log.warning("%s: cut to the leader's end %d", log.folder, latest.offset)
            log.truncate_to(max(latest.offset, 0))
            if log.must_be_rebuilt:
                yield from self._from_tier()
            return
        earliest = yield from self._offset_of(_EARLIEST)
        if earliest.offset > log.log_end_offset:
            _log.warning("%s: ends below the leader's start: begun anew at %d", log.folder, earliest.offset)
            mark("follower: begins anew at the leader's start")
            log.truncate_fully_and_start_at(earliest.offset)
        elif latest.offset == log.log_end_offset:
            raise _AskAgainError  # in range by now: the leader's log is changing

    def _from_tier(self) -> _Part[None]:
        """Begin anew behind the last segment of the tier that the leader does not have here; or complete the lineage of
        the records here.
        """
        mark("follower: has to begin from the tier")
        self.state = FollowerState.MOVED_TO_TIER
        log, latest = self._log, self._settings.fetch_last_tiered_offset
        keeps_records = self._is_electable or not self._is_overdue
        try:
            target = yield from aux_target(
                log, self.leader_epoch, fetch_last_tiered_offset=latest, keeps_records=keeps_records
            )
        except ReplicationError as error:
            raise _AskAgainError from error
        if not isinstance(target, BuildAuxState):
            target.apply(log)
            return
        self.state = FollowerState.BUILDING_AUX_STATE
        built = cast("AuxStateBuilt", (yield target))
        if log.log_end_offset != built.next_offset or log.must_be_rebuilt:
            raise _AskAgainError


class HighWatermarkFollower(Follower):
    """A replica that follows by the rule from before leader epochs (KIP-101): it cuts its log to its own high watermark
    and fetches from there. It loses records that were committed, and keeps records that are in no other log; it shows
    what the epochs are for.
    """

    @property
    def _last_fetched_epoch(self) -> int:
        return NO_EPOCH
