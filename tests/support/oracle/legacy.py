"""Messages of magic 0 and 1, alone and in compressed wrappers.

Format: docs/formats/log-files.md, Message sets of magic 0 and 1.

Behind the entry's header: ``int32 keyLength, key, int32 valueLength, value``, -1 for null.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from tests.support.oracle.batches import BatchHeader, PartialBatch, iter_batches, verify
from tierlog.errors import CorruptRecordError

#: The largest offset that a record can have: the one behind it must be a number too.
OFFSET_MAX: Final = 2**63 - 2
_LZ4: Final = 3


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``offset`` is absolute."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def iter_messages(
    header: BatchHeader,
    entry: bytes,
    next_offset: int,
    verify_crc: bool,
    decompress: Callable[[bytes], bytes],
) -> Iterator[Message]:
    """The messages of one entry, step 5 of the order of checks.

    Args:
        header: The entry's header, whose checksum was checked.
        entry: All bytes of the entry.
        next_offset: The lowest offset that the first message may have.
        verify_crc: Check the checksums of the messages in a wrapper.
        decompress: Undoes the codec of this header.
    """
    if header.codec == 0:
        yield _message(header, header, entry, index=0, offset=header.base_offset)
        return
    if header.codec > _LZ4:
        raise header.fault("BAD_CODEC", f"codec {header.codec}")
    value = _message(header, header, entry, index=-1, offset=header.base_offset).value
    if value is None:
        raise header.fault("BAD_LEGACY", "a wrapper without a value")
    messages = _survey(header, decompress(value), verify_crc)
    base = _offset_base(header, [inner.base_offset for inner, _ in messages])
    for index, (inner, inner_entry) in enumerate(messages):
        offset = base + inner.base_offset
        message = _message(header, inner, inner_entry, index=index, offset=offset)
        if not next_offset <= offset <= OFFSET_MAX:
            raise header.fault("BAD_OFFSET", f"offset {offset}", index)
        next_offset = offset + 1
        yield message


def _message(outer: BatchHeader, header: BatchHeader, entry: bytes, *, index: int, offset: int) -> Message:
    """The fields of one message; faults are reported at the outer entry."""
    at = 18 if header.magic == 0 else 26
    fields: list[bytes | None] = []
    for name in ("key", "value"):
        if len(entry) - at < 4:
            raise outer.fault("BAD_RECORD_LENGTH", f"no room for the length of the {name}", index)
        (length,) = struct.unpack_from(">i", entry, at)
        at += 4
        if length < -1 or length > len(entry) - at:
            raise outer.fault("BAD_FIELD_LENGTH", f"a {name} of {length} bytes, {len(entry) - at} are left", index)
        fields.append(None if length < 0 else entry[at : at + length])
        at += max(length, 0)
    if at != len(entry):
        raise outer.fault("BAD_RECORD_LENGTH", f"{len(entry) - at} bytes behind the value", index)
    return Message(offset, header.max_timestamp, fields[0], fields[1])


def _survey(wrapper: BatchHeader, content: bytes, verify_crc: bool) -> list[tuple[BatchHeader, bytes]]:
    messages: list[tuple[BatchHeader, bytes]] = []
    try:
        for inner, entry in iter_batches(content):
            if verify_crc:
                verify(entry, inner)
            if inner.magic != wrapper.magic:
                raise wrapper.fault("BAD_LEGACY", f"magic {inner.magic} in a wrapper of {wrapper.magic}")
            if inner.codec:
                raise wrapper.fault("BAD_LEGACY", "a compressed message in a wrapper")
            messages.append((inner, entry))
    except PartialBatch as partial:
        raise wrapper.fault("TRUNCATED", "the content ends inside a message", len(messages)) from partial
    except CorruptRecordError as error:
        raise wrapper.fault(error.fault, error.text, len(messages), error.expected, error.found) from error
    if not messages:
        raise wrapper.fault("BAD_LEGACY", "a wrapper without messages")
    return messages


def _offset_base(wrapper: BatchHeader, offsets: list[int]) -> int:
    """The number to add to the offsets in a wrapper."""
    if wrapper.magic == 0 or wrapper.base_offset == 0:  # 0: an old librdkafka; the offsets stand for themselves
        return 0
    if offsets[-1] < 0 or offsets[-1] > wrapper.base_offset:
        raise wrapper.fault("BAD_LEGACY", f"last inner offset {offsets[-1]} in a wrapper at {wrapper.base_offset}")
    return wrapper.base_offset - offsets[-1]
