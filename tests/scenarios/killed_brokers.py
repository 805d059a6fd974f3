"""Brokers in a process that is killed: real files, threads and time, and an oracle that is a file.

The two brokers die together, and their disks stay as they were: a kill takes no page that was written. The oracle
appends a row before anything is said to be so; what a leader had written and the oracle had not, when they were killed,
is taken from the logs at the next start.
"""

from __future__ import annotations

import os
import pathlib
import random
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from tests.scenarios.tiered_campaign import Campaign
from tests.scenarios.two_brokers import Cluster, Written
from tests.support.log_consumer import batches_in
from tests.support.tiered_brokers import END, METADATA_PARTITIONS, Broker, generation_of, partition_of
from tierlog.log.formats.identity_files import Uuid
from tierlog.remote.api import (
    RemoteLogMetadataManager,
    RemotePartitionDeleteMetadata,
    RemoteStorageManager,
    RemoteStorageNotReadyException,
    TopicIdPartition,
)
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.replication import LeaderAndIsr
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import Files

ALL_METADATA: Final = frozenset(range(METADATA_PARTITIONS))
#: The name of a segment's log in the tier ends with its id.
_LOG: Final = re.compile(r"-([A-Za-z0-9_-]{22})\.log$")


class OracleFile:
    """The rows of all partitions: W a batch, C a commit, S a state of the controller, G a topic that is made anew and
    the generation that it is then, D a generation whose removal from the tier is marked.
    """

    def __init__(self, path: pathlib.Path) -> None:
        whole = path.read_bytes() if path.exists() else b""
        self.rows = whole[: whole.rfind(b"\n") + 1].decode().splitlines()
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.truncate(path, sum(len(row) + 1 for row in self.rows))

    def put(self, *fields: object) -> None:
        os.write(self._file, (" ".join(map(str, fields)) + "\n").encode())

    def close(self) -> None:
        os.close(self._file)


@dataclass
class FileWritten(Written):
    """The oracle of one partition, whose rows are in the file before they count."""

    partition: int = 0
    file: OracleFile | None = None

    def note(self, data: bytes) -> None:
        for batch in batches_in(data):
            if self.file is not None:
                self.file.put("W", self.partition, bytes(batch).hex())
        super().note(data)

    def commit(self, offset: int, epoch: int) -> None:
        if self.file is not None:
            self.file.put("C", self.partition, offset, epoch)
        super().commit(offset, epoch)


class KilledCluster(Cluster):
    """Two brokers below a folder."""

    def __init__(self, root: pathlib.Path, **more: Any) -> None:
        self.root = root
        self.oracle = OracleFile(root / "oracle")
        super().__init__(is_managed=True, **more)
        self.written = [FileWritten(partition=each) for each in range(self.partitions)]
        for row in self.oracle.rows:
            self._take(*row.split(" "))
        for each in self.written:
            each.file = self.oracle

    def _take(self, kind: str, partition: str, *fields: str) -> None:
        written = self.written[int(partition)]
        if kind == "W":
            written.note(bytes.fromhex(fields[0]))
        elif kind == "C":
            written.commit(int(fields[0]), int(fields[1]))
        elif kind == "G":
            self.written[int(partition)] = FileWritten(partition=int(partition))
        elif kind == "S":
            leader_epoch, partition_epoch, *members = map(int, fields)
            state = LeaderAndIsr(leader_epoch, partition_epoch, tuple(self.brokers), frozenset(members))
            self.states[int(partition)], self.leaders[int(partition)] = state, None

    def known_generations(self) -> dict[int, int]:
        rows = (row.split(" ") for row in self.oracle.rows)
        return {int(row[1]): int(row[2]) for row in rows if row[0] == "G"}

    def begin_generation(self, partition: int) -> TopicIdPartition:
        """A deletion is durable before a broker hears of it."""
        self.oracle.put("G", partition, self.generations.get(partition, 0) + 1)
        before = super().begin_generation(partition)
        self.written[partition] = FileWritten(partition=partition, file=self.oracle)
        return before

    def unmarked(self) -> list[TopicIdPartition]:
        """The deleted partitions whose removal from the tier is not known to be marked."""
        made = {tuple(map(int, row.split(" ")[1:])) for row in self.oracle.rows if row.startswith("G")}
        marked = {tuple(map(int, row.split(" ")[1:])) for row in self.oracle.rows if row.startswith("D")}
        return [partition_of(number, generation - 1) for number, generation in sorted(made - marked)]

    def pending_removals(self) -> Sequence[RemotePartitionDeleteMetadata] | None:
        """The removals that have begun and not ended; None: they are still read."""
        try:
            return self._metadata.pending_removals(ALL_METADATA)
        except RemoteStorageNotReadyException:
            return None

    def decided(self, partition: int) -> None:
        """A decision of the controller is durable before anybody hears of it."""
        state = self.states[partition]
        self.oracle.put("S", partition, state.leader_epoch, state.partition_epoch, *sorted(state.in_sync_replicas))

    def adopt(self) -> None:
        """Take what the logs have and the oracle has not: its writer was killed in between."""
        for broker in self.brokers.values():
            for partition, replica in broker.replicas.items():
                log = replica.log
                at = log.local_log_start_offset
                while at < log.log_end_offset:
                    data = b"".join(
                        bytes(part.read()) for part in log.read(at, max_bytes=1 << 20, isolation=END).records
                    )
                    for batch in batches_in(data):
                        at = int.from_bytes(batch[:8], "big") + int.from_bytes(batch[23:27], "big") + 1
                        key = int.from_bytes(batch[12:16], "big"), int.from_bytes(batch[:8], "big")
                        if key not in self.written[partition].batches:
                            self.written[partition].note(batch)

    # ---- the world: this machine

    def open_world(self, seed: int) -> None:
        self.machine = Machine()
        self.scheduler = self.machine.scheduler  # type: ignore[assignment]
        self._metadata = TopicBasedRemoteLogMetadataManager(machine=self.machine)
        (self.root / "snapshots").mkdir(exist_ok=True)
        (self.root / "tier").mkdir(exist_ok=True)
        self._metadata.configure(
            {
                "log.dir": str(self.root / "snapshots"),
                "broker.id": 0,
                "remote.log.metadata.topic.local.dir": str(self.root / "topic"),
                "remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
                "remote.log.metadata.snapshot.interval.ms": 500,
            }
        )

    def disk_of(self, broker_id: int) -> Files:
        return self.machine.files

    def path_of(self, broker_id: int) -> str:
        return str(self.root / f"broker-{broker_id}")

    def machine_of(self, broker: Broker) -> Machine:
        return self.machine

    def storage_of(self, broker: Broker) -> RemoteStorageManager:
        storage = TieredStorageManager(machine=self.machine)
        storage.configure(
            {
                "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
                "storage.root": str(self.root / "tier"),
                "chunk.size": 4096,
            }
        )
        return storage

    def metadata_of(self, broker: Broker) -> RemoteLogMetadataManager:
        return self._metadata

    def stored_ids(self) -> set[Uuid]:
        found = (_LOG.search(path.name) for path in (self.root / "tier").rglob("*.log"))
        return {Uuid.from_text(each[1]) for each in found if each is not None}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            for broker in self.brokers.values():
                broker.stop()
        self.oracle.close()


