"""One segment of a tier: the places of its parts, their transform, and the reading of their bytes.

The log is numbered chunks. A log that is stored as it is has no chunks of its own: it is cut every mebibyte, so that
caches and shared loads know one kind of chunk.
"""

from __future__ import annotations

import pickle
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import xxhash

from tierlog._native.chunks import ChunkIndex
from tierlog._native.codecs import decompress_into, decompress_prefix_into
from tierlog.errors import CorruptDataError, CorruptObjectError, EncryptionKeyError, SizeLimitError
from tierlog.remote.api import IndexType, RemoteLogSegmentMetadata, TopicIdPartition
from tierlog.remote.tier.chunks.key_ring import IV_BYTES, UNIT_OVERHEAD_BYTES, KeyRing, SegmentEncryption
from tierlog.runtime.machine.buffers import new_buffer
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.waiting.threads import OrderedCalls

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

#: Size of the pieces into which a log without chunks is cut.
PIECE_BYTES: Final = 1 << 20
#: Chunks that are read at once, at most: a hostile manifest may say that a chunk is one byte.
CHUNKS_TOGETHER_MAX: Final = 16384
#: Fixed: fingerprints are in the names of files that outlive this Python.
_PICKLE_PROTOCOL: Final = 5
_ZSTD: Final = 4
#: Only the plugin's layout encrypts: this object has the key's id and the wrapped data key.
_DESCRIPTION: Final = "rsm-manifest"
#: Of a log: see ``StoredSegment.log_version``.
LogVersion = tuple[str, int, int]


class StoredPart(NamedTuple):
    """Bytes of an object that hold one part of a segment.

    Args:
        key: Of the object, relative to the tier's store.
        position: First byte in the object.
        size_bytes: As stored (transformed), as the segment's own description says.
        object_size_bytes: Of the whole object as the listing said; -1 if the listing did not have it.
        crc32c: Of the stored bytes, as the segment's own description says; None if it says none.
    """

    key: str
    position: int
    size_bytes: int
    object_size_bytes: int = -1
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class FooterPlace:
    """What is known of a segment's footer before it is fetched.

    Args:
        size_bytes: Of the object beside the segment, as listed; -1: it was not listed, and may lie there or elsewhere.
        description_digest: SHA-256 of the object that describes the segment, which the footer has to name.
    """

    size_bytes: int
    description_digest: bytes


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A whole segment as a listing of its tier found it. Immutable, picklable, small, free of secrets.

    Args:
        metadata: As far as the layout knows it. ``segment_size_in_bytes`` are the log bytes that count: of an active
            segment those up to its last valid batch. Ids that a layout does not have are ZERO_UUID (topic) and
            made of the log's key (segment); ``broker_id`` -1; ``event_timestamp_ms`` = last modified.
        layout: Name of the layout, as ``open_tier`` takes it.
        name: For messages: the key of the log object, its prefix masked where ``key.prefix.mask`` asks for it.
        log: The log's object.
        parts: The other parts that are known to exist, also empty ones (size 0).
        chunk_index: Where the chunks lie (of ``narrowed``, only those of its range); None if the log is stored as it
            is, without a chunk index.
        compression: The chunks are zstd frames.
        encryption: None if the parts are stored in the clear.
        last_modified_ms: Of the log object (of what marks the segment whole, where the layout has that).
        closed: False for the active segment of a log directory: it may grow, and its tail may be torn.
        footer: None: it is known to have none.
        is_described: False: of its objects nothing is known but the log's key, until ``Tier.describe_segment`` reads
            what describes it: parts, chunks, compression, encryption and the digest of ``footer``.
    """

    metadata: RemoteLogSegmentMetadata
    layout: str
    name: str
    log: StoredPart
    parts: tuple[tuple[IndexType, StoredPart], ...]
    chunk_index: ChunkIndex | None = field(default=None, compare=False)
    compression: bool = False
    encryption: SegmentEncryption | None = None
    last_modified_ms: int = 0
    closed: bool = True
    footer: FooterPlace | None = field(default=None, compare=False)
    is_described: bool = True

    @property
    def topic_id_partition(self) -> TopicIdPartition:
        return self.metadata.topic_id_partition

    @property
    def place(self) -> str:
        """The segment in messages: its topic-partition and object."""
        return f"{self.topic_id_partition} {self.name}"

    @property
    def start_offset(self) -> int:
        return self.metadata.start_offset

    @property
    def end_offset(self) -> int:
        """Last offset of the segment, inclusive."""
        return self.metadata.end_offset

    @property
    def size_bytes(self) -> int:
        """Size of the untransformed log, as far as it counts."""
        return self.metadata.segment_size_in_bytes

    @property
    def transformed(self) -> bool:
        """Whether the stored bytes differ from the broker's."""
        assert self.is_described, self.name
        return self.compression or self.encryption is not None

    @property
    def log_version(self) -> LogVersion:
        """Key, size and time of change of the log: a broker's log grows, or is cut and written anew."""
        return self.log.key, self.size_bytes, self.last_modified_ms

    def narrowed(self, start_position: int, end_position_exclusive: int) -> Self:
        """Return the same segment for a reader of one range of its log: it knows where the chunks of that range lie,
        and no others, so that its pickle does not grow with the segment; its footer is the planner's.
        """
        is_whole = start_position == 0 and end_position_exclusive == self.size_bytes
        if self.chunk_index is None or start_position == end_position_exclusive or is_whole:
            return self if self.footer is None else replace(self, footer=None)
        part = self.chunk_index.part(start_position, end_position_exclusive)
        return replace(self, chunk_index=part, footer=None)

    def part(self, index_type: IndexType) -> StoredPart | None:
        """Return the place of a part; None if it is known to be absent."""
        assert self.is_described, self.name
        for kind, part in self.parts:
            if kind is index_type:
                return part
        return None

    @property
    def is_bare(self) -> bool:
        """No files beside the log: no transaction index does not mean that nothing was aborted."""
        return self.is_described and self.part(IndexType.OFFSET) is None and self.part(IndexType.TRANSACTION) is None


