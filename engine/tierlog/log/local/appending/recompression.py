"""A producer's batch in the codec that its topic asks for (``compression.type`` other than ``producer``).

The records stay as they are, byte by byte: their stream is decompressed as a whole and compressed as a whole, no record
becomes an object. Keys, values, headers, timestamps and sequences cannot change on the way. Kafka takes the records
apart and writes them anew; the same bytes come out for all producers that count timestamps from the first record.

Source: Kafka LogValidator#buildRecordsAndAssignOffsets, MemoryRecordsBuilder, BrokerCompressionType.
"""

from __future__ import annotations

import struct
from typing import Final

from typing_extensions import Buffer

from tierlog._native.appends import AssignedBatch, Refusal
from tierlog._native.checksums import crc32c
from tierlog._native.codecs import decompress
from tierlog.log.local.appending.append_checks import LeaderChecks
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.records.batch_table import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from tierlog.records.compression import compress

_HEADER_BYTES: Final = 61
_LENGTH_AT: Final = 8
#: Bytes of a batch in front of those that its length counts.
_UNCOUNTED_BYTES: Final = 12
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_CODEC: Final = 0x07
#: What a rebuilt batch keeps: a delete horizon is the cleaner's alone, other bits have no meaning.
_KEPT: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
_INT32_MAX: Final = 2**31 - 1


def assign_batch(
    checks: LeaderChecks, data: Buffer, *, first_offset: int, leader_epoch: int, now_ms: int, origin: AppendOrigin
) -> tuple[memoryview, AssignedBatch] | None:
    """Check a leader's batch, compress it anew if its topic asks for another codec, and assign it.

    The rebuilt batch goes through all checks again: it may have become larger than ``max.message.bytes``.

    Args:
        checks: Of the topic.
        data: As :meth:`LeaderChecks.assign` takes it, with the arguments that follow.
        first_offset: The log's end.
        leader_epoch: The leader's.
        now_ms: The leader's clock, ms since 1970 UTC.
        origin: CLIENT or COORDINATOR.

    Returns:
        (what is to be appended, the batch as it stands there); the first is a view of ``data``, or a new buffer where
        the codec changed, and then ``data`` are as they were. None: there is no whole batch.

    Raises:
        AppendRefusedError: with Kafka's error; ``data`` are as they were.
    """
    from_client = origin is AppendOrigin.CLIENT
    found = checks.native.assign(
        data, first_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms, from_client=from_client
    )
    return taken_batch(
        checks, data, found, first_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
    )


def taken_batch(
    checks: LeaderChecks,
    data: Buffer,
    found: AssignedBatch | Refusal | None,
    *,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
) -> tuple[memoryview, AssignedBatch] | None:
    """``assign_batch`` of data that were checked already, with what was found then."""
    if type(found) is AssignedBatch and not found.must_rebuild:
        view = memoryview(data)
        return (view if view.nbytes == found.size_bytes else view.cast("B")[: found.size_bytes]), found
    # Once more where it was refused: nothing was written, and there it becomes Kafka's error.
    batch = checks.assign(data, first_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin)
    if batch is None:
        return None
    rules = checks.rules
    if rules.compression_codec is None:
        raise AssertionError("a batch of a topic that keeps its producers' codecs is never rebuilt")
    rebuilt = recompress(
        data,
        batch,
        codec=rules.compression_codec,
        level=rules.compression_level,
        decompressed_limit=rules.max_decompressed_message_bytes,
    )
    assigned = checks.assign(
        rebuilt, first_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
    )
    if assigned is None or assigned.must_rebuild:
        raise AssertionError("a rebuilt batch is whole and has its topic's codec")
    return memoryview(rebuilt), assigned


def recompress(
    data: Buffer, batch: AssignedBatch, *, codec: int, level: int | None, decompressed_limit: int
) -> bytearray:
    """A batch in another codec: same records, producer, sequence and timestamps; nothing is assigned.

    Args:
        data: Begins with the batch.
        batch: Of :class:`LeaderChecks`: sound, with ``must_rebuild``.
        codec: The number of the codec to be.
        level: Of the codec to be; None: Kafka's default.
        decompressed_limit: Of the batch's records, bytes.

    Raises:
        AppendRefusedError: MESSAGE_TOO_LARGE: no batch can be so large. CorruptDataError: the stream is not the one
            that was checked.
    """
    source = memoryview(data).cast("B")[: batch.size_bytes]
    payload = source[_HEADER_BYTES:]
    codec_before = batch.attributes & _CODEC
    records = decompress(payload, codec_before, limit=decompressed_limit) if codec_before else bytes(payload)
    stream = compress(records, codec, level=level)
    size_bytes = _HEADER_BYTES + len(stream)
    if size_bytes - _UNCOUNTED_BYTES > _INT32_MAX:
        text = f"the batch has {size_bytes} bytes in the topic's codec"
        raise AppendRefusedError(KafkaError.MESSAGE_TOO_LARGE, text)
    rebuilt = bytearray(source[:_HEADER_BYTES])
    rebuilt += stream
    struct.pack_into(">i", rebuilt, _LENGTH_AT, size_bytes - _UNCOUNTED_BYTES)
    struct.pack_into(">h", rebuilt, _ATTRIBUTES_AT, batch.attributes & _KEPT | codec)
    struct.pack_into(">I", rebuilt, _CRC_AT, crc32c(memoryview(rebuilt)[_ATTRIBUTES_AT:]))
    return rebuilt
