"""`tierlog replica` beside a real broker over the same tier: throughput, latency, polls, start and memory.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.replica [tier start latency polls memory] [--scale 0.05] [--rounds 5]

*tier*: a real broker copies 2 GB to its tier (the plugin's where TIERLOG_PLUGIN_JARS names its jars, else Kafka's
LocalTieredStorage, which knows plain objects alone) and deletes them locally; a C client (``bench/fetch_client.c``) and
Kafka's and librdkafka's own consumers read the topic from the broker and from the replica in turn. Another topic stays
on the broker's disk, for its sendfile; objects that are compressed and encrypted are opened by the bare calls, too. All
files are in the page cache: cold is data that no cache of the server has. The hash of all batches is equal before a
time counts; CPU seconds are those of the server's process.

*start*: from the start of the process until the first record of one partition is out, over 10⁴ segments in 10³
partitions, in a folder and on a real S3 server on loopback (SeaweedFS): without a state, and with the listing that the
run before has left. *latency*: 1 MiB that is cached, beside pread and send of as many bytes (``bench/pread_server.c``).
*polls*: empty long polls of 200 partitions in a fetch session. *memory*: 10⁴ partitions that were all read, by a
thousand connections that stay, less the bytes of the caches by their own figures; and with caches of no size. All parts
at full scale take some 25 minutes.
"""

from __future__ import annotations

import datetime
import pathlib
import shutil
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.harness import MIB, Suite, arguments, cpu_seconds, memory, quotient, spread, work_folder
from bench.replica_sides import (
    PARTITION_BYTES,
    Client,
    large_segment,
    many_segments,
    pread_server,
    replica_over,
    series,
)
from bench.replica_tier import measure_tier
from tests.support.peers import broker, install, plugin
from tests.support.raw_client import RawClient, request_class
from tests.support.servers import StoreServer, seaweed

START_PARTITIONS, START_SEGMENTS = 1000, 10
COLD_SECONDS_MAX, STATE_SECONDS_MAX = 3.0, 1.0
#: Until a listing is written behind a start.
STATE_SECONDS = 3
#: Clients at once, and what each asks: of a hundred each goes on until the last one has begun.
REQUESTS = {1: 2000, 100: 100}
POLLED_PARTITIONS, POLLS = 200, 1000
MEMORY_TOPICS, CONNECTIONS, MEMORY_MIB_MAX = 10, 1000, 200
NO_CACHES = {"fetch.chunk.cache.size": "0", "fetch.indexes.cache.size": "0"}


# ---- start


def measure_start(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    """Starts over a folder, and over the same objects on SeaweedFS."""
    root = folder / "bucket"
    partitions = max(10, int(START_PARTITIONS * min(1, scale)))
    ends = many_segments(root, partitions=partitions, segments=START_SEGMENTS)
    what = f"start, {partitions * START_SEGMENTS} segments, {partitions} partitions"
    client = Client(folder, "topic-0", {"0": ends})
    _starts(suite, f"{what}, local folder", str(root), folder, client, rounds, {})
    (folder / "s3").mkdir()
    with seaweed(folder / "s3") as server:
        _upload(server, root)
        options = dict(server.options)
        _starts(suite, f"{what}, SeaweedFS", f"{server.url}/tier", folder / "s3", client, rounds, options)


def _upload(server: StoreServer, root: pathlib.Path) -> None:
    def put(path: pathlib.Path) -> None:
        server.put(f"tier/{path.relative_to(root).as_posix()}", path.read_bytes())

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(put, [path for path in root.rglob("*") if path.is_file()]))


def _starts(
    suite: Suite, what: str, path: str, folder: pathlib.Path, client: Client, rounds: int, keys: dict[str, str]
) -> None:
    state = ["--state", str(folder / "state")]
    for way, more, bar in (("cold", [], COLD_SECONDS_MAX), ("with --state", state, STATE_SECONDS_MAX)):
        seconds = []
        for number in range(rounds + 1):
            began = time.perf_counter()
            with replica_over(path, folder, *more, keys=keys) as ours:
                client.read(ours)
                seconds.append(time.perf_counter() - began)
                if number == 0:
                    time.sleep(STATE_SECONDS)
        suite.add(f"{what}, {way}, s", spread(seconds[1:], ".2f"), statistics.median(seconds[1:]), bar, least=False)


# ---- latency and polls


