"""``_rlmm_committed_offsets``: the consumed offset of each metadata partition, in the KIP's form and in Kafka 3.x's.

The KIP shows bare lines, ``<metadata partition> <offset>``. Kafka 3.x wrote its text checkpoint: a line ``0``, a line
with the count, then the same lines. The offset is that of the last event that was consumed: reading goes on one behind
it. The first line shows a file's form: it has one field or two.

Source: KIP-405, "Message Formatter"; Kafka 3.0 CommittedOffsetsFile, CheckpointFile.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

from typing_extensions import Buffer

from tierlog.arguments import INT32_MAX, INT64_MAX
from tierlog.errors import CorruptIndexError
from tierlog.log.formats.checkpoints import CheckpointLine, encode_checkpoint, parse_checkpoint, parse_number

FILE_NAME: Final = "_rlmm_committed_offsets"


class CommittedOffsetsForm(enum.Enum):
    """The forms of the file."""

    LINES = "lines"
    CHECKPOINT = "checkpoint"


def parse_committed_offsets(data: Buffer) -> dict[int, int]:
    """Read either form: metadata partition → offset of the last event that was consumed, in the file's order.

    An empty file, and a checkpoint with nothing behind its version, hold none: a crash before the first write leaves
    them.

    Raises:
        CorruptIndexError: a line is malformed or cut short, a partition comes twice, or another count of lines.
    """
    raw = bytes(data)
    if raw and not raw.endswith(b"\n"):
        at = raw.rfind(b"\n") + 1
        raise CorruptIndexError("the last line has no end: the file is cut short", fault="TRUNCATED", position=at)
    first = raw.partition(b"\n")[0]
    lines = parse_checkpoint(raw) if len(first.split()) < 2 else _bare_lines(raw)
    offsets: dict[int, int] = {}
    for line in lines:
        if len(line.fields) != 2:
            raise line.corrupt("expected '<metadata partition> <offset>'")
        partition = parse_number(line, 0, "metadata partition", INT32_MAX)
        if partition in offsets:
            raise line.corrupt(f"metadata partition {partition} comes twice")
        offsets[partition] = parse_number(line, 1, "offset", INT64_MAX)
    return offsets


def encode_committed_offsets(
    offsets: Mapping[int, int], *, form: CommittedOffsetsForm = CommittedOffsetsForm.CHECKPOINT
) -> bytes:
    """Encode the file, by partition ascending.

    Args:
        offsets: Metadata partition → offset of the last event that was consumed. One of which none was has no line.
        form: Kafka's, or the KIP's.

    Raises:
        ValueError: a partition or an offset that neither form can hold.
    """
    for partition, offset in offsets.items():
        if not (0 <= partition <= INT32_MAX and 0 <= offset <= INT64_MAX):
            raise ValueError(f"metadata partition {partition}, offset {offset}: no line can say so")
    entries = sorted(offsets.items())
    if form is CommittedOffsetsForm.CHECKPOINT:
        return encode_checkpoint(entries)
    return "".join(f"{partition} {offset}\n" for partition, offset in entries).encode("ascii")


def positions_of(offsets: Mapping[int, int]) -> dict[int, int]:
    """Metadata partition → where reading goes on."""
    return {partition: offset + 1 for partition, offset in offsets.items()}


def _bare_lines(raw: bytes) -> list[CheckpointLine]:
    lines, position = [], 0
    for line in raw.splitlines(keepends=True):
        try:
            fields = tuple(line.decode("ascii").split())
        except UnicodeDecodeError as cause:
            at = position + cause.start
            raise CorruptIndexError("not ASCII", fault="BAD_ENTRY", position=at) from cause
        lines.append(CheckpointLine(fields, position))
        position += len(line)
    return lines
