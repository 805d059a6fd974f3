"""The part *tier* of ``bench.replica``: a real broker's tier, read from that broker and from the replica in turn."""

from __future__ import annotations

import pathlib
import shutil
import threading
import time
from functools import partial

import numpy as np

from bench.bare import Bytes, Chunks, Rooms
from bench.harness import Rounds, Suite, equal, quotient, spread
from bench.replica_sides import PARTITION_BYTES, Client, Served, pread_server, replica_over, rounds_of, series
from bench.storage_sides import CHUNK, FORMS
from bench.topics import GIGABYTES, broker_settings, fill, fill_tier, log_bytes, our_options, segment_settings
from tests.support.peers import broker, plugin
from tierlog import open_tier
from tierlog.scan.history import TierHistory

OURS = "tierlog replica"
#: MB/s × the broker at least, CPU seconds × the broker's at most, of plain objects.
BARS = {"raw client": (1.5, 0.5), "librdkafka": (1.0, None), "Kafka's perf consumer": (1.0, None)}
BARE_THREADS = 2
#: The load under which the loop's lag is looked at, ten times a second.
LOAD_CLIENTS, LOAD_SECONDS, LAG = 8, 20.0, "tierlog_server_loop_lag_seconds_bucket"


def measure_tier(suite: Suite, folder: pathlib.Path, form: str, scale: float, rounds: int) -> None:
    """One form of a tier's objects."""
    root = folder / "bucket"
    root.mkdir(parents=True)
    cold = f"cold-{form.replace(' + ', '-')}"
    with broker.running(folder / "broker", heap="2g", extra=broker_settings(form, root, folder)) as running:
        client = Client(folder, cold, fill_tier(running, cold, "none", scale))
        keys, monitor = our_options(form, root, folder), broker.free_port()
        with replica_over(root, folder, "--monitor", f"127.0.0.1:{monitor}", keys=keys) as ours:
            name = "the plugin's broker" if plugin.jars() else "Kafka's broker"
            theirs = Served(name, running.bootstrap, running.process.pid)
            hashes = {each.name: [line.split()[-1] for line in client.read(each, "hash")] for each in (ours, theirs)}
            equal(f"{form}, hash of all batches", hashes)
            size = sum(int(line.split()[0]) for line in client.read(theirs))
            _clients(suite, form, ours, theirs, client, rounds, size)
            if form == "plain":
                fill(running, "warm", "none", int(GIGABYTES * 1e9 * scale), settings=segment_settings(scale))
                local = Served("the broker's local log", running.bootstrap, running.process.pid)
                own = Client(folder, "warm", client.ends)
                reads = {local: partial(own.read, local), ours: partial(client.read, ours)}
                _tell(suite, "plain, warm, raw client", rounds_of(reads, rounds), local.name, size, (0.8, None))
            else:
                _objects(suite, folder, form, ours, client, _log_of(root, keys, cold), rounds)
            _lag(suite, form, ours, client, monitor)
    shutil.rmtree(folder)


def _tell(
    suite: Suite, what: str, found: Rounds, peer: str, size: int, bars: tuple[float | None, float | None]
) -> None:
    """Speed and CPU beside a peer's."""
    suite.speed(f"{what}, MB/s", found, peer, amount=size, unit="MB/s", ours=OURS, bar=bars[0])
    cpu = [[each.cpu for each in found[side]] for side in (OURS, peer)]
    told = f"{spread(cpu[0], '.2f')} s, {peer} {spread(cpu[1], '.2f')} s"
    suite.add(f"{what}, CPU s, × {peer}", told, quotient(*cpu), bars[1], least=False)


