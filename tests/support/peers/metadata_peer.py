"""Kafka's own TopicBasedRemoteLogMetadataManager as a child process, asked by lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from tests.support.line_process import LineProcess
from tests.support.peers import install
from tierlog.remote.api import RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord, decode_record, encode_record

JARS = "kafka-storage-tests"


class PeerError(Exception):
    """An error of Kafka's manager: the name of its class, and its text."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class MetadataPeer:
    """The manager's calls. One thread."""

    def __init__(self, process: LineProcess) -> None:
        self._process = process

    def _call(self, call: str, partition: TopicIdPartition | None = None, **more: object) -> Any:
        request: dict[str, object] = {"call": call, **more}
        if partition is not None:
            request |= {
                "topic": partition.topic,
                "partition": partition.partition,
                "topic_id": str(partition.topic_id),
            }
        told = json.loads(self._process.ask(json.dumps(request)))
        if "error" in told:
            raise PeerError(told["error"], told["text"])
        return told.get("answer")

    def lead(self, partition: TopicIdPartition) -> None:
        self._call("lead", partition)

    def is_ready(self, partition: TopicIdPartition) -> bool:
        return bool(self._call("ready", partition))

    def put(self, record: RemoteLogMetadataRecord) -> None:
        """Add, update or remove, as the record says, and wait until it is done."""
        self._call("put", record=encode_record(record).hex())

    def find(self, partition: TopicIdPartition, epoch: int, offset: int) -> RemoteLogSegmentMetadata | None:
        return _segment(self._call("find", partition, epoch=epoch, offset=offset))

    def next_with_txn_index(
        self, partition: TopicIdPartition, epoch: int, offset: int
    ) -> RemoteLogSegmentMetadata | None:
        return _segment(self._call("next", partition, epoch=epoch, offset=offset))

    def highest(self, partition: TopicIdPartition, epoch: int) -> int | None:
        found: int | None = self._call("highest", partition, epoch=epoch)
        return found

    def size(self, partition: TopicIdPartition, epoch: int) -> int:
        return int(self._call("size", partition, epoch=epoch))

    def list(self, partition: TopicIdPartition, epoch: int | None = None) -> list[RemoteLogSegmentMetadata]:
        found = self._call("list", partition, **({} if epoch is None else {"epoch": epoch}))
        return [each for text in found if (each := _segment(text)) is not None]


def _segment(text: str | None) -> RemoteLogSegmentMetadata | None:
    if text is None:
        return None
    found = decode_record(bytes.fromhex(text))
    assert isinstance(found, RemoteLogSegmentMetadata)
    return found


@contextlib.contextmanager
def running(configs: Mapping[str, object]) -> Iterator[MetadataPeer]:
    """Starts a JVM with the manager, configured as a broker would, and ends it behind the block."""
    java = [install.java(), "-Xmx256m", "-cp", install.class_path(JARS), str(install.HERE / "MetadataPeer.java")]
    text = json.dumps({name: str(value) for name, value in configs.items()})
    with LineProcess([*java, text], pathlib.Path(os.devnull)) as process:
        yield MetadataPeer(process)
