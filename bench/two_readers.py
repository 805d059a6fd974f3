"""One stored segment by both readers of chunked logs, in turn: windows for scans, ranges for fetches (decision 0011).

    python -m bench.two_readers [--rounds 7] [--size 256]

Both read the same objects of a folder, in the page cache, in one process; "no disk" is the same store behind a wrapper
that says that it is none, so that reads take the way of a bucket's, without a network. Fetches check no
batches here, since scans leave that to the decoder. *bytes*: nobody looks at them. *decoded*: offsets and values by
RecordDecoder, which joins the batches that lie across pieces. *header*: 61 bytes at each of 200 positions, as a search
by time or offset reads them. CPU is of the whole process.
"""

from __future__ import annotations

import argparse
import functools
import pathlib
import random
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack

from bench.findings import spread
from bench.logs import MIB
from bench.storage_segment import FORMS, folder_keys, form_keys, make_segment
from tierlog._native.decoding import RecordDecoder
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier.chunks.segment import StoredSegment
from tierlog.remote.tier.tier import Tier
from tierlog.remote.tier.tier_paths import open_tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

HEADER_BYTES, HEADERS = 61, 200
Read = Callable[[int, int], Iterator[memoryview]]


class NoDisk(PassingStore):
    """A folder that is read as a bucket is: no direct reads, a thread a request."""

    is_local = False
    reads_directly = False
    starts_reads = False


def windows_of(tier: Tier, segment: StoredSegment) -> Read:
    def read(start: int, end: int) -> Iterator[memoryview]:
        small = {"window_bytes": HEADER_BYTES, "prefetch": 0} if end - start <= HEADER_BYTES else {}
        for _, window in tier.iter_log_windows(segment, start, end, **small):
            yield window

    return read


def ranges_of(manager: TieredStorageManager, metadata: RemoteLogSegmentMetadata) -> Read:
    def read(start: int, end: int) -> Iterator[memoryview]:
        with manager.fetch_log_segment(metadata, start, end - 1) as stream:
            yield from stream.buffers()

    return read


def all_bytes(read: Read, size_bytes: int) -> None:
    assert sum(len(piece) for piece in read(0, size_bytes)) == size_bytes


def decoded(read: Read, size_bytes: int) -> None:
    decoder = RecordDecoder(["offset", "value"], from_offset=0)

    def rows(parts: Iterable[object]) -> int:
        return sum(part.num_rows for part in parts)  # type: ignore[attr-defined]

    assert sum(rows(decoder.feed(piece)) for piece in read(0, size_bytes)) + rows(decoder.finish())


def headers(read: Read, size_bytes: int) -> None:
    chance = random.Random(3)
    for _ in range(HEADERS):
        at = chance.randrange(size_bytes - HEADER_BYTES)
        assert sum(len(piece) for piece in read(at, at + HEADER_BYTES)) == HEADER_BYTES


WORK: dict[str, Callable[[Read, int], None]] = {"bytes": all_bytes, "decoded": decoded, "header": headers}


def timed(call: Callable[[], None]) -> tuple[float, float]:
    """(seconds, CPU seconds)."""
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    call()
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare(form: str, place: str, readers: dict[str, Read], size_bytes: int, rounds: int) -> None:
    for name, work in WORK.items():
        found: dict[str, list[tuple[float, float]]] = {reader: [] for reader in readers}
        for number in range(rounds + 1):
            for reader in sorted(readers, reverse=number % 2 == 1):
                told = timed(functools.partial(work, readers[reader], size_bytes))
                if number:
                    found[reader].append(told)
        texts = [
            f"{reader} {spread([1000 * wall for wall, _ in each])} ms, CPU {spread([1000 * cpu for _, cpu in each])}"
            for reader, each in found.items()
        ]
        medians = [statistics.median(cpu for _, cpu in found[reader]) for reader in ("ranges", "windows")]
        print(f"{form}, {place}, {name}: {'; '.join(texts)}; CPU ranges / windows {medians[0] / medians[1]:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--size", type=int, default=256, help="MiB")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = make_segment(folder / "source", given.size * MIB)
        size_bytes = source.metadata.segment_size_in_bytes
        for form in ("plain", "zstd", "zstd + AES"):
            assert form in FORMS
            for place in ("disk", "no disk"):
                root = folder / f"{form} {place}".replace(" ", "")
                keys = form_keys(form) | folder_keys(root) | {"fetch.check.batches.enabled": "false"}

                def wrap(store: ObjectStore, place: str = place) -> ObjectStore:
                    return store if place == "disk" else NoDisk(store)

                with ExitStack() as held:
                    manager = TieredStorageManager(wrap_store=wrap)
                    held.callback(manager.close)
                    manager.configure(keys)
                    manager.copy_log_segment_data(source.metadata, source.data)
                    tier = held.enter_context(open_tier(str(root), config=form_keys(form), wrap_store=wrap))
                    (segment,) = tier.iter_segments()
                    readers = {
                        "ranges": ranges_of(manager, source.metadata),
                        "windows": windows_of(tier, segment),
                    }
                    compare(form, place, readers, size_bytes, given.rounds)


if __name__ == "__main__":
    main()
