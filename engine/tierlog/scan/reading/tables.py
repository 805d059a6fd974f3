"""The tables beside the records: batches, segments, transactions. Arrow, all columns nullable, one row a thing.

Offsets are inclusive where the name says first or last; timestamps are UTC, null where there is none; ``segment`` is
the segment's id (its file name on a broker's disk).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa

from tierlog.errors import CorruptDataError, EncryptionKeyError
from tierlog.records.batch_runs import BatchRun
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.objects.footer import FooterTotals
from tierlog.remote.tier.tier import (
    CONTROL_ATTRIBUTE,
    TRANSACTIONAL_ATTRIBUTE,
    Tier,
    iter_batch_runs,
)
from tierlog.runtime.waiting.threads import run_all
from tierlog.scan.history import PartitionHistory
from tierlog.scan.reading.read import segment_label
from tierlog.scan.scan_range import ScanRange
from tierlog.scan.transaction_history import aborted_in, open_transactions

CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "unknown(5)", "unknown(6)", "unknown(7)")
#: Footers that are fetched at once.
_CONCURRENCY = 16
_NO_TIMESTAMP_MS = -1
_UNKNOWN_TIMESTAMP_MS = 2**63 - 1


def batches_schema(timestamp_unit: str = "ms") -> pa.Schema:
    """Return the schema of one row a record batch, from its header alone: nothing is decompressed.

    ``position`` and ``sizeBytes`` are bytes in the untransformed log; ``recordCount`` is -1 for the old formats,
    producer fields are -1 where there is no producer.
    """
    stamp = pa.timestamp(timestamp_unit, tz="UTC")
    return pa.schema(
        [
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("segment", pa.string()),
            ("baseOffset", pa.int64()),
            ("lastOffset", pa.int64()),
            ("position", pa.int64()),
            ("sizeBytes", pa.int32()),
            ("leaderEpoch", pa.int32()),
            ("magic", pa.int32()),
            ("codec", pa.string()),
            ("timestampType", pa.int32()),
            ("baseTimestamp", stamp),
            ("maxTimestamp", stamp),
            ("producerId", pa.int64()),
            ("producerEpoch", pa.int32()),
            ("baseSequence", pa.int32()),
            ("isTransactional", pa.bool_()),
            ("isControl", pa.bool_()),
            ("recordCount", pa.int32()),
            ("crc", pa.int64()),
            ("crcOk", pa.bool_()),
        ]
    )


def segments_schema(timestamp_unit: str = "ms") -> pa.Schema:
    """Return the schema of one row a segment of the tier, from its description, and its footer if it has one.

    ``recordCount`` (no control records), ``batchCount`` and ``minTimestamp`` are the footer's, of the whole segment;
    null without one. ``firstOffset`` to ``lastOffset`` are the offsets that the segment contributes to the log, null
    (and ``referenced`` false) for a duplicate or an abandoned branch; a segment that contributes several runs of
    offsets has one row for each.
    """
    stamp = pa.timestamp(timestamp_unit, tz="UTC")
    return pa.schema(
        [
            ("topic", pa.string()),
            ("topicId", pa.string()),
            ("partition", pa.int32()),
            ("segment", pa.string()),
            ("object", pa.string()),
            ("startOffset", pa.int64()),
            ("endOffset", pa.int64()),
            ("firstOffset", pa.int64()),
            ("lastOffset", pa.int64()),
            ("referenced", pa.bool_()),
            ("sizeBytes", pa.int64()),
            ("storedBytes", pa.int64()),
            ("recordCount", pa.int64()),
            ("batchCount", pa.int64()),
            ("minTimestamp", stamp),
            ("maxTimestamp", stamp),
            ("eventTimestamp", stamp),
            ("lastModified", stamp),
            ("brokerId", pa.int32()),
            ("leaderEpochs", pa.map_(pa.int32(), pa.int64())),
            ("compression", pa.bool_()),
            ("encryptionKeyId", pa.string()),
            ("closed", pa.bool_()),
        ]
    )


#: One row a transaction that was aborted (``lastOffset`` is its marker's) or is open at the end of the tier
#: (``segment``, ``lastOffset`` and ``lastStableOffset`` null).
TRANSACTIONS_SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("segment", pa.string()),
        ("producerId", pa.int64()),
        ("firstOffset", pa.int64()),
        ("lastOffset", pa.int64()),
        ("lastStableOffset", pa.int64()),
        ("state", pa.string()),
    ]
)


def read_batches(
    tier: Tier, scan_range: ScanRange, *, verify_checksums: bool = True, timestamp_unit: str = "ms"
) -> Iterator[pa.RecordBatch]:
    """Read the batches of a range that hold any of its offsets, by offset. Filters by time and aborted ranges do not
    apply.

    Raises:
        CorruptRecordError: a header is malformed; a wrong checksum is a row with ``crcOk`` false, no error.
        CorruptObjectError, StoreError and its kinds: as reading the log does.
    """
    schema = batches_schema(timestamp_unit)
    try:
        for run in iter_batch_runs(
            tier, scan_range.segment, scan_range.start_position, scan_range.end_position, verify_crc=verify_checksums
        ):
            rows = _batch_rows(run, scan_range, schema, timestamp_unit)
            if rows.num_rows:
                yield rows
    except CorruptDataError as error:
        raise error.located(scan_range.describe()) from error.__cause__


def segments_table(
    histories: Sequence[PartitionHistory],
    *,
    timestamp_unit: str = "ms",
    tier: Tier | None = None,
    totals: Mapping[str, FooterTotals] | None = None,
) -> pa.Table:
    """Return all segments of some partitions, by topic, partition and start offset.

    Args:
        histories: The partitions.
        timestamp_unit: "ms" or "us".
        tier: Has the footers, one small request each; None: no request is made.
        totals: Those of footers that were read already, by the segment's name. Without both their columns are null.

    Raises:
        StoreError and its kinds: a footer cannot be fetched.
    """
    rows = [row for history in histories for row in _segment_rows(history)]
    if tier is not None:
        totals = _fetched_totals(tier, [segment for segment, _ in rows if segment.footer is not None])
    for segment, row in rows:
        found = totals.get(segment.name) if totals else None
        if found is not None:
            row["recordCount"], row["batchCount"] = found.records, found.batches
            row["minTimestamp"] = None if found.least_timestamp_ms is None else _known(found.least_timestamp_ms)
    return _table([row for _, row in rows], segments_schema(timestamp_unit))


def footer_totals(tier: Tier, segment: StoredSegment) -> FooterTotals | None:
    """Return the sums of a segment's footer; None if there is none that can be believed, or no key opens it: its
    description tells all that such a reader may know. Raises StoreError and its kinds.
    """
    if segment.footer is None:
        return None
    try:
        return tier.footers.fetch_totals(segment)
    except EncryptionKeyError:
        return None


def _fetched_totals(tier: Tier, segments: Sequence[StoredSegment]) -> dict[str, FooterTotals]:
    with tier.machine.scheduler.pool(_CONCURRENCY, name="tierlog-footers") as pool:
        fetched = zip(segments, run_all(pool, partial(footer_totals, tier), segments), strict=True)
        return {segment.name: found for segment, found in fetched if found is not None}


def transactions_table(tier: Tier, histories: Sequence[PartitionHistory]) -> pa.Table:
    """Return aborted and open transactions of some partitions, by topic, partition and last offset, the open ones last.

    Raises:
        CorruptIndexError, CorruptObjectError, ObjectNotFoundError: a transaction index cannot be used; named.
        StoreError and its kinds.
    """
    rows: list[dict[str, object]] = []
    for history in histories:
        place: dict[str, object] = {"topic": history.topic, "partition": history.partition}
        for span in history.spans:
            rows += [{**place, **entry, "state": "aborted"} for entry in _aborted_rows(tier, span)]
        for producer_id, first in sorted(open_transactions(tier, history).items(), key=lambda item: item[1]):
            rows.append({**place, "producerId": producer_id, "firstOffset": first, "state": "open"})
    return pa.Table.from_pylist(rows, schema=TRANSACTIONS_SCHEMA)


def _aborted_rows(tier: Tier, span: Span) -> Iterator[dict[str, object]]:
    for entry in aborted_in(tier, span):
        yield {
            "segment": segment_label(span.segment),
            "producerId": int(entry["producer_id"]),
            "firstOffset": int(entry["first_offset"]),
            "lastOffset": int(entry["last_offset"]),
            "lastStableOffset": int(entry["last_stable_offset"]),
        }


def _segment_rows(history: PartitionHistory) -> Iterator[tuple[StoredSegment, dict[str, object]]]:
    spans = [(span.segment, span) for span in history.spans]
    used = {id(segment) for segment, _ in spans}
    idle = [span.segment for span in history.lineage.spans if id(span.segment) not in used]
    others = {id(segment): segment for segment in (*idle, *history.unreferenced)}
    everything = [*spans, *((segment, None) for segment in others.values())]
    for segment, span in sorted(everything, key=lambda item: (item[0].start_offset, item[1] is None, item[0].name)):
        yield segment, _segment_row(history, segment, span)


def _segment_row(history: PartitionHistory, segment: StoredSegment, span: Span | None) -> dict[str, object]:
    metadata = segment.metadata
    return {
        "topic": history.topic,
        "topicId": str(history.topic_id_partition.topic_id),
        "partition": history.partition,
        "segment": segment_label(segment),
        "object": segment.name,
        "startOffset": segment.start_offset,
        "endOffset": segment.end_offset,
        "firstOffset": span.first_offset if span else None,
        "lastOffset": span.end_offset_exclusive - 1 if span else None,
        "referenced": span is not None,
        "sizeBytes": segment.size_bytes,
        "storedBytes": segment.log.size_bytes,
        "recordCount": None,
        "batchCount": None,
        "minTimestamp": None,
        "maxTimestamp": _known(metadata.max_timestamp_ms),
        "eventTimestamp": _known(metadata.event_timestamp_ms),
        "lastModified": _known(segment.last_modified_ms),
        "brokerId": metadata.broker_id,
        "leaderEpochs": list(metadata.segment_leader_epochs.items()),
        "compression": segment.compression,
        "encryptionKeyId": segment.encryption.key_id if segment.encryption else None,
        "closed": segment.closed,
    }


def _known(timestamp_ms: int) -> int | None:
    return None if timestamp_ms in (_NO_TIMESTAMP_MS, _UNKNOWN_TIMESTAMP_MS) else timestamp_ms


def _table(rows: list[dict[str, object]], schema: pa.Schema) -> pa.Table:
    """Make a table of rows whose timestamps are numbers of ms."""
    columns = []
    for name, kind in zip(schema.names, schema.types, strict=True):
        values = [row[name] for row in rows]
        if pa.types.is_timestamp(kind):
            columns.append(pa.array(values, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(kind))
        else:
            columns.append(pa.array(values, kind))
    return pa.Table.from_arrays(columns, schema=schema)


def _batch_rows(run: BatchRun, scan_range: ScanRange, schema: pa.Schema, timestamp_unit: str) -> pa.RecordBatch:
    kept = run.column("last_offset") >= scan_range.from_offset
    kept &= run.begins_below(scan_range.to_offset_exclusive)
    count = int(kept.sum())

    def column(name: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        return run.column(name)[kept]

    def stamps(name: str) -> pa.Array:
        values = column(name)
        stamped = pa.array(values, mask=values == _NO_TIMESTAMP_MS).cast(pa.timestamp("ms", tz="UTC"))
        return stamped.cast(pa.timestamp(timestamp_unit, tz="UTC"))

    attributes, magic = column("attributes"), column("magic")
    timestamp_type = np.where(magic == 0, -1, (attributes >> 3) & 1)
    columns: dict[str, object] = {
        "topic": pa.repeat(pa.scalar(scan_range.topic), count),
        "partition": np.full(count, scan_range.partition),
        "segment": pa.repeat(pa.scalar(segment_label(scan_range.segment)), count),
        "baseOffset": column("base_offset"),
        "lastOffset": column("last_offset"),
        "position": column("position"),
        "sizeBytes": column("size_bytes"),
        "leaderEpoch": column("leader_epoch"),
        "magic": magic,
        "codec": pa.array(CODECS).take(pa.array(attributes & 7)),
        "timestampType": timestamp_type,
        "baseTimestamp": stamps("base_timestamp"),
        "maxTimestamp": stamps("max_timestamp"),
        "producerId": column("producer_id"),
        "producerEpoch": column("producer_epoch"),
        "baseSequence": column("base_sequence"),
        "isTransactional": attributes & TRANSACTIONAL_ATTRIBUTE != 0,
        "isControl": attributes & CONTROL_ATTRIBUTE != 0,
        "recordCount": column("record_count"),
        "crc": column("crc"),
        "crcOk": column("crc_ok").astype(bool),
    }
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values).cast(kind)
        for values, kind in zip(columns.values(), schema.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
