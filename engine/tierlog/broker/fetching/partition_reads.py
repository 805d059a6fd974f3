"""One pass over the partitions of a request: those with an error, those at their end, and the records of the others.

Those that answer from memory are read one after another, in order; those that wait are read beside each other.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from tierlog.broker.fetching.fetch_session import NO_ERROR, FetchPartition, PartitionAnswer
from tierlog.broker.partitions import UNKNOWN, OffsetSnapshot, PartitionFinder, ReadablePartition, ToldErrors
from tierlog.broker.protocol.api_errors import ApiError, error_code_of
from tierlog.broker.protocol.fetch_response import FetchablePartition
from tierlog.remote.api import Uuid
from tierlog.runtime.machine.clock import LOOP_TIMERS, Timers
from tierlog.runtime.waiting.file_part import FilePart
from tierlog.runtime.waiting.loops import Alarm, Begun
from tierlog.runtime.waiting.side_by_side import give_way

_TOLD: Final = ToldErrors(logging.getLogger(__name__))

#: Partitions of one request that are waited for at once.
_WAITING_MAX: Final = 16
#: Partitions that are looked at, and read from memory, before others have their turn on the loop: some 1 ms each.
_LOOKS_A_TURN: Final = 500
_READS_A_TURN: Final = 50
#: The same of bytes, which may have been copied out of the page cache: 0.1 ms a mebibyte.
_BYTES_A_TURN: Final = 8 << 20
#: How often the shares of an answer are dealt out again.
_ROUNDS_MAX: Final = 8
#: How long an answer waits for partitions while there are others (Kafka's ``remote.fetch.max.wait.ms``), and where
#: nothing at all is known of those others.
_LATE_SECONDS: Final = 0.5
_UNKNOWN_SECONDS: Final = 2.0
#: How many times all that are waited for are late before the partitions behind them are left for the next fetch.
_LATE_MAX: Final = 8
#: Clients up to version 5 do not know KAFKA_STORAGE_ERROR; from 16 on they read the leader.
_STORAGE_ERROR: Final = 6
_CURRENT_LEADER: Final = 16
_LEADER_ERRORS: Final = (ErrorCode.fenced_leader_epoch, ErrorCode.not_leader_or_follower)
#: Late reads at once; each holds some chunks at most.
_READS_MAX: Final = 64


class LateReads:
    """Reads for which no fetch waits any more, one of each key: they go on, and the next fetch finds their chunks in a
    cache. Used on the event loop alone.

    A store that takes seconds for one partition must not delay a client's other partitions; and a read that was
    cancelled each time would never come to its end.

    Args:
        timers: The clock of the loop.
    """

    def __init__(self, timers: Timers = LOOP_TIMERS) -> None:
        self._timers = timers
        self._reads: dict[Hashable, Begun[Any]] = {}

    def __len__(self) -> int:
        return len(self._reads)

    def leave(self, key: Hashable, read: Begun[Any]) -> bool:
        """Let a read go on, and drop its result. False: there is one of this key, or there are too many; the read is
        the caller's to cancel.
        """
        if key in self._reads or len(self._reads) >= _READS_MAX:
            return False
        self._reads[key] = read
        read.add_done_callback(lambda: self._ended(key))
        return True

    def _ended(self, key: Hashable) -> None:
        del self._reads[key]

    async def wait(self, key: Hashable) -> None:
        """Wait for the end of the read of a key, if there is one."""
        read = self._reads.get(key)
        if read is not None:
            alarm = Alarm(self._timers)
            read.add_done_callback(alarm.ring)
            await alarm.wait()

    async def close(self) -> None:
        """Cancel all."""
        for read in list(self._reads.values()):
            await read.cancel()


class ReadOptions(NamedTuple):
    """The options that all partitions of a request are read with.

    Args:
        api_version: Of the request.
        is_read_committed: Up to the last stable offset, with the aborted transactions.
        node_id: Of this server, the leader of all.
        may_read: Whether the client may read the topic of a name.
    """

    api_version: int
    is_read_committed: bool
    node_id: int
    may_read: Callable[[str], bool]


@dataclass(slots=True)
class _Unread:
    """A partition that has records, or of which nothing is known yet."""

    slot: int
    wanted: FetchPartition
    partition: ReadablePartition
    given_bytes: int = 0
    tried_bytes: int = 0
    is_first_whole: bool = False
    has_more: bool = False


class PartitionReads:
    """One pass. Used by one task, on the event loop.

    Args:
        wanted: The partitions to read, in order.
        options: The options of the reads.
        catalog: Of the partitions.
        timers: Of the event loop.
        late: Reads that other fetches did not wait for; this one's are left there, too.

    Attributes:
        records_size_bytes: Of all records that were read.
        memory_size_bytes: Of those that are in memory of ours, and no parts of files.
        is_urgent: Whether a partition has an error or another history than the client's: then the answer goes out at
            once.
        has_more: Whether records follow that could be read at once, as Kafka's DelayedFetch asks: waiting would bring
            nothing.
    """

    def __init__(
        self,
        wanted: Sequence[FetchPartition],
        options: ReadOptions,
        catalog: PartitionFinder,
        *,
        timers: Timers,
        late: LateReads,
    ) -> None:
        self._options = options
        self._catalog = catalog
        self._timers = timers
        self._late = late
        self._late_at_seconds: float | None = None
        self._is_late = False
        self._known_partitions = 0
        self._answers: list[PartitionAnswer | None] = []
        self._unknown_ids: list[PartitionAnswer] = []
        self._unknown: list[PartitionAnswer] = []
        self._unread: list[_Unread] = []
        self.records_size_bytes = 0
        self.memory_size_bytes = 0
        self.is_urgent = False
        self.has_more = False
        self._wanted = wanted

    @property
    def needs_reading(self) -> bool:
        """Whether there are partitions that need a read."""
        return bool(self._unread)

    @property
    def has_known_partitions(self) -> bool:
        """Whether the server knows one of the partitions; if it knows none, there is nothing to wait for."""
        return bool(self._answers)

    def answers(self) -> list[PartitionAnswer]:
        """Return the answers so far, as Kafka orders them: in the order asked for, then those of unknown topic ids,
        then other unknown ones. Of those that were not read the offsets that are known.
        """
        for unread in self._unread:
            if self._answers[unread.slot] is None:
                self._answers[unread.slot] = (unread.wanted, self._unread_answer(unread))
        return [answer for answer in self._answers if answer is not None] + self._unknown_ids + self._unknown

    def _unread_answer(self, unread: _Unread) -> FetchablePartition:
        offsets = unread.partition.offsets
        if offsets is not None:
            return self._empty(unread.wanted, offsets)
        # Without an error a client would take the high watermark of -1 for the end of the partition.
        return self._failed(unread.wanted, unread.partition, ApiError(ErrorCode.kafka_storage_error))

    async def look(self) -> None:
        """Answer the partitions that need no read; to be called once, first."""
        names: dict[bytes, str | None] = {}
        may_read = functools.cache(self._options.may_read)
        wanted = self._wanted
        for start in range(0, len(wanted), _LOOKS_A_TURN):
            if start:
                await give_way()
            self._look_at(wanted[start : start + _LOOKS_A_TURN], names, may_read)

    def _look_at(
        self,
        some_wanted: Sequence[FetchPartition],
        names: dict[bytes, str | None],
        may_read: Callable[[str], bool],
    ) -> None:
        catalog = self._catalog
        for wanted in some_wanted:
            named = wanted.key[0]
            is_other_topic = False
            if isinstance(named, bytes):
                if named not in names:
                    found = catalog.find_by_id(Uuid(named))
                    names[named] = None if found is None else found.name
                name = names[named]
                is_other_topic = name is None
                wanted.topic = name or wanted.topic
            if wanted.topic is None:
                self._unknown_ids.append((wanted, _unknown(wanted, ErrorCode.unknown_topic_id)))
                continue
            if not may_read(wanted.topic):
                self._unknown.append((wanted, _unknown(wanted, ErrorCode.topic_authorization_failed)))
                continue
            partition = catalog.partition(wanted.topic, wanted.partition)
            if partition is None:
                self._unknown.append((wanted, _unknown(wanted, ErrorCode.unknown_topic_or_partition)))
            elif is_other_topic:  # of the name that the session's topic had
                self.is_urgent = True
                self._answers.append((wanted, _refused(wanted, ErrorCode.inconsistent_topic_id.value)))
            else:
                self._look_at_one(wanted, partition)

    def _look_at_one(self, wanted: FetchPartition, partition: ReadablePartition) -> None:
        offsets = partition.offsets
        self._known_partitions += offsets is not None
        if offsets is not None and wanted.last_fetched_epoch == UNKNOWN:
            error = _error_of(wanted, offsets)
            if error is not None:
                self.is_urgent = True
                self._answers.append((wanted, self._failed(wanted, partition, ApiError(error))))
                return
            if wanted.fetch_offset >= self._end_of(offsets):
                self._answers.append((wanted, self._empty(wanted, offsets)))
                return
        self._unread.append(_Unread(len(self._answers), wanted, partition))
        self._answers.append(None)

    async def read(self, max_bytes: int) -> None:
        """Read the partitions that have records, in order, up to ``max_bytes`` in all. The first batch is given whole,
        whatever its size. Where there are other partitions, late ones have half a second; their records are for the
        next fetch.
        """
        asked = self._unread
        for _ in range(_ROUNDS_MAX):
            skipped = await self._read_all(asked, max_bytes - self.records_size_bytes)
            if not skipped or (self._is_late and self.records_size_bytes):
                break
            self._is_late = False  # those that took the share gave nothing
            asked = skipped
            if self.records_size_bytes:
                # A late partition has left some of its share. (If it had nothing, the next one gives a whole batch.)
                left_bytes = max_bytes - self.records_size_bytes
                asked = [one for one in skipped if min(one.wanted.max_bytes, left_bytes) > one.tried_bytes]
                self.has_more = self.has_more or len(asked) < len(skipped)
            if not asked:
                break
        else:
            self.has_more = True

    def forget(self) -> None:
        """Drop the records that were read: there is no memory for them. ``read`` reads them again."""
        for one in self._unread:
            self._answers[one.slot] = None
            one.tried_bytes = 0
        self.records_size_bytes = self.memory_size_bytes = 0
        self.has_more = self._is_late = False
        self._late_at_seconds = None

    async def _read_all(self, asked: list[_Unread], max_bytes: int) -> list[_Unread]:
        """Read partitions; those that got nothing because of a limit are returned."""
        skipped: list[_Unread] = []
        waiting: dict[Begun[FetchablePartition], _Unread] = {}
        # A negative limit is the first partition's alone, as in Kafka: the rest for the others is never below 0.
        left_bytes = max_bytes if asked and not asked[0].slot else max(max_bytes, 0)
        is_first_whole = not self.records_size_bytes
        turn_bytes = times_late = 0
        try:
            for number, one in enumerate(asked, 1):
                if not number % _READS_A_TURN or turn_bytes >= _BYTES_A_TURN:
                    turn_bytes = 0
                    await give_way()
                offsets = one.partition.offsets
                has_no_share = not is_first_whole and left_bytes <= 0 <= one.wanted.max_bytes
                if has_no_share and offsets is not None and one.wanted.last_fetched_epoch == UNKNOWN:
                    self._answers[one.slot] = (one.wanted, self._empty(one.wanted, offsets))
                    skipped.append(one)
                    continue
                one.given_bytes = min(one.wanted.max_bytes, left_bytes)
                one.tried_bytes = max(one.tried_bytes, one.given_bytes)
                one.is_first_whole = is_first_whole
                begun = Begun(self._read_one(one))
                if begun.is_done:
                    taken_bytes = self._settle(one, begun.result(), skipped)
                    turn_bytes += taken_bytes
                else:
                    waiting[begun] = one
                    taken_bytes = max(one.given_bytes, 1)
                is_first_whole = is_first_whole and not taken_bytes
                left_bytes = max(0, left_bytes - taken_bytes)
                if len(waiting) >= _WAITING_MAX:
                    left_bytes += await self._wait_for_some(waiting, skipped)
                    if self._is_late:
                        times_late += 1
                        if self.records_size_bytes or times_late == _LATE_MAX:
                            break
                        # A store that stalls for these must not delay the partitions behind them.
                        left_bytes += sum(max(each.given_bytes, 1) for each in waiting.values())
                        await self._leave(waiting)
                        self._is_late, is_first_whole = False, True
            while waiting and not self._is_late:
                await self._wait_for_some(waiting, skipped)
        finally:
            await self._leave(waiting)
        return skipped

    async def _wait_for_some(self, waiting: dict[Begun[FetchablePartition], _Unread], skipped: list[_Unread]) -> int:
        """Wait until partitions have been read, or it is late. Returns bytes that they left to others."""
        alarm = Alarm(self._timers)
        for begun in waiting:
            begun.add_done_callback(alarm.ring)
        await alarm.wait(self._patience_seconds(waiting))
        left_bytes = 0
        done = [begun for begun in waiting if begun.is_done]
        for begun in done:
            one = waiting.pop(begun)
            left_bytes += max(0, one.given_bytes - self._settle(one, begun.result(), skipped))
        self._is_late = not done
        return left_bytes

    def _patience_seconds(self, waiting: dict[Begun[FetchablePartition], _Unread]) -> float | None:
        """Return the seconds that late partitions are waited for; None where nothing else is wanted: as long as the
        store may take.
        """
        if self.records_size_bytes:
            now = self._timers.monotonic_seconds()
            if self._late_at_seconds is None:
                self._late_at_seconds = now + _LATE_SECONDS
            return max(0.0, self._late_at_seconds - now)
        known = sum(one.partition.offsets is not None for one in waiting.values())
        if self.is_urgent or self._known_partitions > known:
            return _LATE_SECONDS
        return _UNKNOWN_SECONDS if len(waiting) >= _WAITING_MAX else None

    async def _leave(self, waiting: dict[Begun[FetchablePartition], _Unread]) -> None:
        """Let reads that are late go on for the next fetch; cancel them if the client has gone."""
        for begun, one in waiting.items():
            self.has_more = True
            if not self._is_late or not self._late.leave(self._late_key(one), begun):
                await begun.cancel()
        waiting.clear()

    def _late_key(self, one: _Unread) -> Hashable:
        return one.wanted.topic, one.wanted.partition, one.wanted.fetch_offset

    def _settle(self, one: _Unread, told: FetchablePartition, skipped: list[_Unread]) -> int:
        """Note a partition's answer. Returns its bytes."""
        self._answers[one.slot] = (one.wanted, told)
        if told.error_code or told.diverging_epoch is not None:
            self.is_urgent = True
        elif told.size_bytes:
            self.records_size_bytes += told.size_bytes
            if FilePart not in map(type, told.records):
                self.memory_size_bytes += told.size_bytes
            self.has_more = self.has_more or one.has_more or told.size_bytes >= one.given_bytes
        elif not one.is_first_whole and one.wanted.fetch_offset < self._end_of_told(told):
            skipped.append(one)
        return told.size_bytes

    async def _read_one(self, one: _Unread) -> FetchablePartition:
        try:
            return await self._read_or_raise(one)
        except Exception as error:  # noqa: BLE001 - it becomes the error of this partition alone
            return self._failed(one.wanted, one.partition, error)

    async def _read_or_raise(self, one: _Unread) -> FetchablePartition:
        wanted, partition = one.wanted, one.partition
        if len(self._late):
            await self._late.wait(self._late_key(one))
        offsets = partition.offsets
        if offsets is None:
            offsets = await partition.load()
        error = _epoch_error_of(wanted, offsets)
        if error is not None:
            raise ApiError(error)
        if wanted.last_fetched_epoch != UNKNOWN:
            end = await partition.end_offset_for_epoch(wanted.last_fetched_epoch)
            is_unknown = end.end_offset == UNKNOWN or end.leader_epoch == UNKNOWN
            if is_unknown or wanted.fetch_offset < offsets.log_start_offset:
                raise ApiError(ErrorCode.offset_out_of_range)
            if end.leader_epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
                return self._empty(wanted, offsets, (end.leader_epoch, end.end_offset), is_committed=False)
        error = _error_of(wanted, offsets)
        if error is not None:
            raise ApiError(error)
        if wanted.fetch_offset >= self._end_of(offsets):
            return self._empty(wanted, offsets)
        if one.given_bytes < 0:
            raise ApiError(ErrorCode.unknown_server_error, f"{one.given_bytes} bytes are wanted")  # as Kafka says
        offsets, read = await partition.read(
            wanted.fetch_offset,
            max_bytes=max(one.given_bytes, 1) if one.is_first_whole else one.given_bytes,
            is_first_whole=one.is_first_whole,
            read_committed=self._options.is_read_committed,
        )
        one.has_more = bool(read.size_bytes) and read.last_offset + 1 < self._end_of(offsets)
        # Kafka has no list where the first batch is larger than the bytes left for it.
        has_aborted = self._options.is_read_committed and (read.size_bytes or one.is_first_whole or not one.given_bytes)
        return FetchablePartition(
            wanted.partition,
            NO_ERROR,
            offsets.high_watermark,
            offsets.last_stable_offset,
            offsets.log_start_offset,
            read.records,
            read.size_bytes,
            (read.aborted_transactions or ()) if has_aborted else None,
        )

    def _failed(self, wanted: FetchPartition, partition: ReadablePartition, error: Exception) -> FetchablePartition:
        code = error_code_of(error)
        if not isinstance(error, ApiError):
            _TOLD.tell(wanted.topic or "", wanted.partition, error)
        if code is ErrorCode.kafka_storage_error and self._options.api_version < _STORAGE_ERROR:
            code = ErrorCode.not_leader_or_follower
        told = _refused(wanted, code.value)
        if code in _LEADER_ERRORS and self._options.api_version >= _CURRENT_LEADER:
            epoch = UNKNOWN if partition.offsets is None else partition.offsets.leader_epoch
            told = told._replace(current_leader=(self._options.node_id, epoch))
        return told

    def _end_of(self, offsets: OffsetSnapshot) -> int:
        return offsets.end_offset(read_committed=self._options.is_read_committed)

    def _end_of_told(self, told: FetchablePartition) -> int:
        return told.last_stable_offset if self._options.is_read_committed else told.high_watermark

    def _empty(
        self,
        wanted: FetchPartition,
        offsets: OffsetSnapshot,
        diverging_epoch: tuple[int, int] | None = None,
        *,
        is_committed: bool | None = None,
    ) -> FetchablePartition:
        """Return the answer of a partition without records."""
        has_aborted = self._options.is_read_committed if is_committed is None else is_committed
        return FetchablePartition(
            wanted.partition,
            NO_ERROR,
            offsets.high_watermark,
            offsets.last_stable_offset,
            offsets.log_start_offset,
            aborted_transactions=() if has_aborted else None,
            diverging_epoch=diverging_epoch,
        )


