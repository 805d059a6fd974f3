"""Logs of a log directory with everything in them, written by ours for a real broker that opens the directory next.

Run as a program it writes them, says what it wrote, and ends by SIGKILL:
``python -m tests.support.log_writer LOG_DIR TOPIC_IDS_JSON FIRST_TIMESTAMP_MS``.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace

from tierlog.log.formats.identity_files import Uuid
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_directory import LogDirectory
from tierlog.log.local.producers.producer_appends import AppendOrigin
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.records.builder import RecordBatchBuilder, build_end_transaction_marker
from tierlog.records.control import ControlRecordType

#: Of all topics, here and on the broker.
SETTINGS = {"internal.segment.bytes": "4096", "index.interval.bytes": "256", "retention.ms": "-1"}
CONFIG = LogConfig(segment_bytes=4096, index_interval_bytes=256, retention_ms=-1)
RETAINED_BYTES = 9000
MORE_SETTINGS = {"retained": {"retention.bytes": str(RETAINED_BYTES)}}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
IDEMPOTENT = 4001
COMMITTED, ABORTED, OPEN = "committed", "aborted", "open"


@dataclass
class WrittenRecord:
    offset: int
    key: str | None
    value: str | None
    timestamp_ms: int
    leader_epoch: int
    state: str = COMMITTED
    headers: list[list[str | None]] = field(default_factory=list)


@dataclass
class Written:
    """What one topic's log holds, and says of itself."""

    records: list[WrittenRecord] = field(default_factory=list)
    log_start: int = 0
    stable: int = 0
    end: int = 0
    #: Of the last idempotent batch: sequence, offset.
    last_batch: tuple[int, int] = (0, 0)
    #: Timestamp → (timestamp, offset), as ListOffsets answers; None: no record is late enough.
    by_time: dict[int, tuple[int, int] | None] = field(default_factory=dict)


