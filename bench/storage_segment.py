"""The segment that the storage manager's benchmark copies, and managers over a folder or S3 in each of four forms."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Iterator, Mapping

from bench.logs import MIB, bench_log
from tests.support.closed_segments import MADE_TOPIC, ClosedSegment
from tests.support.servers import BUCKET
from tierlog.log.checks.index_builder import IndexBuilder
from tierlog.log.formats.producer_snapshot import encode_producer_snapshot
from tierlog.remote.api import LogSegmentData, RemoteLogSegmentId, RemoteLogSegmentMetadata, Uuid
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.protocol.object_store import ObjectStore

DATA = pathlib.Path(__file__).resolve().parent.parent / "tests" / "data"
CHUNK = 4 * MIB
SEGMENT_BYTES = 256 * MIB
#: Compressed, encrypted.
FORMS = {"plain": (False, False), "zstd": (True, False), "AES": (False, True), "zstd + AES": (True, True)}
_CHECKPOINT = b"0\n1\n0 0\n"
_NAME = f"{0:020d}"


def make_segment(folder: pathlib.Path, size_bytes: int = SEGMENT_BYTES) -> ClosedSegment:
    """Batches of 1 MiB, half compressible, with the indexes that a broker would have built."""
    folder.mkdir(parents=True)
    log = bench_log("none", batch_bytes=MIB, mean_size=1000, total_bytes=size_bytes)
    builder = IndexBuilder(0)
    builder.add({name: getattr(log.table, name) for name in ("last_offset", "position", "max_timestamp")})
    end = int(log.table.last_offset[-1])
    (folder / f"{_NAME}.log").write_bytes(log.data)
    (folder / f"{_NAME}.index").write_bytes(builder.offset_index())
    (folder / f"{_NAME}.timeindex").write_bytes(builder.time_index())
    (folder / "producers.snapshot").write_bytes(encode_producer_snapshot([]))
    return described(folder, len(log.data), end, int(log.table.max_timestamp.max()))


def described(folder: pathlib.Path, size_bytes: int, end_offset: int, max_timestamp_ms: int) -> ClosedSegment:
    """The segment that ``make_segment`` left in a folder."""
    log, index, time_index = (str(folder / f"{_NAME}.{suffix}") for suffix in ("log", "index", "timeindex"))
    data = LogSegmentData(log, index, time_index, None, str(folder / "producers.snapshot"), _CHECKPOINT)
    metadata = RemoteLogSegmentMetadata(
        RemoteLogSegmentId(MADE_TOPIC, Uuid(bytes(15) + b"\1")),
        start_offset=0,
        end_offset=end_offset,
        max_timestamp_ms=max_timestamp_ms,
        broker_id=1,
        event_timestamp_ms=1_700_000_000_000,
        segment_size_in_bytes=size_bytes,
        segment_leader_epochs={0: 0},
        txn_idx_empty=True,
    )
    return ClosedSegment(metadata, data)


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
        "leaderEpochs": _CHECKPOINT.decode(),
    }
    path = pathlib.Path(data.log_segment).with_name("segment.json")
    path.write_text(json.dumps(told))
    return path


def read_description(path: pathlib.Path) -> ClosedSegment:
    """The segment that ``write_description`` described."""
    told = json.loads(path.read_text())
    return described(path.parent, told["sizeBytes"], told["endOffset"], told["maxTimestampMs"])


def form_keys(form: str, chunk_bytes: int = CHUNK) -> dict[str, str]:
    """The plugin's keys for one of FORMS."""
    compressed, encrypted = FORMS[form]
    keys = {"chunk.size": str(chunk_bytes), "compression.enabled": str(compressed).lower()}
    if encrypted:
        folder = DATA / "keys" / "k1"
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
