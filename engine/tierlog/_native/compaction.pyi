from collections.abc import Iterable, Mapping
from typing import NamedTuple

from typing_extensions import Buffer

#: Bits of a batch's verdict. None of its records stays: it was aborted, or is a marker that may go.
DISCARD: int
#: Its header stays, even with no records.
RETAIN_EMPTY: int
#: A marker whose transaction has no other batch left: it gets a delete horizon.
EMPTY_TRANSACTION: int
#: Bytes that a key takes in the map.
ENTRY_BYTES: int

class Window(NamedTuple):
    """The whole batches at the start of some bytes.

    Attributes:
        valid_bytes: Of them.
        batches: Their number.
        next_offset: Behind the last one.
        has_producers: Whether one has a producer id, or is a control batch.
        next_size_bytes: Of the batch that is cut off behind them; 0: there is none, or it is not known.
    """

    valid_bytes: int
    batches: int
    next_offset: int
    has_producers: bool
    next_size_bytes: int

class Indexed(NamedTuple):
    """How many records were looked at, and whether the map became full."""

    messages_read: int
    is_full: bool

class Filtered(NamedTuple):
    """What a call of ``filter`` did.

    Attributes:
        read_bytes: Of whole batches that are done.
        batches: Their number.
        written_bytes: To the start of the output.
        messages_read: Records, but of batches that went as a whole.
        messages_retained: Records.
        invalid_messages: Records that went because they have no key.
        room_bytes: 0: all is done. Else the output has too little room for the next batch; in an empty one of so many
            bytes there is.
        columns: Of the written batches: last_offset and max_timestamp (int64, ms), size_bytes (int32).
    """

    read_bytes: int
    batches: int
    written_bytes: int
    messages_read: int
    messages_retained: int
    invalid_messages: int
    room_bytes: int

def survey_window(data: Buffer, *, base_position: int = 0) -> Window:
    """Walk over batches, and compare their checksums.

    Args:
        data: Begins with a batch; the last one may be cut off.
        base_position: Of the data in their file, for errors.

    Raises:
        CorruptRecordError: a batch is damaged.
    """

class OffsetMap:
    """The latest offset of each key, by a keyed hash of 128 bits, in one piece of memory.

    Args:
        size_bytes: Of the memory; an entry takes ENTRY_BYTES.
        load_factor: Part of the slots that is used at most, above 0, up to 1.
        secret: 16 random bytes: without them no two keys of one hash can be found.

    Raises:
        ValueError: there is no room for an entry, or the secret is of another size. MemoryError.
    """

    def __init__(self, size_bytes: int, *, load_factor: float, secret: Buffer) -> None: ...
    def clear(self, secret: Buffer, *, keys: int = 2**64 - 1) -> None:
        """Forget all keys, and use another secret.

        Args:
            secret: As above.
            keys: The most that will come before the next ``clear``, 0 … 2^64-1: a map with room for more uses a part
                of its memory.
        """

    @property
    def slots(self) -> int: ...
    @property
    def entries_max(self) -> int:
        """With so many entries the map is full."""

    def __len__(self) -> int:
        """Return the number of entries."""

    @property
    def latest_offset(self) -> int:
        """Up to which offset the log was looked at, inclusive; -1: nothing was."""

    @latest_offset.setter
    def latest_offset(self, offset: int) -> None: ...
    def put(self, key: bytes, offset: int) -> bool:
        """Set the offset of a key, which becomes the latest offset; False: the map is full, and nothing has changed."""

    def get(self, key: bytes) -> int:
        """Return the offset of a key; -1 if it has none."""

class CleanedTransactions:
    """The transactions of a log in front of the next batch, while a cleaner walks over it.

    A marker may go once no batch of its transaction is left in front of it. It first gets a delete horizon, as a
    tombstone does, and goes when that has passed. An aborted transaction stays in the transaction index as long as its
    marker has batches in front of it.

    Args:
        secret: 16 random bytes: without them no producer ids can be found that make it slow.

    Raises:
        ValueError: the secret is of another size. MemoryError.

    Not thread-safe; other threads run meanwhile.
    Source: Kafka CleanedTransactionMetadata, Cleaner#cleanInto.
    """

    def __init__(self, secret: Buffer) -> None: ...
    def add_aborted(self, aborted: Iterable[tuple[int, int, int, int]]) -> None:
        """Add aborted transactions of the batches to come; one may be added more than once.

        Args:
            aborted: Producer id, first offset, last offset and last stable offset of each.
        """

    def set_last_records(self, last_records: Mapping[int, tuple[int | None, int]]) -> None:
        """Set the last record of each producer, whose batch stays in the log.

        Args:
            last_records: Producer id → (last data offset, None where there is but a marker; producer epoch).
        """

    def judge(
        self, data: Buffer, *, batches: int, now_ms: int = 0, is_for_map: bool = False, base_position: int = 0
    ) -> bytearray:
        """Take batches, in order; their verdicts, uint8[batches].

        Args:
            data: Whole batches.
            batches: Their number.
            now_ms: The time by which delete horizons are compared, ms since 1970 UTC.
            is_for_map: Whether the verdicts are for ``index``: then DISCARD is that of all batches that may go, and no
                other bit is set.
            base_position: Of the data in their file, for errors.

        Raises:
            CorruptRecordError: a marker is malformed. ValueError: there are more batches. MemoryError. After each the
            state is of no use.
        """

    def take_retained(self) -> list[tuple[int, int, int, int]]:
        """Take the aborted transactions whose markers were met since, and that still have batches in front of these, as
        they were added.
        """

class WindowCleaner:
    """Takes the keys of batches into a map, and filters batches by it. Keeps the memory for decompression.

    Args:
        offset_map: The map.
        decompressed_limit: Bytes to which a batch may decompress.

    Not thread-safe; other threads run meanwhile.
    """

    def __init__(self, offset_map: OffsetMap, *, decompressed_limit: int) -> None: ...
    def shrink(self, size_bytes: int) -> None:
        """Free the memory for decompression that is above a size."""

    def index(
        self, data: Buffer, *, verdicts: Buffer | None = None, from_offset: int, base_position: int = 0
    ) -> Indexed:
        """Take the keys of records at or above an offset, of batches that are neither control batches nor discarded.

        Args:
            data: Whole batches, in offset order.
            verdicts: uint8[batches]; None: all 0.
            from_offset: Records below it are passed over.
            base_position: Of the data in their file, for errors.

        Raises:
            CorruptRecordError: a batch or a record is malformed. SizeLimitError.
        """

    def filter(
        self,
        data: Buffer,
        out: Buffer,
        *,
        verdicts: Buffer | None = None,
        now_ms: int,
        delete_horizon_ms: int,
        retained_next_offset: int,
        retain_legacy_tombstones: bool,
        base_position: int = 0,
    ) -> Filtered:
        """Write the batches that stay, with the records that stay, to an output.

        Args:
            data: Whole batches, in offset order.
            out: Writable, apart from the data.
            verdicts: uint8[batches]; None: all 0.
            now_ms: The time by which delete horizons are compared, ms since 1970 UTC.
            delete_horizon_ms: Of batches that get one now.
            retained_next_offset: The batch that ends in front of this offset stays, even with no records.
            retain_legacy_tombstones: Whether tombstones of magic 0 and 1 stay.
            base_position: Of the data in their file, for errors.

        Raises:
            CorruptRecordError: a batch or a record is malformed. SizeLimitError: its content is above the limit, or a
                batch becomes too large.
        """
