"""Object keys of every layout, parsed: from a key alone, topic, partition, offset and ids.

A key that fits no layout is a foreign object: ignored, counted. Decimal digits of any script are read (the plugin
formats offsets in the JVM's locale: docs/formats/objects.md, Object keys).
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from tierlog.log.formats.segment_files import LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, SegmentFileKind
from tierlog.remote.api import ZERO_UUID, IndexType, RemoteLogSegmentMetadata, TopicIdPartition, Uuid

LOG: Final = SegmentFileKind.LOG.suffix
SNAPSHOT: Final = SegmentFileKind.PRODUCER_SNAPSHOT.suffix
OFFSET_INDEX: Final = SegmentFileKind.OFFSET_INDEX.suffix
TIME_INDEX: Final = SegmentFileKind.TIME_INDEX.suffix
TRANSACTION_INDEX: Final = SegmentFileKind.TRANSACTION_INDEX.suffix
#: Of an object beside a segment, with its entry of the remote log index.
REMOTE_LOG_INDEX: Final = "remoteLogIndex"
#: Of an object beside a segment, with its footer.
FOOTER: Final = "footer"
#: The leader epochs in Kafka's test storage.
LOCAL_TIERED_CHECKPOINT: Final = "leader_epoch_checkpoint"

#: All parts beside the log, in the order in which our layout writes and describes them.
PART_SUFFIXES: Final = {
    IndexType.OFFSET: OFFSET_INDEX,
    IndexType.TIMESTAMP: TIME_INDEX,
    IndexType.PRODUCER_SNAPSHOT: SNAPSHOT,
    IndexType.LEADER_EPOCH: LEADER_EPOCH_CHECKPOINT,
    IndexType.TRANSACTION: TRANSACTION_INDEX,
}
LOCAL_TIERED_SUFFIXES: Final = PART_SUFFIXES | {IndexType.LEADER_EPOCH: LOCAL_TIERED_CHECKPOINT}
#: What every segment has: a transaction index is there only where transactions were aborted.
NEEDED_SUFFIXES: Final = frozenset((LOG, *PART_SUFFIXES.values())) - {TRANSACTION_INDEX}
LOCAL_TIERED_NEEDED_SUFFIXES: Final = frozenset((LOG, *LOCAL_TIERED_SUFFIXES.values())) - {TRANSACTION_INDEX}


_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_ID: Final = r"[A-Za-z0-9_-]{22}"
_FILES: Final = "|".join(kind.suffix for kind in SegmentFileKind)


class ObjectKey(NamedTuple):
    """One object of a segment, as its key says.

    Args:
        prefix: What stands before the part that names topic and segment: "" or as it is, with its "/" if it has one.
        segment_id: None where the layout has none (a broker's disk).
        suffix: The kind of part, as in the layout: "log", "rsm-manifest", "leader-epoch-checkpoint" …
        segment_path: What all parts of one segment share: the key without its suffix.
    """

    prefix: str
    topic_id_partition: TopicIdPartition
    start_offset: int
    segment_id: Uuid | None
    suffix: str
    segment_path: str


_AIVEN_FOLDER: Final = re.compile(
    rf"(?P<lead>(?:[^/]*/)*)(?P<topic>[^/]+)-(?P<topic_id>{_ID})/(?P<partition>\d{{1,10}})"
)
_AIVEN_SEGMENT: Final = re.compile(rf"\d{{20}}-{_ID}")
_AIVEN_SUFFIXES: Final = frozenset(("log", "indexes", "rsm-manifest", REMOTE_LOG_INDEX, FOOTER))
_LOCAL_TIERED: Final = re.compile(
    rf"(?P<main>(?P<lead>(?:[^/]*/)*)(?P<topic>[^/]+)-(?P<partition>\d{{1,10}})-(?P<topic_id>{_ID})/"
    rf"(?P<offset>\d{{20}})-(?P<segment_id>{_ID}))"
    rf"\.(?P<suffix>{_FILES}|{LOCAL_TIERED_CHECKPOINT})"
)
_KAFKA: Final = re.compile(
    rf"(?P<main>(?P<lead>(?:[^/]*/)*)(?P<topic>[^/]+)-(?P<topic_id>{_ID})/(?P<partition>\d{{1,10}})/"
    rf"(?P<segment_id>{_ID}))/"
    rf"(?:(?P<offset>\d{{20}})\.(?P<suffix>{_FILES}|{REMOTE_LOG_INDEX}|{FOOTER})"
    rf"|(?P<whole>segment\.json|{LEADER_EPOCH_CHECKPOINT}))"
)
_LOG_DIR: Final = re.compile(
    r"(?P<main>(?P<lead>(?:[^/]*/)*)(?P<topic>[^/]+)-(?P<partition>\d{1,10})/)"
    rf"(?:(?P<offset>\d{{20}})\.(?P<suffix>{_FILES})"
    rf"|(?P<whole>{LEADER_EPOCH_CHECKPOINT}|{re.escape(PARTITION_METADATA)}))"
)
_TOPIC_FOLDER: Final = re.compile(rf"(?P<topic>[^/]+?)(?:-\d{{1,10}})?-{_ID}/")


_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}")


def aiven_segment_path(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the plugin's path of a segment, in ASCII whatever the locale. Raises ValueError.

    ``<topic>-<id>/<partition>/<offset20>-<segment id>``.
    """
    return f"{_topic_path(metadata)}/{metadata.start_offset:020d}-{metadata.remote_log_segment_id.id}"


def kafka_segment_path(metadata: RemoteLogSegmentMetadata) -> str:
    """Our layout's path of a segment, ``<topic>-<id>/<partition>/<segment id>``. Raises ValueError."""
    return f"{_topic_path(metadata)}/{metadata.remote_log_segment_id.id}"


def local_tiered_segment_path(metadata: RemoteLogSegmentMetadata) -> str:
    """Return the path of a segment in Kafka's test storage. Raises ValueError.

    ``<topic>-<partition>-<id>/<offset20>-<segment id>``.
    """
    partition = _legal(metadata.topic_id_partition)
    folder = f"{partition.topic}-{partition.partition}-{partition.topic_id}"
    return f"{folder}/{metadata.start_offset:020d}-{metadata.remote_log_segment_id.id}"


#: By layout, the path of a segment whose description lies at a key made of it.
SEGMENT_PATHS: Final[dict[str, Callable[[RemoteLogSegmentMetadata], str]]] = {
    "aiven": aiven_segment_path,
    "kafka": kafka_segment_path,
}


def _topic_path(metadata: RemoteLogSegmentMetadata) -> str:
    return _partition_path(metadata.topic_id_partition)


@lru_cache(maxsize=64)
def _partition_path(partition: TopicIdPartition) -> str:
    _legal(partition)
    return f"{partition.topic}-{partition.topic_id}/{partition.partition}"


def _legal(partition: TopicIdPartition) -> TopicIdPartition:
    if _TOPIC.fullmatch(partition.topic) is None:  # a "/" in it would lead to other segments
        raise ValueError(f"{partition.topic!r:.80} is no legal topic name")
    return partition


# A listing names the same partition many times in a row: made once, it is also in memory once.
@lru_cache(maxsize=64)
def _partition_of(topic_id: str | None, topic: str, partition: int) -> TopicIdPartition:
    return TopicIdPartition(Uuid.from_text(topic_id) if topic_id else ZERO_UUID, topic, partition)


def _segment_id(text: str) -> Uuid:
    """Return the id of 22 characters that match _ID."""
    return Uuid(a2b_base64(text.encode("ascii").translate(_URL_SAFE) + b"=="))


def _parse(found: re.Match[str] | None) -> ObjectKey | None:
    if found is None:
        return None
    parts = found.groupdict()
    offset, partition = int(parts["offset"] or 0), int(parts["partition"])
    if offset > _INT64_MAX or partition > _INT32_MAX:
        return None
    segment_id = parts.get("segment_id")
    return ObjectKey(
        prefix=parts["lead"],
        topic_id_partition=_partition_of(parts.get("topic_id"), parts["topic"], partition),
        start_offset=offset,
        segment_id=_segment_id(segment_id) if segment_id else None,
        suffix=parts["suffix"] or parts["whole"],
        segment_path=parts["main"],
    )


def parse_aiven(key: str) -> ObjectKey | None:
    """Parse ``<prefix><topic>-<id>/<partition>/<offset20>-<segment id>.<suffix>``; None for other keys."""
    path, _, suffix = key.rpartition(".")
    if suffix not in _AIVEN_SUFFIXES or (named := _aiven_segment(path)) is None:
        return None
    # By position: a listing has millions of keys.
    return ObjectKey(*named, suffix, path)


@lru_cache(maxsize=64)
def _aiven_segment(path: str) -> tuple[str, TopicIdPartition, int, Uuid] | None:
    """Parse a key without its suffix, once for the objects of a segment: (prefix, partition, start offset, id)."""
    folder, _, name = path.rpartition("/")
    found, above = _AIVEN_SEGMENT.fullmatch(name), _aiven_folder(folder)
    if found is None or above is None:
        return None
    offset = int(name[:20])
    return None if offset > _INT64_MAX else (*above, offset, _segment_id(name[21:]))


@lru_cache(maxsize=64)
def _aiven_folder(folder: str) -> tuple[str, TopicIdPartition] | None:
    """Parse the folder of a partition, once for its segments: (prefix, partition)."""
    found = _AIVEN_FOLDER.fullmatch(folder)
    if found is None or int(found["partition"]) > _INT32_MAX:
        return None
    return found["lead"], _partition_of(found["topic_id"], found["topic"], int(found["partition"]))


def parse_local_tiered(key: str) -> ObjectKey | None:
    """Parse ``<prefix><topic>-<partition>-<id>/<offset20>-<segment id>.<suffix>``; None for other keys."""
    return _parse(_LOCAL_TIERED.fullmatch(key))


def parse_kafka(key: str) -> ObjectKey | None:
    """Parse ``<prefix><topic>-<id>/<partition>/<segment id>/<Kafka's file name>``; None for other keys.

    ``start_offset`` is 0 for segment.json and the checkpoint, and of a snapshot the offset behind the segment's end.
    """
    return _parse(_KAFKA.fullmatch(key))


def parse_log_dir(key: str) -> ObjectKey | None:
    """Parse ``<prefix><topic>-<partition>/<Kafka's file name>``; start_offset 0 for the two files without one."""
    return _parse(_LOG_DIR.fullmatch(key))


def key_prefix_hint(in_key: str, meant: str) -> str:
    """Return a hint for a key whose topic ends in the wanted one: a ``key.prefix`` without a slash at its end may
    precede it, which a reader without configuration cannot distinguish from the topic. "" where it does not.
    """
    if in_key == meant or not in_key.endswith(meant):
        return ""
    ending = in_key.removesuffix(meant)
    return f"; if the bucket has a key.prefix that ends in {ending!r}, give it (the configuration's key.prefix)"


#: In this order: the folder of a segment in the kafka layout may look like a partition of a log directory.
PARSERS: Final[dict[str, Callable[[str], ObjectKey | None]]] = {
    "aiven": parse_aiven,
    "kafka": parse_kafka,
    "local-tiered": parse_local_tiered,
    "log-dir": parse_log_dir,
}


def may_hold_topic(folder: str, accepts: Callable[[str], bool]) -> bool:
    """Whether a first-level folder can hold segments of an accepted topic: False only for the folder of another one.

    The folder of a topic is ``<topic>-<id>/`` or ``<topic>-<partition>-<id>/``: both readings are asked.
    """
    if (found := _TOPIC_FOLDER.fullmatch(folder)) is None:
        return True
    return accepts(found["topic"]) or accepts(folder[:-24])
