"""The records of ``__transaction_state``: the transaction coordinator's state of each transactional id.

Key: int16 version 0, string transactional id. Value: int16 version 0 or 1 (from 1 on in the flexible encoding), the
producer's id and epoch, the state of its transaction and the partitions in it; no value means that the id expired.

Source: Kafka's TransactionLogKey and TransactionLogValue schemas, TransactionLog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from typing_extensions import Buffer

from tierlog.errors import CorruptRecordError
from tierlog.log.formats.message_fields import MessageReader, corrupt

TOPIC: Final = "__transaction_state"
KEY_VERSION: Final = 0
VALUE_VERSION_MAX: Final = 1
NO_PRODUCER_ID: Final = -1


@dataclass(frozen=True, slots=True)
class TransactionState:
    """The value of one record.

    Attributes:
        status: State of the transaction: 0 empty, 1 ongoing, 2 and 3 about to commit or abort, 4 and 5 done, 6 dead, 7
            about to be fenced.
        partitions: (topic, partitions) in the transaction; None for null.
        previous_producer_id, next_producer_id: -1 if there is none; version 1 only.
    """

    version: int
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    status: int
    partitions: tuple[tuple[str, tuple[int, ...]], ...] | None
    last_update_ms: int
    start_ms: int
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_transaction_version: int = 0


def key_version(key: Buffer) -> int:
    """Return the version in front of a key; it is the type of the record. Raises CorruptRecordError."""
    return MessageReader(key).number(2, "key version")


def parse_transactional_id(key: Buffer) -> str:
    """Parse the transactional id of a record's key.

    Raises:
        CorruptRecordError: the key is malformed or of an unknown version.
    """
    reader = MessageReader(key)
    version = reader.number(2, "key version")
    if version != KEY_VERSION:
        text = f"transaction log key version {version}, only {KEY_VERSION} is known"
        raise corrupt(text, "BAD_VERSION", 0, expected=KEY_VERSION, found=version)
    return reader.string("transactional id")


def parse_transaction_state(value: Buffer) -> TransactionState:
    """Parse the value of a record.

    Raises:
        CorruptRecordError: the value is malformed or of an unknown version.
    """
    reader = MessageReader(value)
    version = reader.number(2, "value version")
    if not 0 <= version <= VALUE_VERSION_MAX:
        text = f"transaction log value version {version}, known are 0 … {VALUE_VERSION_MAX}"
        raise corrupt(text, "BAD_VERSION", 0, expected=VALUE_VERSION_MAX, found=version)
    flexible = version > 0
    producer_id = reader.number(8, "producer id")
    producer_epoch = reader.number(2, "producer epoch")
    timeout_ms = reader.number(4, "timeout")
    status = reader.number(1, "status")
    partitions = _partitions(reader, flexible=flexible)
    last_update_ms = reader.number(8, "last update")
    start_ms = reader.number(8, "start")
    tags = reader.tagged_fields() if flexible else {}
    return TransactionState(
        version=version,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        status=status,
        partitions=partitions,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        previous_producer_id=_tagged(tags, 0, 8, NO_PRODUCER_ID),
        next_producer_id=_tagged(tags, 1, 8, NO_PRODUCER_ID),
        client_transaction_version=_tagged(tags, 2, 2, 0),
    )


def _partitions(reader: MessageReader, *, flexible: bool) -> tuple[tuple[str, tuple[int, ...]], ...] | None:
    count = reader.compact_count("topics", 3) if flexible else reader.count("topics", 6)
    if count is None:
        return None
    topics = []
    for _ in range(count):
        name = reader.compact_string("topic") if flexible else reader.string("topic")
        ids = reader.compact_count("partitions", 4) if flexible else reader.count("partitions", 4)
        if ids is None:
            raise corrupt(f"partitions of {name} are null", "BAD_COUNT", reader.position)
        topics.append((name, tuple(reader.number(4, "partition") for _ in range(ids))))
        if flexible:
            reader.tagged_fields()
    return tuple(topics)


def _tagged(tags: dict[int, memoryview], tag: int, size_bytes: int, default: int) -> int:
    if tag not in tags:
        return default
    if len(tags[tag]) != size_bytes:
        raise CorruptRecordError(f"tag {tag} has {len(tags[tag])} bytes, expected {size_bytes}", fault="BAD_SIZE")
    return int.from_bytes(tags[tag], "big", signed=True)
