"""Sinks for the records of ``cat``: lines, a count or a table; to stdout, or into a file that appears once whole."""

from __future__ import annotations

import abc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import BinaryIO, Self

import pyarrow as pa
from typing_extensions import Buffer

from tierlog.cli.options import Format
from tierlog.cli.records.record_lines import TEXT_COLUMNS, DelimitedLines, JsonLines, RawLines, TemplateLines, TextLines
from tierlog.errors import ConfigError
from tierlog.runtime.machine import Machine
from tierlog.scan.reading.read import records_schema

#: The columns of JSON and of tables, in this order, where none are chosen.
COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "leaderEpoch", "key", "value", "headers")
#: All that can be chosen.
ALL_COLUMNS = (*COLUMNS, "segment")
#: Size of the record batches: small, so that lines come early and the allocator reuses the memory of their texts (from
#: 1 MiB on the kernel maps and clears it anew for each: a quarter of the time).
LINE_TARGET_BYTES = 1 << 18
TABLE_TARGET_BYTES = 8 << 20


DELIMITERS = {Format.CSV: ",", Format.TSV: "\t"}
TABLES = frozenset({Format.PARQUET, Format.ARROW, Format.ARROW_FILE})


LineFormat = TextLines | JsonLines | RawLines | DelimitedLines | TemplateLines

#: Writes bytes to a destination, in order.
Sink = Callable[[Buffer], object]


