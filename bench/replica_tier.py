"""The parts *tier* of ``bench.replica``: a real broker's tier, read from that broker and from the replica in turn."""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator

import numpy as np

from bench import spark
from bench.bare_chunks import Bytes
from bench.findings import Findings, ratios, spread
from bench.replica_sides import (
    PARTITION_BYTES,
    Client,
    Served,
    confluent_read,
    perf_read,
    replica_over,
    rounds_of,
    series,
    tell,
    waited_seconds,
)
from bench.side_by_side import ROOT
from bench.spark_tier import MONTH_MS, broker_settings, our_options, tiered
from bench.storage_segment import CHUNK, FORMS
from bench.turns_bare import BareChunks, Rooms
from tests.support.peers import broker, plugin
from tierlog import open_tier
from tierlog.scan.history import TierHistory

HEAP = "2g"
#: Threads of the bare calls that ours is set against.
BARE_THREADS = 2
#: The load under which the loop's lag is looked at, ten times a second.
LOAD_CLIENTS, LOAD_SECONDS = 8, 20.0
LAG = "tierlog_server_loop_lag_seconds_bucket"


def measure_tier(found: Findings, folder: pathlib.Path, form: str, scale: float, rounds: int) -> None:
    """One form of a tier's objects."""
    root = folder / "bucket"
    root.mkdir(parents=True)
    settings = broker_settings(form, root, folder, "none", 64 << 20)
    segment = max(1 << 20, int((64 << 20) * min(1, scale * 4)))
    shared = (f"segment.ms={MONTH_MS}", f"segment.bytes={segment}", "file.delete.delay.ms=500")
    cold = f"cold-{form.replace(' + ', '-')}"
    with broker.running(folder / "broker", heap=HEAP, extra=settings) as running:
        spark.ensure_topic(
            running,
            "none",
            scale,
            name=cold,
            settings=("remote.storage.enable=true", "local.retention.bytes=1", *shared),
        )
        client = Client(folder, cold, tiered(running, cold))
        keys, monitor = our_options(form, root, folder), broker.free_port()
        with replica_over(root, folder, "--monitor", f"127.0.0.1:{monitor}", keys=keys) as ours:
            name = "the plugin's broker" if plugin.jars() else "Kafka's broker"
            theirs = Served(name, running.bootstrap, running.process.pid)
            if client.hashes(ours) != client.hashes(theirs):
                raise SystemExit(f"{form}: the replica and the broker send different batches")
            size = sum(int(line.split()[0]) for line in client.read(theirs, "discard"))
            _clients(found, form, ours, theirs, client, cold, rounds, size)
            if form == "plain":
                _warm(found, folder, running, ours, client, scale, shared, rounds, size)
            else:
                _objects(found, folder, form, ours, client, _log_of(root, keys, cold), rounds)
            _lag(found, form, ours, client, monitor)
    shutil.rmtree(folder)


def _clients(
    found: Findings, form: str, ours: Served, theirs: Served, client: Client, topic: str, rounds: int, size: int
) -> None:
    """The replica beside the broker whose tier this is, with three clients. Only plain objects have bars here."""
    bars = {"raw client": (1.5, 0.5), "librdkafka": (1.0, None), "Kafka's perf consumer": (1.0, None)}
    reads = {
        "raw client": lambda side: _discard(client, side),
        "librdkafka": lambda side: confluent_read(side, topic, client.ends),
        "Kafka's perf consumer": lambda side: perf_read(side, topic, client.ends),
    }
    for name, read in reads.items():
        rounds_of((theirs, ours), rounds, read)
        tell(found, f"{form}, tier, {name}", ours, theirs, size, bars[name] if form == "plain" else (None, None))


def _discard(client: Client, side: Served) -> None:
    client.read(side, "discard")


def _warm(
    found: Findings,
    folder: pathlib.Path,
    running: broker.Broker,
    ours: Served,
    client: Client,
    scale: float,
    settings: tuple[str, ...],
    rounds: int,
    size: int,
) -> None:
    """The replica's tier beside the same records on the broker's own disk, which it sends by sendfile."""
    spark.ensure_topic(running, "none", scale, name="warm", settings=settings)
    local = Served("the broker's local log", running.bootstrap, running.process.pid)
    own = Client(folder, "warm", client.ends)
    rounds_of((local, ours), rounds, lambda side: _discard(own if side is local else client, side))
    tell(found, "plain, warm, raw client", ours, local, size, (0.8, None))


def _log_of(root: pathlib.Path, keys: dict[str, str], topic: str) -> Bytes:
    """The logs of a topic, one behind the other, as they were before they were compressed and encrypted."""
    with open_tier(str(root), config=keys) as tier:
        windows = [
            np.frombuffer(window, np.uint8)
            for history in TierHistory(tier).partitions([topic])
            for span in history.spans
            for _, window in tier.iter_log_windows(span.segment)
        ]
        return np.concatenate(windows)


