"""``partition.metadata``: the topic id of a partition folder.

Two lines of ``key: value``, ``version`` and ``topic_id``, with no newline at the end. Any version from 0 on is
accepted, as Kafka does; the all-zero id is not.

Source: Kafka PartitionMetadataFile.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass

from typing_extensions import Buffer

from tierlog.errors import CorruptIndexError

VERSION = 0
_FILE_SIZE_BYTES_MAX = 4096
_LINE = re.compile(r"([^:]*):\s+(.*)")
_TOPIC_ID = re.compile(r"[A-Za-z0-9_-]{22}")


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The content of the file.

    Attributes:
        topic_id: 16 bytes, not all zero.
    """

    topic_id: bytes
    version: int = VERSION

    @property
    def topic_id_text(self) -> str:
        """The topic id in Kafka's text form: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self.topic_id)[:22].decode("ascii")


def parse_partition_metadata(data: Buffer) -> PartitionMetadata:
    """Read the file. Raises CorruptIndexError if it is malformed."""
    view = memoryview(data).cast("B")
    if len(view) > _FILE_SIZE_BYTES_MAX:
        raise CorruptIndexError(f"{len(view)} bytes: this is no partition.metadata", fault="BAD_SIZE", found=len(view))
    try:
        text = bytes(view).decode("utf-8")
    except UnicodeDecodeError as cause:
        raise CorruptIndexError("not UTF-8", fault="BAD_ENTRY", position=cause.start) from cause
    lines = text.splitlines()
    if len(lines) != 2:
        raise CorruptIndexError(f"{len(lines)} lines, expected two", fault="BAD_COUNT", expected=2, found=len(lines))
    version = _field(lines[0], "version", 0)
    if not version.isascii() or not version.isdigit():
        raise CorruptIndexError(f"version {version!r:.40} is no number from 0 on", fault="BAD_VERSION", position=0)
    topic_id = _field(lines[1], "topic_id", len(lines[0]) + 1)
    if _TOPIC_ID.fullmatch(topic_id) is None:
        text = f"topic_id {topic_id!r:.40} is not 22 characters of URL-safe base64"
        raise CorruptIndexError(text, fault="BAD_ENTRY", position=len(lines[0]) + 1)
    raw = base64.urlsafe_b64decode(topic_id + "==")
    if raw == bytes(16):
        raise CorruptIndexError("topic_id is all zero", fault="BAD_ENTRY", position=len(lines[0]) + 1)
    return PartitionMetadata(raw, int(version))


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """The bytes of the file."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id_text}".encode()


def _field(line: str, name: str, position: int) -> str:
    match = _LINE.fullmatch(line)
    if match is None or match[1] != name:
        raise CorruptIndexError(f"{line!r:.60}: expected '{name}: …'", fault="BAD_ENTRY", position=position)
    return match[2].strip()
