"""`tierlog replica` beside a real broker over the same tier: throughput, latency, polls, start and memory.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.replica [tier|latency|polls|start|memory …] [--scale 0.05] [--rounds 5]

*tier*: a real broker copies 2 GB to its tier (the plugin's where TIERLOG_PLUGIN_JARS names its jars, else Kafka's
LocalTieredStorage, which knows plain objects alone) and deletes them locally; a C client (bench/fetch_client.c) and
Kafka's and librdkafka's own consumers read the topic from the broker and from the replica in turn. Another topic stays
on the broker's disk, for its sendfile; objects that are compressed and encrypted are opened by the bare calls
(bench/turns_bare.c), too. All files are in the page cache: cold is what no cache of the server has. The hash of all
batches is equal before a time counts; CPU seconds are those of the server's process. All parts at full scale take some
25 minutes.
"""

from __future__ import annotations

import argparse
import datetime
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

from bench.findings import Findings, spread
from bench.replica_bucket import large_segment, many_segments
from bench.replica_sides import PARTITION_BYTES, Client, cpu_seconds, replica_over
from bench.replica_start import measure_memory, measure_start
from bench.replica_tier import measure_tier, pread_server
from bench.side_by_side import ROUNDS
from tests.support.peers import install, plugin
from tests.support.raw_client import RawClient, request_class

#: Clients at once, and what each asks: of a hundred each goes on until the last one has begun.
REQUESTS = {1: 2000, 100: 100}


def measure_latency(found: Findings, folder: pathlib.Path, rounds: int) -> None:
    """1 MiB that is cached, beside pread and send of as many bytes: one client, and a hundred."""
    folder.mkdir(parents=True)
    root = folder / "bucket"
    ends = large_segment(root)
    client = Client(folder, "large-0", {"0": ends})
    log = next(root.rglob("*.log"))
    with pread_server(folder, log) as theirs, replica_over(root, folder) as ours:
        client.read(ours, "discard")
        for count, requests in REQUESTS.items():
            times: dict[str, list[list[float]]] = {ours.name: [], theirs.name: []}
            for _ in range(rounds + 1):
                for side in (theirs, ours):
                    times[side.name].append(client.repeat(side, clients=count, requests=requests))
            _tell_latency(found, times[ours.name][1:], times[theirs.name][1:], count)
    shutil.rmtree(folder)


def _tell_latency(found: Findings, ours: list[list[float]], theirs: list[list[float]], clients: int) -> None:
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        mine, bare = ([sorted(each)[int(len(each) * share)] / 1000 for each in side] for side in (ours, theirs))
        told = f"{spread(mine, '.2f')} ms, pread + send {spread(bare, '.2f')} ms"
        value = statistics.median(mine) / statistics.median(bare)
        bar = 2.0 if clients == 1 and name == "p50" else None
        found.add(f"1 MiB fetch, cached, {clients} clients, {name} × pread + send", told, value, bar)


def measure_polls(found: Findings, folder: pathlib.Path, rounds: int) -> None:
    """Empty long polls of 200 partitions in a fetch session."""
    folder.mkdir(parents=True)
    root = folder / "bucket"
    ends = many_segments(root, partitions=200, segments=2, topics=1)
    with replica_over(root, folder) as ours:
        client = RawClient(ours.bootstrap)
        asked = request_class(1, 12)
        inner = sys.modules[asked.__module__]
        common = {"max_wait": datetime.timedelta(milliseconds=1), "min_bytes": 1, "forgotten_topics_data": ()}
        partitions = tuple(
            inner.FetchPartition(partition=number, fetch_offset=ends, partition_max_bytes=PARTITION_BYTES)
            for number in range(200)
        )
        topics = (inner.FetchTopic(topic="topic-0", partitions=partitions),)
        session = client.ask(asked(topics=topics, session_id=0, session_epoch=0, **common)).session_id
        assert session, "the server made no session"
        time.sleep(8)  # what a server does after its start is not of the polls
        spent, number, count = [], 0, 1000
        for _ in range(rounds + 1):
            cpu = cpu_seconds(ours.pid)
            for _ in range(count):
                number += 1
                answer = client.ask(asked(topics=(), session_id=session, session_epoch=number, **common))
                assert not answer.error_code, answer
                assert not answer.responses, answer
            spent.append((cpu_seconds(ours.pid) - cpu) / count * 1000)
        client.close()
    found.add(
        "empty poll of 200 partitions in a session, CPU ms", spread(spent[1:], ".3f"), statistics.median(spent[1:]), 0.3
    )
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", default=["tier", "start", "latency", "polls", "memory"])
    parser.add_argument("--scale", type=float, default=1.0, help="of 2 GB, and of the partitions of start and memory")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--forms", default="plain,zstd + AES" if plugin.jars() else "plain")
    arguments = parser.parse_args()
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as name:
        folder = pathlib.Path(name)
        if "tier" in arguments.parts:
            for form in arguments.forms.split(","):
                measure_tier(found, folder / form.replace(" + ", "-"), form, arguments.scale, arguments.rounds)
        if "start" in arguments.parts:
            measure_start(found, folder / "start", arguments.rounds, arguments.scale)
        if "latency" in arguments.parts:
            measure_latency(found, folder / "latency", arguments.rounds)
        if "polls" in arguments.parts:
            measure_polls(found, folder / "polls", arguments.rounds)
        if "memory" in arguments.parts:
            measure_memory(found, folder / "memory", arguments.scale)
    found.save("replica", install.versions())


if __name__ == "__main__":
    main()
