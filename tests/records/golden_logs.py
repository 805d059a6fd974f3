"""Partition directories of the golden data beside what a real consumer read from them."""

from __future__ import annotations

import gzip
import hashlib
import json
import pathlib
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import oracle as reference
from tests.support.golden import TIMESTAMP_TYPES, Row, expected_row


@dataclass(frozen=True)
class PartitionLog:
    """One partition directory, as the broker had it before any local deletion."""

    run: pathlib.Path
    folder: pathlib.Path

    def __str__(self) -> str:
        return f"{self.run.name}/{self.folder.name}"

    @property
    def topic(self) -> str:
        return self.folder.name.rpartition("-")[0]

    @property
    def partition(self) -> int:
        return int(self.folder.name.rpartition("-")[2])

    def segments(self) -> list[bytes]:
        """The segments in order; one behind the other they are one run of batches."""
        return [path.read_bytes() for path in sorted(self.folder.glob("*.log"))]

    def aborted(self) -> list[reference.Aborted]:
        """The entries of all transaction indexes: ``int16 version, int64 producerId, firstOffset, lastOffset, LSO``."""
        entries = []
        for path in sorted(self.folder.glob("*.txnindex")):
            for _, producer_id, first, last, _ in struct.iter_unpack(">hqqqq", path.read_bytes()):
                entries.append(reference.Aborted(producer_id, first, last))
        return entries

    def last_stable_offset(self) -> int:
        """First offset of the earliest transaction that no marker ends, else behind everything."""
        open_transactions: dict[int, int] = {}
        options = reference.DecodeOptions(control_records=True, verify_crc=False)
        for header, entry in reference.iter_batches(b"".join(self.segments())):
            if header.is_control:
                keys = [row.key or b"" for row in reference.decode(entry, options)[0]]
                if any(key[2:4] in (b"\0\0", b"\0\1") for key in keys):
                    open_transactions.pop(header.producer_id, None)
            elif header.is_transactional:
                open_transactions.setdefault(header.producer_id, header.base_offset)
        return min(open_transactions.values(), default=2**63 - 1)

    def answers(self, isolation: str) -> list[Row] | None:
        """What the consumer got from this partition; None if the run has no such file."""
        path = self.run / "expected" / f"{self.topic}.{isolation}.jsonl.gz"
        if not path.exists():
            return None
        with gzip.open(path, "rt") as lines:
            rows = [expected_row(json.loads(line)) for line in lines]
        return [row for row in rows if row[0] == self.partition]

    def row(self, record: reference.Record) -> Row:
        """A record of ours in the form of the answers."""
        value: bytes | str | None = record.value
        if isinstance(value, bytes) and len(value) > 4096:
            value = f"{len(value)}:{hashlib.sha256(value).hexdigest()}"
        return (
            self.partition,
            record.offset,
            record.timestamp,
            TIMESTAMP_TYPES[record.timestamp_type],
            record.leader_epoch,
            record.key,
            value,
            record.headers,
        )


def partition_logs(root: pathlib.Path) -> Iterator[PartitionLog]:
    """Every partition directory under ``root/<run>/local-before`` whose topic has answers."""
    for run in sorted(path for path in root.iterdir() if (path / "local-before").is_dir()):
        for folder in sorted(path for path in (run / "local-before").rglob("*-*") if path.is_dir()):
            log = PartitionLog(run, folder)
            if log.answers("read_uncommitted") is not None:
                yield log
