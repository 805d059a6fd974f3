"""A bucket that changes as brokers change one, and what each of its offsets carries: readers are held to this model.

Every record says of itself which topic, partition, offset and leader epoch it is, so that one look at what a client got
tells a record that is wrong, twice there or left out.
"""

from __future__ import annotations

import pathlib
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.segments import topic_uuid
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.runtime.stores.protocol.object_store import ObjectStore

FIRST_MS = 1_700_000_000_000
#: Of an object in front of those that name it, as the plugin copies them; the description makes a segment whole.
SUFFIXES = ("log", "indexes", "rsm-manifest")


@dataclass(frozen=True, order=True)
class Said:
    """What a record says of itself."""

    topic_id: str
    partition: int
    offset: int
    epoch: int

    def encode(self, size_bytes: int) -> bytes:
        return f"{self.topic_id} {self.partition} {self.offset} {self.epoch} ".encode().ljust(size_bytes, b".")

    @classmethod
    def decode(cls, value: bytes) -> Said:
        topic_id, partition, offset, epoch, _ = value.decode().split(" ")
        return cls(topic_id, int(partition), int(offset), int(epoch))


class PublishedFolder:
    """A folder as a store holds it: what has changed is put whole, descriptions last; what is gone is deleted.

    Args:
        store: Past whatever is made to fail.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._stored: dict[str, tuple[int, int]] = {}

    def publish(self, folder: pathlib.Path) -> None:
        """Have the store hold what the folder holds."""
        found = {}
        for path in folder.rglob("*"):
            if path.is_file():
                about = path.stat()
                found[path.relative_to(folder).as_posix()] = (about.st_size, about.st_mtime_ns)
        changed = [key for key, about in found.items() if self._stored.get(key) != about]
        # In the order in which they were made: a leader's first segment before what another one copies after it lost.
        for key in sorted(changed, key=lambda key: (SUFFIXES.index(key.rpartition(".")[2]), found[key][1], key)):
            self._store.put(key, (folder / key).read_bytes())
        gone = sorted(self._stored.keys() - found.keys())
        if gone:
            self._store.delete(gone)
        self._stored = found


@dataclass
class TieredLog:
    """One partition of one topic id: its segments in the bucket, and the records that count.

    Attributes:
        live: Leader epoch of each offset that was ever tiered and was not cut off; deleted ones included.
        ever: (offset, epoch) of each record that was live at some time.
        end_offset: Behind the last record that is in the bucket.
        starts: Every offset at which the log began at some time.
        cuts: (offset, when) of each unclean election: what lay there or behind is no history any more.
        segments: (name, first offset, last offset) of those that are in the bucket and count, by offset.
        begun: Offsets at which leaders began a segment.
        copies: (name, first offset) of further copies of what counts.
    """

    bucket: Bucket
    key_ring: KeyRing | None = None
    epoch: int = 0
    lineage: dict[int, int] = field(default_factory=lambda: {0: 0})
    live: dict[int, int] = field(default_factory=dict)
    ever: set[tuple[int, int]] = field(default_factory=set)
    end_offset: int = 0
    starts: set[int] = field(default_factory=lambda: {0})
    cuts: list[tuple[int, float]] = field(default_factory=list)
    segments: list[tuple[str, int, int]] = field(default_factory=list)
    begun: set[int] = field(default_factory=set)
    copies: list[tuple[str, int]] = field(default_factory=list)
    _made: int = 0

    @property
    def start_offset(self) -> int:
        return self.segments[0][1] if self.segments else self.end_offset

    def begins_batch(self, offset: int) -> bool:
        """Whether a batch begins at an offset: the same one in every copy, as replicas have the same batches."""
        return offset in self.begun or offset * 37 % 7 < 3

    def batch_start(self, offset: int) -> int:
        """Where the batch that holds an offset begins: nothing but whole batches is copied, or cut off."""
        while not self.begins_batch(offset):
            offset -= 1
        return offset

    def batches(self, first: int, end_exclusive: int, *, epoch: int | None = None) -> list[Batch]:
        """The batches of some records; by default in the epochs that count."""
        made: list[Batch] = []
        while first < end_exclusive:
            of_batch = self.live[first] if epoch is None else epoch
            last = first
            while last + 1 < end_exclusive and not self.begins_batch(last + 1):
                last += 1
            values = tuple(self.value(offset, of_batch) for offset in range(first, last + 1))
            made.append(Batch(first, values, of_batch, timestamp_ms=FIRST_MS + 1000 * first))
            first = last + 1
        return made

    def value(self, offset: int, epoch: int) -> bytes:
        """Of a record."""
        said = Said(self.bucket.topic_id, self.bucket.partition, offset, epoch)
        return said.encode(40 + offset * 37 % 200)

    def write(self, batches: Sequence[Batch], lineage: dict[int, int]) -> str:
        """One more segment, whatever it holds; returns its name."""
        self._made += 1
        name = f"{self.bucket.topic_id}/{self._made}"
        self.bucket.segment(
            name, batches, lineage=lineage, key_ring=self.key_ring, event_timestamp_ms=FIRST_MS + self._made
        )
        return name

    def append(self, count: int = 10) -> str:
        """The next segment of the log; returns its name."""
        first, end = self.end_offset, self.end_offset + count
        self.begun.add(first)
        self.live |= dict.fromkeys(range(first, end), self.epoch)
        self.ever |= self.live.items()
        name = self.write(self.batches(first, end), dict(self.lineage))
        self.segments.append((name, first, end - 1))
        self.end_offset = end
        return name

    def copy_again(self, first: int) -> str:
        """What lies from an offset on, once more: a leader that did not know of the copies of the one before."""
        first = self.batch_start(first)
        name = self.write(self.batches(first, self.end_offset), dict(self.lineage))
        self.copies.append((name, first))
        return name

    def expire(self) -> None:
        """Retention takes the oldest segment, and what else has its records."""
        name, _, _ = self.segments.pop(0)
        self.starts.add(self.start_offset)
        taken = [name for name, first in self.copies if first < self.start_offset]
        self.copies = [copy for copy in self.copies if copy[0] not in taken]
        for each in (name, *taken):
            self.remove(each)

    def remove(self, name: str, *suffixes: str) -> None:
        """Delete objects of a segment, its description last, as the plugin does."""
        for suffix in suffixes or SUFFIXES:
            self.bucket.path(name, suffix).unlink()

    def hand_over(self, count: int = 10, *, dead_count: int = 0) -> None:
        """Another leader, which has all that was tiered, and its first segment; with ``dead_count`` a last one of the
        leader before, with as many records that nobody else has.
        """
        dead_lineage, dead_epoch, parted = dict(self.lineage), self.epoch, self.end_offset
        self.epoch += 1
        self.lineage[self.epoch] = parted
        self.append(count)
        if dead_count:
            first = max(self.batch_start(parted - 4), self.start_offset)
            dead = self.batches(parted, parted + dead_count, epoch=dead_epoch)
            self.copies.append((self.write([*self.batches(first, parted), *dead], dead_lineage), first))

    def elect_unclean(self, end_offset: int, count: int = 3) -> str:
        """A leader that lacks what lies from an offset on, and goes on from there; returns its first segment's name."""
        end_offset = self.batch_start(end_offset)
        assert self.start_offset < end_offset < self.end_offset
        self.epoch += 1
        self.lineage = {epoch: start for epoch, start in self.lineage.items() if start < end_offset}
        self.lineage[self.epoch] = end_offset
        self.live = {offset: epoch for offset, epoch in self.live.items() if offset < end_offset}
        self.segments = [
            (name, first, min(last, end_offset - 1)) for name, first, last in self.segments if first < end_offset
        ]
        self.end_offset = end_offset
        self.cuts.append((end_offset, time.monotonic()))
        return self.append(count)


