"""A storage manager's Java class as a child process, asked by lines of JSON: ours, or any other on its class path."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import pathlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.command import environment
from tests.support.line_process import LineProcess
from tests.support.peers import install
from tests.support.peers.compiled import java_class_path
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata

OURS = "io.tierlog.kafka.TierlogRemoteStorageManager"
INDEXES = {
    IndexType.OFFSET: "OFFSET",
    IndexType.TIMESTAMP: "TIMESTAMP",
    IndexType.PRODUCER_SNAPSHOT: "PRODUCER_SNAPSHOT",
    IndexType.TRANSACTION: "TRANSACTION",
    IndexType.LEADER_EPOCH: "LEADER_EPOCH",
}


class PluginError(Exception):
    """An exception of the class: its name, its text, its cause's name; and whether the thread's flag was set."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        super().__init__(f"{told['error']}: {told['text']}")
        self.kind: str = told["error"]
        self.cause: str | None = told.get("cause")
        self.interrupted: bool = told.get("interrupted", False)


def our_jar() -> pathlib.Path:
    """The jar of `make kafka-jar`; the test is skipped without it."""
    import tierlog

    jar = pathlib.Path(tierlog.__file__).parent / "sidecar" / "jars" / "tierlog-kafka.jar"
    if not jar.exists():
        pytest.skip("there is no jar for Kafka (make kafka-jar)")
    return jar


def sum_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class PluginPeer:
    """The calls of the class. One thread here; one more there, by ``begin``."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, call: str, **more: object) -> Any:
        return _answer_of(json.loads(self._process.ask(json.dumps({"call": call, **more}))))

    def configure(self, keys: Mapping[str, object]) -> None:
        self.ask("configure", keys={name: str(value) for name, value in keys.items()})

    def copy(self, segment: ClosedSegment) -> bytes | None:
        told = self.ask("copy", **copy_of(segment))
        return None if told is None else bytes.fromhex(told)

    def fetch_sum(
        self, metadata: RemoteLogSegmentMetadata, start: int = 0, end: int | None = None, *, at_once: int = 1 << 20
    ) -> str:
        """The SHA-256 of a range."""
        found: str = self.ask("fetch", segment=segment_json(metadata), at_once=at_once, **_range(start, end))
        return found

    def index_sum(self, metadata: RemoteLogSegmentMetadata, kind: IndexType) -> str:
        found: str = self.ask("index", segment=segment_json(metadata), type=INDEXES[kind])
        return found

    def delete(self, metadata: RemoteLogSegmentMetadata) -> None:
        self.ask("delete", segment=segment_json(metadata))

    def open(self, number: int, metadata: RemoteLogSegmentMetadata, start: int = 0, end: int | None = None) -> None:
        """Open a stream under a number."""
        self.ask("open", stream=number, segment=segment_json(metadata), **_range(start, end))

    def read(self, number: int, count: int) -> bytes:
        return bytes.fromhex(self.ask("read", stream=number, count=count))

    def shut(self, number: int) -> None:
        self.ask("shut", stream=number)

    def begin(self, call: str, **more: object) -> None:
        """Have a thread begin a call."""
        self.ask("begin", what={"call": call, **more})

    def interrupt(self) -> Any:
        """Interrupt that thread, and return its answer once it has one."""
        return _answer_of(self.ask("interrupt"))

    def join(self) -> Any:
        return _answer_of(self.ask("join"))

    def beans(self, pattern: str = "*:*") -> dict[str, dict[str, str]]:
        found: dict[str, dict[str, str]] = self.ask("beans", pattern=pattern)
        return found

    def heap_bytes(self) -> int:
        """Bytes of the heap in use, after four collections."""
        return int(self.ask("heap"))

    def close(self) -> None:
        self.ask("close")


def _answer_of(told: dict[str, Any]) -> Any:
    if "error" in told:
        raise PluginError(told)
    return told.get("answer")


def _range(start: int, end: int | None) -> dict[str, int]:
    return {"start": start} if end is None else {"start": start, "end": end}


def copy_of(segment: ClosedSegment) -> dict[str, object]:
    """What the call "copy" takes."""
    data = segment.data
    files = {
        name: getattr(data, name)
        for name in ("log_segment", "offset_index", "time_index", "transaction_index", "producer_snapshot")
    }
    return {
        "segment": segment_json(segment.metadata),
        "data": {**files, "leader_epoch_index": bytes(data.leader_epoch_index).hex()},
    }


def segment_json(metadata: RemoteLogSegmentMetadata) -> dict[str, object]:
    partition = metadata.topic_id_partition
    custom = metadata.custom_metadata
    return {
        "topic_id": str(partition.topic_id),
        "topic": partition.topic,
        "partition": partition.partition,
        "id": str(metadata.remote_log_segment_id.id),
        "start_offset": metadata.start_offset,
        "end_offset": metadata.end_offset,
        "max_timestamp": metadata.max_timestamp_ms,
        "broker": metadata.broker_id,
        "event_timestamp": metadata.event_timestamp_ms,
        "size": metadata.segment_size_in_bytes,
        "state": metadata.state.name,
        "epochs": {str(epoch): start for epoch, start in metadata.segment_leader_epochs.items()},
        "custom": None if custom is None else custom.hex(),
        "txn_idx_empty": metadata.txn_idx_empty,
    }


def compiled_with(jar: pathlib.Path, folder: pathlib.Path) -> str:
    """The class path of a JVM with the class of a jar: that jar, PluginPeer compiled into the folder, Kafka's."""
    return os.pathsep.join([str(jar), java_class_path(install.HERE / "PluginPeer.java", folder)])


@contextlib.contextmanager
def running(folder: pathlib.Path, class_path: str, *, manager: str = OURS, heap: str = "256m") -> Iterator[PluginPeer]:
    """Start a JVM with the class, not yet configured, in the folder, and end it behind the block."""
    java = [install.java(), f"-Xmx{heap}", "-cp", class_path, "PluginPeer", manager]
    with LineProcess(java, folder / "plugin-errors.txt", environment=environment(), folder=folder) as process:
        yield PluginPeer(process)


def child_keys(keys: Mapping[str, str]) -> dict[str, str]:
    """The keys with which the class starts a sidecar of these sources."""
    return {**keys, "broker.id": "1", "tierlog.python": sys.executable}


def live_children(pid: int) -> list[int]:
    """The processes that a process has started and that live: of a broker, its sidecar."""
    found = []
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent = stat.read_text().rpartition(")")[2].split()[:2]
        except OSError:
            continue  # it has ended
        if int(parent) == pid and state != "Z":
            found.append(int(stat.parent.name))
    return found