def _clients(suite: Suite, form: str, ours: Served, theirs: Served, client: Client, rounds: int, size: int) -> None:
    """The replica beside the broker whose tier this is, with three clients. Only plain objects have bars here."""
    calls = {"raw client": client.read, "librdkafka": client.by_librdkafka}
    for name, read in {**calls, "Kafka's perf consumer": client.by_perf_consumer}.items():
        found = rounds_of({side: partial(read, side) for side in (theirs, ours)}, rounds)
        _tell(suite, f"{form}, tier, {name}", found, theirs.name, size, BARS[name] if form == "plain" else (None, None))


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
    suite: Suite, folder: pathlib.Path, form: str, ours: Served, client: Client, log: Bytes, rounds: int
) -> None:
    """Measure the replica beside the bare calls over a file of the same chunks: the speed at which these open all on
    two threads, and the costs of a server in C that opens and sends them. Both sides are counted by the bytes of the
    log: bytes that the replica sends twice, since a fetch ends in the middle of a batch, count for nothing.
    """
    path, places = folder / "bare.chunks", folder / "bare.places"
    chunks = Chunks(path, log, CHUNK, FORMS[form])
    chunks.write_places(places)
    stored = log_bytes(folder / "bucket")
    # Small scales have segments that are smaller than a chunk.
    if abs(stored / chunks.stored_bytes - 1) > (0.01 if log.nbytes > GIGABYTES * 0.9e9 else 0.1):
        raise SystemExit(f"{form}: the tier's objects have {stored} bytes, the bare calls' file {chunks.stored_bytes}")
    rooms = [Rooms(CHUNK) for _ in range(BARE_THREADS)]
    chunks.check(log, range(0, log.nbytes - PARTITION_BYTES, log.nbytes // 10), rooms[0])
    opening = Served(f"the bare calls on {BARE_THREADS} threads", "", ours.pid)
    reads = {opening: lambda: chunks.whole(rooms)["wall"], ours: partial(client.read, ours)}
    what, peer = f"{form}, tier, raw client, MB/s", opening.name
    found = rounds_of(reads, rounds)
    suite.speed(what, found, peer, amount=log.nbytes, unit="MB/s", ours=OURS, bar=0.8)
    name, requests = "pread + decrypt + decompress + send", log.nbytes // PARTITION_BYTES
    with pread_server(folder, name, path, str(places), str(CHUNK)) as sending:
        repeat = partial(client.repeat, sending, clients=1, requests=requests)
        found = rounds_of({sending: repeat, ours: partial(client.read, ours)}, rounds)
    _tell(suite, f"{form}, warm, raw client", found, name, log.nbytes, (None, 1.3))
    chunks.close()


def _lag(suite: Suite, form: str, ours: Served, client: Client, monitor: int) -> None:
    """Measure the lag of the replica's event loop while clients read all that they can, on the cores that these and
    other processes leave to it.
    """

    def waited() -> float:
        """Return the seconds that the process's first thread was ready to run and had no core."""
        return int(pathlib.Path(f"/proc/{ours.pid}/task/{ours.pid}/schedstat").read_text().split()[1]) / 1e9

    before, waited_before, began = lags_of(monitor), waited(), time.monotonic()

    def load() -> None:
        while time.monotonic() < began + LOAD_SECONDS:
            client.read(ours)

    threads = [threading.Thread(target=load) for _ in range(LOAD_CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    share = (waited() - waited_before) / (time.monotonic() - began)
    counts = {bound: count - before[bound] for bound, count in lags_of(monitor).items()}
    seen = counts[float("inf")]
    told = f"p50 {1000 * quantile(counts, 0.5):.2f} ms, of {seen:.0f} looks {seen - counts[0.01]:.0f} above 10 ms; "
    told += f"its thread waited for a core {share:.0%} of the time"
    what = f"{form}, loop lag p99 under {LOAD_CLIENTS} raw clients, ms"
    suite.add(what, told, 1000 * quantile(counts, 0.99), 10.0, least=False)


def lags_of(monitor: int) -> dict[float, float]:
    """Upper bound in seconds to the looks that found the loop no later."""
    return {float(labels.removeprefix('{le="').removesuffix('"}')): count for labels, count in series(monitor, LAG)}


def quantile(counts: dict[float, float], share: float) -> float:
    """Compute Prometheus's histogram_quantile: linear within a bucket."""
    wanted = share * counts[float("inf")]
    low = below = 0.0
    for bound, count in sorted(counts.items()):
        if count >= wanted:
            return bound if bound == float("inf") else low + (bound - low) * (wanted - below) / max(count - below, 1)
        low, below = bound, count
    raise ValueError("no looks")
