"""What a copy writes and a delete removes, under both layouts: keys, order, content."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import numpy as np
import pytest

from tests.support.batches import encode, message
from tests.support.segments import leader_epochs, producer_snapshot
from tests.support.sparse_indexes import encode_offset_index
from tierlog._native.checksums import crc32c
from tierlog.errors import CorruptObjectError
from tierlog.remote.api import IndexType, RemoteLogSegmentId, RemoteLogSegmentMetadata, TopicIdPartition, Uuid
from tierlog.remote.config import StorageConfig, read_storage_config
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.chunks.key_ring import SegmentEncryption, SegmentKey
from tierlog.remote.tier.layouts.segment_objects import (
    AivenObjects,
    KafkaObjects,
    StoredLog,
    custom_metadata_of,
    largest_custom_metadata_bytes,
    plan_objects,
    plan_removal,
)
from tierlog.remote.tier.objects.custom_metadata import SegmentCustomMetadata, decode_custom_metadata
from tierlog.remote.tier.objects.manifest import parse_manifest
from tierlog.remote.tier.objects.object_keys import parse_aiven, parse_kafka
from tierlog.runtime.machine.randomness import SeededRng

RNG = SeededRng(1)
LOG = b"".join(encode(message(offset, "value", 0)) for offset in range(3, 8))
METADATA = RemoteLogSegmentMetadata(
    RemoteLogSegmentId(
        TopicIdPartition(Uuid.from_text("lZ6vvmajTWKDBUTV6SQAtQ"), "topic", 7),
        Uuid.from_text("adh9f8BMS4anaUnD8KWfWg"),
    ),
    start_offset=3,
    end_offset=7,
    max_timestamp_ms=9,
    broker_id=1,
    event_timestamp_ms=10,
    segment_size_in_bytes=len(LOG),
    segment_leader_epochs={0: 3},
)
PATH = "topic-lZ6vvmajTWKDBUTV6SQAtQ/7/00000000000000000003-adh9f8BMS4anaUnD8KWfWg"
FOLDER = "topic-lZ6vvmajTWKDBUTV6SQAtQ/7/adh9f8BMS4anaUnD8KWfWg"
OFFSET_INDEX = encode_offset_index(3, [5, 7], [70, 140])
PARTS = {
    IndexType.OFFSET: OFFSET_INDEX + bytes(80),
    IndexType.TIMESTAMP: b"",
    IndexType.PRODUCER_SNAPSHOT: producer_snapshot({}),
    IndexType.LEADER_EPOCH: leader_epochs({0: 0}, 8),
}


def config(**keys: str) -> StorageConfig:
    return read_storage_config({"chunk.size": "100"} | {name.replace("_", "."): value for name, value in keys.items()})


def changed(**changes: Any) -> RemoteLogSegmentMetadata:
    return dataclasses.replace(METADATA, **changes)


def store(root: pathlib.Path, objects: dict[str, bytes]) -> None:
    for key, content in objects.items():
        (root / key).parent.mkdir(parents=True, exist_ok=True)
        (root / key).write_bytes(content)


class TestAiven:
    """The plugin's three objects."""

    def plan(self, **more: Any) -> AivenObjects:
        given: dict[str, Any] = {"compression": False, "segment_key": None, "rng": RNG}
        return AivenObjects(config(key_prefix="some/prefix/"), METADATA, more.pop("parts", PARTS), **(given | more))

    def test_keys_and_order(self) -> None:
        """If this fails, the plugin does not find what we tiered."""
        plan = self.plan()
        assert plan.log_key == f"some/prefix/{PATH}.log"
        assert [key for key, _ in plan.small_objects()] == [f"some/prefix/{PATH}.indexes"]
        assert plan.description_key == f"some/prefix/{PATH}.rsm-manifest"
        assert plan.segment_path == PATH
        found = parse_aiven(plan.log_key)
        assert found is not None
        assert (found.prefix, found.start_offset) == ("some/prefix/", 3)

    def test_indexes_are_the_files_as_they_are(self) -> None:
        """If this fails, a broker gets other index bytes back than it gave."""
        plan = self.plan(parts=PARTS | {IndexType.TRANSACTION: b""})
        ((_, indexes),) = plan.small_objects()
        assert indexes == b"".join(PARTS.values())
        members = json.loads(plan.description(StoredLog(len(LOG))))["segmentIndexes"]
        assert members["offset"] == {"position": 0, "size": len(OFFSET_INDEX) + 80}
        assert members["timestamp"] == {"position": len(OFFSET_INDEX) + 80, "size": 0}
        assert members["transaction"] == {"position": len(indexes), "size": 0}
        assert json.loads(self.plan().description(StoredLog(len(LOG))))["segmentIndexes"]["transaction"] is None

    def test_encrypted_indexes_have_an_iv_each_and_an_empty_one_none(self) -> None:
        """If this fails, indexes of two kinds share an IV, or an empty index costs a request to read."""
        key = SegmentKey(bytes(range(32)), SegmentEncryption("k1", b"wrapped", bytes(32)))
        plan = self.plan(segment_key=key)
        ((_, indexes),) = plan.small_objects()
        sealed = parse_manifest(plan.description(StoredLog(len(LOG) + 28 * -(-len(LOG) // 100))), where="k").indexes
        sizes = {kind: size for kind, _, size in sealed}
        assert sizes == {kind: len(data) + 28 if data else 0 for kind, data in PARTS.items()}
        ivs = {indexes[position : position + 12] for _, position, size in sealed if size}
        assert len(ivs) == 3
        assert plan.new_iv() not in ivs
        assert PARTS[IndexType.LEADER_EPOCH] not in indexes

    def test_a_log_that_is_not_whole_gets_no_manifest(self) -> None:
        """If this fails, a segment that lost bytes on the way is FINISHED, and its local copy deleted."""
        for size in (0, len(LOG) - 1, len(LOG) + 1):
            with pytest.raises(CorruptObjectError, match=f"{size} bytes of the log were stored"):
                self.plan().description(StoredLog(size))
        packed = self.plan(compression=True)
        with pytest.raises(CorruptObjectError, match="999 bytes of the log"):
            packed.description(StoredLog(999, np.full(-(-len(LOG) // 100), 50, np.int32)))
        with pytest.raises(CorruptObjectError):
            packed.description(StoredLog(50, [50]))
        with pytest.raises(ValueError, match="compressed chunks"):
            packed.description(StoredLog(len(LOG)))

    def test_a_mandatory_part_is_not_left_out(self) -> None:
        """If this fails, a segment is tiered that no broker can use."""
        for kind in PARTS:
            with pytest.raises(ValueError, match=kind.value):
                self.plan(parts={other: data for other, data in PARTS.items() if other is not kind})


class TestKafka:
    """Kafka's own files."""

    def plan(self, parts: dict[IndexType, bytes] = PARTS) -> KafkaObjects:
        return KafkaObjects(config(key_prefix="p/", layout="kafka"), METADATA, parts)

    def test_keys_and_order(self) -> None:
        """If this fails, Kafka's tools do not open what we tiered, or a reader sees half a segment."""
        plan = self.plan(PARTS | {IndexType.TRANSACTION: b""})
        assert plan.log_key == f"p/{FOLDER}/00000000000000000003.log"
        assert [key for key, _ in plan.small_objects()] == [
            f"p/{FOLDER}/00000000000000000003.index",
            f"p/{FOLDER}/00000000000000000003.timeindex",
            f"p/{FOLDER}/00000000000000000008.snapshot",
            f"p/{FOLDER}/leader-epoch-checkpoint",
            f"p/{FOLDER}/00000000000000000003.txnindex",
        ]
        assert plan.description_key == f"p/{FOLDER}/segment.json"
        for key in (plan.log_key, plan.description_key, *dict(plan.small_objects())):
            assert parse_kafka(key.removeprefix("p/")) is not None, key

    def test_indexes_are_trimmed(self) -> None:
        """If this fails, Kafka takes the zeros of preallocation for entries."""
        files = {key.rpartition(".")[2]: data for key, data in self.plan().small_objects()}
        assert files["index"] == OFFSET_INDEX
        assert files["snapshot"] == PARTS[IndexType.PRODUCER_SNAPSHOT]

    def test_the_description(self) -> None:
        """If this fails, segment.json is not what the layout's document says, and another reader refuses it."""
        plan = self.plan()
        found = json.loads(plan.description(StoredLog(len(LOG), crc32c=crc32c(LOG))))
        parts = found.pop("parts")
        assert found == {
            "version": 1,
            "topic": "topic",
            "topicId": "lZ6vvmajTWKDBUTV6SQAtQ",
            "partition": 7,
            "segmentId": "adh9f8BMS4anaUnD8KWfWg",
            "startOffset": 3,
            "endOffset": 7,
            "maxTimestampMs": 9,
            "brokerId": 1,
            "eventTimestampMs": 10,
            "segmentLeaderEpochs": {"0": 3},
        }
        assert list(parts) == ["log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint"]
        assert parts["log"] == {"size": len(LOG), "crc32c": f"{crc32c(LOG):08x}"}
        assert parts["timeindex"] == {"size": 0, "crc32c": "00000000"}
        with pytest.raises(CorruptObjectError, match="bytes of the log were stored"):
            plan.description(StoredLog(len(LOG) - 1, crc32c=0))
        with pytest.raises(ValueError, match="CRC-32C"):
            plan.description(StoredLog(len(LOG)))


@pytest.mark.parametrize("layout", ["aiven", "kafka"])
def test_what_is_written_reads_back(tmp_path: pathlib.Path, layout: str) -> None:
    """If this fails, we cannot read what we write."""
    settings = config(layout=layout)
    plan = plan_objects(settings, METADATA, PARTS, compression=False, segment_key=None, rng=RNG)
    assert plan.assembler is None
    assert plan.new_iv() is None
    description = plan.description(StoredLog(len(LOG), crc32c=crc32c(LOG) if plan.needs_checksum else None))
    objects = {plan.log_key: LOG, **dict(plan.small_objects()), plan.description_key: description}
    store(tmp_path, objects)
    with open_tier(str(tmp_path)) as tier:
        assert tier.layout == layout
        (segment,) = tier.iter_segments()
        assert segment.metadata.remote_log_segment_id == METADATA.remote_log_segment_id
        assert segment.metadata.segment_leader_epochs == METADATA.segment_leader_epochs
        assert b"".join(bytes(window) for _, window in tier.iter_log_windows(segment)) == LOG
        assert bytes(tier.fetch_index(segment, IndexType.OFFSET) or b"").startswith(OFFSET_INDEX)
        assert tier.fetch_index(segment, IndexType.TRANSACTION) is None
        assert tier.foreign_objects == 0
    removal = plan_removal(settings, METADATA)
    assert removal.descriptions == (plan.description_key,)
    assert set(removal.others) >= objects.keys() - {plan.description_key}
    assert plan.description_key not in removal.others


class TestRemoval:
    """What a delete asks the store for."""

    def test_the_configured_place(self) -> None:
        """If this fails, a delete leaves objects behind that cost money for ever."""
        assert plan_removal(config(key_prefix="p/"), METADATA).descriptions == (f"p/{PATH}.rsm-manifest",)
        assert plan_removal(config(key_prefix="p/"), METADATA).others == tuple(
            f"p/{PATH}.{suffix}" for suffix in ("log", "indexes", "remoteLogIndex", "footer")
        )
        assert len(plan_removal(config(layout="kafka"), METADATA).others) == 8

    def test_the_place_before_the_prefix_changed_comes_first(self) -> None:
        """If this fails, segments from before a change of key.prefix stay for ever, and delete says it removed them."""
        custom = SegmentCustomMetadata(object_prefix="old/", object_key="a/b/c").encode()
        found = plan_removal(config(key_prefix="new/"), changed(custom_metadata=custom))
        assert found.descriptions == ("old/a/b/c.rsm-manifest", f"new/{PATH}.rsm-manifest")
        suffixes = ("log", "indexes", "remoteLogIndex", "footer")
        assert found.others == tuple(f"{base}.{suffix}" for base in ("old/a/b/c", f"new/{PATH}") for suffix in suffixes)
        same = SegmentCustomMetadata(object_prefix="new/", object_key=PATH).encode()
        assert plan_removal(config(key_prefix="new/"), changed(custom_metadata=same)).descriptions == (
            f"new/{PATH}.rsm-manifest",
        )

    def test_a_topic_name_that_is_a_path_is_refused(self) -> None:
        """If this fails, a damaged metadata record deletes another topic's objects."""
        for topic in ("a/../b", "ä", "a" * 250):
            partition = METADATA.topic_id_partition
            identity = RemoteLogSegmentId(
                TopicIdPartition(partition.topic_id, topic, 0), METADATA.remote_log_segment_id.id
            )
            with pytest.raises(ValueError, match="topic name"):
                plan_removal(config(), changed(remote_log_segment_id=identity))


class TestCustomMetadata:
    """What goes with the segment's metadata."""

    def plan(self, settings: StorageConfig) -> AivenObjects:
        return AivenObjects(settings, METADATA, PARTS, compression=False, segment_key=None, rng=RNG)

    def test_all_fields(self) -> None:
        """If this fails, fetch and delete do not find the segment once key.prefix changes."""
        settings = config(
            custom_metadata_fields_include="REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY",
            key_prefix="p/",
            manifest_digest_enabled="true",
        )
        made = custom_metadata_of(settings, self.plan(settings), stored_bytes=1234, digest=bytes(32))
        found = decode_custom_metadata(made, where="s")
        assert found == SegmentCustomMetadata(1234, "p/", PATH, bytes(32))
        assert made is not None
        assert len(made) <= largest_custom_metadata_bytes(settings, self.plan(settings), METADATA) <= len(made) + 4

    def test_nothing_and_no_digest_unless_asked(self) -> None:
        """If this fails, brokers store bytes with each segment that nobody asked for."""
        settings = config()
        assert custom_metadata_of(settings, self.plan(settings), stored_bytes=1, digest=bytes(32)) is None
        assert largest_custom_metadata_bytes(settings, self.plan(settings), METADATA) == 0

    def test_the_formats_example_of_the_limit(self) -> None:
        """If this fails, the warning of the 128-byte limit comes too late, or never: the broker then stops copying."""
        keys = {"custom_metadata_fields_include": "REMOTE_SIZE,OBJECT_PREFIX,OBJECT_KEY", "key_prefix": "p" * 40}
        settings = config(**keys)
        plan = self.plan(settings)
        made = custom_metadata_of(settings, plan, stored_bytes=1 << 30, digest=None)
        assert len(made or b"") == 82 + 40 + len("topic") + 1  # three fields, their keys and lengths
        assert largest_custom_metadata_bytes(settings, plan, METADATA) <= 128
