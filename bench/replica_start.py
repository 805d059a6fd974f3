"""How long `tierlog replica` takes to start, and what memory it takes: parts *start* and *memory* of ``bench.replica``.

*start*: from the start of the process until the first record of one partition is out, over 10⁴ segments in 10³
partitions, in a folder and on a real S3 server on loopback (SeaweedFS): without a state, and with the listing that the
run before has kept. *memory*: 10⁴ partitions that were all read, by a thousand connections that stay; what the caches
hold is taken off, as they report it, and once more with caches that hold nothing.
"""

from __future__ import annotations

import datetime
import pathlib
import shutil
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from bench.findings import Findings, spread
from bench.replica_bucket import many_segments
from bench.replica_sides import PARTITION_BYTES, Client, replica_over, resident_mib, series
from tests.support.peers import broker
from tests.support.raw_client import RawClient, request_class
from tests.support.servers import StoreServer, seaweed

START_PARTITIONS, START_SEGMENTS = 1000, 10
MEMORY_TOPICS, CONNECTIONS = 10, 1000
COLD_SECONDS_MAX, STATE_SECONDS_MAX = 3.0, 1.0
MEMORY_MIB_MAX = 200
UPLOADS_AT_ONCE = 16
#: Until a listing is kept behind a start.
KEPT_SECONDS = 3
NO_CACHES = {"fetch.chunk.cache.size": "0", "fetch.indexes.cache.size": "0"}


def measure_start(found: Findings, folder: pathlib.Path, rounds: int, scale: float) -> None:
    """Starts over a folder, and over the same objects on SeaweedFS."""
    folder.mkdir(parents=True)
    root = folder / "bucket"
    partitions = max(10, int(START_PARTITIONS * min(1, scale)))
    ends = many_segments(root, partitions=partitions, segments=START_SEGMENTS)
    size = f"{partitions * START_SEGMENTS} segments, {partitions} partitions"
    client = Client(folder, "topic-0", {"0": ends})
    _measure_starts(found, f"start, {size}, local folder", str(root), folder, client, rounds)
    (folder / "s3").mkdir()
    with seaweed(folder / "s3") as server:
        _upload(server, root)
        what = f"start, {size}, SeaweedFS"
        _measure_starts(found, what, f"{server.url}/tier", folder / "s3", client, rounds, server.options)
    shutil.rmtree(folder)


def _upload(server: StoreServer, root: pathlib.Path) -> None:
    def put(path: pathlib.Path) -> None:
        server.put(f"tier/{path.relative_to(root).as_posix()}", path.read_bytes())

    with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
        for _ in pool.map(put, [path for path in root.rglob("*") if path.is_file()]):
            pass


def _measure_starts(
    found: Findings,
    what: str,
    path: str,
    folder: pathlib.Path,
    client: Client,
    rounds: int,
    keys: dict[str, str] | None = None,
) -> None:
    ways = (("cold", [], COLD_SECONDS_MAX), ("with --state", ["--state", str(folder / "state")], STATE_SECONDS_MAX))
    for way, arguments, bar in ways:
        seconds = []
        for number in range(rounds + 1):
            began = time.perf_counter()
            with replica_over(path, folder, *arguments, keys=keys) as ours:
                client.read(ours, "discard")
                if number:
                    seconds.append(time.perf_counter() - began)
                else:
                    time.sleep(KEPT_SECONDS)
        found.add(f"{what}, {way}, s", spread(seconds, ".2f"), statistics.median(seconds), bar)


def measure_memory(found: Findings, folder: pathlib.Path, scale: float) -> None:
    """Memory with the caches' own figures taken off, and with caches of no size."""
    folder.mkdir(parents=True)
    root = folder / "bucket"
    count = max(1, int(CONNECTIONS * min(1, scale)))
    ends = many_segments(root, partitions=count * MEMORY_TOPICS, segments=1, topics=MEMORY_TOPICS)
    size = f"{count * MEMORY_TOPICS} partitions, {count} connections"
    resident, caches = _read_all(root, folder, count, ends, {})
    told = f"resident {resident:.1f}, caches {caches:.1f}"
    found.add(f"{size}, resident less tierlog_remote_cache_bytes, MiB", told, resident - caches, MEMORY_MIB_MAX)
    resident, caches = _read_all(root, folder, count, ends, NO_CACHES)
    told = f"resident {resident:.1f}, caches {caches:.1f}"
    found.add(f"{size}, caches of no size, MiB", told, resident, MEMORY_MIB_MAX)
    shutil.rmtree(folder)


def _read_all(
    root: pathlib.Path, folder: pathlib.Path, count: int, ends: int, keys: dict[str, str]
) -> tuple[float, float]:
    """Each connection reads a partition of each topic: MiB that are resident then, and those of the caches."""
    monitor = broker.free_port()
    with replica_over(root, folder, "--monitor", f"127.0.0.1:{monitor}", keys=keys) as ours:
        clients = [RawClient(ours.bootstrap) for _ in range(count)]
        asked = request_class(1, 12)
        inner = sys.modules[asked.__module__]
        for number, client in enumerate(clients):
            partition = inner.FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=PARTITION_BYTES)
            topics = tuple(
                inner.FetchTopic(topic=f"topic-{each}", partitions=(partition,)) for each in range(MEMORY_TOPICS)
            )
            wait = {"max_wait": datetime.timedelta(seconds=30), "min_bytes": 1, "forgotten_topics_data": ()}
            answer = client.ask(asked(topics=topics, **wait))
            got = sum(part.high_watermark == ends for topic in answer.responses for part in topic.partitions)
            assert got == MEMORY_TOPICS, answer
        resident = resident_mib(ours.pid)
        caches = sum(value for _, value in series(monitor, "tierlog_remote_cache_bytes")) / (1 << 20)
        for client in clients:
            client.close()
    return resident, caches
