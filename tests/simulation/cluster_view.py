"""How the judge looks at the cluster: plain values, read between the turns of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from tests.simulation.facts import ClusterView, ProducerView, ReplicaView
from tests.simulation.leftovers import held_by, open_files, paths_of
from tests.simulation.messages import Partition
from tests.simulation.replica import Replica

if TYPE_CHECKING:
    from tests.simulation.world import World

_NOBODY: Final = frozenset[int]()


def view_of(world: World) -> ClusterView:
    """The view of a world."""

    def replica(broker: int, partition: Partition) -> ReplicaView | None:
        life = world.lives.get(broker)
        found = None if life is None else life.replicas.get(partition)
        return None if found is None or found.is_changing else _replica_view(found)

    def values(broker: int, partition: Partition) -> object | None:
        life = world.lives.get(broker)
        found = None if life is None else life.replicas.get(partition)
        return None if found is None or found.is_changing else _viewed(found)

    def log_start(broker: int, partition: Partition) -> int:
        life = world.lives.get(broker)
        found = None if life is None else life.replicas.get(partition)
        return 0 if found is None else found.log.log_start_offset

    def replicas() -> list[ReplicaView]:
        return [
            _replica_view(each)
            for _, life in sorted(world.lives.items())
            if not life.group.is_paused
            for each in list(life.replicas.values())
            if not each.log.is_closed and not each.is_changing
        ]

    def log_bytes(broker: int, partition: Partition) -> bytes:
        life = world.lives[broker]
        log = life.replicas[partition].log
        return b"".join(
            life.files.read_whole(f"{log.folder}/{segment.base_offset:020d}.log") for segment in log.log_segments()
        )

    def open_resources() -> Mapping[str, int]:
        found: dict[str, int] = {}
        for life in world.ended:
            found |= {f"{life.group.name}: {name}": count for name, count in held_by(life)}
        for broker, disk in world.disks.items():
            found |= {f"broker-{broker}: open {path}": count for path, count in open_files(disk.files).items()}
        return found

    def files() -> Mapping[int, list[str]]:
        return {broker: list(paths_of(disk)) for broker, disk in world.disks.items()}

    def producers(broker: int, partition: Partition) -> Mapping[int, ProducerView] | None:
        log = world.lives[broker].replicas[partition].log
        if log.must_be_rebuilt:
            return None
        known = log._contents.producers.producers
        entries = [each.to_snapshot() for each in known.values()]
        return {
            each.producer_id: ProducerView(each.producer_epoch, each.last_sequence, each.last_offset)
            for each in entries
        }

    configs = dict(world.settings.broker_config), dict(world.settings.changed_config)
    return ClusterView(
        replicas,
        replica,
        values,
        lambda broker: world.lives[broker].clock.time_ms(),
        log_start,
        log_bytes,
        world.store.objects,
        world.metadata.values,
        open_resources,
        files,
        producers,
        min(int(each.get("producer.id.expiration.ms", 86_400_000)) for each in configs),
    )


def _replica_view(replica: Replica) -> ReplicaView:
    """The view of a replica, with the time of now."""
    return ReplicaView._make((*_viewed(replica), replica.broker.clock.time_ms()))


def _viewed(replica: Replica) -> tuple[Any, ...]:
    """The fields of a replica's view, but for the time: the same object for as long as the replica has not changed. It
    is asked for behind each turn of a task.
    """
    log = replica.log
    contents = log._contents
    role = "offline" if log.is_offline or log.is_closed else replica.role
    in_sync = replica.leader.in_sync.members if role == "leader" and replica.leader.is_leading else _NOBODY
    # Published states and lineages are replaced, never changed.
    state, epochs, leader_epoch = contents.state, contents.epochs.epochs, replica.leader_epoch
    viewed = replica.viewed
    if viewed is not None:
        was, found = viewed
        if was[0] is state and was[1] is epochs and was[2] is role and was[3] == leader_epoch and was[4] is in_sync:
            return found
    found = _values(replica, role, in_sync)
    # What was published holds files open.
    replica.viewed = ((state, epochs, role, leader_epoch, in_sync), found) if role != "offline" else None
    return found


def _values(replica: Replica, role: str, in_sync: frozenset[int]) -> tuple[Any, ...]:
    """The fields of a view, but for the time."""
    log = replica.log
    offsets = log.offsets
    return (
        replica.broker.broker_id,
        replica.partition,
        role,
        replica.leader_epoch,
        offsets.log_start_offset,
        offsets.local_log_start_offset,
        offsets.high_watermark,
        offsets.last_stable_offset,
        offsets.log_end_offset,
        tuple(log.leader_epoch_cache.epoch_with_offsets().items()),
        in_sync,
        offsets.highest_offset_in_remote_storage,
        tuple((each.base_offset, each.size_bytes) for each in log.log_segments()),
    )
