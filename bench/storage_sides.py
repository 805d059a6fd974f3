"""The segment that storage managers copy and fetch, managers over it, and sides that answer for them round by round.

    python -m bench.storage_sides ours|bare SEGMENT.json

A side is a process: ours, the bare calls over a file of the same chunks (``bench/bare.py``), or the Java plugin
(``bench/peers/PluginTurns.java``). It measures itself, so the hand-over does not count; a side that lives for all
rounds is warm, and its memory can be measured. All answer the same operations:

    open keys (ours, the plugin), or form, chunk_bytes and path (bare): a manager of that name; ``close`` ends it copy
    id: copy the segment under that id; ``copies`` ids: at once, a thread each; ``delete`` id whole id, check, into:
    read the whole segment once random id, starts, given, check: a mebibyte at each position, one thread; ``each`` holds
    their seconds many id, lists, given, check: a thread for each list of positions memory VmRSS and VmHWM in bytes, and
    threads; behind ``peak`` the high-water mark begins anew
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import mmap
import pathlib
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bench.bare import CORES, READ_BYTES, Chunks, Rooms, at_once
from bench.data import bench_log
from bench.harness import MIB, PEERS, ROOT, Side, measured, memory, serve, started
from tests.support.closed_segments import ClosedSegment
from tests.support.peers import install, plugin
from tests.support.segments import make_segment
from tests.support.servers import BUCKET
from tierlog.remote.api import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.protocol.object_store import ObjectStore

CHUNK = 4 * MIB
SEGMENT_BYTES = 256 * MIB
#: Compressed, encrypted.
FORMS = {"plain": (False, False), "zstd": (True, False), "AES": (False, True), "zstd + AES": (True, True)}
Job = Mapping[str, Any]


# ---- the segment


def bench_segment(folder: pathlib.Path, size_bytes: int = SEGMENT_BYTES) -> ClosedSegment:
    """Batches of 1 MiB, half compressible, with the indexes that a broker would have built."""
    log = bench_log("none", batch_bytes=MIB, mean_size=1000, total_bytes=size_bytes)
    return make_segment(log.data, lineage={0: 0}).closed_in(folder).with_id(1)


def write_description(segment: ClosedSegment) -> pathlib.Path:
    """``segment.json`` beside the segment's files, for processes of any language that are to copy it."""
    metadata, data = segment.metadata, segment.data
    partition = metadata.topic_id_partition
    told = {
        "topicId": str(partition.topic_id),
        "topic": partition.topic,
        "partition": partition.partition,
        "endOffset": metadata.end_offset,
        "maxTimestampMs": metadata.max_timestamp_ms,
        "sizeBytes": metadata.segment_size_in_bytes,
        **{name: str(value) for name, value in dataclasses.asdict(data).items() if isinstance(value, str)},
        "leaderEpochs": data.leader_epoch_index.decode(),
    }
    path = pathlib.Path(data.log_segment).with_name("segment.json")
    path.write_text(json.dumps(told))
    return path


def read_description(path: pathlib.Path) -> ClosedSegment:
    """The segment that ``write_description`` described."""
    told = json.loads(path.read_text())
    paths = [told[name] for name in ("log_segment", "offset_index", "time_index")]
    data = LogSegmentData(*paths, None, told["producer_snapshot"], told["leaderEpochs"].encode())
    partition = TopicIdPartition(Uuid.from_text(told["topicId"]), told["topic"], told["partition"])
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(partition, Uuid(bytes(15) + b"\1")),
        start_offset=0,
        end_offset=told["endOffset"],
        max_timestamp_ms=told["maxTimestampMs"],
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_in_bytes=told["sizeBytes"],
        segment_leader_epochs={0: 0},
        txn_idx_empty=True,
    )
    return ClosedSegment(metadata, data)


def positions(size_bytes: int, count: int, chance: random.Random) -> list[int]:
    """The positions of mebibytes in a segment that are read."""
    return [chance.randrange(size_bytes - READ_BYTES) for _ in range(count)]


# ---- managers


