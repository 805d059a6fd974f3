from collections.abc import Collection, Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from typing_extensions import Buffer

class RecordDecoder:
    """A decoder of a run of record batches, passed buffer by buffer, into Arrow record batches.

    Only the chosen columns are made, in this order: key, value (binary), offset (int64), timestamp (timestamp[ms] or
    [us], UTC; -1 ms when there is none), timestampType (int32: -1 none, 0 CreateTime, 1 LogAppendTime), headers
    (list<struct<key: string, value: binary>>, null when there are none), leaderEpoch (int32), batchPosition (int64),
    sequence (int32). All are nullable in the schema.

    Buffers may be cut anywhere: a batch that straddles two buffers is the only thing that is ever copied.

    Args:
        columns: Names from the list above.
        base_position: Position in the file of the first byte that will be fed.
        end_position: Not 0: the end, in the file, of the batches that are decoded. The bytes fed beyond it are the base
            offset of the next batch (8 bytes), which shows whether that of the last batch can be right.
        verify_crc: Check every batch's checksum before its records are given.
        from_offset, to_offset_exclusive: Records outside are skipped, batches outside are checked and not decompressed.
        least_offset, greatest_offset: No batch begins below or ends above, both **inclusive**: a batch that does is
            damaged. No checksum covers a base offset.
        from_timestamp_ms, to_timestamp_exclusive_ms: The same by record timestamp. The default is no bound, even for a
            record whose timestamp is 2**63 - 1.
        aborted: What ``indexes.sort_aborted`` returned: data of these transactions is skipped (read_committed).
        control_records: Give control records as rows too.
        timestamp_unit: "ms" or "us".
        decompressed_limit: Largest size of one decompressed batch, bytes; more is a SizeLimitError.
        target_bytes: A record batch is given out when it holds about this many bytes (one larger record still fits).
            The default keeps the output in the processor's caches: 8 MiB decoded a fifth slower where it was measured.
        summary: Not None: no rows are given but summed up in ``summary``, and a batch whose header says enough is not
            looked into, only checked. Any of "count", "min_offset", "max_offset", "min_timestamp", "max_timestamp": the
            less is wanted, the fewer batches are decompressed. ``columns`` is empty then.

    Raises:
        ConfigError: an unknown name, or a value out of range. TypeError, ValueError: a number is none, has more than 64
            bits, or is negative where it is a position or a size; it is named.

    Not thread-safe; one decoder per run. The GIL is released in every loop.
    """

    def __init__(
        self,
        columns: Collection[str],
        *,
        base_position: int = 0,
        end_position: int = 0,
        verify_crc: bool = True,
        from_offset: int = 0,
        to_offset_exclusive: int = 2**63 - 1,
        least_offset: int = 0,
        greatest_offset: int = 2**63 - 1,
        from_timestamp_ms: int = -(2**63),
        to_timestamp_exclusive_ms: int = 2**63 - 1,
        aborted: NDArray[np.void] | None = None,
        control_records: bool = False,
        timestamp_unit: str = "ms",
        decompressed_limit: int = 1 << 28,
        target_bytes: int = 2 << 20,
        summary: Collection[str] | None = None,
    ) -> None: ...
    @property
    def schema(self) -> pa.Schema: ...
    @property
    def position(self) -> int:
        """Behind the last batch that is done, bytes in the file."""
    @property
    def done(self) -> bool:
        """``end_position``, or two batches at or above ``to_offset_exclusive``, were met: more data changes nothing."""
    @property
    def counters(self) -> dict[str, int]:
        """batches, batches_skipped, records, decompressed_bytes so far."""
    @property
    def summary(self) -> dict[str, int | None]:
        """Of the records so far: ``count``, and the wanted fields; timestamps in ``timestamp_unit``. None: no records.

        Raises ValueError: the decoder gives rows.
        """
    def feed(self, data: Buffer) -> Iterator[pa.RecordBatch]:
        """Decode the next bytes of the run; yields full record batches. Exhaust it before the next call.

        Raises:
            CorruptRecordError: with the byte position in the file and the offset; rows before it were yielded.
            SizeLimitError: a batch decompresses to more than ``decompressed_limit``.
        """
    def skip_batch(self) -> int:
        """After a fault: go on behind the batch that raised, if its size can be trusted. Returns its size in bytes.

        Raises:
            CorruptRecordError: the batch's length cannot be trusted, so there is no next batch to find.
        """
    def finish(self, *, allow_partial: bool = False) -> Iterator[pa.RecordBatch]:
        """Yields the rows that are left. Raises CorruptRecordError (TRUNCATED) if the bytes end inside a batch,
        unless ``allow_partial`` (the active segment of a live log).
        """