def fetch_exactly(store: ObjectStore, part: StoredPart, name: str, start: int, end_exclusive: int) -> memoryview:
    """Return all bytes of a range of a part's object.

    Raises:
        CorruptObjectError: the object ends before; StoreError and its kinds.
    """
    answer = store.fetch_range(part.key, start_position=start, end_position_exclusive=end_exclusive)
    found = memoryview(answer).cast("B")
    if len(found) != end_exclusive - start:
        text = f"the object ends early: {end_exclusive - start} bytes wanted, {len(found)} there"
        raise CorruptObjectError(
            text, fault="TRUNCATED", position=start, expected=end_exclusive - start, found=len(found), where=name
        )
    return found


class UnitReader:
    """Opens the stored units of one segment.

    Args:
        key_ring: Has the segment's key.
        segment: Says how they were made.
        name: Of the object, for messages.

    Raises:
        EncryptionKeyError: it has not, or the key does not open the data key.

    Thread safety: any number of threads.
    """

    def __init__(self, key_ring: KeyRing, segment: StoredSegment, name: str) -> None:
        self._name = name
        self._compression = segment.compression
        self._encryption: SegmentEncryption | None = segment.encryption
        try:
            self._cipher: AESGCM | None = key_ring.cipher(segment.encryption) if segment.encryption else None
        except EncryptionKeyError as error:
            raise EncryptionKeyError(f"{segment.name.rpartition('.')[0]}.{_DESCRIPTION}: {error}") from error

    def decrypted_size(self, stored: memoryview, *, position: int) -> int:
        """Return the size of a unit without IV and tag. Raises CorruptObjectError if it is too short to hold them."""
        if self._cipher is None:
            return len(stored)
        if len(stored) < UNIT_OVERHEAD_BYTES:
            text = f"an encrypted unit of {len(stored)} bytes: IV and tag alone take {UNIT_OVERHEAD_BYTES}"
            raise self._corrupt(text, "TRUNCATED", position, expected=UNIT_OVERHEAD_BYTES, found=len(stored))
        return len(stored) - UNIT_OVERHEAD_BYTES

    def decrypt_into(self, stored: memoryview, out: memoryview, *, position: int) -> None:
        """Decrypt one unit (IV, ciphertext, tag) into ``out``, whose size is ``decrypted_size``."""
        from cryptography.exceptions import InvalidTag

        assert self._cipher is not None
        assert self._encryption is not None
        try:
            self._cipher.decrypt_into(bytes(stored[:IV_BYTES]), stored[IV_BYTES:], self._encryption.aad, out)
        except InvalidTag as cause:
            text = "not authentic: the AES-GCM tag does not fit the content, the key and the AAD"
            raise self._corrupt(text, "NOT_AUTHENTIC", position) from cause

    def open_chunk(self, stored: memoryview, out: memoryview, *, position: int, until: int = 0) -> None:
        """Open a stored chunk into ``out``, whose size is the chunk's original one.

        Where ``until`` is not 0, of a compressed chunk only so many bytes are written; those behind them mean nothing.

        Raises:
            CorruptObjectError: not authentic, not a zstd frame, or not of that size; ``position`` is in the object.
        """
        if self._cipher is not None:
            size = self.decrypted_size(stored, position=position)
            if not self._compression:
                self._require_size(size, len(out), position)
                self.decrypt_into(stored, out, position=position)
                return
            plain = new_buffer(size)
            self.decrypt_into(stored, plain, position=position)
            stored = plain
        if not self._compression:
            self._require_size(len(stored), len(out), position)
            out[:] = stored
            return
        try:
            if until:
                size = decompress_prefix_into(stored, out, until)
                self._require_size(min(size, until), until, position)
                return
            size = decompress_into(stored, _ZSTD, out)
        except SizeLimitError as cause:
            text = f"the zstd frame holds more than the {len(out)} bytes of its chunk"
            raise self._corrupt(text, "OVER_LIMIT", position, expected=len(out)) from cause
        except CorruptDataError as cause:
            raise self._corrupt(
                f"the zstd frame of the chunk is corrupt: {cause.text}", cause.fault, position
            ) from cause
        self._require_size(size, len(out), position)

    def _require_size(self, found: int, expected: int, position: int) -> None:
        if found != expected:
            text = f"the chunk holds {found} bytes, {expected} expected"
            raise self._corrupt(text, "BAD_SIZE", position, expected=expected, found=found)

    def _corrupt(
        self, text: str, fault: str, position: int, *, expected: int = 0, found: int = 0
    ) -> CorruptObjectError:
        return CorruptObjectError(
            text, fault=fault, position=position, expected=expected, found=found, where=self._name
        )


