"""One segment of a tier as the files that a broker would hand over: decoded while it is read, never whole in memory.

The segment keeps the id that its layout gives it. A broker's disk gives none: there the id is made of topic id,
partition, offsets and the bytes of the log, so that a segment gets the same id whoever copies it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import xxhash
from typing_extensions import Buffer

from tierlog._native.checksums import crc32c
from tierlog.errors import (
    ConfigError,
    CorruptDataError,
    CorruptObjectError,
    ObjectNotFoundError,
    StoreError,
)
from tierlog.log.formats.leader_epochs import LeaderEpochs, encode_leader_epochs, parse_leader_epochs
from tierlog.remote.api import (
    ZERO_UUID,
    IndexType,
    LogSegmentData,
    RemoteLogSegmentId,
    RemoteLogSegmentMetadata,
    RemoteLogSegmentState,
    TopicIdPartition,
    Uuid,
)
from tierlog.remote.tier.chunks.stored_segment import StoredSegment
from tierlog.remote.tier.closed_segments import missing_snapshot, own_epochs, require_topic_id
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.files import FileInfo, ReadableFile, ReadableFiles
from tierlog.upkeep.copying.index_repair import digested, read_through, rebuild_indexes, wrong_indexes

#: Layouts whose segments have no id of their own.
LAYOUTS_WITHOUT_IDS: Final = frozenset({"log-dir", "file"})
#: Bytes that one look at a header far from the reader's place fetches: they serve neighbouring looks too.
_PEEK_BYTES: Final = 256 << 10
_REBUILT: Final = {IndexType.OFFSET: "offset index", IndexType.TIMESTAMP: "time index"}
_NAMES: Final = _REBUILT | {
    IndexType.TRANSACTION: "transaction index",
    IndexType.PRODUCER_SNAPSHOT: "producer snapshot",
    IndexType.LEADER_EPOCH: "leader epochs",
}


class TopicMap:
    """Old topic ids by new ones, and the other way round. Immutable.

    Args:
        pairs: Old id → new id; no id twice on one side, none on both.

    Raises:
        ConfigError: the pairs contradict each other, or an id is all zero.
    """

    def __init__(self, pairs: Mapping[Uuid, Uuid] | None = None) -> None:
        self.new_ids = MappingProxyType(dict(pairs or {}))
        self.old_ids = MappingProxyType({new: old for old, new in self.new_ids.items()})
        if len(self.old_ids) != len(self.new_ids):
            raise ConfigError("two topics cannot become one: each new topic id may be given once")
        both = self.new_ids.keys() & self.old_ids.keys()
        if both or ZERO_UUID in self.new_ids or ZERO_UUID in self.old_ids:
            shown = ", ".join(sorted(map(str, both))) or str(ZERO_UUID)
            raise ConfigError(f"topic id {shown} cannot be mapped: an old id is not a new one, and none is all zero")

    @classmethod
    def parse(cls, texts: Iterable[str]) -> TopicMap:
        """Parse ``OLD=NEW`` texts. Raises ConfigError."""
        pairs: dict[Uuid, Uuid] = {}
        for text in texts:
            old, equals, new = text.partition("=")
            try:
                key, value = Uuid.from_text(old), Uuid.from_text(new)
            except ValueError as error:
                raise ConfigError(f"{text!r:.80}: OLD=NEW expected, two topic ids: {error}") from None
            if not equals or key in pairs:
                raise ConfigError(f"{text!r:.80}: the old id is given twice")
            pairs[key] = value
        return cls(pairs)

    def __bool__(self) -> bool:
        return bool(self.new_ids)

    def __str__(self) -> str:
        return " ".join(sorted(f"{old}={new}" for old, new in self.new_ids.items()))

    def new(self, partition: TopicIdPartition) -> TopicIdPartition:
        """Return the partition in the new cluster: itself, unless its topic id is mapped."""
        topic_id = self.new_ids.get(partition.topic_id)
        return partition if topic_id is None else TopicIdPartition(topic_id, partition.topic, partition.partition)


def digest_log(tier: Tier, segment: StoredSegment) -> bytes:
    """XXH3 of the untransformed log, 128 bits."""
    digest = xxhash.xxh3_128()
    for _ in digested(tier, segment, digest):
        pass
    return digest.digest()


def derived_segment_id(segment: StoredSegment, log_digest: bytes) -> Uuid:
    """Return the id of a segment whose layout has none: the same for the same bytes at the same place of the same
    topic.
    """
    partition = segment.topic_id_partition
    numbers = struct.pack(">iqqq", partition.partition, segment.start_offset, segment.end_offset, segment.size_bytes)
    seed = partition.topic_id.raw + numbers + log_digest
    attempt = 0
    while True:
        raw = bytearray(hashlib.sha256(seed + bytes([attempt])).digest()[:16])
        raw[6], raw[8] = raw[6] & 0x0F | 0x40, raw[8] & 0x3F | 0x80
        made = Uuid(bytes(raw))
        if not str(made).startswith("-"):  # Kafka makes none of these: a tool would take it for an option
            return made
        attempt += 1


class SegmentSource(ReadableFiles):
    """The files of one segment. Made by one thread, then read by one copy.

    Args:
        tier: The segment's tier.
        segment: A closed segment.
        topics: Topic ids that the copy has others for.
        on_bytes: Called with the number of log bytes that were read.

    Attributes:
        metadata: The metadata with which a copy begins.
        data: The files, under names that messages can show.
        notes: Parts that were built anew, and why.

    Raises:
        CorruptDataError: a part that cannot be built anew is damaged. DataLossError: the topic id is missing.
            EncryptionKeyError, StoreError and its kinds.
    """

    def __init__(
        self,
        tier: Tier,
        segment: StoredSegment,
        *,
        topics: TopicMap | None = None,
        on_bytes: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._tier = tier
        self._topics = topics or TopicMap()
        self._segment = segment
        self._on_bytes = on_bytes
        self._single = segment.layout in LAYOUTS_WITHOUT_IDS
        self._log: _SourceLog | None = None
        self._given_digest: bytes | None = None
        self.notes: list[str] = []
        require_topic_id(segment.topic_id_partition, segment.name)
        self.parts = self._read_parts()
        if self._single:
            self._given_digest = self._read_log()
        self.metadata = self._metadata()
        self.data = LogSegmentData(
            segment.name,
            self._path(IndexType.OFFSET),
            self._path(IndexType.TIMESTAMP),
            self._path(IndexType.TRANSACTION) if IndexType.TRANSACTION in self.parts else None,
            self._path(IndexType.PRODUCER_SNAPSHOT),
            self.parts[IndexType.LEADER_EPOCH],
        )

    @property
    def known_digest(self) -> bytes | None:
        """XXH3 of the log from which the segment's id was made; None if the layout gives ids."""
        return self._given_digest

    @property
    def digest(self) -> bytes:
        """XXH3 of the log as the copy read it, whole and in order. Raises CorruptObjectError if the log has changed
        since the segment got its id.
        """
        read = None if self._log is None else self._log.digest()
        if read is None:
            raise ValueError("the log was not read to its end")
        if self._given_digest not in (None, read):
            raise CorruptObjectError("the log changed while it was copied", fault="CHANGED", where=self._segment.name)
        return read

    def rebuild_wrong_indexes(self) -> bool:
        """Build anew those of the two sparse indexes that do not fit the log; returns whether there was one."""
        kept = {kind: self.parts[kind] for kind in _REBUILT}
        wrong = wrong_indexes(self._tier, self._segment, kept)
        if wrong:
            built = rebuild_indexes(self._tier, self._segment)
            for kind, reason in wrong.items():
                self.parts[kind] = built[kind]
                self.notes.append(f"{self._path(kind)}: built anew from the log: {reason}")
        return bool(wrong)

    def _path(self, kind: IndexType) -> str:
        return f"{self._segment.name} ({_NAMES[kind]})"

    def _read_parts(self) -> dict[IndexType, bytes]:
        parts: dict[IndexType, bytes] = {}
        missing: dict[IndexType, str] = {}
        for kind in IndexType:
            if kind is IndexType.LEADER_EPOCH:
                continue
            try:
                data = self._fetch(kind)
            except (CorruptDataError, ObjectNotFoundError) as error:
                if kind not in _REBUILT:
                    raise
                missing[kind] = str(error)
                continue
            if data is not None:
                parts[kind] = data
            elif kind in _REBUILT:
                missing[kind] = "there is none"
        if missing:
            built = rebuild_indexes(self._tier, self._segment)
            for kind, reason in missing.items():
                parts[kind] = built[kind]
                self.notes.append(f"{self._path(kind)}: built anew from the log: {reason}")
        parts[IndexType.LEADER_EPOCH] = self._epochs()
        return parts

    def _fetch(self, kind: IndexType) -> bytes | None:
        """Fetch a part as it is stored, if it has the size and checksum of its description."""
        part = self._segment.part(kind)
        data = self._tier.fetch_index(self._segment, kind)
        if data is None:
            return None
        if part is not None and part.crc32c is not None and crc32c(data) != part.crc32c:
            text = f"CRC-32C 0x{crc32c(data):08x}, described as 0x{part.crc32c:08x}"
            raise CorruptObjectError(text, fault="PART_CRC", where=self._path(kind))
        return bytes(data)

    def require_snapshot(self) -> None:
        """Raise DataLossError if there is no producer snapshot to copy."""
        if IndexType.PRODUCER_SNAPSHOT in self.parts:
            return
        raise missing_snapshot(self._segment.name, self._segment.end_offset)

    def _epochs(self) -> bytes:
        """Return the stored checkpoint; on a broker's disk, where it goes on behind the segment, cut at the segment's
        end.
        """
        try:
            data = self._fetch(IndexType.LEADER_EPOCH)
            if data and not self._single:
                return data
            known = parse_leader_epochs(data or b"").truncate_from_end(self._segment.end_offset + 1)
            reason = "there is none"
        except (CorruptDataError, ObjectNotFoundError) as error:
            known, reason = LeaderEpochs(), str(error)
        if not len(known):
            self.notes.append(f"{self._path(IndexType.LEADER_EPOCH)}: made of the segment's own epochs: {reason}")
            known = own_epochs(self._segment)
        return encode_leader_epochs(known)

    def _read_log(self) -> bytes:
        """Read a log of a broker's disk for its digest, and build its transaction index on the way if it is missing."""
        if IndexType.TRANSACTION in self.parts:
            return digest_log(self._tier, self._segment)
        digest, transactions = read_through(self._tier, self._segment)
        if transactions is not None:
            self.parts[IndexType.TRANSACTION] = transactions
            reason = "there is none, and the log has aborted transactions"
            self.notes.append(f"{self._path(IndexType.TRANSACTION)}: built anew from the log: {reason}")
        return digest

    def _metadata(self) -> RemoteLogSegmentMetadata:
        segment = self._segment
        segment_id = segment.metadata.remote_log_segment_id.id
        if self._given_digest is not None:
            segment_id = derived_segment_id(segment, self._given_digest)
        return replace(
            segment.metadata,
            remote_log_segment_id=RemoteLogSegmentId(self._topics.new(segment.topic_id_partition), segment_id),
            custom_metadata=None,
            state=RemoteLogSegmentState.COPY_SEGMENT_STARTED,
            txn_idx_empty=not self.parts.get(IndexType.TRANSACTION),
        )

    def stat(self, path: str) -> FileInfo:
        """Return the log's size as of now: a broker may still remove the log."""
        if path != self.data.log_segment:
            return FileInfo(path, len(self.read_whole(path)), 0, is_directory=False)
        if not self._single:
            return FileInfo(path, self._segment.size_bytes, 0, is_directory=False)
        info = self._tier.store.find(self._segment.log.key)
        if info is None:
            raise ObjectNotFoundError(f"{path}: gone since it was listed")
        return FileInfo(path, info.size_bytes, info.last_modified_ms, is_directory=False)

    def open_read(self, path: str) -> ReadableFile:
        """Return the open log. Other files cannot be opened."""
        if path != self.data.log_segment:
            raise ObjectNotFoundError(f"{path}: only the log is read in pieces")
        self._log = _SourceLog(self._tier, self._segment, self._on_bytes)
        return self._log

    def read_whole(self, path: str, *, limit_bytes: int = 1 << 30) -> bytes:
        """Read the content of a part beside the log."""
        data = next((data for kind, data in self.parts.items() if self._path(kind) == path), None)
        if data is None:
            raise ObjectNotFoundError(f"{path}: the segment has no such part")
        if len(data) > limit_bytes:
            raise StoreError(f"{path}: {len(data)} bytes, more than {limit_bytes}")
        return data