@contextmanager
def open_sink(out: str | None) -> Iterator[Sink]:
    """stdout, a device or a pipe, or a file that gets its name when the block ends without an error.

    Raises:
        ConfigError: ``out`` is a folder.
    """
    if out is None:
        yield partial(_write_all, sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    files = Machine().files
    there = files.find(out)
    if there is not None and there.is_directory:
        raise ConfigError(f"--out {out}: this is a folder")
    with files.open_write(out) as file:
        yield file.write
        file.commit()


def _write_all(raw: BinaryIO, data: Buffer) -> None:
    """Write all bytes or raise. A bare descriptor (stdout with PYTHONUNBUFFERED) may take only a part of them."""
    left = memoryview(data).cast("B")
    while len(left):
        left = left[raw.write(left) :]


class RecordWriter(abc.ABC):
    """Writes record batches of its output's columns, each of one partition and not empty.

    A context manager that finishes its output, unless something failed.
    """

    @abc.abstractmethod
    def write(self, rows: pa.RecordBatch) -> None:
        """Write the rows."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class LineWriter(RecordWriter):
    """Writes lines of text, a record batch at a time, and a head of them if there is one."""

    def __init__(self, sink: Sink, lines: LineFormat) -> None:
        self._sink = sink
        self._lines = lines

    def write(self, rows: pa.RecordBatch) -> None:
        self._sink(self._lines.render(rows))

    def __enter__(self) -> Self:
        if isinstance(self._lines, DelimitedLines):
            self._sink(self._lines.head)
        return self


class CountWriter(RecordWriter):
    """Writes the number of records as one line, when all have come."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._rows = 0

    def write(self, rows: pa.RecordBatch) -> None:
        self._rows += rows.num_rows

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self._sink(b"%d\n" % self._rows)


class TableWriter(RecordWriter):
    """Writes Parquet (zstd), an Arrow IPC stream, or an Arrow IPC file (Feather).

    After an error the footer is not written: every reader refuses a file without it.
    """

    def __init__(self, sink: Sink, form: Format, columns: Sequence[str]) -> None:
        self._file = _CountingFile(sink)
        self._schema = records_schema(columns)
        self._form = form

    def __enter__(self) -> Self:
        if self._form is Format.ARROW:
            self._writer = pa.ipc.new_stream(self._file, self._schema)
        elif self._form is Format.ARROW_FILE:
            self._writer = pa.ipc.new_file(self._file, self._schema)
        else:
            import pyarrow.parquet

            self._writer = pyarrow.parquet.ParquetWriter(self._file, self._schema, compression="zstd")
        return self

    def write(self, rows: pa.RecordBatch) -> None:
        self._writer.write_batch(rows.select(self._schema.names))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._file.stop()
        self._writer.close()


class _CountingFile:
    """The file object that pyarrow needs, over a sink that can only be written to (a pipe has no position)."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._position = 0
        self._stopped = False
        self.closed = False

    def stop(self) -> None:
        """Drop all further bytes (the footer)."""
        self._stopped = True

    def write(self, data: Buffer) -> int:
        size = memoryview(data).nbytes
        if not self._stopped:
            self._sink(data)
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


@dataclass(frozen=True, slots=True)
class RecordOutput:
    """The form in which records are written. Made by ``of``.

    Attributes:
        columns: The columns that have to be read.
        target_bytes: The approximate size of its record batches.
    """

    form: Format
    columns: tuple[str, ...]
    lines: LineFormat | None
    counts: bool = False

    @classmethod
    def of(
        cls,
        form: Format,
        *,
        columns: str | None = None,
        template: str | None = None,
        count: bool = False,
        key_as: str | None = None,
        value_as: str | None = None,
    ) -> RecordOutput:
        """The output that the options describe. Raises ConfigError: an unknown column, encoding or letter, or
        contradictions.
        """
        chosen = _chosen(columns)
        if count:
            _refuse_beside("--count", (columns is not None, "--columns"), (template is not None, "--template"))
            _refuse_beside("--count", (form not in (Format.TEXT, Format.JSON), f"--format {form}"))
            return cls(form, ("offset",), None, counts=True)
        if template is not None:
            _refuse_beside("--template", (columns is not None, "--columns"), (form is not Format.TEXT, "--format"))
            template_lines = TemplateLines(template)
            return cls(form, template_lines.columns, template_lines)
        if form is Format.TEXT:
            return cls(form, chosen or TEXT_COLUMNS, TextLines(chosen))
        if form is Format.RAW:
            _refuse_beside("--format raw", (columns is not None, "--columns"))
            return cls(form, ("value",), RawLines())
        chosen = chosen or COLUMNS
        if form in DELIMITERS:
            encodings = {"key_as": key_as or "utf8", "value_as": value_as or "utf8"}
            return cls(form, chosen, DelimitedLines(chosen, DELIMITERS[form], **encodings))
        encodings = {"key_as": key_as or "base64", "value_as": value_as or "base64"}
        return cls(form, chosen, JsonLines(chosen, **encodings) if form is Format.JSON else None)

    @property
    def target_bytes(self) -> int:
        return LINE_TARGET_BYTES if self.lines else TABLE_TARGET_BYTES

    def check_target(self, out: str | None) -> None:
        """Raises ConfigError: a table would go to a terminal."""
        if self.form in TABLES and out is None and sys.stdout.isatty():
            raise ConfigError(f"--format {self.form} is binary: give --out FILE or a pipe")

    def writer(self, sink: Sink) -> RecordWriter:
        if self.counts:
            return CountWriter(sink)
        return TableWriter(sink, self.form, self.columns) if self.lines is None else LineWriter(sink, self.lines)


def _chosen(columns: str | None) -> tuple[str, ...] | None:
    """The columns of ``--columns``. Raises ConfigError: an unknown name, a name that comes twice, or none."""
    if columns is None:
        return None
    names = tuple(name.strip() for name in columns.split(","))
    for place, name in enumerate(names):
        if name not in ALL_COLUMNS:
            raise ConfigError(f"--columns: {name!r} is none of {', '.join(ALL_COLUMNS)}")
        if name in names[:place]:
            raise ConfigError(f"--columns: {name} is named twice")
    return names


def _refuse_beside(option: str, *others: tuple[bool, str]) -> None:
    for given, name in others:
        if given:
            raise ConfigError(f"{option} does not go together with {name}")
