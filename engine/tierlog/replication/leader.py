"""The leader of one partition: it appends, answers its followers, and knows what is replicated.

A machine without clock, file or socket, over a ``PartitionLog``: requests come with the time, and what others have to
do comes out as actions: a proposal for the controller, and waiting requests that are complete.

Source: Kafka Partition, ReplicaManager, DelayedProduce, DelayedFetch, RackAwareReplicaSelector.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from typing_extensions import Buffer

from tierlog.log.local.log_appends import LogAppendInfo
from tierlog.log.local.log_errors import KafkaError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FetchIsolation,
)
from tierlog.log.local.segments.segment_view import TimestampAndOffset
from tierlog.log.partition_log import PartitionLog, RecordsPart
from tierlog.marks import mark
from tierlog.replication.in_sync_replicas import Brokers, InSyncReplicas
from tierlog.replication.messages import (
    NO_EPOCH,
    NO_OFFSET,
    AlterPartition,
    AuxStateBuilt,
    BuildAuxState,
    EpochEnd,
    FetchedRecords,
    FetchRecords,
    LeaderAndIsr,
    OffsetAndEpoch,
    ReplicationError,
)
from tierlog.replication.offset_waits import OffsetWaits

ALL_IN_SYNC_REPLICAS: Final = -1
HIGH_WATERMARK: Final = -1
_UNKNOWN: Final = OffsetAndEpoch(NO_OFFSET, NO_EPOCH)


@dataclass(frozen=True, slots=True)
class LeaderSettings:
    """The configuration of a leader.

    Attributes:
        replica_lag_time_max_ms: ``replica.lag.time.max.ms``: a follower that has not caught up for so long leaves the
            in-sync set.
        min_insync_replicas: ``min.insync.replicas`` of the topic.
        deletes_records: Whether ``cleanup.policy`` has ``delete``.
    """

    replica_lag_time_max_ms: int = 30_000
    min_insync_replicas: int = 1
    deletes_records: bool = True


class Completed(NamedTuple):
    """A request that waited is complete.

    Attributes:
        token: As the wait was begun with.
        error: None: what it waited for has come.
    """

    token: Hashable
    error: KafkaError | None


LeaderAction = AlterPartition | BuildAuxState | Completed


class Leader:
    """A replica that leads its partition, from ``lead`` to ``resign``.

    A log that ``must_be_rebuilt`` is rebuilt first: ``lead`` asks for ``BuildAuxState``, and until ``on_built`` the
    leader begins no epoch, appends nothing, and answers every request with KAFKA_STORAGE_ERROR: records behind a cut
    would take offsets that the tier has otherwise. It is Kafka's error for a log that its broker cannot use. Clients
    try again after it, as after NOT_LEADER_OR_FOLLOWER, which would be untrue: no other broker leads.

    Args:
        log: The partition's log.
        broker_id: This broker.
        brokers: The registered brokers.
        settings: None: Kafka's defaults.

    Attributes:
        leader_epoch: Of this leadership; -1 = it has never led.
        is_leading: Whether it leads now.
        in_sync: The in-sync set and the followers' states.
        settings: May be replaced at any time.

    Raises (all methods that answer requests): ReplicationError: with Kafka's error. LogOfflineError. LogClosedError.

    Thread safety: one thread at a time.
    """

    def __init__(
        self, log: PartitionLog, broker_id: int, brokers: Brokers, settings: LeaderSettings | None = None
    ) -> None:
        self._log = log
        self._broker_id = broker_id
        self.settings = settings or LeaderSettings()
        self.in_sync = InSyncReplicas(broker_id, brokers, lag_time_max_ms=self.settings.replica_lag_time_max_ms)
        self.leader_epoch = NO_EPOCH
        self.is_leading = False
        self._epoch_start_offset = 0
        self._replicated, self._purged = OffsetWaits(), OffsetWaits()
        self._readable = {isolation: OffsetWaits() for isolation in FetchIsolation}
        self._actions: list[LeaderAction] = []
        self._build: BuildAuxState | None = None
        self._state: LeaderAndIsr

    # ---- leadership

    def lead(self, state: LeaderAndIsr, now_ms: int) -> bool:
        """Lead from now on, or take newer word of the controller on this leadership.

        A new leadership begins its epoch at the log's end, durably, before anything else; over a log that must be
        rebuilt it begins it then.

        Returns:
            Whether it is a new leadership; older word than the known changes nothing.
        """
        known = self.in_sync.partition_epoch
        if state.leader_epoch < self.leader_epoch or (self.is_leading and state.partition_epoch <= known):
            return False
        is_new = state.leader_epoch > self.leader_epoch or not self.is_leading
        if is_new:
            build = self._to_rebuild(state.leader_epoch) if self._log.must_be_rebuilt else None
            self._begin_epoch(state.leader_epoch, build)
        self._state, self.leader_epoch, self.is_leading = state, state.leader_epoch, True
        self._take_state(is_new_leader=is_new, now_ms=now_ms)
        return is_new

    def _take_state(self, *, is_new_leader: bool, now_ms: int) -> None:
        end_offset = self._log.log_end_offset
        self.in_sync.lead(self._state, leader_end_offset=end_offset, is_new_leader=is_new_leader, now_ms=now_ms)
        self._raise_high_watermark(now_ms)

    def _begin_epoch(self, leader_epoch: int, build: BuildAuxState | None) -> None:
        """Begin the epoch at the log's end, durably; or ask for the log first."""
        if build is not None:
            mark("leader: its log has to be rebuilt first")
            self._build = build
            self._actions.append(build)
            return
        self._epoch_start_offset = self._log.log_end_offset
        self._log.assign_epoch_start_offset(leader_epoch, self._epoch_start_offset)
        self._build = None  # at last: a call that the log refused may be made again

    def _to_rebuild(self, leader_epoch: int) -> BuildAuxState:
        """Ask for what belongs to the offset in front of the records here."""
        offset = self._log.local_log_start_offset - 1
        epoch = self._log.leader_epoch_cache.epoch_for_offset(offset)
        has_records = self._log.log_end_offset > offset + 1  # nobody else need have them
        return BuildAuxState(leader_epoch, _epoch(epoch), offset, self._log.log_start_offset, keeps_records=has_records)

    def on_built(self, build: BuildAuxState, built: AuxStateBuilt, now_ms: int) -> None:
        """Take word that the log was rebuilt, and begin the epoch; that of an earlier leadership changes nothing. A log
        that is none, or not the one that was built, is asked for again.
        """
        if build is self._build:
            is_built = not self._log.must_be_rebuilt and self._log.log_end_offset == built.next_offset
            self._go_on(None if is_built else self._to_rebuild(self.leader_epoch), now_ms)

    def on_build_failed(self, build: BuildAuxState, now_ms: int) -> None:
        """Take word that the log was not rebuilt, and has not changed: the action comes again. The caller pauses. A log
        whose topic left the tier meanwhile starts with what is local: the epoch begins.
        """
        if build is self._build:
            self._go_on(build if self._log.must_be_rebuilt else None, now_ms)

    def _go_on(self, build: BuildAuxState | None, now_ms: int) -> None:
        """Ask for the log again; None: it is whole, and the epoch begins."""
        self._begin_epoch(self.leader_epoch, build)
        if build is None:  # its followers could not fetch meanwhile
            self._take_state(is_new_leader=True, now_ms=now_ms)

    def resign(self) -> None:
        """Lead no more: all that waits ends with NOT_LEADER_OR_FOLLOWER."""
        self.is_leading, self._build = False, None
        for waits in (self._replicated, self._purged, *self._readable.values()):
            self._complete(waits.clear(), KafkaError.NOT_LEADER_OR_FOLLOWER)

    def log_moved(self, log: PartitionLog) -> None:
        """Go on over another log, to which this one was moved (``LogDirectories.finish_move``): all that waits goes on
        waiting. Calls meanwhile raise LogClosedError, and are made again.
        """
        self._log = log

    def take_actions(self) -> list[LeaderAction]:
        """Return the actions since the last call, in order."""
        actions, self._actions = self._actions, []
        return actions

    def check_leader_epoch(self, leader_epoch: int) -> None:
        """Refuse a request of another leadership (-1 = the request names none), or to a log that must be rebuilt.
        Raises ReplicationError.
        """
        if not self.is_leading:
            raise self._refusal(KafkaError.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition")
        if leader_epoch != NO_EPOCH and leader_epoch != self.leader_epoch:
            is_old = leader_epoch < self.leader_epoch
            error = KafkaError.FENCED_LEADER_EPOCH if is_old else KafkaError.UNKNOWN_LEADER_EPOCH
            raise self._refusal(error, f"leader epoch {leader_epoch}, this leadership is {self.leader_epoch}")
        if self._build is not None or self._log.must_be_rebuilt:
            raise self._refusal(KafkaError.KAFKA_STORAGE_ERROR, "the log must be rebuilt from the tier first")

    def _refusal(self, error: KafkaError, why: str) -> ReplicationError:
        return ReplicationError(f"{self._log.folder}: {why}", error)

    # ---- producers

    def append(self, data: Buffer, *, required_acks: int, now_ms: int, **more: Any) -> LogAppendInfo:
        """Append a producer's batch.

        Args:
            data: As for ``append_as_leader`` of the log.
            required_acks: -1 = all in-sync replicas: refused while there are too few.
            now_ms: Time.
            more: What else ``append_as_leader`` takes.

        Raises ReplicationError: NOT_ENOUGH_REPLICAS; NOT_LEADER_OR_FOLLOWER; KAFKA_STORAGE_ERROR: the log must be
        rebuilt. AppendRefusedError.
        """
        self.check_leader_epoch(NO_EPOCH)
        minimum = self.settings.min_insync_replicas
        if required_acks == ALL_IN_SYNC_REPLICAS and self.in_sync.is_below_minimum(minimum):
            raise self._refusal(
                KafkaError.NOT_ENOUGH_REPLICAS,
                f"{len(self.in_sync.members)} replicas in sync, {self.in_sync.minimum(minimum)} are wanted",
            )
        info = self._log.append_as_leader(data, leader_epoch=self.leader_epoch, **more)
        end_offset = self._log.log_end_offset
        self.in_sync.appended(end_offset)
        self._raise_high_watermark(now_ms)
        self._reach(FetchIsolation.LOG_END, end_offset)
        return info

    def wait_for_replication(self, required_offset: int, token: Hashable) -> None:
        """Complete a token once the high watermark is at or above an offset: the end of what a producer sent. Its error
        is NOT_ENOUGH_REPLICAS_AFTER_APPEND if there are too few in-sync replicas by then.
        """
        self.check_leader_epoch(NO_EPOCH)
        self._replicated.add(required_offset, token)
        self._reach_high_watermark()

    def wait_for_records(self, offset: int, isolation: FetchIsolation, token: Hashable) -> None:
        """Complete a token once something may lie at or behind an offset for readers of an isolation. A read that found
        nothing up to its end waits from that end on: a compaction may have left nothing in between.
        """
        self.check_leader_epoch(NO_EPOCH)
        self._readable[isolation].add(offset + 1, token)
        self._reach(isolation, self._end_for(isolation))

    def cancel(self, token: Hashable) -> None:
        """Let a token wait no more. Where it is complete already, its action stays."""
        for waits in (self._replicated, self._purged, *self._readable.values()):
            waits.cancel(token)

    def _end_for(self, isolation: FetchIsolation) -> int:
        if isolation is FetchIsolation.LOG_END:
            return self._log.log_end_offset
        return self._log.high_watermark if isolation is FetchIsolation.HIGH_WATERMARK else self._log.last_stable_offset

    def _complete(self, tokens: Iterable[Hashable], error: KafkaError | None) -> None:
        self._actions.extend(Completed(token, error) for token in tokens)

    def _reach(self, isolation: FetchIsolation, offset: int) -> None:
        waits = self._readable[isolation]
        if len(waits):
            self._complete(waits.reach(offset), None)

    def _raise_high_watermark(self, now_ms: int) -> None:
        """Raise the high watermark to what is replicated; below the minimum of in-sync replicas it stands still."""
        if self.in_sync.is_below_minimum(self.settings.min_insync_replicas):
            return
        replicated = self.in_sync.high_watermark(self._log.log_end_offset, now_ms)
        if replicated > self._log.high_watermark and self._log.maybe_increment_high_watermark(replicated) is not None:
            self._reach_high_watermark()

    def _reach_high_watermark(self) -> None:
        if len(self._replicated):
            enough = self.in_sync.minimum(self.settings.min_insync_replicas) <= len(self.in_sync.maximal)
            error = None if enough else KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            self._complete(self._replicated.reach(self._log.high_watermark), error)
        self._reach(FetchIsolation.HIGH_WATERMARK, self._log.high_watermark)
        self._reach(FetchIsolation.TXN_COMMITTED, self._log.last_stable_offset)

    # ---- followers

    def fetch(
        self, replica_id: int, asked: FetchRecords, *, max_bytes: int, now_ms: int, broker_epoch: int = NO_EPOCH
    ) -> FetchedRecords[RecordsPart]:
        """Answer a follower's fetch, and note how far it is. The records are slices of the log, which are not read yet:
        ``os.sendfile`` takes those of a ``UnifiedLog``.

        Args:
            replica_id: Its broker id.
            asked: The fetch.
            now_ms: Time.
            max_bytes: At most so many bytes, but a first batch is given whole.
            broker_epoch: Of the life in which the follower's broker asks; -1 = not told.

        Raises ReplicationError: of the epochs; OFFSET_OUT_OF_RANGE; OFFSET_MOVED_TO_TIERED_STORAGE.
        """
        self.check_leader_epoch(asked.leader_epoch)
        follower = self.in_sync.follower(replica_id)
        self.in_sync.check_broker_epoch(replica_id, broker_epoch)
        log, end_offset = self._log, self._log.log_end_offset
        diverging = self._divergence(asked)
        if diverging is not None:
            return FetchedRecords(log.high_watermark, log.log_start_offset, diverging=diverging)
        try:
            found = log.read(asked.offset, max_bytes=max_bytes, isolation=FetchIsolation.LOG_END)
        except OffsetOutOfRangeError as error:
            is_moved = error.is_in_tier and log.remote_log_enabled()
            code = KafkaError.OFFSET_MOVED_TO_TIERED_STORAGE if is_moved else KafkaError.OFFSET_OUT_OF_RANGE
            raise self._refusal(code, str(error)) from error
        follower.fetched(
            asked.offset,
            log_start_offset=asked.log_start_offset,
            leader_end_offset=end_offset,  # of before the read: appends meanwhile do not keep it out of the set
            broker_epoch=broker_epoch,
            now_ms=now_ms,
        )
        self.in_sync.fetched(end_offset)
        self._propose(
            self.in_sync.expand(
                follower, high_watermark=log.high_watermark, epoch_start_offset=self._epoch_start_offset
            )
        )
        self._raise_high_watermark(now_ms)
        if len(self._purged):
            self._complete(self._purged.reach(self.low_watermark), None)
        return FetchedRecords(log.high_watermark, log.log_start_offset, found.records)

    def _divergence(self, asked: FetchRecords) -> EpochEnd | None:
        """Find the end of the follower's last epoch in this log; None: the follower's log is a part of this one."""
        if asked.last_fetched_epoch == NO_EPOCH:
            return None
        epoch, end_offset = self._log.end_offset_for_epoch(asked.last_fetched_epoch)
        if epoch < 0 or end_offset < 0 or asked.offset < self._log.log_start_offset:
            raise self._refusal(
                KafkaError.OFFSET_OUT_OF_RANGE,
                f"offset {asked.offset}: epoch {asked.last_fetched_epoch} of the follower is not known here",
            )
        if epoch < asked.last_fetched_epoch or end_offset < asked.offset:
            mark("leader: a follower's log diverges")
            return EpochEnd(epoch, end_offset)
        return None

    def end_offset_for_epoch(self, asked_epoch: int, *, leader_epoch: int = NO_EPOCH) -> EpochEnd:
        """Answer OffsetsForLeaderEpoch; (-1, -1) = the epoch is not known."""
        self.check_leader_epoch(leader_epoch)
        return EpochEnd(*self._log.end_offset_for_epoch(asked_epoch))

    def preferred_read_replica(self, offset: int, rack: str | None, racks: Mapping[int, str]) -> int | None:
        """Return the replica that a consumer had better fetch from (KIP-392): the one in its rack with the greatest end
        offset. None: the leader, which is in that rack, or is the only one that has the offset.

        Args:
            offset: That it asks for.
            rack: Of the consumer; None or empty = it names none.
            racks: Of the brokers that have one.
        """
        self.check_leader_epoch(NO_EPOCH)
        if not rack or racks.get(self._broker_id) == rack:
            return None
        near = (
            follower
            for broker, follower in self.in_sync.followers.items()
            if racks.get(broker) == rack and follower.log_start_offset <= offset <= follower.log_end_offset
        )
        best = max(near, key=lambda follower: (follower.log_end_offset, follower.caught_up_ms), default=None)
        return None if best is None else best.broker_id

    # ---- offsets

    def list_offset(
        self, timestamp_ms: int, *, isolation: FetchIsolation, leader_epoch: int = NO_EPOCH
    ) -> OffsetAndEpoch:
        """Answer ListOffsets from what is local.

        Args:
            timestamp_ms: Or a special one of ``log_offsets``.
            isolation: LOG_END for brokers and debugging consumers; of the others HIGH_WATERMARK or TXN_COMMITTED.
            leader_epoch: In which the asker believes this leadership to be; -1 = it does not say.

        Returns:
            (-1, -1): there is none, or it lies behind what the asker may read.

        Raises ReplicationError: OFFSET_NOT_AVAILABLE: the high watermark has not reached the start of this epoch yet.
        """
        self.check_leader_epoch(leader_epoch)
        found = None if timestamp_ms == LATEST_TIMESTAMP else self._log.fetch_offset_by_timestamp(timestamp_ms)
        return self.limit_listed(found, timestamp_ms, isolation=isolation, leader_epoch=leader_epoch)

    def limit_listed(
        self,
        found: TimestampAndOffset | None,
        timestamp_ms: int,
        *,
        isolation: FetchIsolation,
        leader_epoch: int = NO_EPOCH,
    ) -> OffsetAndEpoch:
        """Answer ListOffsets by what a search over tier and log has found (``RemoteLogManager.list_offsets``): as
        ``list_offset``, with the limits of now.
        """
        self.check_leader_epoch(leader_epoch)
        last = self._end_for(isolation)
        if timestamp_ms == LATEST_TIMESTAMP:
            answer = OffsetAndEpoch(last, self.leader_epoch)
        else:
            answer = _UNKNOWN if found is None else OffsetAndEpoch(found.offset, _epoch(found.leader_epoch))
            # A follower may begin where the log ends. Kafka keeps it waiting for a record then.
            is_pending = timestamp_ms == EARLIEST_PENDING_UPLOAD_TIMESTAMP and isolation is FetchIsolation.LOG_END
            if timestamp_ms in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
                return answer
            if NO_OFFSET < answer.offset < last + is_pending:
                return answer
            answer = _UNKNOWN
        if isolation is not FetchIsolation.LOG_END and self._epoch_start_offset > self._log.high_watermark:
            raise self._refusal(
                KafkaError.OFFSET_NOT_AVAILABLE,
                f"high watermark {self._log.high_watermark}, this epoch begins at {self._epoch_start_offset}",
            )
        return answer

    @property
    def low_watermark(self) -> int:
        """The smallest log start of all replicas that are alive; -1 = one of them has not fetched yet."""
        return self.in_sync.low_watermark(self._log.log_start_offset)

    def delete_records(self, offset: int, token: Hashable) -> int:
        """Raise the log start (DeleteRecords), and complete a token once all live replicas have.

        Args:
            offset: -1 = the high watermark.
            token: Of the wait.

        Returns:
            The offset that the low watermark has to reach.

        Raises ReplicationError: POLICY_VIOLATION. OFFSET_OUT_OF_RANGE: negative, or above the high watermark.
        """
        self.check_leader_epoch(NO_EPOCH)
        if not self.settings.deletes_records:
            raise self._refusal(KafkaError.POLICY_VIOLATION, "cleanup.policy does not delete records")
        log = self._log
        wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= log.high_watermark:
            raise self._refusal(
                KafkaError.OFFSET_OUT_OF_RANGE, f"records below {offset}, high watermark {log.high_watermark}"
            )
        log.maybe_increment_log_start_offset(wanted, "a client deleted records")
        self._purged.add(wanted, token)
        self._complete(self._purged.reach(self.low_watermark), None)
        return wanted

    # ---- the in-sync set

    def tick(self, now_ms: int) -> None:
        """Propose the in-sync set without followers that lag. Nothing is due before ``in_sync.lag_deadline_ms``, nor
        while the log is rebuilt, when followers cannot fetch.
        """
        if self.is_leading and self._build is None and now_ms >= self.in_sync.lag_deadline_ms:
            mark("leader: looks for followers that lag")
            self._propose(self.in_sync.shrink(self._log.log_end_offset, now_ms))

    def _propose(self, proposal: AlterPartition | None) -> None:
        if proposal is not None:
            self._actions.append(proposal)

    def on_altered(self, proposal: AlterPartition, state: LeaderAndIsr, now_ms: int) -> None:
        """Take the controller's answer to a proposal; that of an earlier leadership changes nothing."""
        if self.is_leading and self.in_sync.accepted(proposal, state, leader_end_offset=self._log.log_end_offset):
            self._raise_high_watermark(now_ms)
            self._reach_high_watermark()

    def on_alter_failed(self, proposal: AlterPartition, error: KafkaError | None) -> None:
        """Take the controller's error; None: no answer came. A proposal that may be tried again is an action again."""
        if self.is_leading:
            self._propose(self.in_sync.refused(proposal, error, leader_end_offset=self._log.log_end_offset))


def tick_all(leaders: Iterable[Leader], now_ms: int) -> list[Leader]:
    """Call ``tick`` of the leaders for which something is due, and return them. The others cost a comparison each."""
    due = [leader for leader in leaders if leader.in_sync.lag_deadline_ms <= now_ms]
    for leader in due:
        leader.tick(now_ms)
    return due


def _epoch(leader_epoch: int | None) -> int:
    return NO_EPOCH if leader_epoch is None else leader_epoch
