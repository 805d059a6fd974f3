"""How the judge looks at the cluster: plain values, read between the turns of its tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tests.simulation.facts import ClusterView, ProducerView, ReplicaView
from tests.simulation.leftovers import held_by, open_files, paths_of
from tests.simulation.messages import Partition
from tests.simulation.replica import Replica

if TYPE_CHECKING:
    from tests.simulation.world import World


def view_of(world: World) -> ClusterView:
    """The view of a world."""

    def replica(broker: int, partition: Partition) -> ReplicaView | None:
        life = world.lives.get(broker)
        found = None if life is None else life.replicas.get(partition)
        return None if found is None or found.is_changing else _replica_view(found)

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

    def producers(broker: int, partition: Partition) -> Mapping[int, ProducerView]:
        known = world.lives[broker].replicas[partition].log._contents.producers.producers
        entries = [each.to_snapshot() for each in known.values()]
        return {
            each.producer_id: ProducerView(each.producer_epoch, each.last_sequence, each.last_offset)
            for each in entries
        }

    configs = dict(world.settings.broker_config), dict(world.settings.changed_config)
    return ClusterView(
        replicas,
        replica,
        log_bytes,
        world.store.objects,
        world.metadata.values,
        open_resources,
        files,
        producers,
        min(int(each.get("producer.id.expiration.ms", 86_400_000)) for each in configs),
    )


def _replica_view(replica: Replica) -> ReplicaView:
    log = replica.log
    offsets = log.offsets
    is_usable = not (log.is_offline or log.is_closed)
    role = replica.role if is_usable else "offline"
    is_leading = role == "leader" and replica.leader.is_leading
    return ReplicaView(
        broker=replica.broker.broker_id,
        partition=replica.partition,
        role=role,
        leader_epoch=replica.leader_epoch,
        log_start_offset=offsets.log_start_offset,
        local_log_start_offset=offsets.local_log_start_offset,
        high_watermark=offsets.high_watermark,
        last_stable_offset=offsets.last_stable_offset,
        log_end_offset=offsets.log_end_offset,
        lineage=tuple(log.leader_epoch_cache.epoch_with_offsets().items()),
        in_sync=replica.leader.in_sync.members if is_leading else frozenset(),
        copied_offset=offsets.highest_offset_in_remote_storage,
        segments=tuple((each.base_offset, each.size_bytes) for each in log.log_segments()),
        clock_ms=replica.broker.clock.time_ms(),
    )
