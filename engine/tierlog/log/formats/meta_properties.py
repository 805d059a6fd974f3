"""``meta.properties``: whose log directory it is.

Java properties behind a comment with the date. Version 1 has ``cluster.id`` and ``node.id``, and since Kafka 3.7
``directory.id``; version 0, of brokers beside a ZooKeeper, calls the node ``broker.id``, and may leave out both.

Source: Kafka MetaProperties, PropertiesUtils; Java's Properties, which orders the lines by the keys' hash codes.
"""

from __future__ import annotations

import base64
import datetime
import re
from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptIndexError
from tierlog.runtime.machine.properties import parse_properties

FILE_SIZE_BYTES_MAX: Final = 1 << 16
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,10}")
_UUID: Final = re.compile(r"[A-Za-z0-9_-]{22}")
_NODE_KEY: Final = ("broker.id", "node.id")
_DAYS: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ESCAPES: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"} | {each: f"\\{each}" for each in "\\:=#!"}


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The content of the file.

    Attributes:
        directory_id: 16 bytes; None where there is none.
        version: 0 or 1; with 1, cluster and node are there.
    """

    cluster_id: str | None
    node_id: int | None
    directory_id: bytes | None = None
    version: int = 1

    @property
    def directory_id_text(self) -> str | None:
        """The directory's id in Kafka's text form: 22 characters of URL-safe base64."""
        if self.directory_id is None:
            return None
        return base64.urlsafe_b64encode(self.directory_id)[:22].decode("ascii")


def parse_meta_properties(data: Buffer) -> MetaProperties:
    """Read the file; keys that are not known are passed over, and a missing version is 0, as Kafka has it.

    Raises:
        CorruptIndexError: malformed, of another version, or of version 1 without a cluster or a node.
    """
    view = memoryview(data).cast("B")
    if len(view) > FILE_SIZE_BYTES_MAX:
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
    """The bytes of the file, as Kafka writes it in UTC.

    Args:
        properties: What it says.
        written_ms: The time for its comment, ms since 1970 UTC.
    """
    version = properties.version
    lines = {
        _NODE_KEY[version]: None if properties.node_id is None else str(properties.node_id),
        "directory.id": properties.directory_id_text,
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


def _directory_id(text: str) -> bytes:
    if _UUID.fullmatch(text) is None:
        raise _corrupt(f"directory.id {text!r:.40} is not 22 characters of URL-safe base64")
    return base64.urlsafe_b64decode(text + "==")


def _escaped(value: str) -> str:
    """A value as Java's Properties writes it: plain ASCII."""
    shown = "".join(_ESCAPES.get(each) or (each if " " <= each <= "~" else _utf16(each)) for each in value)
    return f"\\{shown}" if shown.startswith(" ") else shown


def _utf16(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))


def _corrupt(text: str) -> CorruptIndexError:
    return CorruptIndexError(text, fault="BAD_ENTRY")