def form_keys(form: str, chunk_bytes: int = CHUNK) -> dict[str, str]:
    """The plugin's keys for one of FORMS."""
    compressed, encrypted = FORMS[form]
    keys = {"chunk.size": str(chunk_bytes), "compression.enabled": str(compressed).lower()}
    if encrypted:
        folder = ROOT / "tests" / "data" / "keys" / "k1"
        keys |= {
            "encryption.enabled": "true",
            "encryption.key.pair.id": "k1",
            "encryption.key.pairs": "k1",
            "encryption.key.pairs.k1.public.key.file": str(folder / "public.der"),
            "encryption.key.pairs.k1.private.key.file": str(folder / "private.der"),
        }
    return keys


def folder_keys(root: pathlib.Path) -> dict[str, str]:
    """Keys for a folder, which is made."""
    root.mkdir(parents=True, exist_ok=True)
    backend = "io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage"
    return {"storage.backend.class": backend, "storage.root": str(root)}


def s3_keys(options: Mapping[str, str]) -> dict[str, str]:
    """Keys for a server that ``tests.support.servers`` runs."""
    return {
        "storage.backend.class": "io.aiven.kafka.tieredstorage.storage.s3.S3Storage",
        "storage.s3.bucket.name": BUCKET,
        "storage.s3.region": "us-east-1",
        "storage.s3.endpoint.url": options["store.endpoint"],
        "storage.s3.path.style.access.enabled": "true",
        "storage.aws.access.key.id": options["store.access_key_id"],
        "storage.aws.secret.access.key": options["store.secret_access_key"],
    }


@contextlib.contextmanager
def manager_over(keys: Mapping[str, str]) -> Iterator[tuple[TieredStorageManager, ObjectStore]]:
    """A configured manager, and its store, which counts requests."""
    stores: list[ObjectStore] = []

    def seen(store: ObjectStore) -> ObjectStore:
        stores.append(store)
        return store

    manager = TieredStorageManager(wrap_store=seen)
    try:
        manager.configure(keys)
        yield manager, stores[0]
    finally:
        manager.close()


# ---- sides, as the driver sees them


def side(name: str, description: str) -> contextlib.AbstractContextManager[Side]:
    """``ours``, ``bare`` or ``the plugin`` over a described segment, until the block ends."""
    command = [sys.executable, "-m", "bench.storage_sides", name, description]
    if name == "the plugin":
        java = [install.java(), "-Xmx2g", "-XX:+UseG1GC", "-cp", plugin.class_path(), str(PEERS / "PluginTurns.java")]
        command = [*java, description, plugin.MANAGER]
    return started(name, command, in_json=True)


# ---- sides, in their processes


def _buffer() -> memoryview:
    """The buffer of one reader. Its pages exist before, and go with it, so that remaining memory is the manager's."""
    return memoryview(mmap.mmap(-1, READ_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))


class _Served:
    """Managers by name, over one segment."""

    def __init__(self, description: pathlib.Path) -> None:
        self.segment = read_description(description)
        self.managers: dict[str, Any] = {}

    def answer(self, job: Job) -> Mapping[str, Any] | None:
        """One round."""
        told: Mapping[str, Any] | None = getattr(self, job["op"])(job)
        return told

    def close(self, job: Job) -> None:
        self.managers.pop(job["manager"]).close()

    def peak(self, job: Job) -> None:
        pathlib.Path("/proc/self/clear_refs").write_text("5")

    def memory(self, job: Job) -> Mapping[str, int]:
        return memory()


