"""Three brokers with a replica each of one partition: logs over disks in memory, a controller, a network in one thread.

Leader and followers are the machines; whoever drives decides which message arrives, and when. A crash loses what was
not synced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from tierlog.log.formats.leader_epochs import parse_leader_epochs
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.recovery.log_loader import LogCheckpoints
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder
from tierlog.records.decoding import decode
from tierlog.replication import (
    AlterPartition,
    AskEpochEnd,
    AskOffset,
    AuxStateBuilt,
    Brokers,
    BrokerState,
    BuildAuxState,
    Completed,
    FetchRecords,
    Follower,
    FollowerRequest,
    FollowerSettings,
    Leader,
    LeaderAndIsr,
    LeaderSettings,
    ReplicationError,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import Rng, SeededRng
from tierlog.runtime.simulated.memory_files import MemoryFiles

TOPIC = "orders"
MAX_BYTES = 1 << 20
#: Of a follower that is alone.
BACKOFF_MS: Final = 1000


def batch_of(values: Iterable[bytes], *, now_ms: int = 0) -> bytearray:
    """A producer's batch."""
    builder = RecordBatchBuilder(0)
    for value in values:
        builder.append(None, value, timestamp_ms=now_ms)
    return bytearray(builder.build())


@dataclass
class TieredSegment:
    """A segment of the tier, with what lies beside it.

    Attributes:
        end_offset: Last offset, inclusive.
        epochs: The lineage up to its end, as the checkpoint's text form has it.
    """

    start_offset: int
    end_offset: int
    epochs: tuple[tuple[int, int], ...]
    segment_epochs: tuple[int, ...]
    producer_snapshot: bytes

    def holds(self, request: BuildAuxState) -> bool:
        """Whether this is the segment that is looked for."""
        return request.epoch in self.segment_epochs and self.start_offset <= request.offset <= self.end_offset


@dataclass
class Replica:
    """One broker's replica."""

    broker_id: int
    clock: ManualClock
    brokers: Brokers
    follower_class: type[Follower] = Follower
    config: LogConfig = field(default_factory=LogConfig)
    is_tiered: bool = False
    leader_settings: LeaderSettings = field(default_factory=LeaderSettings)
    follower_settings: FollowerSettings = field(default_factory=FollowerSettings)

    def __post_init__(self) -> None:
        self.files = MemoryFiles(self.clock)
        self.epoch = 0
        self.high_watermark_checkpoint = 0
        self.is_up = False
        self.start()

    def start(self, *, clean: bool = False) -> None:
        """Open the log, as nobody's leader or follower."""
        self.epoch += 1
        self.is_up = True
        self.machine = Machine(clock=self.clock, files=self.files, rng=SeededRng(self.broker_id))
        self.log = UnifiedLog.open(
            f"/logs/{TOPIC}-0",
            machine=self.machine,
            config=self.config,
            remote_log_enabled=self.is_tiered,
            had_clean_shutdown=clean,
            checkpoints=LogCheckpoints(recovery_point=0, high_watermark=self.high_watermark_checkpoint),
        )
        self.leader = Leader(self.log, self.broker_id, self.brokers, self.leader_settings)
        self.follower = self.follower_class(self.log, self.follower_settings)
        self.brokers.update(self.broker_id, BrokerState(self.epoch))

    def lose_lineage(self) -> None:
        """Let the log lack the lineage of what it has in the tier alone: it knows that of the records here."""
        checkpoints = LogCheckpoints(0, self.log.log_start_offset, self.log.high_watermark)
        folder, epochs = self.log.folder, self.log.leader_epoch_cache
        epochs.truncate_from_start(self.log.local_log_start_offset)
        self.log.close()
        self.log = UnifiedLog.open(
            folder, machine=self.machine, config=self.config, remote_log_enabled=True, checkpoints=checkpoints
        )
        assert self.log.must_be_rebuilt
        self.leader = Leader(self.log, self.broker_id, self.brokers, self.leader_settings)
        self.follower = self.follower_class(self.log, self.follower_settings)

    def crash(self, rng: Rng | None = None) -> None:
        """Lose power: what was not synced is gone."""
        self.is_up = False
        self.high_watermark_checkpoint = min(self.log.high_watermark, self.log.log_end_offset)
        self.files = self.files.crash(rng)
        self.brokers.update(self.broker_id, None)

    def stop(self) -> None:
        """Stop cleanly."""
        self.is_up = False
        self.high_watermark_checkpoint = self.log.high_watermark
        self.log.close()
        self.brokers.update(self.broker_id, None)

    # ---- roles

    def lead(self, state: LeaderAndIsr, now_ms: int) -> None:
        """Lead from now on."""
        self.follower.stop()
        self.leader.lead(state, now_ms)

    def follow(self, leader: int, leader_epoch: int, *, truncates_on_fetch: bool = True) -> None:
        """Follow a leader from now on."""
        self.leader.resign()
        self.follower.follow(leader, leader_epoch, truncates_on_fetch=truncates_on_fetch)

    def append(self, *values: bytes, acks: int = 1) -> int:
        """Append a batch as leader; the log's end behind it."""
        return self.leader.append(batch_of(values), required_acks=acks, now_ms=self.clock.time_ms()).last_offset + 1

    # ---- what is in the log

    def records(self, isolation: FetchIsolation = FetchIsolation.LOG_END) -> dict[int, tuple[int, bytes]]:
        """Offset to (epoch of its batch, key and value) of what is here, control records too."""
        found: dict[int, tuple[int, bytes]] = {}
        offset = self.log.local_log_start_offset
        while True:
            read = self.log.read(offset, max_bytes=MAX_BYTES, isolation=isolation).records
            if not read:
                return found
            data, columns = b"".join(part.read() for part in read), ["offset", "leaderEpoch", "key", "value"]
            for row in decode(data, columns=columns, control_records=True).to_pylist():
                found[row["offset"]] = (row["leaderEpoch"], (row["key"] or b"") + row["value"])
            offset = max(found) + 1

    def values(self, isolation: FetchIsolation = FetchIsolation.LOG_END) -> list[bytes]:
        """The values of what is here, in order."""
        return [value for _, (_, value) in sorted(self.records(isolation).items())]

    @property
    def epochs(self) -> dict[int, int]:
        """Epoch to start offset."""
        return self.log.leader_epoch_cache.epoch_with_offsets()

    @property
    def epochs_on_disk(self) -> dict[int, int]:
        """As the checkpoint has them."""
        return dict(parse_leader_epochs(self.files.read_whole(f"{self.log.folder}/leader-epoch-checkpoint")))


