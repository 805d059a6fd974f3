"""The storage manager: one segment of 256 MiB, on a folder and on a real S3 server on loopback.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.storage [--runs 5] [--size 256] [--warm 15] [--forms plain,zstd]
                                                       [--only plugin,steps,requests] [--no-s3]

*plugin*: beside the Java plugin, in turn (``bench/storage_plugin.py``). *steps*: a copy against pread, ZSTD_compress2,
AES-256-GCM and write, one after another in this run, over the same bytes. *requests*: what a copy and fetches ask of
the store. What was copied is read back and compared before anything is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from bench.bare_chunks import BareGcm, BareZstd, Bytes, versions
from bench.findings import Findings
from bench.logs import MIB
from bench.side_by_side import ROUNDS, scaled
from bench.storage_plugin import WARM, BesidePlugin
from bench.storage_segment import (
    CHUNK,
    FORMS,
    SEGMENT_BYTES,
    described,
    folder_keys,
    form_keys,
    make_segment,
    manager_over,
    s3_keys,
)
from tests.support.closed_segments import ClosedSegment
from tests.support.peers import plugin
from tests.support.servers import seaweed
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.protocol.object_store import ObjectStore

OF_STEPS_MIN, OF_ZSTD_MIN = 0.8, 0.9
RSS_MIB_MAX = 256
FULL_REQUESTS_MAX, RANDOM_REQUESTS_MAX = 20, 104
PART = 16 * MIB
COPIES_AT_ONCE = 10
RANDOM_READS = 100


def measured(action: Callable[[], object]) -> tuple[float, float]:
    """(wall, CPU) seconds."""
    before, start = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    action()
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median_wall(runs: int, action: Callable[[], object]) -> float:
    """Median wall seconds of the rounds behind a first one that does not count."""
    return statistics.median([measured(action)[0] for _ in range(runs + 1)][1:])


def _pread(path: str, size: int, room: Bytes) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    for start in range(0, size, CHUNK):
        os.preadv(descriptor, [room.data], start)
    os.close(descriptor)


def _write(target: pathlib.Path, chunks: list[Bytes], *, durable: bool) -> None:
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for chunk in chunks:
        os.write(descriptor, chunk.data)
    if durable:
        os.fsync(descriptor)
    os.close(descriptor)
    target.unlink()


def steps_alone(segment: ClosedSegment, runs: int, folder: pathlib.Path) -> dict[str, float]:
    """Bytes a second of each step alone: one thread, the log in the page cache."""
    path, size = segment.data.log_segment, segment.metadata.segment_size_in_bytes
    room: Bytes = np.ones(CHUNK, np.uint8)
    out: Bytes = np.ones(2 * CHUNK, np.uint8)
    log = np.fromfile(path, np.uint8)
    chunks = [log[start : start + CHUNK] for start in range(0, size, CHUNK)]
    zstd, gcm = BareZstd(3), BareGcm(bytes(range(32)), bytes(32))
    steps: dict[str, Callable[[], object]] = {
        "pread": partial(_pread, path, size, room),
        "zstd": lambda: [zstd.compress(chunk, out) for chunk in chunks],
        "AES": lambda: [gcm.encrypt(bytes(12), chunk, out) for chunk in chunks],
        "write": partial(_write, folder / "limit", chunks, durable=False),
        "write and fsync": partial(_write, folder / "limit", chunks, durable=True),
    }
    alone = {name: size / median_wall(runs, step) for name, step in steps.items()}
    rounds = [measured(steps["zstd"])[1] for _ in range(runs)]
    return {**alone, "zstd, CPU": size / statistics.median(rounds)}


def stored_log_bytes(store: ObjectStore) -> int:
    """Size of the stored log of the only segment."""
    return sum(info.size_bytes for info in store.iter_objects() if info.key.endswith(".log"))


def copies(segment: ClosedSegment, runs: int, folder: pathlib.Path, found: Findings) -> None:
    """Copies to a folder: against the bare codec by CPU second, and the steps one after another."""
    alone = steps_alone(segment, runs, folder)
    print(", ".join(f"{name} {speed / 1e6:.0f} MB/s" for name, speed in alone.items()), file=sys.stderr)
    size = segment.metadata.segment_size_in_bytes
    for form, (compressed, encrypted) in FORMS.items():
        wall, cpu, share = copied(segment, runs, folder / "store", form_keys(form))
        slowness = 1 / alone["pread"] + share / alone["write and fsync"]
        slowness += (1 / alone["zstd"] if compressed else 0) + (share / alone["AES"] if encrypted else 0)
        told = f"{size / wall / 1e6:.0f} MB/s; one after another {1 / slowness / 1e6:.0f} MB/s, fsync among them"
        found.add(f"copy {form}, of its steps", told, size / wall * slowness, OF_STEPS_MIN, least=True)
        if form == "zstd":
            told = f"{size / cpu / 1e6:.0f} MB a CPU second, ZSTD_compress2 alone {alone['zstd, CPU'] / 1e6:.0f}; "
            told += f"stored {share:.4f} of the log"
            value = size / cpu / alone["zstd, CPU"]
            found.add("copy zstd, by CPU second of the bare codec", told, value, OF_ZSTD_MIN, least=True)


def copied(
    segment: ClosedSegment, runs: int, root: pathlib.Path, keys: Mapping[str, str]
) -> tuple[float, float, float]:
    """Median wall and CPU seconds of a copy to a folder, and its stored bytes by those of the log."""
    rounds: list[tuple[float, float]] = []
    share = 1.0
    with manager_over(dict(keys) | folder_keys(root)) as (manager, store):
        for number in range(runs + 1):
            attempt = segment.with_id(1000 + number)
            rounds.append(measured(partial(manager.copy_log_segment_data, attempt.metadata, attempt.data)))
            share = stored_log_bytes(store) / segment.metadata.segment_size_in_bytes
            if number == 0:
                check_copy(manager, attempt)
            manager.delete_log_segment_data(attempt.finished())
    shutil.rmtree(root)
    wall, cpu = (statistics.median(each) for each in zip(*rounds[1:], strict=True))
    return wall, cpu, share


def check_copy(manager: TieredStorageManager, attempt: ClosedSegment) -> None:
    with manager.fetch_log_segment(attempt.finished(), 0) as stream:
        if stream.read() != attempt.log:
            raise SystemExit("what was copied reads otherwise")


def drain(manager: TieredStorageManager, metadata: RemoteLogSegmentMetadata) -> int:
    """Read the whole segment and drop the bytes; returns their number."""
    size = metadata.segment_size_in_bytes
    with manager.fetch_log_segment(metadata, 0) as stream:
        if (found := sum(view.nbytes for view in stream.buffers(size))) != size:
            raise SystemExit(f"a fetch gave {found} of {size} bytes")
    return size


def read_at(manager: TieredStorageManager, metadata: RemoteLogSegmentMetadata, starts: list[int]) -> None:
    """Read a mebibyte at each of the positions."""
    for start in starts:
        with manager.fetch_log_segment(metadata, start, start + MIB - 1) as stream:
            if len(stream.read()) != MIB:
                raise SystemExit("a short answer")


def random_starts(segment: ClosedSegment, seed: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(segment.metadata.segment_size_in_bytes - MIB) for _ in range(RANDOM_READS)]


def asked(store: ObjectStore, action: Callable[[], object]) -> dict[str, int]:
    """Requests by verb that an action takes."""
    before = dict(store.requests)
    action()
    counts = {verb: count - before.get(verb, 0) for verb, count in store.requests.items()}
    return {verb: count for verb, count in counts.items() if count}


def requests(keys: Mapping[str, str], segment: ClosedSegment, where: str, found: Findings) -> None:
    """Requests that a copy, a full fetch and random reads take."""
    for form in ("plain", "zstd + AES"):
        with manager_over(form_keys(form) | dict(keys)) as (manager, store):
            attempt = segment.with_id(500)
            metadata = attempt.finished()
            told = asked(store, partial(manager.copy_log_segment_data, attempt.metadata, attempt.data))
            bar: int | None = 3 if where == "folder" else 4 - (-stored_log_bytes(store) // PART)
            found.add(f"requests of a copy, {form}, {where}", str(told), sum(told.values()), bar)
            told = asked(store, partial(drain, manager, metadata))
            bar = None if where == "folder" else FULL_REQUESTS_MAX
            found.add(f"requests of a full fetch, {form}, {where}", str(told), sum(told.values()), bar)
            told = asked(store, partial(read_at, manager, metadata, random_starts(segment, 7)))
            what = f"requests of {RANDOM_READS} random MiB, {form}, {where}"
            bar = None if where == "folder" else RANDOM_REQUESTS_MAX
            found.add(what, str(told), sum(told.values()), bar)
            manager.delete_log_segment_data(metadata)


def copies_at_once(keys: Mapping[str, str], segment: ClosedSegment, found: Findings) -> None:
    """Growth of a process of its own from idle to its peak, with ten copies under way."""
    metadata = segment.metadata
    described_by = [metadata.segment_size_in_bytes, metadata.end_offset, metadata.max_timestamp_ms]
    folder = str(pathlib.Path(segment.data.log_segment).parent)
    job = json.dumps({"keys": form_keys("zstd + AES") | dict(keys), "folder": folder, "segment": described_by})
    command = [sys.executable, "-m", "bench.storage", "--ten-copies", job]
    told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    about = f"{told['idle'] / MIB:.0f} MiB idle, {told['peak'] / MIB:.0f} MiB at most, {told['seconds']:.1f} s"
    growth = (told["peak"] - told["idle"]) / MIB
    found.add(f"RSS growth in MiB, {COPIES_AT_ONCE} copies at once, S3", about, growth, RSS_MIB_MAX)


def ten_copies(job: Mapping[str, Any]) -> None:
    """Run ten copies at once, in the process that is measured."""
    segment = described(pathlib.Path(job["folder"]), *job["segment"])
    attempts = [segment.with_id(2000 + number) for number in range(COPIES_AT_ONCE)]
    with manager_over(job["keys"]) as (manager, store):
        list(store.iter_objects("nothing-like-this"))
        idle = status_bytes("VmRSS")
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
        start = time.perf_counter()
        with ThreadPoolExecutor(COPIES_AT_ONCE) as pool:
            list(pool.map(lambda attempt: manager.copy_log_segment_data(attempt.metadata, attempt.data), attempts))
        seconds, peak = time.perf_counter() - start, status_bytes("VmHWM")
        for attempt in attempts:
            manager.delete_log_segment_data(attempt.finished())
    print(json.dumps({"idle": idle, "peak": peak, "seconds": seconds}))


def status_bytes(name: str) -> int:
    """A figure of this process in /proc/self/status, in bytes."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=ROUNDS)
    parser.add_argument("--size", type=int, default=scaled(SEGMENT_BYTES) // MIB, help="MiB of the segment")
    parser.add_argument("--warm", type=int, default=WARM, help="rounds of the plugin that do not count")
    parser.add_argument("--forms", default=",".join(FORMS), help="beside the plugin")
    parser.add_argument("--only", default="plugin,steps,requests")
    parser.add_argument("--no-s3", action="store_true")
    parser.add_argument("--ten-copies", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ten_copies:
        ten_copies(json.loads(arguments.ten_copies))
        return
    found, only = Findings(), arguments.only.split(",")
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as name:
        folder = pathlib.Path(name)
        segment = make_segment(folder / "source", arguments.size * MIB)
        if "plugin" in only and plugin.jars():
            beside = BesidePlugin(segment, folder, arguments.runs, found)
            for form in arguments.forms.split(","):
                beside.run(form, arguments.warm)
        elif "plugin" in only:
            print(plugin.HOW, file=sys.stderr)
        if "steps" in only:
            copies(segment, arguments.runs, folder, found)
        if "requests" in only:
            all_requests(segment, folder, found, on_s3=not arguments.no_s3)
    found.save("storage", versions())


def all_requests(segment: ClosedSegment, folder: pathlib.Path, found: Findings, *, on_s3: bool) -> None:
    """Requests on a folder and on an S3 server, and ten copies at once on that server."""
    requests(folder_keys(folder / "store"), segment, "folder", found)
    if on_s3:
        (folder / "s3").mkdir()
        with seaweed(folder / "s3") as server:
            requests(s3_keys(server.options), segment, "S3", found)
            copies_at_once(s3_keys(server.options), segment, found)


if __name__ == "__main__":
    main()
