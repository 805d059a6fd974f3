"""Leader epochs by offset: the leadership under which an offset was written.

An immutable value: methods that change it return another one. The rules are those of Kafka's cache, which is stored in
the ``leader-epoch-checkpoint`` file; the same file, cut at the segment's end, goes with each tiered segment.

Invariant: epochs and start offsets both strictly rise.

Source: Kafka LeaderEpochFileCache, LeaderEpochCheckpointFile (docs/formats/log-files.md, Leader epochs).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Self

from typing_extensions import Buffer

from tierlog.arguments import INT32_MAX, INT64_MAX, require_int
from tierlog.errors import CorruptIndexError
from tierlog.log.formats.checkpoints import encode_checkpoint, parse_checkpoint, parse_number

UNKNOWN_EPOCH = -1
UNKNOWN_OFFSET = -1


class _Entry(NamedTuple):
    epoch: int
    start_offset: int


class EpochEntry(_Entry):
    """A leader epoch and the first offset that was written in it.

    Raises:
        TypeError: one is no int. ValueError: one is negative, or does not fit into 32, or 64, bits.
    """

    __slots__ = ()

    def __new__(cls, epoch: int, start_offset: int) -> Self:
        if not 0 <= require_int("epoch", epoch) <= INT32_MAX:
            raise ValueError(f"leader epoch {epoch} is not 0 … 2^31-1")
        if not 0 <= require_int("start_offset", start_offset) <= INT64_MAX:
            raise ValueError(f"epoch start offset {start_offset} is not 0 … 2^63-1")
        return super().__new__(cls, epoch, start_offset)


class LeaderEpochs:
    """The epochs of one partition, ascending. Immutable, hashable, equal by value, thread-safe.

    Args:
        entries: (epoch, start offset) pairs, both strictly rising.

    Raises:
        ValueError: they do not rise. Else as EpochEntry.
    """

    __slots__ = ("_epochs", "_starts", "entries")

    entries: tuple[EpochEntry, ...]

    def __init__(self, entries: Iterable[tuple[int, int]] = ()) -> None:
        self.entries = tuple(entry if type(entry) is EpochEntry else EpochEntry(*entry) for entry in entries)
        self._epochs = [entry.epoch for entry in self.entries]
        self._starts = [entry.start_offset for entry in self.entries]
        for before, after in zip(self.entries, self.entries[1:], strict=False):
            if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
                raise ValueError(f"epochs and start offsets must rise: {before} before {after}")

    def __iter__(self) -> Iterator[EpochEntry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LeaderEpochs) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"LeaderEpochs({[tuple(entry) for entry in self.entries]})"

    @property
    def earliest(self) -> EpochEntry | None:
        return self.entries[0] if self.entries else None

    @property
    def latest(self) -> EpochEntry | None:
        return self.entries[-1] if self.entries else None

    def find_entry(self, epoch: int) -> EpochEntry | None:
        """Find the entry of exactly this epoch."""
        at = bisect_left(self._epochs, epoch)
        return self.entries[at] if at < len(self.entries) and self._epochs[at] == epoch else None

    def find_previous(self, epoch: int) -> EpochEntry | None:
        """Find the entry of the largest epoch below this one."""
        at = bisect_left(self._epochs, epoch)
        return self.entries[at - 1] if at else None

    def find_next(self, epoch: int) -> EpochEntry | None:
        """Find the entry of the smallest epoch above this one."""
        at = bisect_right(self._epochs, epoch)
        return self.entries[at] if at < len(self.entries) else None

    def epoch_for_offset(self, offset: int) -> int | None:
        """Return the epoch in which an offset was written; None before the first entry."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else None

    def end_offset_for(self, epoch: int, *, log_end_offset: int) -> tuple[int, int]:
        """Return the epoch and end offset that Kafka answers to OffsetsForLeaderEpoch.

        Returns:
            (epoch, end offset exclusive) of the largest epoch at or below the one asked for; (epoch, first start) for
            one below all; (-1, -1) for one above all, for -1, and where there are no entries.
        """
        if epoch == UNKNOWN_EPOCH or not self.entries or epoch > self._epochs[-1]:
            return UNKNOWN_EPOCH, UNKNOWN_OFFSET
        if epoch == self._epochs[-1]:
            return epoch, log_end_offset
        at = bisect_right(self._epochs, epoch)
        if at == 0:
            return epoch, self._starts[0]
        return self._epochs[at - 1], self._starts[at]

    def assign(self, epoch: int, start_offset: int) -> LeaderEpochs:
        """Return the epochs with a new one from an offset on. Entries that contradict it are removed; an epoch that is
        known already changes nothing.

        Raises:
            ValueError: the epoch or the offset is negative.
        """
        latest = self.latest
        if latest is not None and latest.epoch == epoch and start_offset >= latest.start_offset:
            return self
        kept = [e for e in self.entries if e.epoch < epoch and e.start_offset < start_offset]
        return LeaderEpochs([*kept, (epoch, start_offset)])

    def truncate_from_end(self, end_offset_exclusive: int) -> LeaderEpochs:
        """Return the epochs of a log that ends before an offset: without those that begin at or behind it."""
        return LeaderEpochs(self.entries[: bisect_left(self._starts, end_offset_exclusive)])

    def truncate_from_start(self, start_offset: int) -> LeaderEpochs:
        """Return the epochs of a log that begins at an offset: the epoch of that offset now begins there."""
        at = bisect_right(self._starts, start_offset)
        if at == 0:
            return self
        return LeaderEpochs([(self._epochs[at - 1], start_offset), *self.entries[at:]])

    def range(self, start_offset: int, end_offset_exclusive: int) -> LeaderEpochs:
        """Return the epochs of the offsets [start, end), as they go with a segment; a negative start cuts
        nothing off.
        """
        return self.truncate_from_start(start_offset).truncate_from_end(end_offset_exclusive)

    def continuing(self, earlier: LeaderEpochs, start_offset: int, end_offset_exclusive: int) -> LeaderEpochs:
        """Return these epochs behind those that another lineage has of the offsets [start, end), or up to the first of
        these; they alone, where they begin at or below the start. Raises ValueError: the other one begins behind the
        start, or is of later epochs.
        """
        own, first = list(self.entries), self.earliest
        if first is not None and first.start_offset <= start_offset:
            return self
        front = earlier.range(start_offset, end_offset_exclusive if first is None else first.start_offset)
        if front.earliest is None or front.latest is None or front.earliest.start_offset > start_offset:
            raise ValueError(f"no epoch is given for offset {start_offset}")
        if own and own[0].epoch < front.latest.epoch:
            raise ValueError(f"epoch {front.latest.epoch} in front of epoch {own[0].epoch}")
        return LeaderEpochs([*front.entries, *(entry for entry in own if entry.epoch > front.latest.epoch)])