def answer(replica: Replica, leader: Replica, request: FollowerRequest, *, tier: Iterable[TieredSegment] = ()) -> None:
    """Bring a request of a follower to its leader, and the answer back."""
    follower, now_ms = replica.follower, replica.clock.time_ms()
    if not leader.is_up:
        follower.on_error(request, None, now_ms)
        return
    try:
        match request:
            case FetchRecords():
                fetched = leader.leader.fetch(
                    replica.broker_id, request, max_bytes=MAX_BYTES, now_ms=now_ms, broker_epoch=replica.epoch
                )
                follower.on_answer(request, fetched.read(), now_ms)
            case AskEpochEnd():
                end = leader.leader.end_offset_for_epoch(request.epoch, leader_epoch=request.leader_epoch)
                follower.on_answer(request, end, now_ms)
            case AskOffset():
                found = leader.leader.list_offset(
                    request.timestamp, isolation=FetchIsolation.LOG_END, leader_epoch=request.leader_epoch
                )
                follower.on_answer(request, found, now_ms)
            case BuildAuxState():
                segment = next((each for each in tier if each.holds(request)), None)
                if segment is None:
                    follower.on_error(request, None, now_ms)
                    return
                if request.keeps_records:
                    replica.log.complete_lineage(segment.epochs)
                else:
                    replica.log.start_from_tier(
                        segment.end_offset + 1,
                        log_start_offset=request.log_start_offset,
                        epochs=segment.epochs,
                        producer_snapshot=segment.producer_snapshot,
                    )
                follower.on_answer(request, AuxStateBuilt(replica.log.log_end_offset), now_ms)
    except ReplicationError as error:
        follower.on_error(request, error.error, now_ms)


def settle(
    replica: Replica, leader: Replica, *, tier: Iterable[TieredSegment] = (), rounds: int = 20
) -> list[FollowerRequest]:
    """Let a follower ask until it has all of its leader's log and high watermark; what it asked."""
    asked: list[FollowerRequest] = []
    for _ in range(rounds):
        request = replica.follower.next_request(replica.clock.time_ms())
        if request is None:
            break
        asked.append(request)
        answer(replica, leader, request, tier=tier)
        controlled(leader)
        told = isinstance(request, FetchRecords) and request.offset == leader.log.log_end_offset
        if told and replica.follower.lag == 0 and replica.log.high_watermark == leader.log.high_watermark:
            break
    return asked


def controlled(leader: Replica, *, accepts: bool = True) -> list[Completed]:
    """Let the controller accept what a leader proposes; the waits that are complete."""
    completed: list[Completed] = []
    for action in leader.leader.take_actions():
        if isinstance(action, AlterPartition):
            if accepts:
                members = frozenset(broker for broker, _ in action.in_sync_replicas)
                replicas = (leader.broker_id, *leader.leader.in_sync.followers)
                state = LeaderAndIsr(action.leader_epoch, action.partition_epoch + 1, replicas, members)
                leader.leader.on_altered(action, state, leader.clock.time_ms())
        else:
            completed.append(action)
    return completed


# ---- a follower alone, whose leader is the test


def made(*, tiered: bool = False, last_tiered: bool = False) -> Replica:
    """A replica that follows."""
    config = (
        LogConfig(remote_storage_enable=tiered, local_retention_bytes=0, retention_ms=-1) if tiered else LogConfig()
    )
    settings = FollowerSettings(fetch_backoff_ms=BACKOFF_MS, fetch_last_tiered_offset=last_tiered)
    return Replica(2, ManualClock(), Brokers(), config=config, is_tiered=tiered, follower_settings=settings)


def sent(offset: int, *, epoch: int = 0, count: int = 1) -> bytes:
    """A batch as a leader sends it."""
    builder = RecordBatchBuilder(offset, leader_epoch=epoch)
    for number in range(count):
        builder.append(None, b"%d" % (offset + number), timestamp_ms=0)
    return builder.build()


def asked(follower: Follower, kind: type, now_ms: int = 0) -> Any:
    """The follower's next request, which has to be of a kind."""
    request = follower.next_request(now_ms)
    assert isinstance(request, kind), request
    return request


def grown(replica: Replica, count: int, *, epoch: int = 0) -> None:
    """Records that were fetched in an epoch."""
    for _ in range(count):
        replica.log.append_as_follower(sent(replica.log.log_end_offset, epoch=epoch), leader_epoch=epoch)
