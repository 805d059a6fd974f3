"""Kafka's text checkpoints: ``<version>``, ``<count>``, then one entry a line, its fields parted by white space.

The leader-epoch checkpoint (``<epoch> <start offset>``) and the three offset checkpoints of a log dir (``<topic>
<partition> <offset>``) share the form; all are of version 0. An empty file, or one with nothing behind the version,
holds no entries: a crash before the first write leaves such a file.

Source: Kafka CheckpointFile, LeaderEpochCheckpointFile, OffsetCheckpointFile.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from tierlog.arguments import INT32_MAX, INT64_MAX
from tierlog.errors import CorruptIndexError

VERSION: Final = 0
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class CheckpointLine:
    """One entry, split into its fields.

    Attributes:
        position: Byte position of the line in the file.
    """

    fields: tuple[str, ...]
    position: int

    def corrupt(self, why: str) -> CorruptIndexError:
        """Make the error for this line, to be raised."""
        return _corrupt(self.position, f"{' '.join(self.fields)!r:.80}: {why}", "BAD_ENTRY")


def parse_checkpoint(data: Buffer) -> tuple[CheckpointLine, ...]:
    """Split a checkpoint file into its entries, in file order.

    Raises:
        CorruptIndexError: no UTF-8, another version, no number where one must be, or another count of entries.
    """
    lines = list(_lines(data))
    if not lines:
        return ()
    version = _whole_number(lines[0], "version", INT32_MAX)
    if version != VERSION:
        text = f"checkpoint version {version}, only {VERSION} is known"
        raise CorruptIndexError(text, fault="BAD_VERSION", position=0, expected=VERSION, found=version)
    if len(lines) == 1:
        return ()
    declared = _whole_number(lines[1], "number of entries", INT32_MAX)
    entries = tuple(CheckpointLine(tuple(text.split()), position) for position, text in lines[2:])
    if len(entries) != declared:
        text = f"{declared} entries declared, {len(entries)} there"
        at = lines[1][0]
        raise CorruptIndexError(text, fault="BAD_COUNT", position=at, expected=declared, found=len(entries))
    return entries


def parse_number(line: CheckpointLine, place: int, name: str, maximum: int) -> int:
    """Parse a field as a number in 0 … maximum. Raises CorruptIndexError."""
    text = line.fields[place]
    if _NUMBER.fullmatch(text) is None or not 0 <= int(text) <= maximum:
        raise line.corrupt(f"{name} is no number in 0 … {maximum}")
    return int(text)


def encode_checkpoint(entries: Iterable[Iterable[object]]) -> bytes:
    """Encode a checkpoint file."""
    lines = [" ".join(str(field) for field in entry) for entry in entries]
    return "".join(f"{line}\n" for line in [str(VERSION), str(len(lines)), *lines]).encode("utf-8")


def parse_offset_checkpoint(data: Buffer) -> dict[tuple[str, int], int]:
    """Parse one of a log dir's offset checkpoints: (topic, partition) to offset in the file's order; of a duplicate the
    last one counts.

    Raises:
        CorruptIndexError: a line is malformed.
    """
    offsets: dict[tuple[str, int], int] = {}
    for line in parse_checkpoint(data):
        if len(line.fields) != 3:
            raise line.corrupt("expected '<topic> <partition> <offset>'")
        partition = parse_number(line, 1, "partition", INT32_MAX)
        offsets[line.fields[0], partition] = parse_number(line, 2, "offset", INT64_MAX)
    return offsets


def encode_offset_checkpoint(offsets: Mapping[tuple[str, int], int]) -> bytes:
    """Encode an offset checkpoint, in the mapping's order: Kafka's is that of a hash table, and means nothing."""
    return encode_checkpoint((*partition, offset) for partition, offset in offsets.items())


def _lines(data: Buffer) -> Iterator[tuple[int, str]]:
    """(byte position, text) of each line, as BufferedReader splits them."""
    position = 0
    for raw in bytes(data).splitlines(keepends=True):
        try:
            yield position, raw.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as cause:
            raise _corrupt(position + cause.start, "not UTF-8", "BAD_ENTRY") from cause
        position += len(raw)


def _whole_number(line: tuple[int, str], name: str, maximum: int) -> int:
    position, text = line
    if _NUMBER.fullmatch(text) is None or abs(int(text)) > maximum:
        raise _corrupt(position, f"{text!r:.80}: the {name} is no number", "BAD_ENTRY")
    return int(text)


def _corrupt(position: int, text: str, fault: str) -> CorruptIndexError:
    return CorruptIndexError(text, fault=fault, position=position)
