"""Keys and values as text for ``tierlog dump``: as strings, or decoded where a topic is one of Kafka's own."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable
from dataclasses import dataclass

from tierlog.errors import CorruptRecordError
from tierlog.log.formats.transaction_state import (
    KEY_VERSION,
    NO_PRODUCER_ID,
    TransactionState,
    key_version,
    parse_transaction_state,
    parse_transactional_id,
)
from tierlog.remote.metadata.record_serde import RemoteLogMetadataRecord, decode_record
from tierlog.remote.metadata.record_text import record_fields, record_text

#: A record without a value, as Kafka's dump tool shows it.
_TOMBSTONE = "<DELETE>"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def _as_java(error: UnicodeError) -> tuple[str, int]:
    """Java's decoder makes one U+FFFD of an encoded surrogate, Python three; all else malformed is the same."""
    assert isinstance(error, UnicodeDecodeError)
    data, start = error.object, error.start
    if data[start] == 0xED and 0xA0 <= (data[start + 1 : start + 2] or b"\0")[0] <= 0xBF:
        third = (data[start + 2 : start + 3] or b"\0")[0]
        return _REPLACEMENT, start + (3 if 0x80 <= third <= 0xBF else 2)
    return _REPLACEMENT, error.end


codecs.register_error("tierlog-as-java", _as_java)


def java_text(data: bytes) -> str:
    """Return bytes as Java's ``new String(bytes, UTF_8)`` has them."""
    return data.decode("utf-8", "tierlog-as-java")


@dataclass(slots=True)
class Payload:
    """The texts that are shown for one record's key and value.

    Attributes:
        key, value: None if nothing is shown.
        fields: The value as JSON fields, if its format is known.
        fault: Why the record could not be decoded; "" if it could.
    """

    key: str | None
    value: str | None
    fields: dict[str, object] | None = None
    fault: str = ""


class Payloads:
    """Keys and values as text: UTF-8, unless the topic's format is known."""

    def decode(self, _offset: int, key: bytes | None, value: bytes | None) -> Payload:
        """Decode the texts of one record's key and value."""
        return Payload(None if key is None else java_text(key), None if value is None else java_text(value))


class RemoteLogMetadataPayloads(Payloads):
    """Payloads of ``__remote_log_metadata``.

    Kafka writes no keys there. A record that has one (KIP-1266 proposes that, for compaction) is shown with it, and one
    with a key and no value is what compaction deletes by, no fault.

    Args:
        value_text: A record as the text that is shown; its offset is given too.
    """

    def __init__(self, value_text: Callable[[RemoteLogMetadataRecord, int], str] | None = None) -> None:
        self._value_text = value_text or (lambda record, _offset: record_text(record))

    def decode(self, offset: int, key: bytes | None, value: bytes | None) -> Payload:
        shown_key = None if key is None else java_text(key)
        if key is not None and value is None:
            return Payload(shown_key, _TOMBSTONE)
        try:
            if value is None:
                raise CorruptRecordError("the record has no value", fault="BAD_FIELD_LENGTH")
            record: RemoteLogMetadataRecord = decode_record(value)
        except CorruptRecordError as fault:
            return Payload(shown_key, _failed(offset, fault), fault=_words(fault))
        return Payload(shown_key, self._value_text(record, offset), record_fields(record))


class TransactionStatePayloads(Payloads):
    """Payloads of ``__transaction_state``."""

    def decode(self, offset: int, key: bytes | None, value: bytes | None) -> Payload:
        try:
            if key is None:
                raise CorruptRecordError("the record has no key", fault="BAD_FIELD_LENGTH")
            if (kind := key_version(key)) != KEY_VERSION:
                unknown = f"Unknown record type {kind} at offset {offset}, skipping."
                return Payload(unknown, None, fault=f"unknown record type {kind}")
            transactional_id = parse_transactional_id(key)
            state = None if value is None else parse_transaction_state(value)
        except CorruptRecordError as fault:
            return Payload(_failed(offset, fault), None, fault=_words(fault))
        shown_key = {"type": "0", "data": {"transactionalId": transactional_id}}
        if state is None:
            return Payload(_compact(shown_key), _TOMBSTONE, {"key": shown_key, "value": None})
        fields = {"version": str(state.version), "data": transaction_fields(state)}
        return Payload(_compact(shown_key), _compact(fields), {"key": shown_key, "value": fields})


def _failed(offset: int, fault: CorruptRecordError) -> str:
    return f"Error at offset {offset}, skipping. {_words(fault)}"


def _words(fault: CorruptRecordError) -> str:
    return fault.text if fault.position < 0 else f"{fault.text}, at byte {fault.position}"


def transaction_fields(state: TransactionState) -> dict[str, object]:
    """Return the fields under Kafka's names and in its order, without tagged fields that have their default."""
    fields: dict[str, object] = {"producerId": state.producer_id}
    if state.previous_producer_id != NO_PRODUCER_ID:
        fields["previousProducerId"] = state.previous_producer_id
    if state.next_producer_id != NO_PRODUCER_ID:
        fields["nextProducerId"] = state.next_producer_id
    fields["producerEpoch"] = state.producer_epoch
    fields["transactionTimeoutMs"] = state.timeout_ms
    fields["transactionStatus"] = state.status
    topics = state.partitions
    fields["transactionPartitions"] = (
        None if topics is None else [{"topic": topic, "partitionIds": list(ids)} for topic, ids in topics]
    )
    fields["transactionLastUpdateTimestampMs"] = state.last_update_ms
    fields["transactionStartTimestampMs"] = state.start_ms
    if state.client_transaction_version:
        fields["clientTransactionVersion"] = state.client_transaction_version
    return fields


#: An escaped backslash, or the escape of a control character.
_ESCAPE = re.compile(r"\\\\|\\u00[0-9a-f]{2}")


def _compact(value: object) -> str:
    """JSON as Jackson writes it: no spaces, escapes in capitals."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _ESCAPE.sub(lambda match: match[0][:2] + match[0][2:].upper(), text)