def fetch_part(
    store: ObjectStore, key_ring: KeyRing, segment: StoredSegment, part: StoredPart | None
) -> bytes | memoryview | None:
    """Return a part beside the log, decrypted; None for none, b"" without a request for an empty one."""
    if part is None:
        return None
    if part.size_bytes == 0:
        return b""
    name = part_name(segment, part)
    if segment.closed:
        stored = fetch_exactly(store, part, name, part.position, part.position + part.size_bytes)
    else:  # a live broker cuts the files of its active segment when it rolls
        end = part.position + part.size_bytes
        stored = memoryview(store.fetch_range(part.key, start_position=part.position, end_position_exclusive=end))
    return open_part(key_ring, segment, part, stored)


def open_part(key_ring: KeyRing, segment: StoredSegment, part: StoredPart, stored: memoryview) -> memoryview:
    """Return a part beside the log from its stored bytes, which are not empty.

    Raises:
        CorruptObjectError: not authentic. EncryptionKeyError.
    """
    if segment.encryption is None:
        return stored
    reader = UnitReader(key_ring, segment, part_name(segment, part))
    plain = new_buffer(reader.decrypted_size(stored, position=part.position))
    reader.decrypt_into(stored, plain, position=part.position)
    return plain


def part_name(segment: StoredSegment, part: StoredPart) -> str:
    """Return a part's object for messages: as the segment's name, with the part's own last element."""
    if part.key == segment.log.key:
        return segment.name
    folder, _, _ = segment.name.rpartition("/")
    own = part.key.rpartition("/")[2]
    return f"{folder}/{own}" if folder else own


