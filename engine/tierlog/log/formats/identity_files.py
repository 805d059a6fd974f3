"""The small files that name a folder's owner, and say how the folder was left; the ids that they hold.

- ``meta.properties``, of a log directory: Java properties behind a comment with the date. Version 1 has ``cluster.id``
  and ``node.id``, and since Kafka 3.7 ``directory.id``; version 0, of brokers beside a ZooKeeper, calls the node
  ``broker.id``, and may leave out both.
- ``partition.metadata``, of a partition's folder: two lines of ``key: value``, ``version`` and ``topic_id``, with no
  newline at the end. Any version from 0 on is accepted, as Kafka does; the all-zero id is not.
- ``.kafka_cleanshutdown``: that a log directory was closed after all of its logs, and by which broker's run. Its
  existence says the former, whatever it holds: brokers before Kafka 3.8 left it empty. Since then it is JSON with the
  broker's epoch, which a broker sends to the controller when it is back.

Source: Kafka MetaProperties, PropertiesUtils, PartitionMetadataFile, CleanShutdownFileHandler; Java's Properties, which
orders the lines by the keys' hash codes.
"""

from __future__ import annotations

import base64
import datetime
import json
import re
from dataclasses import dataclass
from typing import Final, Self

from typing_extensions import Buffer

from tierlog.arguments import require_text, require_type
from tierlog.errors import CorruptIndexError
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.properties import parse_properties
from tierlog.runtime.machine.randomness import Rng

META_PROPERTIES_BYTES_MAX: Final = 1 << 16
_PARTITION_METADATA_BYTES_MAX: Final = 4096
CLEAN_SHUTDOWN_BYTES_MAX: Final = 4096
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_EPOCH: Final = re.compile(r"[+-]?[0-9]{1,19}")
_UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_LINE: Final = re.compile(r"([^:]*):\s+(.*)")
_NODE_KEY: Final = ("broker.id", "node.id")
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {each: f"\\{each}" for each in "\\:=#!"}


class Uuid(bytes):
    """Kafka's Uuid: 16 bytes, written as 22 characters of URL-safe base64 without padding.

    It is a ``bytes``, so that its hash, which each lookup of a partition asks for, is computed by no Python code.
    """

    __slots__ = ()

    def __new__(cls, raw: bytes) -> Self:
        """Make the id of 16 bytes. Raises TypeError or ValueError for others."""
        if type(raw) is not bytes:  # one is made for each segment and record
            require_type("raw", raw, bytes, "16 bytes (Uuid.from_text takes the 22 characters)")
        if len(raw) != 16:
            raise ValueError(f"a Uuid has 16 bytes, not {len(raw)}")
        return bytes.__new__(cls, raw)

    @property
    def raw(self) -> bytes:
        """The 16 bytes."""
        return bytes(self)

    @classmethod
    def from_text(cls, text: str) -> Uuid:
        """Parse the 22 characters. Raises ValueError."""
        if _UUID.fullmatch(require_text("text", text)) is None:
            raise ValueError(f"not a Kafka Uuid: {text!r}")
        return cls(base64.urlsafe_b64decode(text + "=="))

    @classmethod
    def random(cls, rng: Rng | None = None) -> Uuid:
        """Make a new id, as Kafka does: never one of the two reserved ones, never with "-" as its first character.

        Args:
            rng: Its randomness; by default the operating system's.
        """
        rng = rng or Machine().rng
        while True:
            raw = bytearray(rng.secret_bytes(16))
            raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
            made = cls(bytes(raw))
            if not str(made).startswith("-"):
                return made

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(self)[:22].decode("ascii")

    def __repr__(self) -> str:
        return f"Uuid({self})"


