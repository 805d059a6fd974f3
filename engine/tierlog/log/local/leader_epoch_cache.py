"""The leader epochs of a living log: one value that is replaced, and its checkpoint.

Lookups are those of the immutable :class:`LeaderEpochs`; ``epochs`` is the current one, which any thread may take and
ask several questions of. An assignment is on disk before any reader sees it, and so is a cut of the end: a log that
grows past the begin of an epoch that the file still has would have that again after a crash. A cut of the start is seen
at once and written later: the file may hold epochs too many after a crash, which loading cuts off, and never too few.

Source: Kafka LeaderEpochFileCache, LeaderEpochCheckpointFile.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator

from tierlog._native.appends import LatestEpoch
from tierlog.arguments import require_int32, require_int64, require_type, wrong_type
from tierlog.log.formats.leader_epochs import EpochEntry, LeaderEpochs, encode_leader_epochs, parse_leader_epochs
from tierlog.log.formats.segment_files import LEADER_EPOCH_CHECKPOINT
from tierlog.log.local.log_folder import LogFolder, read_small_file
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.machine import Machine


class EpochCheckpointFile:
    """The ``leader-epoch-checkpoint`` of a partition's folder.

    Args:
        folder: The partition's folder; a rename of it moves the file.
    """

    def __init__(self, files: Files, folder: LogFolder) -> None:
        self._files = files
        self._folder = folder

    @property
    def path(self) -> str:
        return f"{self._folder.path}/{LEADER_EPOCH_CHECKPOINT}"

    def read(self) -> LeaderEpochs:
        """The stored epochs; none if there is no file.

        Raises:
            CorruptIndexError: the file is malformed. Kafka takes the log dir offline then. StoreError.
        """
        return read_small_file(self._files, self.path, parse_leader_epochs) or LeaderEpochs()

    def write(self, epochs: LeaderEpochs) -> None:
        """Write beside, fsync, rename, fsync the folder. Raises StoreError."""
        self._files.write_whole(self.path, encode_leader_epochs(epochs))


class LeaderEpochCache:
    """The leader epochs of a log's offsets.

    Args:
        checkpoint: The file of the epochs; None = no file (a cache of a test, or of a replica that holds no files).
        epochs: Those to begin with; None = those of the checkpoint.
        on_unwritten: Called after a cut of the start that the checkpoint does not have yet: the callee has ``flush``
            run soon, in the background. It must not raise or wait. An attribute: a log sets it once it can do so.

    After an error of ``assign``, ``truncate_from_end`` or ``clear_and_flush`` the cache is as it was, and the same call
    may be made again; the file may hold the new epochs already.

    Raises (all methods with arguments): TypeError: an argument is no int. ValueError: an epoch does not fit into 32
    bits, or an offset into 64.

    Thread safety: any number of threads; writers exclude each other, readers do not wait.
    """

    def __init__(
        self,
        checkpoint: EpochCheckpointFile | None,
        *,
        machine: Machine,
        epochs: LeaderEpochs | None = None,
        on_unwritten: Callable[[], None] | None = None,
    ) -> None:
        self._machine = machine
        self._checkpoint = checkpoint
        self.on_unwritten = on_unwritten
        self._writing = machine.scheduler.lock()
        self._unwritten = False
        if epochs is None:
            epochs = LeaderEpochs() if checkpoint is None else checkpoint.read()
        #: Of the value below, for each append.
        self.latest = LatestEpoch()
        self._set(epochs)

    @property
    def epochs(self) -> LeaderEpochs:
        """The epochs as they are now: a value, which no later change touches."""
        return self._epochs

    @property
    def is_unwritten(self) -> bool:
        """Whether a cut of the start is not in the checkpoint yet."""
        return self._unwritten

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self._epochs.latest

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._epochs.earliest

    @property
    def latest_epoch(self) -> int | None:
        latest = self._epochs.latest
        return None if latest is None else latest.epoch

    def epoch_entry(self, epoch: int) -> EpochEntry | None:
        """The entry of exactly this epoch."""
        return self._epochs.find_entry(require_int32("epoch", epoch))

    def previous_entry(self, epoch: int) -> EpochEntry | None:
        """The entry of the largest epoch below this one."""
        return self._epochs.find_previous(require_int32("epoch", epoch))

    def previous_epoch(self, epoch: int | None = None) -> int | None:
        """The largest epoch below this one; None = below the latest."""
        if epoch is None:
            epoch = self.latest_epoch
        entry = None if epoch is None else self.previous_entry(epoch)
        return None if entry is None else entry.epoch

    def next_epoch(self, epoch: int) -> int | None:
        """The smallest epoch above this one."""
        entry = self._epochs.find_next(require_int32("epoch", epoch))
        return None if entry is None else entry.epoch

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(epoch, end offset exclusive) as :meth:`LeaderEpochs.end_offset_for` has it; (-1, -1) if unknown."""
        epoch = require_int32("epoch", epoch)
        return self._epochs.end_offset_for(epoch, log_end_offset=require_int64("log_end_offset", log_end_offset))

    def epoch_for_offset(self, offset: int) -> int | None:
        """The epoch in which an offset was written; None before the first entry."""
        return self._epochs.epoch_for_offset(require_int64("offset", offset))

    def epoch_entries_in_range(self, start_offset: int, end_offset_exclusive: int) -> LeaderEpochs:
        """The epochs of the offsets [start, end), as they go with a segment; a negative end cuts nothing off either."""
        start_offset = require_int64("start_offset", start_offset)
        if require_int64("end_offset_exclusive", end_offset_exclusive) < 0:
            return self._epochs.truncate_from_start(start_offset)
        return self._epochs.range(start_offset, end_offset_exclusive)

    def epoch_with_offsets(self) -> dict[int, int]:
        """Epoch to start offset, ascending."""
        return dict(self._epochs)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch at an offset. It is in the checkpoint on return; nothing is written if nothing changes.

        Entries that contradict it go: those of a later or equal epoch, and those that begin at or behind the offset
        (an epoch in which nothing was written among them).

        Raises:
            ValueError: negative. StoreError: the checkpoint cannot be written; nothing has changed.
        """
        epoch, start_offset = require_int32("epoch", epoch), require_int64("start_offset", start_offset)
        if not self.latest.covers(epoch, start_offset):  # by far the usual case, of every append: no lock
            self.assign_all(((epoch, start_offset),))

    def assign_all(self, entries: Iterable[tuple[int, int]]) -> None:
        """Begin several epochs, in this order, with one write. Raises as ``assign``."""
        with self._writing:
            epochs = self._epochs
            for epoch, start_offset in require_entries("entries", entries):
                epochs = epochs.assign(epoch, start_offset)
            if epochs is not self._epochs:
                self._write(epochs)

    def truncate_from_end(self, end_offset_exclusive: int) -> None:
        """Forget the epochs that begin at or behind an offset, in the checkpoint too (Kafka: later); a negative one
        changes nothing. Raises StoreError: nothing has changed.
        """
        if require_int64("end_offset_exclusive", end_offset_exclusive) < 0:
            return
        with self._writing:
            epochs = self._epochs.truncate_from_end(end_offset_exclusive)
            if epochs != self._epochs:
                self._write(epochs)

    def truncate_from_start(self, start_offset: int) -> None:
        """Let the epoch of an offset begin there, and forget those before it. Written later."""
        start_offset = require_int64("start_offset", start_offset)
        with self._writing:
            epochs = self._epochs.truncate_from_start(start_offset)
            if epochs == self._epochs:
                return
            self._set(epochs)
            self._unwritten = True
        if self.on_unwritten is not None:
            self.on_unwritten()

    def clear(self) -> None:
        """Forget all epochs, in memory alone: the checkpoint stays as it is until the next write."""
        with self._writing:
            self._set(LeaderEpochs())

    def replace(self, epochs: LeaderEpochs) -> None:
        """Take other epochs for all that were known, those of a log that begins anew from the tier. They are in the
        checkpoint on return. Raises StoreError: nothing has changed.
        """
        with self._writing:
            self._write(epochs)

    def clear_and_flush(self) -> None:
        """Forget all epochs, in the checkpoint too. Raises StoreError: nothing has changed."""
        with self._writing:
            self._write(LeaderEpochs())

    def flush(self, *, is_wanted: Callable[[], bool] | None = None) -> None:
        """Write the epochs that a cut of the start left unwritten, if any.

        Args:
            is_wanted: Asked last, when the writes of others have been waited for: False, and nothing is written.

        Raises:
            StoreError
        """
        with self._writing:
            if self._unwritten and (is_wanted is None or is_wanted()):
                self._write(self._epochs)

    def with_checkpoint(self, checkpoint: EpochCheckpointFile | None) -> LeaderEpochCache:
        """Make another cache of the same epochs over another checkpoint, into which nothing is written yet."""
        return LeaderEpochCache(checkpoint, machine=self._machine, epochs=self._epochs, on_unwritten=self.on_unwritten)

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """A block without writes of the checkpoint: its folder is renamed, or removed."""
        with self._writing:
            yield

    def _write(self, epochs: LeaderEpochs) -> None:
        if self._checkpoint is not None:
            self._checkpoint.write(epochs)
        self._set(epochs)
        self._unwritten = False

    def _set(self, epochs: LeaderEpochs) -> None:
        self._epochs = epochs
        latest = epochs.latest
        self.latest.set(*((-1, -1) if latest is None else (latest.epoch, latest.start_offset)))


def require_entries(name: str, entries: object) -> Iterator[tuple[int, int]]:
    """Several (epoch, start offset), checked. Raises TypeError, ValueError."""
    wanted = "several (epoch, start offset)"
    for entry in require_type(name, entries, Iterable, wanted):
        if not isinstance(entry, tuple) or len(entry) != 2:
            raise wrong_type(f"each of {name}", entry, "(epoch, start offset)")
        yield require_int32(f"epoch of {name}", entry[0]), require_int64(f"start offset of {name}", entry[1])
