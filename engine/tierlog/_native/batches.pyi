from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import Buffer

from tierlog._native.files import GrowingFile
from tierlog.errors import CorruptDataError, CorruptObjectError, CorruptRecordError

class BatchHeader(NamedTuple):
    """Fields of one batch's header, as the columns of ``scan_batches`` have them."""

    base_offset: int
    size_bytes: int
    magic: int
    attributes: int
    base_timestamp: int
    max_timestamp: int

def find_batch_header(data: Buffer) -> BatchHeader | None:
    """The header of the batch that begins with these bytes; None if they end inside it.

    The first 61 bytes are enough, or the whole batch where that is shorter. No checksum is compared.

    Raises:
        CorruptRecordError: no batch has such a size or format.
    """

class FoundBatch(NamedTuple):
    """A batch's place in its file, and its header's fields; ``leader_epoch`` -1 where it is not known."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    leader_epoch: int

class BatchSearch:
    """The first batch that reaches an offset and a timestamp, by the headers of a log's batches alone.

    Args:
        position: Where in the log to begin; a batch begins there.
        end_position: Of the log, exclusive. A batch that does not end here is torn, and none.
        least_last_offset: Wanted is a batch with this last offset or a later one …
        least_max_timestamp: … and with this max timestamp (ms) or a later one.

    Thread safety: one thread.
    Source: Kafka FileRecords#searchForOffsetWithSize, #searchForTimestamp, #largestTimestampAfter.
    """

    def __init__(
        self, *, position: int, end_position: int, least_last_offset: int, least_max_timestamp: int = ...
    ) -> None: ...
    def feed(self, data: Buffer) -> None:
        """Look at the headers in these bytes, which begin at ``position`` of the log.

        Headers are hopped from one to the next: no record and no checksum is looked at. Unless ``is_done``, read on at
        ``position``, 61 bytes at least: with fewer it may stay where it is.

        Raises:
            CorruptRecordError: no batch stands at ``position``.
        """
    def run(self, growing: GrowingFile) -> None:
        """Search an open file to the end: as ``feed`` of its bytes, and without the GIL.

        Raises:
            StoreError: a read failed. CorruptRecordError: as ``feed``; or the file ends before the log.
        """
    @property
    def is_done(self) -> bool:
        """Whether the batch is found, or there is none."""
    @property
    def position(self) -> int:
        """Position in the log of the batch that was found, or of the next header to look at, bytes."""
    @property
    def found(self) -> FoundBatch | None: ...
    @property
    def passed_last_offset(self) -> int | None:
        """Last offset of the last batch that was passed over; None if none was."""
    @property
    def greatest_timestamp(self) -> tuple[int, int]:
        """The greatest max timestamp of the batches that were passed over, ms, and the last offset of the first that
        has it; (-1, -1) if none has one.
        """

class BatchWalk(NamedTuple):
    """The result of a walk over batches; positions are in the log, bytes.

    Attributes:
        first_position, first_size_bytes, first_base_offset: Of the first batch that counts; -1, 0 and -1 without one.
        position: Of the next header to look at.
        is_ended: Nothing counts from there on: the end offset, or the log's end.
        least_offset: Behind the last offset of the batch in front of ``position``.
        whole_position, whole_offset: Behind the last batch that counts and is within the bytes that are wanted, and
            behind its last offset; without such a batch where the walk began, and 0.
    """

    first_position: int
    first_size_bytes: int
    first_base_offset: int
    position: int
    is_ended: bool
    least_offset: int
    whole_position: int
    whole_offset: int

def walk_batches(
    pieces: Sequence[Buffer],
    *,
    start_position: int,
    log_size_bytes: int,
    least_offset: int,
    greatest_offset: int,
    wanted_offset: int,
    end_offset_exclusive: int,
    max_bytes: int,
) -> tuple[BatchWalk, CorruptRecordError | None]:
    """Walk over the headers of a range that begins at a batch border. No checksum and no record is looked at.

    Args:
        pieces: The range's bytes, one buffer behind another; not copied.
        start_position: Of their first byte in the log.
        log_size_bytes: No batch may end behind it.
        least_offset: No batch may begin below.
        greatest_offset: No batch may end above; **inclusive**.
        wanted_offset: The first batch that counts is the first with this last offset or a later one.
        end_offset_exclusive: A batch that begins here or later does not count, nor does any behind it.
        max_bytes: Wanted from the first batch that counts on; that one is wanted whole.

    Returns:
        How far the walk came, and the fault of the batch at ``position`` if there is one: a size or format that no
        batch has, or offsets that do not rise or lie outside (BAD_OFFSET).

    Raises:
        ValueError: the range does not begin in the log.

    Thread safety: any number of threads; the GIL is released for ranges above 4 MiB.
    Source: Kafka LogSegment#translateOffset, RemoteLogManager#findFirstBatch.
    """

def walk_ready_batches(
    descriptor: int,
    log_position: int,
    end_position: int,
    *,
    start_position: int,
    log_size_bytes: int,
    least_offset: int,
    greatest_offset: int,
    wanted_offset: int,
    end_offset_exclusive: int,
    max_bytes: int,
) -> tuple[BatchWalk, CorruptRecordError | None] | None:
    """Walk over batches like ``walk_batches``, over an open file. Headers alone are read, and only where the system has
    them in memory: for event loops. Holds the GIL.

    ``descriptor`` is the number of the file, as of ``ReadyFile``; ``log_position`` is where in it the log begins, bytes
    >= 0; ``end_position`` is behind the last byte of the log that may be handed out. The others are as there.

    Returns:
        As ``walk_batches``; None where a header is not in memory, or the file ends before it.

    Raises:
        ValueError: the range does not begin in the log.
    """

def find_batch_size(data: Buffer) -> int | None:
    """Return the size of the batch that begins with these bytes; None with fewer than 17 of them.

    Raises:
        CorruptRecordError: no batch has such a size, or (if these are all its bytes) such a format.
    """

def scan_batches(
    data: Buffer, *, base_position: int = 0, verify_crc: bool = True
) -> tuple[dict[str, NDArray[np.generic]], int, bool, CorruptRecordError | None]:
    """Index the record batches of a byte range that begins at a batch border.

    Args:
        data: Any contiguous buffer; not copied.
        base_position: Position of data[0] in its file, bytes; added to ``position`` and to fault positions.
        verify_crc: Compute each checksum; else ``crc_ok`` is all true.

    Returns:
        ``(columns, end_position, partial, fault)``. Columns, all of shape (n_batches,), in file order: base_offset,
        last_offset, position, base_timestamp, max_timestamp, producer_id: int64; size_bytes, leader_epoch,
        base_sequence, record_count: int32; attributes, producer_epoch: int16; magic: int8; crc: uint32; crc_ok: bool.
        ``end_position``: behind the last whole batch, bytes, with base_position. ``partial``: the data end inside a
        batch. ``fault``: the fault of the batch at end_position, or None. A wrong CRC is no fault here.

    Thread safety: any number of threads; the GIL is released for the whole range.
    Source: Kafka FileLogInputStream, DefaultRecordBatch, AbstractLegacyRecordBatch.
    """

class RangeCheck:
    """Whether the bytes of a range are a run of sound batches of one segment, in order, as they come in pieces.

    A range may begin inside a batch: position 0 is a border, and so is a start with ``is_border``; any other start is
    one if the first batch that stands there is sound and within the offsets; a range that does not begin at a border is
    never found wrong.

    Not thread-safe; the GIL is released for every piece.
    """

    def __init__(
        self,
        *,
        position: int,
        first_offset: int,
        last_offset: int,
        size_bytes: int,
        is_border: bool = False,
        kind: type[CorruptDataError] = CorruptObjectError,
    ) -> None:
        """Check a range that begins at ``position`` of a log of ``size_bytes``, offsets first … last, both inclusive.

        ``is_border``: a batch begins at ``position``.

        ``kind`` is the class of the errors that are returned.
        """
    @property
    def is_checking(self) -> bool:
        """Whether the bytes so far began at a border, as far as can be known."""
    @property
    def end_position(self) -> int:
        """Behind the last whole batch, bytes in the log."""
    @property
    def next_offset(self) -> int:
        """Behind the last offset of the batches that are right."""
    @property
    def partial(self) -> bool:
        """Whether a batch has begun at ``end_position`` and not ended."""
    def feed(self, data: Buffer) -> tuple[str, CorruptDataError] | None:
        """Check the bytes that follow; None where nothing is wrong.

        Returns:
            The rule that was broken and where. "header": no batch begins where one ends; "crc"; "order": the batch's
            offsets (``base_offset`` … ``found``) lie outside the segment or below ``expected``; "size": the open batch
            says that it ends behind the segment.

        Raises:
            ValueError: fed behind a fault.
        """
    def feed_file(
        self, descriptor: int, position: int, size_bytes: int, *, waits: bool
    ) -> tuple[str, CorruptDataError] | None:
        """Feed bytes of an open file, read from a position on without the interpreter's lock.

        ``descriptor`` is the number of the file, as of ``ReadyFile``.

        Raises:
            BlockingIOError: not all of them are in memory, and ``waits`` is not set. OSError: the file ends before
            (ENODATA), or cannot be read. ValueError: fed behind a fault.
        """
    def gather(self, data: Buffer) -> tuple[str, CorruptDataError] | None:
        """Feed bytes like ``feed``, and collect the headers of the right batches that ended in them, for ``take``."""
    @property
    def gathered(self) -> int:
        """The number of headers that ``take`` would return."""
    def take(self) -> dict[str, NDArray[np.generic]]:
        """The headers of the batches since the last ``take``: columns as of ``scan_batches``, the caller's alone.

        After a fault too: those in front of it.
        """
    def collect(self, data: Buffer) -> tuple[dict[str, NDArray[np.generic]], tuple[str, CorruptDataError] | None]:
        """``gather`` and ``take`` in one."""