class _SourceLog(ReadableFile):
    """The log, for one reader that may look at headers first and then reads the log in order. One thread."""

    def __init__(self, tier: Tier, segment: StoredSegment, on_bytes: Callable[[int], None]) -> None:
        self._tier = tier
        self._segment = segment
        self._on_bytes = on_bytes
        self.size_bytes = segment.size_bytes
        self._windows: Generator[tuple[int, memoryview]] | None = None
        self._window = memoryview(b"")
        self._window_position = 0
        self._peeked = memoryview(b"")
        self._peeked_position = 0
        self._reached = 0
        self._digest = xxhash.xxh3_128()
        self._crc32c = 0
        self._whole_digest: bytes | None = None

    def digest(self) -> bytes | None:
        """XXH3 of the whole log, by the last read of all of it; None if there was none."""
        return self._digest.digest() if self._reached == self.size_bytes else self._whole_digest

    def read_into(self, buffer: Buffer, *, position: int) -> int:
        """Fill a buffer from a position, as ReadableFile does.

        Raises:
            CorruptObjectError: a chunk is not authentic, or the log is not that of its description. EncryptionKeyError.
        """
        view = memoryview(buffer).cast("B")
        wanted = max(0, min(len(view), self.size_bytes - position))
        if position != self._reached and position != 0:
            return self._peek(view[:wanted], position)
        if position == 0:
            self._begin_anew()
        filled = 0
        while filled < wanted:
            piece = self._piece(position + filled)[: wanted - filled]
            view[filled : filled + len(piece)] = piece
            filled += len(piece)
        self._take(view[:wanted])
        return wanted

    def _begin_anew(self) -> None:
        if self._reached == self.size_bytes:  # an entry of the remote log index looks at the first batch again
            self._whole_digest = self._digest.digest()
        self._reached, self._crc32c = 0, 0
        self._digest = xxhash.xxh3_128()
        if self._window_position or not self._window:
            self.close()

    def _piece(self, position: int) -> memoryview:
        """Return the rest of the window that holds the position, which never goes back except to the start."""
        if position >= self._window_position + len(self._window):
            if self._windows is None:
                self._windows = self._tier.iter_log_windows(self._segment)
            found = next(self._windows, None)
            if found is None or found[0] != position:
                text = f"the log ended at {position}, {self.size_bytes} bytes expected"
                raise CorruptObjectError(text, fault="TRUNCATED", position=position, where=self._segment.name)
            self._window_position, self._window = found
        return self._window[position - self._window_position :]

    def _take(self, read: memoryview) -> None:
        self._digest.update(read)
        self._reached += len(read)
        self._on_bytes(len(read))
        described = self._segment.log.crc32c
        if described is None:
            return
        self._crc32c = crc32c(read, self._crc32c)
        if self._reached == self.size_bytes and self._crc32c != described:
            text = f"CRC-32C of the log 0x{self._crc32c:08x}, described as 0x{described:08x}"
            raise CorruptObjectError(text, fault="PART_CRC", where=self._segment.name)

    def _peek(self, view: memoryview, position: int) -> int:
        start = position - self._peeked_position
        if not 0 <= start <= len(self._peeked) - len(view):
            end = min(max(position + _PEEK_BYTES, position + len(view)), self.size_bytes)
            with closing(
                self._tier.iter_log_windows(self._segment, position, end, window_bytes=end - position, prefetch=0)
            ) as windows:
                joined = b"".join(window for _, window in windows)
            self._peeked, self._peeked_position, start = memoryview(joined), position, 0
        view[:] = self._peeked[start : start + len(view)]
        return len(view)

    def close(self) -> None:
        """Release the windows."""
        windows, self._windows = self._windows, None
        self._window, self._window_position = memoryview(b""), 0
        if windows is not None:
            windows.close()
