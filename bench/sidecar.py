"""`tierlog sidecar` beside the storage manager in process: how much later a mebibyte comes.

One connection of a client in Python, which receives into memory that it has, and reads of the manager into such memory,
in turn. The bytes of both are compared first. Of a folder the files are in the page cache.

    cached: opened chunks, from the cache in memory
    cold: zstd + AES, chunks of a mebibyte, no cache; from a folder, and from a real S3 server on loopback
"""

from __future__ import annotations

import pathlib
import statistics
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from bench.harness import MIB, Suite, arguments, work_folder
from bench.storage_sides import bench_segment, folder_keys, form_keys, s3_keys
from tests.support.servers import seaweed
from tests.support.sidecars import FETCH_RANGE, OK, RunningSidecar, segment_bytes, sidecar
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager

PARTS = ("cached", "cold")
SEGMENT_BYTES = 64 * MIB
CACHE_BYTES = 256 * MIB
ADDED_MS_BAR, ADDED_PART_BAR = 0.5, 0.15


class Pieces:
    """Fetches of a mebibyte each over one connection, into the same memory."""

    def __init__(self, server: RunningSidecar, metadata: RemoteLogSegmentMetadata) -> None:
        self._client = server.client()
        self._segment = segment_bytes(metadata)
        self._memory = memoryview(bytearray(MIB + 6))

    def fetch(self, position: int) -> memoryview:
        # It ends here: of a longer range the sidecar would have the next piece already.
        body = self._segment + struct.pack(">iii", position, position + MIB - 1, MIB)
        self._client.send(FETCH_RANGE, body)
        wire, memory, filled = self._client.socket, self._memory, 0
        while filled < len(memory):
            got = wire.recv_into(memory[filled:])
            if not got:
                raise SystemExit("the sidecar closed the connection")
            filled += got
        size, status = struct.unpack_from(">ib", memory)
        assert (size, status) == (MIB + 2, OK)
        return memory[6:]

    def close(self) -> None:
        self._client.socket.close()


@contextmanager
def both(folder: pathlib.Path, keys: Mapping[str, str]) -> Iterator[tuple[Callable[[int], memoryview], ...]]:
    """Fetches of a mebibyte in process, and over a sidecar of the same keys."""
    folder.mkdir()
    segment = bench_segment(folder / "logs" / "orders-0", SEGMENT_BYTES)
    room = memoryview(bytearray(MIB))
    with (
        sidecar(folder, dict(keys), "--allow-logs", folder / "logs", own={}) as server,
        TieredStorageManager() as manager,
    ):
        with server.client() as client:
            metadata = segment.finished(client.copy(segment))
        manager.configure(dict(keys))
        pieces = Pieces(server, metadata)

        def in_process(position: int) -> memoryview:
            with manager.fetch_log_segment(metadata, position, position + MIB - 1) as stream:
                filled = 0
                while filled < MIB:
                    filled += stream.readinto(room[filled:])
            return room

        try:
            yield in_process, pieces.fetch
        finally:
            pieces.close()


def measure(
    suite: Suite, what: str, folder: pathlib.Path, keys: Mapping[str, str], rounds: int, *, is_cached: bool
) -> None:
    """Time both sides in turn, position after position; the medians of each round."""
    with both(folder, keys) as sides:
        positions = range(0, SEGMENT_BYTES - MIB, MIB)
        for position in positions:  # fills the caches too
            assert sides[0](position) == sides[1](position), f"the bytes at {position} differ"
        found: list[tuple[float, float]] = []
        for _ in range(rounds):
            times: tuple[list[float], list[float]] = [], []
            for position in positions:
                for side, seconds in zip(sides, times, strict=True):
                    began = time.perf_counter()
                    side(position)
                    seconds.append(time.perf_counter() - began)
            found.append((statistics.median(times[0]) * 1e3, statistics.median(times[1]) * 1e3))
    alone, beside = (statistics.median(each[side] for each in found) for side in (0, 1))
    added = [after - before for before, after in found]
    told = f"{alone:.2f} ms in process, {beside:.2f} ms over the sidecar ({min(added):.2f} to {max(added):.2f} more)"
    if is_cached:
        suite.add(f"{what}, ms more", told, beside - alone, ADDED_MS_BAR, least=False)
    else:
        suite.add(f"{what}, part more", told, (beside - alone) / alone, ADDED_PART_BAR, least=False)


def main() -> None:
    chosen = arguments(__doc__, PARTS)
    suite = Suite("sidecar", {})
    with work_folder() as folder:
        opened = form_keys("zstd + AES", MIB)
        if "cached" in chosen.parts:
            keys = form_keys("plain") | folder_keys(folder / "cached-bucket")
            keys |= {"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": str(CACHE_BYTES)}
            measure(suite, "cached chunk, 1 MiB", folder / "cached", keys, chosen.rounds, is_cached=True)
        if "cold" in chosen.parts:
            keys = opened | folder_keys(folder / "cold-bucket")
            measure(suite, "cold chunk, 1 MiB, folder", folder / "cold", keys, chosen.rounds, is_cached=False)
            (folder / "s3").mkdir()
            with seaweed(folder / "s3") as server:
                keys = opened | s3_keys(server.options)
                measure(suite, "cold chunk, 1 MiB, S3", folder / "cold-s3", keys, chosen.rounds, is_cached=False)
    suite.save()


if __name__ == "__main__":
    main()