class Ours(_Served):
    """Our storage managers."""

    _log = memoryview(b"")

    def answer(self, job: Job) -> Mapping[str, Any] | None:
        """One round, whose bytes are compared with the log where ``check`` asks for it."""
        self._log = memoryview(self.segment.log if job.get("check") else b"")
        return super().answer(job)

    def open(self, job: Job) -> None:
        manager = self.managers[job["manager"]] = TieredStorageManager()
        manager.configure(job["keys"])

    def copy(self, job: Job) -> Mapping[str, Any]:
        attempt = self.segment.with_id(job["id"])
        copy = self.managers[job["manager"]].copy_log_segment_data
        taken = measured(lambda: copy(attempt.metadata, attempt.data))
        return {"wall": taken.wall, "cpu": taken.cpu}

    def copies(self, job: Job) -> Mapping[str, Any]:
        return at_once([partial(self.copy, {**job, "id": number}) for number in job["ids"]])

    def delete(self, job: Job) -> None:
        self.managers[job["manager"]].delete_log_segment_data(self.segment.with_id(job["id"]).finished())

    def whole(self, job: Job) -> Mapping[str, Any]:
        """Read all by views, which are dropped, or (``into``) into one buffer of a mebibyte, as Java's streams are
        read.
        """
        metadata, buffer = self.segment.with_id(job["id"]).finished(), _buffer()

        def read() -> int:
            total = 0
            with self.managers[job["manager"]].fetch_log_segment(metadata, 0) as stream:
                if job.get("into"):
                    while count := stream.readinto(buffer):
                        self._same(buffer[:count], total)
                        total += count
                else:
                    for view in stream.buffers():
                        self._same(view, total)
                        total += view.nbytes
            return total

        taken = measured(read)
        if taken.told != metadata.segment_size_in_bytes:
            raise OSError(f"a fetch gave {taken.told} of {metadata.segment_size_in_bytes} bytes")
        return {"wall": taken.wall, "cpu": taken.cpu}

    def _same(self, found: memoryview, position: int) -> None:
        if self._log and found != self._log[position : position + found.nbytes]:
            raise OSError(f"other bytes than the log's at {position}")

    def _reads(self, job: Job, starts: Sequence[int], each: list[float], buffer: memoryview) -> None:
        fetch = self.managers[job["manager"]].fetch_log_segment
        metadata = self.segment.with_id(job["id"]).finished()
        for start in starts:
            began = time.perf_counter()
            with fetch(metadata, start, start + READ_BYTES - 1 if job["given"] else None) as stream:
                if stream.readinto(buffer) != READ_BYTES:
                    raise OSError(f"a short answer at {start}")
            each.append(time.perf_counter() - began)
            self._same(buffer, start)

    def random(self, job: Job) -> Mapping[str, Any]:
        each: list[float] = []
        taken = measured(partial(self._reads, job, job["starts"], each, _buffer()))
        return {"wall": taken.wall, "cpu": taken.cpu, "each": each}

    def many(self, job: Job) -> Mapping[str, Any]:
        each: list[float] = []
        return {
            **at_once([partial(self._reads, job, starts, each, _buffer()) for starts in job["lists"]]),
            "each": each,
        }


class Bare(_Served):
    """Files of the same chunks, read by the bare calls; nothing is copied."""

    def open(self, job: Job) -> Mapping[str, Any]:
        log = np.fromfile(self.segment.data.log_segment, np.uint8)
        made = self.managers[job["manager"]] = Chunks(pathlib.Path(job["path"]), log, job["chunk_bytes"], job["form"])
        return {"stored": made.stored_bytes}

    def whole(self, job: Job) -> Mapping[str, Any]:
        """Read the whole file by as many threads as there are cores."""
        chunks = self.managers[job["manager"]]
        return dict(chunks.whole([Rooms(chunks.chunk_bytes) for _ in range(CORES)]))

    def random(self, job: Job) -> Mapping[str, Any]:
        chunks = self.managers[job["manager"]]
        rooms = Rooms(chunks.chunk_bytes)
        if job["check"]:
            chunks.check(np.memmap(self.segment.data.log_segment, np.uint8, "r"), job["starts"], rooms)
        taken = measured(lambda: chunks.reads(job["starts"], rooms))
        return {"wall": taken.wall, "cpu": taken.cpu, "each": taken.told}

    def many(self, job: Job) -> Mapping[str, Any]:
        chunks = self.managers[job["manager"]]
        return at_once([partial(chunks.reads, starts, Rooms(chunks.chunk_bytes)) for starts in job["lists"]])


if __name__ == "__main__":
    serve({"ours": Ours, "bare": Bare}[sys.argv[1]](pathlib.Path(sys.argv[2])).answer)
