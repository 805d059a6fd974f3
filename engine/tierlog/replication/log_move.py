"""A log that moves to another directory of its broker: a follower of the log that it will replace.

A machine without clock, file or socket: ``step`` copies the next piece. It is the ``Follower`` over the future log, and
in the place of its leader the current log itself, which may be led here or follow another broker meanwhile: whatever it
appends, is cut to, deletes or begins a new epoch with, the future log does after it.

Source: Kafka ReplicaAlterLogDirsThread, LocalLeaderEndPoint, TierStateMachine, ReplicationQuotaManager.
"""

from __future__ import annotations

from typing import Final

from tierlog.arguments import require_int64
from tierlog.errors import CorruptDataError
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.log.local.log_errors import (
    KafkaError,
    LogClosedError,
    LogOfflineError,
    LogTruncatedError,
    OffsetOutOfRangeError,
)
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.partition_log import PartitionLog
from tierlog.replication.follower import Follower, FollowerSettings, FollowerState
from tierlog.replication.messages import (
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
)
from tierlog.runtime.waiting.byte_quota import ByteQuota

#: The broker id of the leader: this broker's own log.
_OWN: Final = -1
_LATEST: Final = -1
_EARLIEST: Final = -2


class LogMove:
    """One partition's move, from its current log into its future one; ``LogDirectories`` has both.

    Args:
        current: The partition's log now.
        future: The one that is filled.
        quota: Of all moves together (``replica.alter.log.dirs.io.max.bytes.per.second``); None: no limit.
        settings: Of the follower; None: Kafka's defaults.

    Attributes:
        follower: Of the future log.
        failure: Why the move cannot go on: the error of one of the two logs, which is offline or closed.

    Raises (all methods): nothing that a log can cause.

    Thread safety: one thread at a time. Both logs may be read and changed meanwhile.
    """

    def __init__(
        self,
        current: PartitionLog,
        future: PartitionLog,
        *,
        quota: ByteQuota | None = None,
        settings: FollowerSettings | None = None,
    ) -> None:
        self._current = current
        self._future = future
        self._quota = quota
        self._followed: object = None
        self._leader_epoch = 0
        self._cut_to: int | None = None
        self.follower = Follower(future, settings)
        self.failure: Exception | None = None

    @property
    def is_caught_up(self) -> bool:
        """Whether the future log has all that the current one has now: ``LogDirectories.finish_move`` may end it."""
        return (
            self.failure is None
            and self.follower.state is FollowerState.FETCHING
            and self._follows_all()
            and self._future.log_end_offset == self._current.log_end_offset
        )

    def truncated(self, offset: int) -> None:
        """Note that the current log was cut to an offset: the future one is, too, before it fetches again. Only logs
        without leader epochs need it: with them the machine finds out what was cut. Without, the caller ends no move
        between the cut and this call: of two logs that end alike nobody can tell whether they are the same.

        Raises TypeError. ValueError: negative.
        """
        offset = require_int64("offset", offset, least=0)
        self._cut_to = offset if self._cut_to is None else min(self._cut_to, offset)

    def step(self, now_ms: int, *, max_bytes: int = 1 << 20) -> int:
        """Do the next piece of the move: a fetch, or a question about epochs or offsets.

        Args:
            now_ms: Time.
            max_bytes: At most so many bytes, but one batch is copied whole.

        Returns:
            Bytes that were copied; 0 also where nothing can be done now, for a pause, the quota, or because there is
            nothing new.
        """
        if self.failure is None:
            try:
                return self._step(now_ms, max_bytes)
            except (LogOfflineError, LogClosedError) as error:
                self.failure = error
        return 0

    def _step(self, now_ms: int, max_bytes: int) -> int:
        if self._quota is not None and self._quota.throttle_ms():
            return 0
        self._follow()
        request = self.follower.next_request(now_ms)
        copied = 0
        if request is not None:
            answer = self._answer(request, max_bytes)
            if self._lineage() != self._followed:
                self.follower.stop()  # the answer is of a log that was cut, or begins a new epoch: ask anew
            elif isinstance(answer, KafkaError):
                self.follower.on_error(request, answer, now_ms)
            elif answer is not None:
                self.follower.on_answer(request, answer, now_ms)
                copied = sum(memoryview(part).nbytes for part in getattr(answer, "records", ()))
            else:
                self.follower.on_error(request, None, now_ms)
        if copied and self._quota is not None:
            self._quota.record(copied)
        self.failure = self.follower.failure
        return copied

    def _lineage(self) -> object:
        """What changes whenever the current log is cut and goes on otherwise."""
        latest = self._current.leader_epoch_cache.latest_entry
        return None if latest is None else tuple(latest)

    def _follows_all(self) -> bool:
        """Whether the current log is the one that is followed: its lineage has not changed, and no cut was noted."""
        return self._cut_to is None and self._lineage() == self._followed

    def _follow(self) -> None:
        """Follow the current log anew where its lineage has changed: the follower asks first where its epochs end."""
        if self.follower.state is not FollowerState.STOPPED and self._follows_all():
            return
        latest = self._current.leader_epoch_cache.latest_entry
        self._leader_epoch = max(self._leader_epoch, 0 if latest is None else latest.epoch)
        self._followed = self._lineage()
        if self._cut_to is not None:
            self._future.truncate_to(self._cut_to)
            self._cut_to = None
        self.follower.stop()
        self.follower.follow(_OWN, self._leader_epoch, truncates_on_fetch=False, is_electable=False)

    # ---- the current log as a leader

    def _answer(self, request: FollowerRequest, max_bytes: int) -> FollowerAnswer | KafkaError | None:
        """Answer from the current log; None: it changes just now, or cannot be moved yet.

        Raises:
            LogOfflineError. LogClosedError.
        """
        if self._current.must_be_rebuilt:
            return None
        try:
            match request:
                case FetchRecords():
                    return self._fetched(request, max_bytes)
                case AskEpochEnd():
                    return EpochEnd(*self._current.end_offset_for_epoch(request.epoch))
                case AskOffset():
                    return self._offset(request.timestamp)
                case BuildAuxState():
                    return self._built(request)
        except (LogTruncatedError, CorruptDataError):
            return None

    def _fetched(self, request: FetchRecords, max_bytes: int) -> FollowerAnswer | KafkaError:
        log = self._current
        try:
            found = log.read(request.offset, max_bytes=max_bytes, isolation=FetchIsolation.LOG_END)
        except OffsetOutOfRangeError as error:
            is_moved = error.is_in_tier and log.remote_log_enabled()
            return KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE if is_moved else KafkaError.OFFSET_OUT_OF_RANGE
        return FetchedRecords(log.high_watermark, log.log_start_offset, found.records).read()

    def _offset(self, timestamp: int) -> OffsetAndEpoch:
        log = self._current
        offsets = {_LATEST: log.log_end_offset, _EARLIEST: log.log_start_offset}
        offset = offsets.get(timestamp, log.local_log_start_offset)
        epoch = log.leader_epoch_cache.epoch_for_offset(offset)
        return OffsetAndEpoch(offset, 0 if epoch is None else epoch)

    def _built(self, request: BuildAuxState) -> AuxStateBuilt | None:
        """Begin the future log where the current one begins here: what lies in front of it stays in the tier, and the
        current log knows its lineage and its producers. A future log that has records, and lacks their lineage, takes
        the current one's. None: where it was to begin it cannot any more.
        """
        log, future, offset = self._current, self._future, request.offset + 1
        epochs = log.leader_epoch_cache.epoch_entries_in_range(0, offset)
        # Read behind the lineage, which is cut behind a start that rises.
        start = min(max(request.log_start_offset, log.log_start_offset), offset)
        try:
            if request.keeps_records:
                future.maybe_increment_log_start_offset(start, "the current log's start rose")
                future.complete_lineage(epochs)
                return AuxStateBuilt(future.log_end_offset)
            snapshot = log.snapshot_at(offset)
            if snapshot is None:
                first = log.log_segments()[0].base_offset
                snapshot = log.snapshot_at(first) or encode_producer_snapshot(())
            future.start_from_tier(offset, log_start_offset=start, epochs=epochs, producer_snapshot=snapshot)
        except LogClosedError:  # a ValueError, too
            raise
        except ValueError:  # the topic has left the tier, or the current log was cut, since the follower asked
            return None
        return AuxStateBuilt(offset)
