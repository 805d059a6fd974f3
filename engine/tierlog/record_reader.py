"""The reader that ``tierlog.read`` returns: pyarrow's, with a ``close`` that reaches the scan.

A ``pyarrow.RecordBatchReader`` over a Python iterator cannot be closed: its ``close`` does nothing, and the next batch
comes as before. A reader imported from a C stream can be closed, but its errors are plain texts. This reader hands
batches on without a copy, in Python (``read_next_batch``, ``read_all``, ``read_pandas``) and through Arrow's C stream
(DuckDB, polars, ``pyarrow.table``). Arrow functions that use a reader's C++ side alone, such as
``pyarrow.dataset.write_dataset``, read an IPC stream of the same batches, which costs a copy.
"""

from __future__ import annotations

import html
from typing import Final

import pyarrow as pa

from tierlog.scan.reading.parallel_scan import ParallelScan

#: What ends an IPC stream.
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class RecordReader(pa.ipc.RecordBatchStreamReader):  # type: ignore[misc]
    """A ``pyarrow.RecordBatchReader`` of the records of a scan. A context manager.

    Closing the reader, or dropping the last reference to it, ends the scan: pending requests are cancelled, threads
    end, and asking for another batch raises ValueError. An error of the scan is raised again by each later call, so
    that the batches before it do not pass for the whole answer.

    Args:
        schema: Of every batch.
        scan: Yields the batches; closed with the reader.

    Thread safety: one consumer; ``close`` from any thread.
    """

    def __init__(self, schema: pa.Schema, scan: ParallelScan) -> None:
        self._scan = scan
        self._batches = pa.RecordBatchReader.from_batches(schema, scan)
        super().__init__(_IpcStream(self._batches))

    def read_next_batch(self) -> pa.RecordBatch:
        """Read the next batch. Raises StopIteration behind the last one, ValueError once closed, and errors of the
        scan.
        """
        return self._batches.read_next_batch()

    def read_all(self) -> pa.Table:
        """Read all remaining records, as one table in memory."""
        return self._batches.read_all()

    def cast(self, target_schema: pa.Schema) -> pa.RecordBatchReader:
        """Make a reader of the same records under another schema. It is pyarrow's own, without a working ``close``:
        close this one.
        """
        return self._batches.cast(target_schema)

    def __repr__(self) -> str:
        """Return the columns, and whether more can be read: nothing is read for it."""
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        return f"<tierlog.RecordReader ({'ended' if self._scan.is_closed else 'open'}): {columns}>"

    def _repr_html_(self) -> str:
        """Return a table of the columns for a notebook, and the calls that read the records."""
        rows = "".join(
            f"<tr><td>{html.escape(field.name)}</td><td>{html.escape(str(field.type))}</td></tr>"
            for field in self.schema
        )
        state = "ended" if self._scan.is_closed else "open: read_pandas(), read_all(), or a loop over its batches"
        return (
            f"<div>tierlog.RecordReader, {state}<table><thead><tr><th>column</th><th>type</th></tr></thead>"
            f"<tbody>{rows}</tbody></table></div>"
        )

    def close(self) -> None:
        """End the scan and its threads, within two seconds even if the store does not answer; idempotent."""
        self._scan.close()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the reader as a C stream, by Arrow's PyCapsule interface."""
        return self._batches.__arrow_c_stream__(requested_schema)

    def _export_to_c(self, out_ptr: int) -> None:
        self._batches._export_to_c(out_ptr)  # noqa: SLF001 - pyarrow's older way to hand a stream on


class _IpcStream:
    """A file-like Arrow IPC stream of the batches, encoded while it is read."""

    def __init__(self, batches: pa.RecordBatchReader) -> None:
        self._batches: pa.RecordBatchReader | None = batches
        self._left = memoryview(batches.schema.serialize())
        self.closed = False

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> memoryview:
        """Read the next ``size`` bytes, all of one message: Arrow asks for a message's parts one by one."""
        if not self._left and self._batches is not None:
            try:
                self._left = memoryview(self._batches.read_next_batch().serialize())
            except StopIteration:
                self._batches = None
                self._left = memoryview(_END_OF_STREAM)
        taken, self._left = self._left[:size], self._left[size:]
        return taken

    def close(self) -> None:
        """Release the batches."""
        self._batches, self._left, self.closed = None, memoryview(b""), True
