"""An append before it reaches a segment: checked as Kafka checks it, assigned, compressed anew if its topic says so.

A leader's batch is changed in place; a follower's batches stay as they were sent. For a ``compression.type`` other than
``producer`` the stream of records is decompressed and compressed as a whole: no record becomes an object, and keys,
values, headers, timestamps and sequences cannot change on the way. Kafka takes the records apart and writes them anew;
the same bytes come out for all producers that count timestamps from the first record.

Source: Kafka UnifiedLog#analyzeAndValidateRecords, LogValidator, MemoryRecordsBuilder, BrokerCompressionType
(docs/formats/log-files.md).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.appends import AssignedBatch, LeaderCheck, Refusal, check_follower_batches
from tierlog._native.checksums import crc32c
from tierlog._native.codecs import decompress
from tierlog.arguments import INT32_MAX
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import AppendRefusedError, KafkaError, RecordError
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.producers.producer_entries import BatchMetadata
from tierlog.records.batch_table import CODEC_NAMES, CONTROL, LOG_APPEND_TIME, TRANSACTIONAL
from tierlog.records.compression import compress


class LogAppendInfo(NamedTuple):
    """The outcome of an append.

    Attributes:
        first_offset: Of the first record; of a duplicate, of the batch that is in the log already. -1: the bytes held
            nothing to append.
        last_offset: Of the last record, inclusive; -1 as above.
        max_timestamp_ms: The greatest in the append.
        log_append_time_ms: The leader's clock where ``message.timestamp.type`` is LogAppendTime; -1 otherwise.
        log_start_offset: Of the log, after the append.
        size_bytes: How many bytes the log grew by; 0 for a duplicate.
        is_duplicate: Whether the batch was in the log already.
    """

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int
    log_start_offset: int
    size_bytes: int
    is_duplicate: bool = False

    @classmethod
    def of_nothing(cls, log_start_offset: int) -> LogAppendInfo:
        """Make the answer to bytes that hold no whole batch."""
        return cls(-1, -1, -1, -1, log_start_offset, 0)

    @classmethod
    def of_duplicate(cls, known: BatchMetadata, log_start_offset: int) -> LogAppendInfo:
        """Return the answer for a batch that is in the log already: where it is."""
        timestamp_ms = known.timestamp_ms
        return cls(
            known.first_offset, known.last_offset, timestamp_ms, timestamp_ms, log_start_offset, 0, is_duplicate=True
        )


#: The meaning of a rule, with the fault's numbers.
_WORDS: Final = {
    "size": "the batch says that it has an impossible size",
    "magic": "magic {found}, only 0, 1 and 2 are known",
    "crc": "the batch does not match its checksum",
    "codec": "unknown compression codec {found}",
    "too_large": "the batch has {found} bytes, max.message.bytes is {expected}",
    "base_offset": "the base offset of a producer's batch is 0, this one's {found}",
    "batches": "{found} batches, a leader takes one at a time",
    "old_format": "a batch of magic {found}, a leader takes magic 2",
    "offset_range": "the last offset delta is {found}",
    "count": "the batch says that it has {found} records",
    "count_range": "the batch says that it has {found} records, its offsets are those of {expected}",
    "control": "control records from a client",
    "sequence": "the batch has a producer id and the sequence {found}",
    "compressed": "the compressed records are corrupt",
    "content_size": "the records are larger than {expected} bytes, decompressed",
    "records": "refused records: {found}",
    "timestamps": "refused records: {found}, by a timestamp one at least",
    "order": "the batch ends at offset {found} where only {expected} and above can stand",
    "record_offsets": "the offsets of the records do not count from 0",
    "next_offset": "the first offset is {found}, the log ends at {expected}",
    "log_end": "the log ends at {found}: with this batch it would end behind the greatest offset {expected}",
    "epoch": "leader epoch {found}",
}


def _target_compression(config: LogConfig) -> tuple[int | None, int | None]:
    """(codec, level) of ``compression.type``; (None, None) for ``producer``."""
    name = config.compression_type
    if name == "producer":
        return None, None
    names = ("uncompressed", *CODEC_NAMES[1:])
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return names.index(name), levels.get(name)


class LeaderChecks:
    """A leader's half, by the topic's configuration. One thread at a time: the log's writer.

    Attributes:
        codec: The number of the codec of ``compression.type``; None: ``producer``.
        level: The level of that codec; None: Kafka's default.
        log_append_time: Whether ``message.timestamp.type`` is LogAppendTime.
    """

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.codec, self.level = _target_compression(config)
        self.log_append_time = config.message_timestamp_type == "LogAppendTime"
        #: The check of each append, without a layer between; ``accepted`` raises its refusals.
        self.native = LeaderCheck(
            compacted=config.is_compacted,
            log_append_time=self.log_append_time,
            timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            max_message_bytes=config.max_message_bytes,
            target_codec=-1 if self.codec is None else self.codec,
            decompressed_limit=config.max_decompressed_message_bytes,
        )

    def assign(
        self, data: Buffer, *, first_offset: int, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> AssignedBatch | None:
        """Check the one batch of these bytes and write its offset, the leader's epoch and its timestamps into it.

        Args:
            data: Writable; one batch of magic 2. A cut-off batch behind it is passed over.
            first_offset: The log's end.
            leader_epoch: The leader's.
            now_ms: The leader's clock, ms since 1970 UTC.
            origin: CLIENT or COORDINATOR.

        Returns:
            The batch as it stands there now; None if there is no whole one. With ``must_rebuild`` the batch is sound
            and as it was: it has to be compressed anew, by ``compression.type``.

        Raises:
            AppendRefusedError: with Kafka's error; the data are as they were.
        """
        from_client = origin is AppendOrigin.CLIENT
        answer = self.native.assign(
            data, first_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms, from_client=from_client
        )
        return self.accepted(answer, now_ms)

    def accepted(self, answer: AssignedBatch | Refusal | None, now_ms: int) -> AssignedBatch | None:
        """Return the answer of a native call that was given this time of the leader. Raises AppendRefusedError."""
        if isinstance(answer, Refusal):
            raise _refused(answer, tuple(self._record_error(entry, now_ms) for entry in answer.record_errors))
        return answer

    def _record_error(self, entry: tuple[int, str, int], now_ms: int) -> RecordError:
        index, rule, timestamp_ms = entry
        if rule == "no_key":
            return RecordError(index, "Compacted topic cannot accept message without key")
        if rule == "append_time_set":
            return RecordError(index, "Producer should not set timestamp type to LogAppendTime")
        least = now_ms - self.config.message_timestamp_before_max_ms
        greatest = now_ms + self.config.message_timestamp_after_max_ms
        return RecordError(index, f"Timestamp {timestamp_ms} is out of range [{least}, {greatest}]")


def check_sent_batches(
    data: Buffer, *, next_offset: int, leader_epoch: int
) -> tuple[dict[str, NDArray[np.generic]], int]:
    """Check a follower's batches: return (columns as ``scan_batches`` has them, bytes to append from the start of the
    data).

    Offsets and epochs stay as the leader assigned them. Batches of a later epoch than the follower knows, and all
    behind them, are left out (KAFKA-18723), and so is a cut-off one at the end.

    Raises:
        AppendRefusedError: CORRUPT_MESSAGE, or UNKNOWN_SERVER_ERROR where offsets do not rise or begin below
            ``next_offset``. Nothing may be appended.
    """
    columns, size_bytes, refusal = check_follower_batches(data, next_offset=next_offset, leader_epoch=leader_epoch)
    if refusal is not None:
        raise _refused(refusal)
    return columns, size_bytes


def least_offset(columns: Mapping[str, NDArray[np.generic]]) -> int:
    """The base of a segment that holds a follower's batches: the first offset, or a bound of it in front of a message
    set of magic 0 or 1. A compressed one has its last offset in its header, and is not taken apart for its first.
    """
    if int(columns["magic"][0]) >= _MAGIC_V2:
        return int(columns["base_offset"][0])
    return int(columns["last_offset"][-1]) - INT32_MAX


def check_sent_epochs(columns: dict[str, NDArray[np.generic]], latest_epoch: int | None) -> None:
    """Refuse a follower's batches whose epochs fall below the log's latest one, or one another. Raises
    AppendRefusedError.
    """
    epochs = columns["leader_epoch"].astype(np.int64)
    earlier = int(epochs[0]) if latest_epoch is None else latest_epoch
    falls = int(epochs[0]) < earlier or bool((epochs[1:] < epochs[:-1]).any())
    if falls and int(columns["magic"].min()) >= _MAGIC_V2:  # earlier formats have no epochs
        text = f"batches of epochs {epochs.min()} … {epochs.max()} in falling order, the log's last is {earlier}"
        raise AppendRefusedError(KafkaError.UNKNOWN_SERVER_ERROR, text)


def _refused(refusal: Refusal, record_errors: tuple[RecordError, ...] = ()) -> AppendRefusedError:
    fault = refusal.fault
    words = _WORDS.get(refusal.rule)
    text = str(fault) if words is None else words.format(expected=fault.expected, found=fault.found)
    if words is not None and fault.position > 0:
        text = f"@ {fault.position}: {text}"
    error = AppendRefusedError(KafkaError(refusal.error_code), text, record_errors)
    error.__cause__ = fault
    return error


_MAGIC_V2: Final = 2
_HEADER_BYTES: Final = 61
_LENGTH_AT: Final = 8
#: Bytes of a batch in front of those that its length counts.
_UNCOUNTED_BYTES: Final = 12
_CRC_AT: Final = 17
_ATTRIBUTES_AT: Final = 21
_CODEC: Final = 0x07
#: Attributes of a rebuilt batch that stay: a delete horizon is the cleaner's alone, other bits have no meaning.
_KEPT: Final = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL


def assign_batch(
    checks: LeaderChecks,
    data: Buffer,
    found: AssignedBatch | Refusal | None,
    *,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    origin: AppendOrigin,
) -> tuple[memoryview, AssignedBatch] | None:
    """Check a leader's batch, compress it anew if its topic asks for another codec, and assign it.

    The rebuilt batch goes through all checks again: it may have become larger than ``max.message.bytes``.

    Args:
        checks: Of the topic.
        data: As :meth:`LeaderChecks.assign` takes it, with the arguments that follow.
        found: The answer of ``checks.native`` for these data.
        first_offset: The log's end.
        leader_epoch: The leader's.
        now_ms: The leader's clock, ms since 1970 UTC.
        origin: CLIENT or COORDINATOR.

    Returns:
        (the bytes to be appended, the batch as it stands there); the first is a view of ``data``, or a new buffer where
        the codec changed, and then ``data`` are as they were. None: there is no whole batch.

    Raises:
        AppendRefusedError: with Kafka's error; ``data`` are as they were.
    """
    batch = checks.accepted(found, now_ms)
    if batch is None:
        return None
    if not batch.must_rebuild:
        view = memoryview(data)
        return (view if view.nbytes == batch.size_bytes else view.cast("B")[: batch.size_bytes]), batch
    if checks.codec is None:
        raise AssertionError("a batch of a topic that keeps its producers' codecs is never rebuilt")
    limit = checks.config.max_decompressed_message_bytes
    rebuilt = recompress(data, batch, codec=checks.codec, level=checks.level, decompressed_limit=limit)
    assigned = checks.assign(
        rebuilt, first_offset=first_offset, leader_epoch=leader_epoch, now_ms=now_ms, origin=origin
    )
    if assigned is None or assigned.must_rebuild:
        raise AssertionError("a rebuilt batch is whole and has its topic's codec")
    return memoryview(rebuilt), assigned


def recompress(
    data: Buffer, batch: AssignedBatch, *, codec: int, level: int | None, decompressed_limit: int
) -> bytearray:
    """Make a batch in another codec: same records, producer, sequence and timestamps; nothing is assigned.

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
    if size_bytes - _UNCOUNTED_BYTES > INT32_MAX:
        text = f"the batch has {size_bytes} bytes in the topic's codec"
        raise AppendRefusedError(KafkaError.MESSAGE_TOO_LARGE, text)
    rebuilt = bytearray(source[:_HEADER_BYTES])
    rebuilt += stream
    struct.pack_into(">i", rebuilt, _LENGTH_AT, size_bytes - _UNCOUNTED_BYTES)
    struct.pack_into(">h", rebuilt, _ATTRIBUTES_AT, batch.attributes & _KEPT | codec)
    struct.pack_into(">I", rebuilt, _CRC_AT, crc32c(memoryview(rebuilt)[_ATTRIBUTES_AT:]))
    return rebuilt
