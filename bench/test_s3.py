"""A scan through Tierlog from a real S3 server on loopback, against plain ranged GETs of the same objects by obstore.

The plain side asks for ranges as large as ours and has as many under way, and throws the bytes away. Ours lists, plans,
checks and decodes into Arrow besides. Requests are counted at the store.

Server and client share the machine, so where no core is idle the most that a ratio can be is that of the processor's
seconds of both: it stands beside the measured one.
"""

from __future__ import annotations

import os
import pathlib
import statistics
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import obstore
import pytest
from obstore.store import S3Store

from bench.logs import MIB, BenchLog, bench_log
from bench.side_by_side import ROUNDS, Comparison
from bench.tiers import tiered_objects
from tests.support.servers import BUCKET, StoreServer, seaweed
from tierlog.reading import BATCH_BYTES
from tierlog.remote.tier import open_tier
from tierlog.remote.tier.tier import REMOTE_PREFETCH, REMOTE_WINDOW_BYTES
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.stores.wrappers.counting_store import CountingStore, StoreCounts
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.parallel_scan import ParallelScan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import ScanRequest, TopicSelection

SEGMENTS = 4
TOPIC = "bench"
#: Uncompressed bytes to a byte of log, about.
SHRINKS = {"none": 1.0, "lz4": 1.3}


@dataclass(frozen=True, slots=True)
class Stored:
    """A topic of one partition on the server, in the Aiven plugin's layout."""

    url: str
    options: dict[str, str]
    logs: dict[str, int]
    log: BenchLog
    server_pid: int


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with seaweed(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module", params=["none", "lz4"], ids=["none-256MiB-1000B", "lz4-256MiB-1000B"])
def stored(request: pytest.FixtureRequest, server: StoreServer) -> Stored:
    """About 256 MiB in the bucket, whatever the codec."""
    codec = request.param
    log = bench_log(codec, batch_bytes=MIB, mean_size=1000, total_bytes=int(256 * MIB * SHRINKS[codec]))
    logs = {}
    for key, data in tiered_objects(log, topic=TOPIC, segments=SEGMENTS):
        server.put(f"{codec}/{key}", data)
        if key.endswith(".log"):
            logs[f"{codec}/{key}"] = len(data)
    return Stored(f"{server.url}/{codec}", dict(server.options), logs, log, server.pid)


def plain_gets(stored: Stored) -> int:
    """Bytes of all objects, in ranges of our window's size, as many under way as our prefetch has."""
    options = stored.options
    store = S3Store(
        BUCKET,
        endpoint=options["store.endpoint"],
        access_key_id=options["store.access_key_id"],
        secret_access_key=options["store.secret_access_key"],
        region=options["store.region"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )
    ranges = [
        (key, at, min(at + REMOTE_WINDOW_BYTES, size))
        for key, size in stored.logs.items()
        for at in range(0, size, REMOTE_WINDOW_BYTES)
    ]
    under_way = ThreadScheduler().cores * (REMOTE_PREFETCH + 1)
    with ThreadPoolExecutor(under_way) as pool:
        return sum(
            pool.map(lambda piece: len(obstore.get_range(store, piece[0], start=piece[1], end=piece[2])), ranges)
        )


def scan_tier(stored: Stored) -> tuple[int, StoreCounts]:
    """Scan the tier; returns the number of records, and the requests, listing and planning included."""
    counting: list[CountingStore] = []

    def wrap(store: object) -> CountingStore:
        counting.append(CountingStore(store))  # type: ignore[arg-type]
        return counting[0]

    with open_tier(stored.url, config=stored.options, wrap_store=wrap) as tier:
        request = ScanRequest(TopicSelection.of_names([TOPIC]), max_bytes_per_range=128 * MIB)
        plan = plan_scan(tier, request)
        scan = ParallelScan(plan.ranges, partial(read_scan_range, tier, target_bytes=BATCH_BYTES))
        return sum(batch.num_rows for batch in scan), counting[0].counts


def processor_seconds(action: Callable[[], object], pid: int) -> tuple[float, float]:
    """(ours, the server's) for one call, medians."""
    ours, theirs = [], []
    for _ in range(ROUNDS):
        before = os.times(), _seconds_of(pid)
        action()
        after = os.times(), _seconds_of(pid)
        ours.append(after[0].user + after[0].system - before[0].user - before[0].system)
        theirs.append(after[1] - before[1])
    return statistics.median(ours), statistics.median(theirs)


def _seconds_of(pid: int) -> float:
    """User and system time of a process so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_s3_scan(stored: Stored, compare: Callable[..., Comparison]) -> None:
    size = len(stored.log.data)
    assert plain_gets(stored) == size
    records, counts = scan_tier(stored)
    assert records == stored.log.records
    peer = "plain ranged GETs"
    gets = processor_seconds(lambda: plain_gets(stored), stored.server_pid)
    scan = processor_seconds(lambda: scan_tier(stored), stored.server_pid)
    compare(
        lambda: scan_tier(stored),
        {peer: lambda: plain_gets(stored)},
        bars={peer: 0.9},
        size_bytes=size,
        records=records,
        notes={
            "GETs per GiB": round(counts.gets * 2**30 / size, 1),
            "bytes fetched per byte of log": round(counts.bytes / size, 3),
            "LISTs": counts.lists,
            "CPU s of client and server, GETs": f"{gets[0]:.2f} + {gets[1]:.2f}",
            "CPU s of client and server, ours": f"{scan[0]:.2f} + {scan[1]:.2f}",
            "ratio that these CPU s allow": round(sum(gets) / sum(scan), 2),
        },
    )