def _objects(
    found: Findings, folder: pathlib.Path, form: str, ours: Served, client: Client, log: Bytes, rounds: int
) -> None:
    """The replica beside the bare calls over a file of the same chunks: how fast these open all on two threads, and
    what a server in C spends that opens and sends them. Both sides are counted by the bytes of the log: what the
    replica sends twice, since a fetch ends in the middle of a batch, counts for nothing.
    """
    compressed, encrypted = FORMS[form]
    path, places = folder / "bare.chunks", folder / "bare.places"
    bare = BareChunks(path, log, chunk_bytes=CHUNK, compressed=compressed, encrypted=encrypted)
    bare.write_places(places)
    stored = sum(part.stat().st_size for part in (folder / "bucket").rglob("*.log"))
    if abs(stored / bare.stored_bytes - 1) > 0.01:
        raise SystemExit(f"{form}: the tier's objects have {stored} bytes, the bare calls' file {bare.stored_bytes}")
    rooms = [Rooms(CHUNK) for _ in range(BARE_THREADS)]
    for start in range(0, log.nbytes - PARTITION_BYTES, log.nbytes // 10):
        bare.reads([start], rooms[0])
        if bare.found(start, rooms[0]) != log[start : start + PARTITION_BYTES].tobytes():
            raise SystemExit(f"{form}: the bare calls open other bytes than the log's at {start}")
    opening = Served(f"the bare calls on {BARE_THREADS} threads", "", ours.pid)

    def opened(side: Served) -> float | None:
        if side is ours:
            _discard(client, side)
            return None
        wall: float = bare.whole(rooms)["wall"]
        return wall

    rounds_of((opening, ours), rounds, opened)
    speeds = [[log.nbytes / wall / 1e6 for wall in side.wall] for side in (ours, opening)]
    told = f"{spread(speeds[0])} MB/s, {opening.name} {spread(speeds[1])} MB/s, ratios {ratios(speeds[0], speeds[1])}"
    value = statistics.median(speeds[0]) / statistics.median(speeds[1])
    found.add(f"{form}, tier, raw client, MB/s × {opening.name}", told, value, 0.8, least=True)
    with pread_server(folder, path, str(places), str(CHUNK)) as sending:
        sending.name = "pread + decrypt + decompress + send"
        requests = log.nbytes // PARTITION_BYTES
        rounds_of(
            (sending, ours),
            rounds,
            lambda side: _discard(client, side) if side is ours else _repeat(client, side, requests),
        )
        tell(found, f"{form}, warm, raw client", ours, sending, log.nbytes, (None, 1.3))
    bare.close()


def _repeat(client: Client, side: Served, requests: int) -> None:
    client.repeat(side, clients=1, requests=requests)


@contextlib.contextmanager
def pread_server(folder: pathlib.Path, path: pathlib.Path, *chunks: str) -> Iterator[Served]:
    """``pread_server.c`` over a file, or over one of chunks."""
    program, port = folder / "pread_server", broker.free_port()
    source = str(ROOT / "bench" / "pread_server.c")
    subprocess.run(
        ["cc", "-O3", source, "-lzstd", "-lcrypto", "-lpthread", "-o", str(program)],
        check=True,
    )
    log = folder / "pread_server.log"
    with log.open("wb") as out:
        asked = [str(program), str(port), str(path), str(PARTITION_BYTES), *chunks]
        process = subprocess.Popen(asked, stdout=out, stderr=out)
    try:
        broker.wait_for_port(process, port, log)
        yield Served("pread + send", f"127.0.0.1:{port}", process.pid)
    finally:
        process.terminate()
        process.wait()


def _lag(found: Findings, form: str, ours: Served, client: Client, monitor: int) -> None:
    """How late the replica's event loop comes round while clients read all that they can, on the cores that these and
    whatever else the machine does leave to it.
    """
    before, waited, began = _lags(monitor), waited_seconds(ours.pid), time.monotonic()
    until = began + LOAD_SECONDS

    def load() -> None:
        while time.monotonic() < until:
            _discard(client, ours)

    threads = [threading.Thread(target=load) for _ in range(LOAD_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    waited = (waited_seconds(ours.pid) - waited) / (time.monotonic() - began)
    counts = {bound: count - before[bound] for bound, count in _lags(monitor).items()}
    seen = counts[float("inf")]
    what = f"{form}, loop lag p99 under {LOAD_CLIENTS} raw clients, ms"
    told = f"p50 {1000 * _quantile(counts, 0.5):.2f} ms, of {seen:.0f} looks {seen - counts[0.01]:.0f} above 10 ms; "
    told += f"its thread waited for a core {waited:.0%} of the time"
    found.add(what, told, 1000 * _quantile(counts, 0.99), 10.0)


def _lags(monitor: int) -> dict[float, float]:
    """Upper bound in seconds to the looks that found the loop no later."""
    return {float(labels.removeprefix('{le="').removesuffix('"}')): count for labels, count in series(monitor, LAG)}


def _quantile(counts: dict[float, float], share: float) -> float:
    """As Prometheus's histogram_quantile: linear within a bucket."""
    wanted = share * counts[float("inf")]
    low = below = 0.0
    for bound, count in sorted(counts.items()):
        if count >= wanted:
            return bound if bound == float("inf") else low + (bound - low) * (wanted - below) / max(count - below, 1)
        low, below = bound, count
    raise ValueError("no looks")
