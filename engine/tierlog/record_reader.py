"""The reader that ``tierlog.read`` gives: pyarrow's, with a ``close`` that reaches what it reads from.

A ``pyarrow.RecordBatchReader`` over an iterator of Python's has no way to be closed: its ``close`` does nothing, the
next batch comes as before. One that is imported from a C stream does close, but its errors are texts. This one hands
batches on as they are, in Python (``read_next_batch``, ``read_all``, ``read_pandas``) and through Arrow's C stream
(DuckDB, polars, ``pyarrow.table``). Code of Arrow's that takes a reader's C++ side and asks nothing in Python, as
``pyarrow.dataset.write_dataset`` does, reads an IPC stream of the same batches, which costs a copy.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from tierlog.scan.reading.parallel_scan import ParallelScan

#: What ends an IPC stream.
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class RecordReader(pa.ipc.RecordBatchStreamReader):  # type: ignore[misc]
    """A ``pyarrow.RecordBatchReader`` of the records of a scan. A context manager.

    Closing it, or dropping it and all that it was handed to, ends the reading: requests that are under way are
    cancelled, threads end, and whoever asks for another batch gets a ValueError. An error of the scan comes again each
    time that a batch is asked for, so that what was read before it is not taken for all there is.

    Args:
        schema: Of every batch.
        scan: Gives the batches; closed with the reader.

    Thread safety: one consumer; ``close`` from any thread.
    """

    def __init__(self, schema: pa.Schema, scan: ParallelScan) -> None:
        self._scan = scan
        self._batches = pa.RecordBatchReader.from_batches(schema, scan)
        super().__init__(_IpcStream(self._batches))

    def read_next_batch(self) -> pa.RecordBatch:
        """The next batch. Raises StopIteration behind the last, ValueError once closed, and what reading raises."""
        return self._batches.read_next_batch()

    def read_all(self) -> pa.Table:
        """All that is left, in memory."""
        return self._batches.read_all()

    def cast(self, target_schema: pa.Schema) -> pa.RecordBatchReader:
        """The same records as another schema, which is pyarrow's own reader: close this one."""
        return self._batches.cast(target_schema)

    def close(self) -> None:
        """End the reading and its threads, within two seconds even if the store answers nothing; idempotent."""
        self._scan.close()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """See Arrow's PyCapsule interface."""
        return self._batches.__arrow_c_stream__(requested_schema)

    def _export_to_c(self, out_ptr: int) -> None:
        self._batches._export_to_c(out_ptr)  # noqa: SLF001 - pyarrow's older way to hand a stream on


class _IpcStream:
    """A file of the batches as Arrow's IPC stream, made while it is read."""

    def __init__(self, batches: pa.RecordBatchReader) -> None:
        self._batches: pa.RecordBatchReader | None = batches
        self._left = memoryview(batches.schema.serialize())
        self.closed = False

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> memoryview:
        """So many bytes, of one message: Arrow asks for its parts one by one."""
        if not self._left and self._batches is not None:
            try:
                self._left = memoryview(self._batches.read_next_batch().serialize())
            except StopIteration:
                self._batches = None
                self._left = memoryview(_END_OF_STREAM)
        taken, self._left = self._left[:size], self._left[size:]
        return taken

    def close(self) -> None:
        """Let go of the batches."""
        self._batches, self._left, self.closed = None, memoryview(b""), True