class ChunkView(NamedTuple):
    """One chunk's part of a range, as ``ChunkIndex.views`` gives it; ``position`` is in the object.

    ``until``: only so many bytes of it are wanted, from its start; 0 is all of it.
    """

    number: int
    original_size: int
    start: int
    end: int
    position: int
    stored_size: int
    until: int = 0


class ChunkKey(NamedTuple):
    """The key of a chunk in caches.

    The object's key alone is ambiguous: the same key may be copied again with another data key or chunk size, and a
    cached chunk of the first copy is none of the second's. ``fingerprint`` is ``SegmentLog.fingerprint``.
    """

    log_key: str
    number: int
    until: int = 0
    fingerprint: int = 0


@dataclass(frozen=True, slots=True)
class SegmentLog:
    """The places of a log's chunks, and the means to open them. Made by ``open_log``; any number of threads.

    Attributes:
        segment: Whose log it is.
        index: Where the chunks lie.
        fingerprint: Of how the log is stored: XXH3-64 of its chunk index, compression, wrapped data key and AAD; of a
            log that is stored as it is, its size. The same in every process.
    """

    segment: StoredSegment
    index: ChunkIndex
    reader: UnitReader
    fingerprint: int

    @property
    def name(self) -> str:
        return self.segment.name

    @property
    def place(self) -> str:
        return self.segment.place

    @property
    def version(self) -> LogVersion:
        return self.segment.log_version

    @property
    def start_offset(self) -> int:
        return self.segment.start_offset

    @property
    def end_offset(self) -> int:
        return self.segment.end_offset

    @property
    def size_bytes(self) -> int:
        return self.segment.size_bytes

    @property
    def file_position(self) -> int:
        return self.segment.log.position

    @property
    def chunk_size(self) -> int:
        """Original bytes of each chunk but the last."""
        return self.index.original_chunk_size

    def views(self, start: int, end_exclusive: int) -> list[ChunkView]:
        """Return the chunks of a range, which is not empty.

        Raises:
            CorruptObjectError: a chunk is said to be larger than any way to store it makes it.
        """
        base = self.segment.log.position
        views = [
            ChunkView(number, size, first, last, base + position, stored)
            for number, size, first, last, position, stored in self.index.list_views(start, end_exclusive)
        ]
        for view in views:
            if view.stored_size > _stored_bytes_max(view.original_size):
                text = f"chunk {view.number} of {view.original_size} bytes is said to be stored in {view.stored_size}"
                raise CorruptObjectError(
                    text, fault="OVER_LIMIT", position=view.position, found=view.stored_size, where=self.name
                )
        return views

    def key(self, view: ChunkView) -> ChunkKey:
        return ChunkKey(self.segment.log.key, view.number, view.until, self.fingerprint)

    def chunk_end(self, position: int) -> int:
        """Position where the chunk that holds a position ends."""
        return min((position // self.chunk_size + 1) * self.chunk_size, self.size_bytes)

    def open_chunk(self, stored: memoryview, view: ChunkView) -> memoryview:
        """Return a stored chunk as the broker's bytes, in memory of its own, or the first ``until`` of them; read-only.

        Raises:
            CorruptObjectError: not authentic, not a zstd frame, or not of its size.
        """
        out = new_buffer(view.original_size)
        self.reader.open_chunk(stored, out, position=view.position, until=view.until)
        return out[: view.until].toreadonly() if view.until else out.toreadonly()


def _stored_bytes_max(original_size: int) -> int:
    """The most that a chunk may be stored in: with what zstd adds to noise, IV and tag, and room."""
    return original_size + original_size // 64 + 4096


def open_log(key_ring: KeyRing, segment: StoredSegment) -> SegmentLog:
    """Raises EncryptionKeyError: no key of the ring opens it."""
    index = segment.chunk_index
    if index is None or not segment.transformed:
        size = segment.size_bytes
        index = ChunkIndex(
            original_chunk_size=PIECE_BYTES,
            original_file_size=size,
            transformed_chunk_size=PIECE_BYTES,
            final_transformed_chunk_size=(size - 1) % PIECE_BYTES + 1 if size else 0,
        )
    return SegmentLog(segment, index, UnitReader(key_ring, segment, segment.name), _fingerprint(segment, index))


def _fingerprint(segment: StoredSegment, index: ChunkIndex) -> int:
    if not segment.transformed:
        return segment.size_bytes
    made = xxhash.xxh3_64(pickle.dumps(index, _PICKLE_PROTOCOL))
    made.update(b"\1" if segment.compression else b"\0")
    if segment.encryption is not None:
        made.update(segment.encryption.wrapped_key)
        made.update(segment.encryption.aad)
    return made.intdigest()


Window = tuple[int, memoryview]


def iter_windows(
    store: ObjectStore,
    key_ring: KeyRing,
    calls: OrderedCalls,
    segment: StoredSegment,
    *,
    start_position: int,
    end_position_exclusive: int,
    window_bytes: int,
    prefetch: int,
) -> Generator[Window]:
    """Yield the windows of ``Tier.iter_log_windows``, with its errors."""
    if start_position == end_position_exclusive:
        return
    if segment.transformed:
        chunks = ChunkedLog(store, open_log(key_ring, segment))
        step = chunks.window_size(window_bytes)
        read = chunks.read
    else:
        step = window_bytes
        read = PlainLog(store, segment).read
    # Memory stays within the windows asked for when one chunk alone is larger than that.
    ahead = min(prefetch, (prefetch + 1) * window_bytes // step)
    pieces = _pieces(start_position, end_position_exclusive, step, aligned=segment.transformed)
    with closing(calls.iter_ahead(read, pieces, ahead=ahead)) as windows:
        yield from windows


def _pieces(start: int, end_exclusive: int, step: int, *, aligned: bool) -> Iterator[tuple[int, int]]:
    """[start, end) cut every ``step`` bytes; aligned: at multiples of it, so that no chunk is read twice."""
    at = start
    while at < end_exclusive:
        following = min((at // step + 1) * step if aligned else at + step, end_exclusive)
        yield at, following
        at = following


class PlainLog:
    """A log that is stored as it is: the GET's buffer is the window."""

    def __init__(self, store: ObjectStore, segment: StoredSegment) -> None:
        self._store = store
        self._segment = segment

    def read(self, piece: tuple[int, int]) -> Window:
        """Return the bytes [start, end) of the log."""
        log = self._segment.log
        start, end = piece
        found = fetch_exactly(self._store, log, self._segment.name, log.position + start, log.position + end)
        return start, found


class ChunkedLog:
    """A log of transformed chunks: one GET for a run of them, then each into its place."""

    def __init__(self, store: ObjectStore, log: SegmentLog) -> None:
        self._store = store
        self._log = log

    def window_size(self, window_bytes: int) -> int:
        """Return the size of as many whole chunks as fit, at least one, in untransformed bytes."""
        chunk_size = self._log.chunk_size
        return chunk_size * max(1, min(window_bytes // chunk_size, CHUNKS_TOGETHER_MAX))

    def read(self, piece: tuple[int, int]) -> Window:
        """Return the untransformed bytes [start, end) of the log; the last chunk is decompressed up to the end only."""
        log, (start, end) = self._log, piece
        views = log.views(start, end)
        base, last = views[0].position, views[-1]
        stored = fetch_exactly(self._store, log.segment.log, log.name, base, last.position + last.stored_size)
        out = new_buffer(sum(view.original_size for view in views))
        filled = 0
        for view in views:
            at = view.position - base
            log.reader.open_chunk(
                stored[at : at + view.stored_size],
                out[filled : filled + view.original_size],
                position=view.position,
                until=view.end if view.end < view.original_size else 0,
            )
            filled += view.original_size
        skipped = views[0].start
        return start, out[skipped : skipped + end - start]
