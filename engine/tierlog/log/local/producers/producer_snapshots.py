"""The producer snapshots in a log's folder.

A snapshot is written under its own name; the rest of an unsynced one after a crash fails its checksum, and the one
before is used. Source: Kafka ProducerStateManager.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tierlog.errors import CorruptIndexError, ObjectNotFoundError
from tierlog.log.formats.producer_snapshot import (
    ProducerEntry,
    ProducerSnapshot,
    encode_producer_snapshot,
    parse_producer_snapshot,
)
from tierlog.log.formats.segment_files import (
    SegmentFileKind,
    group_segment_files,
    segment_file_name,
)
from tierlog.log.local.log_folder import LogFolder
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.files import UpdatableFile

_log = logging.getLogger(__name__)

#: Some 5 million producers. A larger file counts as corrupt: its entries alone would be gigabytes of objects.
SNAPSHOT_SIZE_BYTES_MAX: Final = 256 << 20

_INT32_MASK: Final = 2**32 - 1
_TABLE_SIZE_MIN: Final = 16


class UnsyncedSnapshots(NamedTuple):
    """Snapshots that a crash may lose.

    Args:
        offsets: Of all of them, deleted ones too.
        files: Of those that are there; whoever has them closes them.
    """

    offsets: tuple[int, ...]
    files: list[UpdatableFile]


class ProducerSnapshots:
    """The ``.snapshot`` files of one folder, by the offset in their name.

    Thread safety: one thread changes them, any number ask ``path_at``.

    Args:
        folder: Where they are; a rename of it moves them.
        is_listed: Whether the caller calls ``relist`` with the folder's files.
    """

    def __init__(self, machine: Machine, folder: LogFolder, *, is_listed: bool = False) -> None:
        """List the folder. Raises StoreError."""
        self._machine = machine
        self._folder = folder
        #: Replaced as a whole: other threads ask it.
        self._offsets: tuple[int, ...] = ()
        self._unsynced: list[int] = []
        if not is_listed:
            self.relist()

    def relist(self, offsets: Iterable[int] | None = None) -> None:
        """List the folder anew, after another writer's change; the caller may have its snapshots' offsets. Raises
        StoreError.
        """
        if offsets is None:
            listed = self._machine.files.list_files(self._folder.path)
            offsets = group_segment_files(listed)[SegmentFileKind.PRODUCER_SNAPSHOT]
        self._offsets = tuple(sorted(offsets))

    # ---- look-ups

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offsets of all snapshots, ascending."""
        return self._offsets

    @property
    def latest_offset(self) -> int | None:
        """The offset of the newest snapshot; None if there is none."""
        offsets = self._offsets
        return offsets[-1] if offsets else None

    def path_at(self, offset: int) -> str | None:
        """The file of exactly this offset; None if there is none (Kafka fetchSnapshot)."""
        return self.path_of(offset) if offset in self._offsets else None

    def path_of(self, offset: int) -> str:
        """The path that a snapshot of an offset has, or would have."""
        return f"{self._folder.path}/{segment_file_name(offset, SegmentFileKind.PRODUCER_SNAPSHOT)}"

    def read_at(self, offset: int) -> bytes | None:
        """Bytes of the snapshot of exactly this offset; None if there is none. Raises StoreError."""
        if offset not in self._offsets:
            return None
        try:
            return self._machine.files.read_whole(self.path_of(offset), limit_bytes=SNAPSHOT_SIZE_BYTES_MAX)
        except ObjectNotFoundError:
            return None  # it went in between

    def entries_before(self, offset: int) -> Sequence[ProducerEntry]:
        """The producers of the newest snapshot at or in front of an offset that can be read; none where there is none.
        Raises StoreError.
        """
        for at in reversed([at for at in self._offsets if at <= offset]):
            try:
                return self._read(self.path_of(at)).entries
            except (CorruptIndexError, ObjectNotFoundError):
                continue
        return ()

    # ---- writing

    def take(self, state: ProducerState, *, fsync: bool = True) -> str | None:
        """Write the state at its ``end_offset``, if anything was appended since the last one; the file's path.

        Args:
            state: Its ``snapshot_offset`` moves on.
            fsync: Whether file and name survive a crash on return; else the caller syncs it (``open_unsynced``).

        Raises:
            StoreError: the file may be there in part; its checksum shows that.
        """
        if not state.snapshot_is_due:
            return None
        offset = state.end_offset
        path = self._write(offset, state.snapshot(), fsync=fsync)
        state.snapshot_offset = offset
        return path

    def install(self, offset: int, data: bytes) -> None:
        """Write a snapshot's bytes, which come from the tier; it survives a crash on return. Raises StoreError."""
        self._machine.files.write_whole(self.path_of(offset), data)
        self._add(offset)

    @property
    def has_unsynced(self) -> bool:
        """Whether a crash may lose written snapshots, also while they are synced."""
        return bool(self._unsynced)

    def open_unsynced(self) -> UnsyncedSnapshots:
        """Open the snapshots that were written without fsync, but for deleted ones.

        The caller fsyncs and closes them, in any thread, fsyncs the folder for their names, and then calls
        ``note_synced``. Raises StoreError.
        """
        files = self._machine.files
        paths = [path for offset in self._unsynced if (path := self.path_at(offset)) is not None]
        opened = [files.open_update(path) for path in paths if files.find(path) is not None]
        return UnsyncedSnapshots(tuple(self._unsynced), opened)

    def note_synced(self, snapshots: UnsyncedSnapshots) -> None:
        """Note that a crash does not lose them any more; one that was written again since is unsynced still."""
        for offset in snapshots.offsets:
            if offset in self._unsynced:
                self._unsynced.remove(offset)

    # ---- reading

    def load_latest(self, state: ProducerState, *, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Load the newest sound snapshot at log_start_offset < n <= log_end_offset into a state; corrupt ones are
        deleted, and the next older is tried. Without one the state restarts at ``log_start_offset``.

        Raises:
            StoreError: a snapshot cannot be read or deleted.
        """
        for offset in reversed(self._offsets):
            if not log_start_offset < offset <= log_end_offset:
                continue
            path = self.path_of(offset)
            try:
                state.load(self._read(path), offset=offset, now_ms=now_ms)
            except CorruptIndexError as error:
                _log.warning("%s: not sound, and deleted: %s", path, str(error))  # not what its traceback holds
                self._remove([offset])
            except ObjectNotFoundError:
                self._forget([offset])
            else:
                return
        state.restart(log_start_offset, snapshot_offset=log_start_offset)

    # ---- removing

    def remove_strays(self, segment_base_offsets: Iterable[int]) -> list[str]:
        """Delete those that are of no segment, but for the newest if it is at or behind the last base offset; the paths
        that went. Raises StoreError.
        """
        bases = set(segment_base_offsets)
        strays = [offset for offset in self._offsets if offset not in bases]
        if strays and bases and strays[-1] >= max(bases):
            strays.pop()  # a clean stop wrote it, at the log's end
        elif not bases:
            del strays[-1:]
        return self._remove(strays)

    def truncate(self, *, log_start_offset: int, log_end_offset: int) -> list[str]:
        """Delete those behind the log's end, and those at or before its start (Kafka truncateAndReload); the paths that
        went. They stay away after a crash. Raises StoreError.
        """
        return self._remove([o for o in self._offsets if not log_start_offset < o <= log_end_offset], durable=True)

    def remove_all(self) -> None:
        """Delete all; they stay away after a crash: a log begins anew here. Raises StoreError."""
        self._remove(list(self._offsets), durable=True)

    def mark_deleted(self, offset: int) -> str | None:
        """Rename the one of an offset to ``.deleted``; return its new path, for a later removal. None: there is none.

        Raises:
            StoreError
        """
        path = self.path_at(offset)
        if path is None:
            return None
        self._forget([offset])
        aside = f"{path}.deleted"
        try:
            self._machine.files.rename(path, aside, durable=False)
        except ObjectNotFoundError:
            return None  # it was removed meanwhile: the work is done
        return aside

    # ---- inside

    def _read(self, path: str) -> ProducerSnapshot:
        files = self._machine.files
        size = files.stat(path).size_bytes
        if size > SNAPSHOT_SIZE_BYTES_MAX:
            text = f"{size} bytes, at most {SNAPSHOT_SIZE_BYTES_MAX} are read"
            raise CorruptIndexError(text, fault="TOO_LARGE", position=0, expected=SNAPSHOT_SIZE_BYTES_MAX, found=size)
        return parse_producer_snapshot(files.read_whole(path, limit_bytes=SNAPSHOT_SIZE_BYTES_MAX))

    def _write(self, offset: int, entries: Iterable[ProducerEntry], *, fsync: bool) -> str:
        path = self.path_of(offset)
        data = encode_producer_snapshot(in_order_of_kafka(entries))
        files = self._machine.files
        if fsync or files.find(path) is not None:  # an existing one, which may be needed, is never cut in place
            files.write_whole(path, data)
        else:
            with files.open_update(path) as file:
                file.truncate(0)
                file.append(data)
            self._unsynced.append(offset)
        self._add(offset)
        return path

    def _add(self, offset: int) -> None:
        if offset not in self._offsets:
            self._offsets = tuple(sorted((*self._offsets, offset)))

    def _remove(self, offsets: list[int], *, durable: bool = False) -> list[str]:
        paths = [self.path_of(offset) for offset in offsets]
        self._forget(offsets)
        for path in paths:
            self._machine.files.remove(path)
        if paths and durable:
            self._machine.files.fsync_directory(self._folder.path)
        return paths

    def _forget(self, offsets: Iterable[int]) -> None:
        gone = frozenset(offsets)
        if not gone:
            return
        self._offsets = tuple(offset for offset in self._offsets if offset not in gone)


def in_order_of_kafka(entries: Iterable[ProducerEntry]) -> list[ProducerEntry]:
    """Producers in the order in which a broker that got to know them in the given order writes them.

    That is the order of a java.util.HashMap of Long: by bucket, within one by arrival. The order has no meaning; with
    it a snapshot is the same bytes as Kafka's, but for brokers whose table once held many more producers.
    """
    known = list(entries)
    size = _TABLE_SIZE_MIN
    while 4 * len(known) > 3 * size:  # the default load factor
        size *= 2

    def bucket(entry: ProducerEntry) -> int:
        value = entry.producer_id & (2**64 - 1)
        code = (value ^ (value >> 32)) & _INT32_MASK
        return (code ^ (code >> 16)) & (size - 1)

    return sorted(known, key=bucket)
