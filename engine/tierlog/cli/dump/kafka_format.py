"""The lines of kafka-dump-log 4.3, byte for byte: what ``tierlog dump --format kafka`` prints.

Where the Java tool ends with an exception there is no line here; ``dump`` reports the fault. Numbers, names and order
are those of Kafka's DumpLogSegments. ``--format kip`` prints one line for each metadata record, as KIP-405's formatter.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tierlog.cli.dump.log import ControlRecord, Records
from tierlog.cli.dump.payloads import Payload, Payloads
from tierlog.cli.dump.sources import IndexFindings, Row
from tierlog.cli.records.record_lines import TIMESTAMP_TYPES
from tierlog.records.batch_table import CODEC_NAMES, BatchTable

CONTROL_TYPES = {
    0: "ABORT",
    1: "COMMIT",
    2: "LEADER_CHANGE",
    3: "SNAPSHOT_HEADER",
    4: "SNAPSHOT_FOOTER",
    5: "KRAFT_VERSION",
    6: "KRAFT_VOTERS",
}
_BOOLEAN = ("false", "true")


class KafkaForm:
    """Turns columns into lines. ``payloads`` is None if neither keys nor values are printed.

    Attributes:
        payload_faults: Number of payloads that the decoder could not read.
    """

    def __init__(self, label: str, payloads: Payloads | None) -> None:
        self._label = label
        self._name = label.rsplit("/", 1)[-1]
        self._payloads = payloads
        self.payload_faults = 0

    def begin_lines(self) -> list[str]:
        return [f"Dumping {self._label}"]

    def log_lines(self, base_offset: int | None) -> list[str]:
        return [] if base_offset is None else [f"Log starting offset: {base_offset}"]

    def batch_lines(self, table: BatchTable) -> list[str]:
        horizons = table.delete_horizon_ms.tolist()
        has_horizon = ((table.attributes & 0x40) != 0) & (table.magic == 2)
        columns = zip(
            table.base_offset.tolist(),
            table.last_offset.tolist(),
            table.record_count.tolist(),
            table.base_sequence.tolist(),
            table.last_sequence.tolist(),
            table.producer_id.tolist(),
            table.producer_epoch.tolist(),
            table.leader_epoch.tolist(),
            table.is_transactional.tolist(),
            table.is_control.tolist(),
            (f"[{ms}]" if has else ".empty" for ms, has in zip(horizons, has_horizon.tolist(), strict=True)),
            table.position.tolist(),
            table.timestamp_type.tolist(),
            table.max_timestamp.tolist(),
            table.size_bytes.tolist(),
            table.magic.tolist(),
            table.codec.tolist(),
            table.crc.tolist(),
            table.crc_ok.tolist(),
            strict=True,
        )
        return [
            (
                f"baseOffset: {base} lastOffset: {last} count: {count} baseSequence: {base_sequence} "
                f"lastSequence: {last_sequence} producerId: {producer} producerEpoch: {producer_epoch} "
                f"partitionLeaderEpoch: {epoch} isTransactional: {_BOOLEAN[transactional]} "
                f"isControl: {_BOOLEAN[control]} deleteHorizonMs: OptionalLong{horizon}"
                if magic == 2
                else f"offset: {last}"
            )
            + f" position: {position} {TIMESTAMP_TYPES[kind]}: {timestamp} size: {size} magic: {magic} "
            f"compresscodec: {CODEC_NAMES[codec]} crc: {crc} isvalid: {_BOOLEAN[valid]}"
            for (
                base, last, count, base_sequence, last_sequence, producer, producer_epoch, epoch, transactional,
                control, horizon, position, kind, timestamp, size, magic, codec, crc, valid,
            ) in columns
        ]  # fmt: skip

    def record_lines(self, records: Records) -> list[str]:
        rows = records.rows
        columns = zip(
            rows.column("offset").to_pylist(),
            rows.column("timestampType").to_pylist(),
            rows.column("timestamp").cast(pa.int64()).to_pylist(),
            field_sizes(rows.column("key")),
            field_sizes(rows.column("value")),
            self._details(records),
            strict=True,
        )
        lines = [
            f"| offset: {offset} {TIMESTAMP_TYPES[kind]}: {timestamp} keySize: {key} valueSize: {value}{detail}"
            for offset, kind, timestamp, key, value, detail in columns
        ]
        return lines if self._payloads is None else self._with_payloads(records, lines)

    def _details(self, records: Records) -> list[str]:
        sequences = records.rows.column("sequence").to_pylist()
        headers = header_keys(records.rows.column("headers"))
        if headers is None:
            details = [f" sequence: {sequence} headerKeys: []" for sequence in sequences]
        else:
            details = [
                f" sequence: {sequence} headerKeys: [{','.join(keys)}]"
                for sequence, keys in zip(sequences, headers, strict=True)
            ]
        for marker in records.markers:
            details[marker.row] += _control_text(marker)
        if records.legacy_checksums:
            legacy = np.flatnonzero(records.table.magic[records.batches] < 2).tolist()
            for row, (checksum, right) in zip(legacy, records.legacy_checksums, strict=True):
                details[row] = f" isValid: {_BOOLEAN[right]} crc: {checksum}"
        return details

    def _with_payloads(self, records: Records, lines: list[str]) -> list[str]:
        for row, payload in iter_payloads(records, self._payloads):
            self.payload_faults += bool(payload.fault)
            if payload.key is not None:
                lines[row] += f" key: {payload.key}"
            if payload.value is not None:
                lines[row] += f" payload: {payload.value}"
        return lines

    def trailing_lines(self, count: int) -> list[str]:
        return [f"Found {count} invalid bytes at the end of {self._name}"]

    def entry_lines(self, kind: str, rows: Sequence[Row]) -> list[str]:
        """Return the entries of a small file. The Java tool does not read checkpoints: their lines have a
        form of ours.
        """
        if not rows and kind == "offsetEntry":
            return [f"{self._name} is empty."]
        if kind == "producer":
            rows = [_as_java(row) for row in rows]
        return [" ".join(f"{name}: {value}" for name, value in row.items()) for row in rows]

    def step_lines(self, steps: dict[int, int]) -> list[str]:
        """Return lines for records that do not follow one another; the tool prints them on stderr at its end, with the
        whole path.
        """
        lines = [f"Non-consecutive offsets in {self._name}"] if steps else []
        return lines + [f"  {before} is followed by {after}" for before, after in sorted(steps.items())]

    def index_lines(self, findings: IndexFindings) -> list[str]:
        """Return lines for index entries that contradict the log, as the tool prints them at its end."""
        lines = []
        if findings.offset_mismatches:
            lines.append(f"Mismatches in :{self._name}")
            pairs = sorted(findings.offset_mismatches.items(), reverse=True)
            lines += [f"  Index offset: {entry}, log offset: {found}" for entry, found in pairs]
        if findings.timestamp_mismatches:
            lines.append(f"Found timestamp mismatch in :{self._name}")
            lines += [f"  Index timestamp: {e}, log timestamp: {found}" for e, found in findings.timestamp_mismatches]
        if findings.out_of_order:
            lines.append(f"Found out of order timestamp in :{self._name}")
            lines += [
                f"  Index timestamp: {e}, Previously indexed timestamp: {before}" for e, before in findings.out_of_order
            ]
        if findings.offsets_not_found:
            lines.append(f"The following indexed offsets are not found in :{self._name}")
            lines += [f"Indexed offset: {e}, found log offset: {found}" for e, found in findings.offsets_not_found]
        return lines


def _as_java(producer: Row) -> Row:
    """Return a producer as Java prints it: a number that may be missing, and the time of the last batch a
    second time.
    """
    first = producer["currentTxnFirstOffset"]
    shown = {**producer, "currentTxnFirstOffset": f"OptionalLong{'.empty' if first is None else f'[{first}]'}"}
    return shown | {"timestamp": producer["lastTimestamp"]} if "firstSequence" in producer else shown


def field_sizes(column: pa.Array) -> list[int]:
    """Return sizes in bytes of a binary column, -1 for null; the bytes themselves are not touched."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    sizes = np.diff(offsets)
    if column.null_count:
        sizes[np.asarray(column.is_null())] = -1
    return sizes.tolist()  # type: ignore[no-any-return]