def measure_latency(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    """One client, and a hundred."""
    root = folder / "bucket"
    client = Client(folder, "large-0", {"0": large_segment(root)})
    with (
        pread_server(folder, "pread + send", next(root.rglob("*.log"))) as theirs,
        replica_over(root, folder) as ours,
    ):
        client.read(ours)
        for count, full in REQUESTS.items():
            requests = max(20, int(full * min(1, scale)))
            times: dict[str, list[list[float]]] = {ours.name: [], theirs.name: []}
            for _ in range(rounds + 1):
                for side in (theirs, ours):
                    times[side.name].append(sorted(client.repeat(side, clients=count, requests=requests)))
            for name, share in (("p50", 0.5), ("p99", 0.99)):
                mine, bare = ([each[int(len(each) * share)] / 1000 for each in side[1:]] for side in times.values())
                told = f"{spread(mine, '.2f')} ms, pread + send {spread(bare, '.2f')} ms"
                what = f"1 MiB fetch, cached, {count} clients, {name}, × pread + send's time"
                bar = 2.0 if count == 1 and name == "p50" else None
                suite.add(what, told, quotient(mine, bare), bar, least=False)


def measure_polls(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    """Empty long polls of 200 partitions in a fetch session."""
    root = folder / "bucket"
    ends = many_segments(root, partitions=POLLED_PARTITIONS, segments=2, topics=1)
    polls = max(50, int(POLLS * min(1, scale)))
    with replica_over(root, folder) as ours:
        client = RawClient(ours.bootstrap)
        common = {"max_wait": datetime.timedelta(milliseconds=1), "min_bytes": 1, "forgotten_topics_data": ()}
        topics = (_asked("topic-0", range(POLLED_PARTITIONS), ends),)
        request = request_class(1, 12)
        session = client.ask(request(topics=topics, session_id=0, session_epoch=0, **common)).session_id
        assert session, "the server made no session"
        time.sleep(8)  # a server's work after its start does not count as polls
        spent, number = [], 0
        for _ in range(rounds + 1):
            cpu = cpu_seconds(ours.pid)
            for _ in range(polls):
                number += 1
                answer = client.ask(request(topics=(), session_id=session, session_epoch=number, **common))
                assert not answer.error_code, answer
                assert not answer.responses, answer
            spent.append((cpu_seconds(ours.pid) - cpu) / polls * 1000)
        client.close()
    what = f"empty poll of {POLLED_PARTITIONS} partitions in a session, CPU ms"
    suite.add(what, spread(spent[1:], ".3f"), statistics.median(spent[1:]), 0.3, least=False)


def _asked(topic: str, partitions: Any, offset: int) -> Any:
    """Partitions of a topic in a Fetch of version 12."""
    inner: Any = sys.modules[request_class(1, 12).__module__]
    return inner.FetchTopic(
        topic=topic,
        partitions=tuple(
            inner.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=PARTITION_BYTES)
            for number in partitions
        ),
    )


# ---- memory


def measure_memory(suite: Suite, folder: pathlib.Path, scale: float, rounds: int) -> None:
    """Measure memory less the caches' own figures, and with caches of no size."""
    root = folder / "bucket"
    count = max(1, int(CONNECTIONS * min(1, scale)))
    ends = many_segments(root, partitions=count * MEMORY_TOPICS, segments=1, topics=MEMORY_TOPICS)
    for keys, told in (({}, "resident less tierlog_remote_cache_bytes"), (NO_CACHES, "caches of no size")):
        resident, caches = _read_all(root, folder, count, ends, keys)
        what = f"{count * MEMORY_TOPICS} partitions, {count} connections, {told}, MiB"
        told = f"resident {resident:.1f}, caches {caches:.1f}"
        suite.add(what, told, resident - (0 if keys else caches), MEMORY_MIB_MAX, least=False)


def _read_all(
    root: pathlib.Path, folder: pathlib.Path, count: int, ends: int, keys: dict[str, str]
) -> tuple[float, float]:
    """Each connection reads a partition of each topic: MiB that are resident then, and those of the caches."""
    monitor = broker.free_port()
    with replica_over(root, folder, "--monitor", f"127.0.0.1:{monitor}", keys=keys) as ours:
        clients = [RawClient(ours.bootstrap) for _ in range(count)]
        wait = {"max_wait": datetime.timedelta(seconds=30), "min_bytes": 1, "forgotten_topics_data": ()}
        for number, client in enumerate(clients):
            topics = tuple(_asked(f"topic-{each}", [number], 0) for each in range(MEMORY_TOPICS))
            answer = client.ask(request_class(1, 12)(topics=topics, **wait))
            got = sum(part.high_watermark == ends for topic in answer.responses for part in topic.partitions)
            assert got == MEMORY_TOPICS, answer
        resident = memory(ours.pid)["VmRSS"] / MIB
        caches = sum(value for _, value in series(monitor, "tierlog_remote_cache_bytes")) / MIB
        for client in clients:
            client.close()
    return resident, caches


PARTS = {"start": measure_start, "latency": measure_latency, "polls": measure_polls, "memory": measure_memory}


def main() -> None:
    forms = "plain,zstd + AES" if plugin.jars() else "plain"
    chosen = arguments(__doc__, ["tier", *PARTS], forms=forms)
    suite = Suite("replica", install.versions())
    with work_folder() as folder:
        for form in chosen.forms.split(",") if "tier" in chosen.parts else ():
            measure_tier(suite, folder / form.replace(" + ", "-"), form, chosen.scale, chosen.rounds)
        for part, measure in PARTS.items():
            if part in chosen.parts:
                own = folder / part
                own.mkdir()
                measure(suite, own, chosen.scale, chosen.rounds)
                shutil.rmtree(own)
    suite.save()


if __name__ == "__main__":
    main()
