"""Sinks for the records of ``cat``: lines, a count or a table; to stdout, or into a file that appears once whole."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

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


#: Writes a record batch of the output's columns, of one partition and not empty.
Write = Callable[[pa.RecordBatch], object]


@contextmanager
def _counting(sink: Sink, count: int) -> Iterator[Write]:
    """Write the number of records as one line, when all have come; ``count`` of them are known beforehand."""

    def add(rows: pa.RecordBatch) -> None:
        nonlocal count
        count += rows.num_rows

    yield add
    sink(b"%d\n" % count)


@contextmanager
def _table(sink: Sink, form: Format, columns: Sequence[str]) -> Iterator[Write]:
    """Write Parquet (zstd), an Arrow IPC stream, or an Arrow IPC file (Feather).

    After an error the footer is not written: every reader refuses a file without it.
    """
    file, schema = _SinkFile(sink), records_schema(columns)
    if form is Format.ARROW:
        writer = pa.ipc.new_stream(file, schema)
    elif form is Format.ARROW_FILE:
        writer = pa.ipc.new_file(file, schema)
    else:
        import pyarrow.parquet

        writer = pyarrow.parquet.ParquetWriter(file, schema, compression="zstd")
    try:
        yield lambda rows: writer.write_batch(rows.select(schema.names))
    except BaseException:
        file.stopped = True
        raise
    finally:
        writer.close()


class _SinkFile(io.RawIOBase):
    """The file object that pyarrow needs, over a sink that can only be written to (a pipe has no position).

    Attributes:
        stopped: Whether all further bytes (the footer) are dropped.
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._position = 0
        self.stopped = False

    def write(self, data: Buffer) -> int:
        size = memoryview(data).nbytes
        if not self.stopped:
            self._sink(data)
        self._position += size
        return size

    def tell(self) -> int:
        return self._position

    def writable(self) -> bool:
        return True


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
        """Return the output that the options describe. Raises ConfigError: an unknown column, encoding or letter, or
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
        """Raise ConfigError if a table would go to a terminal."""
        if self.form in TABLES and out is None and sys.stdout.isatty():
            raise ConfigError(f"--format {self.form} is binary: give --out FILE or a pipe")

    @contextmanager
    def writer(self, sink: Sink, *, counted: int = 0) -> Iterator[Write]:
        """Open the writer of the records; the block's end finishes the output, unless something failed.

        Args:
            sink: Gets the bytes.
            counted: Records that are counted and do not come.
        """
        writing: AbstractContextManager[Write]
        if self.counts:
            writing = _counting(sink, counted)
        elif self.lines is None:
            writing = _table(sink, self.form, self.columns)
        else:
            lines = self.lines
            if isinstance(lines, DelimitedLines):
                sink(lines.head)
            writing = nullcontext(lambda rows: sink(lines.render(rows)))
        with writing as write:
            yield write


def _chosen(columns: str | None) -> tuple[str, ...] | None:
    """Return the columns of ``--columns``. Raises ConfigError: an unknown name, a name that comes twice, or none."""
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