def header_keys(column: pa.Array) -> list[list[str]] | None:
    """Return the keys of each row's headers; None if no row has any."""
    if column.null_count == len(column):
        return None
    keys = column.flatten().field("key").to_pylist()
    lengths = column.value_lengths().fill_null(0).to_pylist()
    ends = list(itertools.accumulate(lengths, initial=0))
    return [keys[start:end] for start, end in itertools.pairwise(ends)]


def _control_text(marker: ControlRecord) -> str:
    name = CONTROL_TYPES.get(marker.kind, "UNKNOWN")
    if marker.coordinator_epoch is not None:
        return f" endTxnMarker: {name} coordinatorEpoch: {marker.coordinator_epoch}"
    return f" controlType: {name}({marker.kind})"


def iter_payloads(records: Records, decoder: Payloads | None) -> list[tuple[int, Payload]]:
    """Yield (row, payload) of the data records."""
    if decoder is None:
        return []
    offsets = records.rows.column("offset").to_pylist()
    keys, values = records.rows.column("key").to_pylist(), records.rows.column("value").to_pylist()
    rows = np.flatnonzero(~records.control).tolist()
    return [(row, decoder.decode(offsets[row], keys[row], values[row])) for row in rows]


class KipForm(KafkaForm):
    """The records' own lines and nothing beside them; only logs have any."""

    def begin_lines(self) -> list[str]:
        return []

    def log_lines(self, _base_offset: int | None) -> list[str]:
        return []

    def batch_lines(self, _table: BatchTable) -> list[str]:
        return []

    def record_lines(self, records: Records) -> list[str]:
        """Return the lines of the data records: fewer than rows where there are control records."""
        lines = []
        for _, payload in iter_payloads(records, self._payloads):
            self.payload_faults += bool(payload.fault)
            lines.append(f"key:{payload.key},{payload.value}" if payload.key is not None else payload.value or "")
        return lines

    def step_lines(self, _steps: dict[int, int]) -> list[str]:
        """None: Kafka's formatter does not show gaps between offsets."""
        return []