class KilledCampaign(Campaign):
    """One life of such a cluster, in which topics are deleted by the KIP's remover: it survives its broker."""

    def __init__(self) -> None:
        super().__init__(0, has_remover=True)

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        return settings | {
            "manager_config": replace(settings["manager_config"], partition_remover_task_interval_ms=200)
        }

    def open(self, root: pathlib.Path) -> KilledCluster:
        cluster = KilledCluster(root, brokers=(1, 2), partitions=self.partitions, **self.settings())
        life = sum(row.startswith("S") for row in cluster.oracle.rows)
        self.begin(cluster, random.Random(), first_producer=1000 * life)
        cluster.adopt()
        manager = cluster.brokers[1].manager
        assert manager is not None
        manager.on_leadership_change(frozenset(), frozenset(), metadata_partitions=ALL_METADATA)
        for each in cluster.unmarked():
            self.remove(each)
        for partition in range(self.partitions):
            members = cluster.states[partition].in_sync_replicas if partition in cluster.states else frozenset((1, 2))
            cluster.elect(self.rng.choice(sorted(members)), partition, in_sync=members)
        return cluster

    def live(self) -> Iterator[None]:
        """Do one thing after another, for ever."""
        while True:
            self.step(without=("crash", "forget", "delete_topic", "wait"))
            if self.rng.random() < 0.01:  # a life has some hundred steps
                self.make_anew()
            self.note_marks()
            yield

    def note_marks(self) -> None:
        """Note the removals that are marked by now: the controller asks for them no more."""
        for partition, marked in [each for each in self.marks if each[1].done()]:
            marked.result()
            self.marks.remove((partition, marked))
            self.cluster.oracle.put("D", partition.partition, generation_of(partition) + 1)  # type: ignore[attr-defined]

    def heal(self) -> None:
        super().heal()
        cluster = self.cluster
        assert isinstance(cluster, KilledCluster)
        until = cluster.machine.clock.monotonic_seconds() + 60
        while self.marks or cluster.pending_removals() != ():
            assert cluster.machine.clock.monotonic_seconds() < until, "a removal never ends"
            self.note_marks()
            cluster.machine.clock.sleep(0.1)


def live(root: str) -> None:
    """Live until killed: a line says that everything is open."""
    campaign = KilledCampaign()
    with campaign.open(pathlib.Path(root)):
        sys.stdout.write("open\n")
        sys.stdout.flush()
        for _ in campaign.live():
            pass


def verified(root: pathlib.Path) -> Campaign:
    """Heal what was killed, and compare."""
    campaign = KilledCampaign()
    with campaign.open(root):
        campaign.heal()
        campaign.compare()
    return campaign