def parse_leader_epochs(data: Buffer) -> LeaderEpochs:
    """Read a ``leader-epoch-checkpoint`` file or the epoch index of a tiered segment.

    Of epochs that begin at the same offset only the last has records; the others go, as when Kafka loads the file.

    Raises:
        CorruptIndexError: a malformed line, or epochs or offsets that do not rise.
    """
    entries: list[EpochEntry] = []
    for line in parse_checkpoint(data):
        if len(line.fields) != 2:
            raise line.corrupt("expected '<epoch> <start offset>'")
        epoch = parse_number(line, 0, "epoch", INT32_MAX)
        entry = EpochEntry(epoch, parse_number(line, 1, "start offset", INT64_MAX))
        if entries and (entry.epoch <= entries[-1].epoch or entry.start_offset < entries[-1].start_offset):
            text = f"epoch {entry.epoch} from {entry.start_offset} after epoch {entries[-1].epoch}"
            text = f"{text} from {entries[-1].start_offset}: both must rise"
            raise CorruptIndexError(text, fault="BAD_ORDER", position=line.position)
        if entries and entry.start_offset == entries[-1].start_offset:
            entries.pop()
        entries.append(entry)
    return LeaderEpochs(entries)


def encode_leader_epochs(epochs: LeaderEpochs) -> bytes:
    """Encode a ``leader-epoch-checkpoint`` file."""
    return encode_checkpoint(epochs.entries)
