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
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from tests.scenarios.tiered_campaign import Campaign
from tests.scenarios.two_brokers import Cluster, Written
from tests.support.checkout import ROOT
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
    """Two brokers below a folder.

    Args:
        root: The folder.
        bootstrap: HOST:PORT of a Kafka that has the metadata topic; empty: it is a local one, below the folder.
    """

    def __init__(self, root: pathlib.Path, *, bootstrap: str = "", **more: Any) -> None:
        self.root = root
        self._bootstrap = bootstrap
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
            return self.brokers[1].metadata.pending_removals(ALL_METADATA)
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
        (self.root / "tier").mkdir(exist_ok=True)
        if not self._bootstrap:  # a local topic has one manager in a process
            self._local = self._metadata_manager(0, {"remote.log.metadata.topic.local.dir": str(self.root / "topic")})

    def _metadata_manager(self, broker_id: int, where: Mapping[str, object]) -> TopicBasedRemoteLogMetadataManager:
        snapshots = self.root / f"snapshots-{broker_id}"
        snapshots.mkdir(exist_ok=True)
        made = TopicBasedRemoteLogMetadataManager(machine=self.machine)
        made.configure(
            {
                "log.dir": str(snapshots),
                "broker.id": broker_id,
                "remote.log.metadata.topic.num.partitions": METADATA_PARTITIONS,
                "remote.log.metadata.snapshot.interval.ms": 500,
                **where,
            }
        )
        return made

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
        if not self._bootstrap:
            return self._local
        where = {
            "cluster.id": "killed",
            "remote.log.metadata.common.client.bootstrap.servers": self._bootstrap,
            "remote.log.metadata.topic.replication.factor": 1,
        }
        return self._metadata_manager(broker.broker_id, where)

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

    def __init__(self, bootstrap: str = "") -> None:
        super().__init__(0, has_remover=True)
        self._bootstrap = bootstrap

    def settings(self) -> dict[str, Any]:
        settings = super().settings()
        return settings | {
            "manager_config": replace(settings["manager_config"], partition_remover_task_interval_ms=200)
        }

    def open(self, root: pathlib.Path) -> KilledCluster:
        cluster = KilledCluster(
            root, bootstrap=self._bootstrap, brokers=(1, 2), partitions=self.partitions, **self.settings()
        )
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


def live(root: str, bootstrap: str = "") -> None:
    """Live until killed: a line says that everything is open."""
    campaign = KilledCampaign(bootstrap)
    with campaign.open(pathlib.Path(root)):
        sys.stdout.write("open\n")
        sys.stdout.flush()
        for _ in campaign.live():
            pass


def killed(root: pathlib.Path, seconds: float, *, opened: bool, bootstrap: str = "") -> None:
    """A child lives for so long, from its start on or from when everything is open, and is killed."""
    code = f"from tests.scenarios.killed_brokers import live; live({str(root)!r}, {bootstrap!r})"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    assert child.stdout is not None
    with child, child.stdout:
        if opened:
            assert child.stdout.readline() == b"open\n"
        time.sleep(seconds)
        child.send_signal(signal.SIGKILL)


def run_kills(root: pathlib.Path, kills: int, seed: int, *, bootstrap: str = "") -> None:
    """Kill so many lives, half of them while they start, and compare now and then."""
    rng = random.Random(seed)
    for life in range(kills):
        killed(root, rng.uniform(0.3, 2.0), opened=life % 2 == 0, bootstrap=bootstrap)
        if life % 10 == 9:
            verified(root, bootstrap)
    counts = verified(root, bootstrap).counts
    assert counts["copy_errors"] == 0
    rows = (root / "oracle").read_text()
    assert rows.count("\nC ") > kills
    assert "\nG " in rows


def verified(root: pathlib.Path, bootstrap: str = "") -> Campaign:
    """Heal what was killed, and compare."""
    campaign = KilledCampaign(bootstrap)
    with campaign.open(root):
        campaign.heal()
        campaign.compare()
    return campaign