class Writer:
    """Appends to one log, and keeps account."""

    def __init__(self, log: UnifiedLog, first_timestamp_ms: int) -> None:
        self.log = log
        self.written = Written()
        self.epoch = 0
        self._time = first_timestamp_ms
        self._open: dict[int, list[WrittenRecord]] = {}
        self._sequences: dict[int, int] = {}

    def batch(self, count: int, *, codec: str = "none", producer: int = -1, transactional: bool = False) -> None:
        sequence = self._sequences.get(producer, 0)
        builder = RecordBatchBuilder(
            0,
            codec=codec,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence if producer >= 0 else -1,
            transactional=transactional,
        )
        records = []
        for number in range(count):
            self._time += 10 if number % 3 else -5  # not in order
            key = None if number % 4 == 3 else f"key-{number}"
            value = None if number % 5 == 4 else f"{self.log.topic} {self._time} " + "v" * (number * 7 % 60)
            headers: list[tuple[str, bytes | None]] = [("h", b"x"), ("h", None)] if number % 6 == 1 else []
            builder.append(_bytes(key), _bytes(value), timestamp_ms=self._time, headers=headers)
            told = [[name, None if content is None else content.decode()] for name, content in headers]
            records.append(WrittenRecord(number, key, value, self._time, self.epoch, COMMITTED, told))
        info = self.log.append_as_leader(bytearray(builder.build()), leader_epoch=self.epoch, transaction_version=0)
        for record in records:
            record.offset += info.first_offset
        self.written.records += records
        if producer >= 0:
            self._sequences[producer] = sequence + count
            self.written.last_batch = (sequence, info.first_offset)
        if transactional:
            self._open.setdefault(producer, []).extend(records)

    def end(self, producer: int, *, commit: bool) -> None:
        kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
        marker = build_end_transaction_marker(
            0, kind, producer_id=producer, producer_epoch=0, coordinator_epoch=0, timestamp_ms=self._time
        )
        self.log.append_as_leader(
            bytearray(marker), leader_epoch=self.epoch, origin=AppendOrigin.COORDINATOR, transaction_version=0
        )
        for record in self._open.pop(producer, []):
            record.state = COMMITTED if commit else ABORTED

    def lead(self, epoch: int) -> None:
        """Become leader, once more."""
        self.epoch = epoch
        self.log.assign_epoch_start_offset(epoch, self.log.log_end_offset)

    def finish(self) -> Written:
        for records in self._open.values():
            for record in records:
                record.state = OPEN
        log, written = self.log, self.written
        written.log_start, written.stable = log.log_start_offset, log.last_stable_offset
        written.end = log.log_end_offset
        written.records = [record for record in written.records if record.offset >= written.log_start]
        times = {record.timestamp_ms + more for record in written.records for more in (-1, 0, 1)}
        for time in [*sorted(times)[:: max(1, len(times) // 12)], max(times) + 1000]:
            found = log.fetch_offset_by_timestamp(time)
            written.by_time[time] = None if found is None else (found.timestamp_ms, found.offset)
        return written


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _plain(writer: Writer) -> None:
    for number in range(60):
        writer.batch(1 + number % 7)


def _codecs(writer: Writer) -> None:
    for number in range(100):
        writer.batch(3 + number % 9, codec=CODECS[number % 5])


def _idempotent(writer: Writer) -> None:
    for number in range(50):
        writer.batch(1 + number % 4, producer=IDEMPOTENT + number % 2)
    writer.batch(3, producer=IDEMPOTENT)


def _transactions(writer: Writer) -> None:
    for number in range(40):
        for producer in (5001, 5002):
            writer.batch(2 + number % 3, producer=producer, transactional=True, codec=CODECS[number % 5])
        writer.batch(1)
        if number % 3 == 0:
            writer.end(5001, commit=number % 2 == 0)
        if number % 4 == 1:
            writer.end(5002, commit=number % 8 == 1)
    writer.end(5001, commit=False)
    writer.end(5002, commit=True)
    writer.batch(2)
    writer.batch(3, producer=5003, transactional=True)
    writer.batch(4)


def _epochs(writer: Writer) -> None:
    for epoch in range(3):
        writer.lead(epoch)
        for number in range(25):
            writer.batch(1 + number % 5)


def _started(writer: Writer) -> None:
    _plain(writer)
    writer.log.maybe_increment_log_start_offset(writer.log.log_end_offset // 2 + 1, "records were deleted")


def _retained(writer: Writer) -> None:
    _plain(writer)
    assert writer.log.delete_old_segments() > 0


TOPICS: dict[str, Callable[[Writer], None]] = {
    "plain": _plain,
    "codecs": _codecs,
    "idempotent": _idempotent,
    "transactions": _transactions,
    "epochs": _epochs,
    "started": _started,
    "retained": _retained,
}


def config_of(topic: str) -> LogConfig:
    return replace(CONFIG, retention_bytes=RETAINED_BYTES) if topic == "retained" else CONFIG


def write_logs(
    directory: LogDirectory, topic_ids: dict[str, Uuid], first_timestamp_ms: int, topics: Iterable[str] = TOPICS
) -> dict[str, Written]:
    """Write the topics' logs, which are new."""
    written = {}
    for topic in topics:
        log = directory.log(topic, 0, config=config_of(topic), topic_id=topic_ids[topic])
        writer = Writer(log, first_timestamp_ms)
        TOPICS[topic](writer)
        written[topic] = writer.finish()
    return written


def written_of(text: str) -> dict[str, Written]:
    """What the program said."""
    found = {}
    for topic, told in json.loads(text).items():
        records = [WrittenRecord(**record) for record in told.pop("records")]
        last_batch = tuple(told.pop("last_batch"))
        by_time = {int(time): None if at is None else tuple(at) for time, at in told.pop("by_time").items()}
        found[topic] = Written(records, last_batch=last_batch, by_time=by_time, **told)  # type: ignore[arg-type]
    return found


def main() -> None:
    ids = {topic: Uuid.from_text(told) for topic, told in json.loads(sys.argv[2]).items()}
    directory = LogDirectory.open(sys.argv[1])
    written = write_logs(directory, ids, int(sys.argv[3]))
    pathlib.Path("/dev/stdout").write_text(json.dumps({topic: asdict(told) for topic, told in written.items()}))
    directory.checkpoint()  # a log start lives there alone
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