#: Kafka's Uuid.ZERO_UUID: no id, or one that is not known.
ZERO_UUID: Final = Uuid(bytes(16))


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of the file.

    Attributes:
        directory_id: None where there is none.
        version: 0 or 1; with 1, cluster and node are there.
    """

    cluster_id: str | None
    node_id: int | None
    directory_id: Uuid | None = None
    version: int = 1


def parse_meta_properties(data: Buffer) -> MetaProperties:
    """Read the file; keys that are not known are passed over, and a missing version is 0, as Kafka has it.

    Raises:
        CorruptIndexError: malformed, of another version, or of version 1 without a cluster or a node.
    """
    view = memoryview(data).cast("B")
    if len(view) > META_PROPERTIES_BYTES_MAX:
        raise CorruptIndexError(f"{len(view)} bytes: this is no meta.properties", fault="BAD_SIZE", found=len(view))
    try:
        found = dict(parse_properties(bytes(view).decode("latin-1")))
    except ValueError as cause:
        raise _corrupt(str(cause)) from cause
    version = _number("version", found.get("version", "0"))
    if version not in (0, 1):
        raise CorruptIndexError(f"version {version}, only 0 and 1 are known", fault="BAD_VERSION", found=version)
    node_key = _NODE_KEY[version]
    if version == 1:
        for name in ("cluster.id", node_key):
            if name not in found:
                raise _corrupt(f"no {name}")
    node_id = _number(node_key, found[node_key]) if node_key in found else None
    directory_id = _directory_id(found["directory.id"]) if "directory.id" in found else None
    return MetaProperties(found.get("cluster.id"), node_id, directory_id, version)


def encode_meta_properties(properties: MetaProperties, *, written_ms: int) -> bytes:
    """Encode the file, as Kafka writes it in UTC.

    Args:
        properties: Its content.
        written_ms: The time for its comment, ms since 1970 UTC.
    """
    version = properties.version
    lines = {
        _NODE_KEY[version]: None if properties.node_id is None else str(properties.node_id),
        "directory.id": None if properties.directory_id is None else str(properties.directory_id),
        "version": str(version),
        "cluster.id": properties.cluster_id,
    }
    time = datetime.datetime.fromtimestamp(written_ms // 1000, tz=datetime.UTC)
    date = f"{_DAYS[time.weekday()]} {_MONTHS[time.month - 1]} {time:%d %H:%M:%S} UTC {time.year:04d}"
    text = "".join(f"{name}={_escaped(value)}\n" for name, value in lines.items() if value is not None)
    return f"#\n#{date}\n{text}".encode("latin-1")


def _number(name: str, text: str) -> int:
    if _NUMBER.fullmatch(text) is None or not -(2**31) <= int(text) < 2**31:
        raise _corrupt(f"{name} {text!r:.40} is no number of 32 bits")
    return int(text)


def _directory_id(text: str) -> Uuid:
    if _UUID.fullmatch(text) is None:
        raise _corrupt(f"directory.id {text!r:.40} is not 22 characters of URL-safe base64")
    return Uuid.from_text(text)


def _escaped(value: str) -> str:
    """Return a value as Java's Properties writes it: plain ASCII."""
    shown = "".join(_ESCAPES.get(each) or (each if " " <= each <= "~" else _utf16(each)) for each in value)
    return f"\\{shown}" if shown.startswith(" ") else shown


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def _corrupt(text: str) -> CorruptIndexError:
    return CorruptIndexError(text, fault="BAD_ENTRY")


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """The content of the file.

    Attributes:
        topic_id: Not ZERO_UUID.
    """

    topic_id: Uuid
    version: int = 0


def parse_partition_metadata(data: Buffer) -> PartitionMetadata:
    """Read the file. Raises CorruptIndexError if it is malformed."""
    view = memoryview(data).cast("B")
    if len(view) > _PARTITION_METADATA_BYTES_MAX:
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
    if _UUID.fullmatch(topic_id) is None:
        text = f"topic_id {topic_id!r:.40} is not 22 characters of URL-safe base64"
        raise CorruptIndexError(text, fault="BAD_ENTRY", position=len(lines[0]) + 1)
    found = Uuid.from_text(topic_id)
    if found == ZERO_UUID:
        raise CorruptIndexError("topic_id is all zero", fault="BAD_ENTRY", position=len(lines[0]) + 1)
    return PartitionMetadata(found, int(version))


def encode_partition_metadata(metadata: PartitionMetadata) -> bytes:
    """Encode the file."""
    return f"version: {metadata.version}\ntopic_id: {metadata.topic_id}".encode()


def _field(line: str, name: str, position: int) -> str:
    match = _LINE.fullmatch(line)
    if match is None or match[1] != name:
        raise CorruptIndexError(f"{line!r:.60}: expected '{name}: …'", fault="BAD_ENTRY", position=position)
    return match[2].strip()


def parse_clean_shutdown(data: Buffer) -> int | None:
    """Parse the broker's epoch; None where the file has none, or cannot be read, which Kafka ignores as well."""
    view = memoryview(data).cast("B")
    if len(view) > CLEAN_SHUTDOWN_BYTES_MAX:
        return None
    try:
        content, _ = json.JSONDecoder().raw_decode(bytes(view).decode("utf-8").lstrip())
    except (ValueError, RecursionError):
        return None
    found = content.get("brokerEpoch") if isinstance(content, dict) else None
    if isinstance(found, str):
        found = int(found) if _EPOCH.fullmatch(found) else None
    if isinstance(found, float):
        found = int(found) if abs(found) < 2.0**63 else None
    if not isinstance(found, int) or isinstance(found, bool) or not -(2**63) <= found < 2**63:
        return None
    return found


def encode_clean_shutdown(broker_epoch: int = -1) -> bytes:
    """Encode the file, as Kafka writes it; -1 is no epoch."""
    return b'{"version":0,"brokerEpoch":%d}' % broker_epoch
