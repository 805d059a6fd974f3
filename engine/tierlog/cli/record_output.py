"""Where the records of ``cat`` go: lines, Parquet or Arrow; to stdout, or into a file that appears when whole."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import BinaryIO, Protocol, Self

import pyarrow as pa
from typing_extensions import Buffer

from tierlog.cli.record_lines import JsonLines, RawLines, TextLines
from tierlog.errors import ConfigError
from tierlog.remote.manager.scan_read import records_schema
from tierlog.runtime.machine import Machine

#: The columns of every format, in this order.
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "leaderEpoch", "key", "value", "headers")


class Sink(Protocol):
    """Takes bytes in order."""

    def write(self, data: Buffer) -> object: ...


class LineFormat(Protocol):
    def render(self, topic: str, partition: int, rows: pa.RecordBatch, /) -> bytes: ...


class RecordWriter(Protocol):
    """Takes record batches of COLUMNS, each of one partition and not empty.

    A context manager that finishes what it began, unless something failed.
    """

    def write(self, rows: pa.RecordBatch) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


@contextmanager
def open_sink(out: str | None) -> Iterator[Sink]:
    """stdout, a device or pipe as it is, or a file that gets its name when the block ends without an error.

    Raises:
        ConfigError: ``out`` is a folder.
    """
    if out is None:
        yield _Unbuffered(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    files = Machine().files
    there = files.find(out)
    if there is not None and there.is_directory:
        raise ConfigError(f"--out {out}: this is a folder")
    with files.open_write(out) as file:
        yield file
        file.commit()


class _Unbuffered:
    """All of the bytes or an error. A bare descriptor (stdout with PYTHONUNBUFFERED) may take only a part."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw

    def write(self, data: Buffer) -> None:
        left = memoryview(data).cast("B")
        while len(left):
            left = left[self._raw.write(left) :]


class LineWriter:
    """Lines of text, a record batch at a time."""

    def __init__(self, sink: Sink, lines: LineFormat) -> None:
        self._sink = sink
        self._lines = lines

    def write(self, rows: pa.RecordBatch) -> None:
        topic, partition = rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py()
        self._sink.write(self._lines.render(topic, partition, rows))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class TableWriter:
    """Parquet (zstd) or an Arrow IPC stream.

    After an error nothing is finished: a Parquet file without its footer is refused by every reader.
    """

    def __init__(self, sink: Sink, name: str) -> None:
        self._file = _CountingFile(sink)
        self._schema = records_schema(COLUMNS)
        self._name = name

    def __enter__(self) -> Self:
        if self._name == "arrow":
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        else:
            import pyarrow.parquet

            self._writer = pyarrow.parquet.ParquetWriter(self._file, self._schema, compression="zstd")
        return self

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._file.stop()
        self._writer.close()


class _CountingFile:
    """What pyarrow asks of a Python file, over a sink that can only be written to (a pipe has no position)."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._position = 0
        self._stopped = False
        self.closed = False

    def stop(self) -> None:
        """What follows (the footer) is dropped."""
        self._stopped = True

    def write(self, data: Buffer) -> int:
        size = memoryview(data).nbytes
        if not self._stopped:
            self._sink.write(data)
        self._position += size
        return size

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        return None

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


def record_writer(sink: Sink, name: str, *, key_as: str, value_as: str) -> RecordWriter:
    """The writer of a ``--format``. Raises ConfigError for an unknown encoding."""
    if name in ("parquet", "arrow"):
        return TableWriter(sink, name)
    if name == "json":
        return LineWriter(sink, JsonLines(key_as=key_as, value_as=value_as))
    return LineWriter(sink, TextLines() if name == "text" else RawLines())