class ChangingBucket:
    """Topics in a folder, and their logs; those of topics that were deleted stay known.

    Args:
        folder: Empty.
        place: Where readers find it.
    """

    def __init__(self, folder: pathlib.Path, place: PublishedFolder) -> None:
        self.folder = folder
        self._place = place
        self.logs: dict[tuple[str, int], TieredLog] = {}
        self.by_id: dict[tuple[str, int], TieredLog] = {}
        self.topic_ids: dict[str, list[str]] = {}

    def add(self, topic: str, partitions: int = 1, *, epoch: int = 0) -> list[TieredLog]:
        """A topic, or another one of the name of one that was deleted; each partition with a first segment."""
        ids = self.topic_ids.setdefault(topic, [])
        ids.append(topic_uuid(f"{topic}/{len(ids)}"))
        made = []
        for number in range(partitions):
            bucket = Bucket(self.folder, topic, number, ids[-1], chunk_size=700, index_interval_bytes=300)
            log = TieredLog(bucket, epoch=epoch, lineage={epoch: 0})
            log.append()
            self.logs[topic, number] = self.by_id[ids[-1], number] = log
            made.append(log)
        return made

    def log(self, topic: str, partition: int = 0) -> TieredLog:
        """As it is now."""
        return self.logs[topic, partition]

    def delete(self, topic: str) -> int:
        """A topic with all its objects; returns how many partitions it had.

        While the store deletes them, one after another, what is left looks as retention leaves it.
        """
        keys = [key for key in self.logs if key[0] == topic]
        for key in keys:
            log = self.logs.pop(key)
            log.starts |= {first for _, first, _ in log.segments} | {first for _, first in log.copies}
        shutil.rmtree(self.folder / f"{topic}-{self.topic_ids[topic][-1]}")
        return len(keys)

    def publish(self) -> None:
        """Have readers find it as it is now."""
        self._place.publish(self.folder)

    def rewrite(self, path: pathlib.Path, change: Callable[[bytes], bytes]) -> bytes:
        """Change an object; returns what it was."""
        before = path.read_bytes()
        path.write_bytes(change(before))
        return before