def _epoch_error_of(wanted: FetchPartition, offsets: OffsetSnapshot) -> ErrorCode | None:
    if wanted.current_leader_epoch == UNKNOWN or wanted.current_leader_epoch == offsets.leader_epoch:
        return None
    is_older = wanted.current_leader_epoch < offsets.leader_epoch
    return ErrorCode.fenced_leader_epoch if is_older else ErrorCode.unknown_leader_epoch


def _error_of(wanted: FetchPartition, offsets: OffsetSnapshot) -> ErrorCode | None:
    """Return the error of a client's epoch or offset."""
    if wanted.current_leader_epoch not in (UNKNOWN, offsets.leader_epoch):
        return _epoch_error_of(wanted, offsets)
    if offsets.log_start_offset <= wanted.fetch_offset <= offsets.high_watermark:
        return None
    return ErrorCode.offset_out_of_range


def _refused(wanted: FetchPartition, error_code: int) -> FetchablePartition:
    return FetchablePartition(wanted.partition, error_code, UNKNOWN, UNKNOWN, UNKNOWN)


def _unknown(wanted: FetchPartition, error: ErrorCode) -> FetchablePartition:
    """Make the answer for an unknown partition; the list is empty, not null, as Kafka has it for these."""
    return FetchablePartition(wanted.partition, error.value, UNKNOWN, UNKNOWN, UNKNOWN, aborted_transactions=())
