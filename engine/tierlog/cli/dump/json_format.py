"""``tierlog dump --format json``: one object a line, for each batch, record, entry and fault, under Kafka's names."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tierlog.cli.dump.kafka_format import (
    CONTROL_TYPES,
    field_sizes,
    header_keys,
    iter_payloads,
)
from tierlog.cli.dump.log import Records
from tierlog.cli.dump.payloads import Payloads, RemoteLogMetadataPayloads
from tierlog.cli.dump.sources import IndexFindings, Row
from tierlog.cli.records.record_lines import TIMESTAMP_TYPES, base64_text
from tierlog.errors import CorruptDataError
from tierlog.records.batch_table import CODEC_NAMES, DELETE_HORIZON, BatchTable

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class JsonForm:
    """Turns columns into JSON lines; ``payloads`` as in the Kafka form. Keys and values are base64, or fields."""

    def __init__(self, label: str, payloads: Payloads | None) -> None:
        self._file = _encode(label)
        self._payloads = payloads
        self.payload_faults = 0

    def _line(self, kind: str, fields: Row) -> str:
        return f'{{"kind":"{kind}","file":{self._file},{_encode(fields)[1:]}'

    def begin_lines(self) -> list[str]:
        return []

    def log_lines(self, base_offset: int | None) -> list[str]:
        return [self._line("log", {"baseOffset": base_offset})]

    def batch_lines(self, table: BatchTable) -> list[str]:
        has_horizon = (((table.attributes & DELETE_HORIZON) != 0) & (table.magic == 2)).tolist()
        horizons = table.delete_horizon_ms.tolist()
        columns = {
            "baseOffset": table.base_offset.tolist(),
            "lastOffset": table.last_offset.tolist(),
            "count": [None if count < 0 and magic < 2 else count for count, magic in _pairs(table)],
            "baseSequence": table.base_sequence.tolist(),
            "lastSequence": table.last_sequence.tolist(),
            "producerId": table.producer_id.tolist(),
            "producerEpoch": table.producer_epoch.tolist(),
            "partitionLeaderEpoch": table.leader_epoch.tolist(),
            "isTransactional": table.is_transactional.tolist(),
            "isControl": table.is_control.tolist(),
            "deleteHorizonMs": [ms if has else None for ms, has in zip(horizons, has_horizon, strict=True)],
            "position": table.position.tolist(),
            "timestampType": [TIMESTAMP_TYPES[kind] for kind in table.timestamp_type.tolist()],
            "maxTimestamp": table.max_timestamp.tolist(),
            "size": table.size_bytes.tolist(),
            "magic": table.magic.tolist(),
            "compresscodec": [CODEC_NAMES[codec] for codec in table.codec.tolist()],
            "crc": table.crc.tolist(),
            "isvalid": table.crc_ok.tolist(),
        }
        rows = zip(*columns.values(), strict=True)
        return [self._line("batch", dict(zip(columns, row, strict=True))) for row in rows]

    def record_lines(self, records: Records) -> list[str]:
        rows = records.rows
        headers = header_keys(rows.column("headers"))
        columns = zip(
            rows.column("offset").to_pylist(),
            rows.column("timestamp").cast(pa.int64()).to_pylist(),
            rows.column("timestampType").to_pylist(),
            field_sizes(rows.column("key")),
            field_sizes(rows.column("value")),
            rows.column("sequence").to_pylist(),
            itertools.repeat("[]", rows.num_rows) if headers is None else map(_encode, headers),
            self._more(records),
            strict=True,
        )
        start = f'{{"kind":"record","file":{self._file},"offset":'
        return [
            f'{start}{offset},"timestamp":{timestamp},"timestampType":"{TIMESTAMP_TYPES[kind]}","keySize":{key},'
            f'"valueSize":{value},"sequence":{sequence},"headerKeys":{header}{more}}}'
            for offset, timestamp, kind, key, value, sequence, header, more in columns
        ]

    def _more(self, records: Records) -> list[str]:
        """Return the fields that only some rows have, each with a comma in front."""
        more = [""] * records.rows.num_rows
        for marker in records.markers:
            more[marker.row] += f',"controlType":{_encode(CONTROL_TYPES.get(marker.kind, f"UNKNOWN({marker.kind})"))}'
            if marker.coordinator_epoch is not None:
                more[marker.row] += f',"coordinatorEpoch":{marker.coordinator_epoch}'
        legacy = np.flatnonzero(records.table.magic[records.batches] < 2).tolist()
        for row, (checksum, right) in zip(legacy, records.legacy_checksums, strict=True):
            more[row] += f',"isValid":{_encode(right)},"crc":{checksum}'
        if type(self._payloads) is Payloads:
            keys, values = records.rows.column("key").to_pylist(), records.rows.column("value").to_pylist()
            return [
                f'{text},"key":{base64_text(key)},"value":{base64_text(value)}'
                for text, key, value in zip(more, keys, values, strict=True)
            ]
        for row, payload in iter_payloads(records, self._payloads):
            self.payload_faults += bool(payload.fault)
            if isinstance(self._payloads, RemoteLogMetadataPayloads) and payload.key is not None:
                more[row] += f',"key":{base64_text(records.rows.column("key")[row].as_py())}'
            more[row] += f',"payload":{_encode(payload.fields if not payload.fault else {"error": payload.fault})}'
        return more

    def trailing_lines(self, count: int) -> list[str]:
        return [self._line("trailing", {"invalidBytes": count})]

    def entry_lines(self, kind: str, rows: Sequence[Row]) -> list[str]:
        return [self._line(kind, row) for row in rows]

    def step_lines(self, _steps: dict[int, int]) -> list[str]:
        """None: the records' own lines show their offsets."""
        return []

    def index_lines(self, findings: IndexFindings) -> list[str]:
        rows: list[Row] = []
        for offset, found in sorted(findings.offset_mismatches.items()):
            rows.append({"what": "offset", "indexOffset": offset, "logOffset": found})
        for timestamp, found in findings.timestamp_mismatches:
            rows.append({"what": "timestamp", "indexTimestamp": timestamp, "logTimestamp": found})
        for timestamp, before in findings.out_of_order:
            rows.append({"what": "order", "indexTimestamp": timestamp, "previousIndexTimestamp": before})
        for offset, found in findings.offsets_not_found:
            rows.append({"what": "offsetNotFound", "indexOffset": offset, "logOffset": found})
        return [self._line("mismatch", row) for row in rows]

    def fault_line(self, fault: CorruptDataError) -> str:
        """Return a fault as a JSON object; the Kafka form has no line for it."""
        return self._line(
            "fault",
            {"fault": fault.fault, "position": fault.position, "offset": fault.base_offset, "text": fault.text},
        )


def _pairs(table: BatchTable) -> zip[tuple[int, int]]:
    return zip(table.record_count.tolist(), table.magic.tolist(), strict=True)
