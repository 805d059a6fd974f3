"""Very many readers over a slow store: fetches that all wait at once, and streams that are all open at once.

    python -m bench.many_readers [--only slow,open] [--fetches 2000] [--streams 1000] [--wait-ms 200] [--rounds 5]

*slow*: 2,000 fetches of a mebibyte at once, each by a thread of its caller, no mebibyte twice, over a store that
answers after 200 ms (``bench/slow_store.py``), by a fresh process, with and without a chunk cache in memory; and by as
many tasks on one event loop (``tierlog.aio`` on uvloop). The limit is the bytes at the speed of plain ranged GETs
(obstore, the same ranges, the same server without the wait, in turn) plus one wait for every
``fetch.memory.max.bytes``. Threads are those of the process that call nothing.

*open*: 1,000 streams open at once, each on a chunk of 4 MiB of its own, read 64 KiB by 64 KiB, round robin, from one
thread, to their ends a mebibyte on. What the server sent a byte that was read says how often a chunk was opened again:
of a chunk that is encrypted nothing can be read before all of it is there.

The first round's bytes are compared with the log.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import obstore
import uvloop
from obstore.store import S3Store

from bench import slow_store
from bench.findings import Findings, spread
from bench.logs import MIB
from bench.side_by_side import ROOT, ROUNDS
from bench.storage_segment import (
    CHUNK,
    folder_keys,
    form_keys,
    make_segment,
    manager_over,
    read_description,
    write_description,
)
from bench.turns_ours import memory
from tierlog.aio import AsyncStorageManager
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager

SLOW_MAX, OPEN_MIB_MORE = 1.5, 64
READ_BYTES, PIECE_BYTES = MIB, 64 << 10
CACHES = {
    "no cache": {},
    "memory cache": {"fetch.chunk.cache.class": "memory", "fetch.chunk.cache.size": str(256 * MIB)},
}
BUDGET_DEFAULT = 256 * MIB
GETS_AT_ONCE = 64
PATIENCE_SECONDS = 300.0

Place = tuple[int, int]
"""Number of the copied segment, position in it."""


def budget_bytes() -> int:
    """``fetch.memory.max.bytes`` by default."""
    return int(getattr(read_storage_config({}), "fetch_memory_max_bytes", BUDGET_DEFAULT))


# ---------------------------------------------------------------- in the process that is measured


def all_at_once(manager: TieredStorageManager, job: Mapping[str, Any]) -> dict[str, Any]:
    """A thread for every place; callers stay until the last one is done, so that threads can be told apart."""
    segment = read_description(pathlib.Path(job["segment"]))
    log = memoryview(segment.log if job["check"] else b"")
    places: list[Place] = [tuple(place) for place in job["places"]]
    go, done = threading.Barrier(len(places) + 1), threading.Event()
    ends: list[float] = []
    errors: list[str] = []
    threading.stack_size(256 << 10)

    def fetch(number: int, start: int) -> None:
        metadata, at = segment.with_id(number).finished(), start
        go.wait()
        try:
            with manager.fetch_log_segment(metadata, start, start + READ_BYTES - 1) as stream:
                for view in stream.buffers():  # a buffer of each caller's would be two gigabytes of its own
                    if log and view != log[at : at + view.nbytes]:
                        errors.append("other bytes than the log's")
                    at += view.nbytes
                    del view  # as a broker that sent it; else the callers would hold two gigabytes at their ends
            if at != start + READ_BYTES:
                errors.append("a short answer")
        except Exception as error:  # noqa: BLE001 - counted
            errors.append(f"{type(error).__name__}: {error}")
        ends.append(time.perf_counter())
        done.wait()

    callers = [threading.Thread(target=fetch, args=place) for place in places]
    for caller in callers:
        caller.start()
    threading.stack_size(0)
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    go.wait()
    began, threads = time.perf_counter(), 0
    while len(ends) < len(places) and time.perf_counter() - began < PATIENCE_SECONDS:
        threads = max(threads, memory()["threads"] - len(callers))
        time.sleep(0.02)
    kinds = Counter(path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm"))
    kinds["python"] -= len(callers)
    told = {**memory(), "seconds": max(ends, default=math.inf) - began, "threads": threads, "errors": len(errors)}
    told |= {"first": errors[:1], "missing": len(places) - len(ends), "kinds": kinds}
    done.set()
    return told


def all_on_a_loop(manager: TieredStorageManager, job: Mapping[str, Any]) -> dict[str, Any]:
    """A task for every place."""
    segment = read_description(pathlib.Path(job["segment"]))
    log = memoryview(segment.log if job["check"] else b"")
    errors: list[str] = []
    loops = AsyncStorageManager(manager)

    async def fetch(number: int, start: int) -> None:
        at = start
        try:
            async with loops.fetch_log_segment(
                segment.with_id(number).finished(), start, start + READ_BYTES - 1
            ) as stream:
                async for view in stream:
                    if log and view != log[at : at + view.nbytes]:
                        errors.append("other bytes than the log's")
                    at += view.nbytes
                    del view
            if at != start + READ_BYTES:
                errors.append("a short answer")
        except Exception as error:  # noqa: BLE001 - counted
            errors.append(f"{type(error).__name__}: {error}")

    async def fetch_all() -> dict[str, Any]:
        began, threads = time.perf_counter(), 0
        tasks = [asyncio.create_task(fetch(*place)) for place in job["places"]]
        every = asyncio.gather(*tasks)
        while not every.done() and time.perf_counter() - began < PATIENCE_SECONDS:
            threads = max(threads, memory()["threads"] - 1)
            await asyncio.wait([every], timeout=0.02)
        return {"seconds": time.perf_counter() - began, "threads": threads, "missing": sum(not t.done() for t in tasks)}

    pathlib.Path("/proc/self/clear_refs").write_text("5")
    told = uvloop.run(fetch_all())
    kinds = Counter(path.read_text().strip() for path in pathlib.Path("/proc/self/task").glob("*/comm"))
    return {**memory(), **told, "errors": len(errors), "first": errors[:1], "kinds": kinds}


def all_open(manager: TieredStorageManager, job: Mapping[str, Any]) -> dict[str, Any]:
    """One thread, a piece of every stream, again and again."""
    segment = read_description(pathlib.Path(job["segment"]))
    log = memoryview(segment.log)
    with manager.fetch_log_segment(segment.with_id(job["places"][0][0]).finished(), 0, MIB - 1) as stream:
        stream.read()
    log_pages = sum(log[::4096])  # read once, so that its pages are no growth
    idle = memory()
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    began, buffer, pieces = time.perf_counter(), memoryview(bytearray(PIECE_BYTES)), 0
    with ExitStack() as closing:
        left = []
        for number, start in job["places"]:
            opened = manager.fetch_log_segment(segment.with_id(number).finished(), start, start + job["bytes"] - 1)
            left.append((closing.enter_context(opened), [start], start + job["bytes"]))
        while left and time.perf_counter() - began < PATIENCE_SECONDS:
            following = []
            for stream, at, end in left:
                size = stream.readinto(buffer)
                if size == 0 or buffer[:size] != log[at[0] : at[0] + size]:
                    raise SystemExit(f"other bytes than the log's at {at[0]}")
                at[0] += size
                pieces += 1
                if at[0] < end:
                    following.append((stream, at, end))
            left = following
        seconds = time.perf_counter() - began
        unfinished = len(left)
    told = {"seconds": seconds, "unfinished": unfinished, "read": pieces * PIECE_BYTES, "log pages": log_pages}
    return {**told, "idle": idle, "most": memory()}


def child(job: Mapping[str, Any]) -> None:
    """One round in a fresh process."""
    manager = TieredStorageManager()
    manager.configure(job["keys"])
    try:
        told = {"threads": all_at_once, "tasks": all_on_a_loop, "open": all_open}[job["what"]](manager, job)
    finally:
        manager.close()
    print(json.dumps(told), flush=True)
    os._exit(0)  # callers that never came back would keep the process


# ---------------------------------------------------------------- in the one that asks


def in_a_process(job: Mapping[str, Any]) -> dict[str, Any]:
    """What a child tells."""
    command = [sys.executable, "-m", "bench.many_readers", "--child"]
    given = json.dumps(job)
    told = subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout
    answer: dict[str, Any] = json.loads(told.splitlines()[-1])
    return answer


async def plain_gets(endpoint: str, paths: Sequence[str], places: Sequence[Place]) -> float:
    """Seconds of the same ranges by obstore, which nobody looks at."""
    store = S3Store(
        slow_store.BUCKET,
        endpoint=endpoint,
        region="us-east-1",
        access_key_id="nobody",
        secret_access_key="nothing",
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    free = asyncio.Semaphore(GETS_AT_ONCE)

    async def get(number: int, start: int) -> None:
        async with free:
            found = await obstore.get_range_async(store, paths[number], start=start, length=READ_BYTES)
            if len(found) != READ_BYTES:
                raise SystemExit("a plain GET gave too little")

    began = time.perf_counter()
    await asyncio.gather(*(get(*place) for place in places))
    return time.perf_counter() - began


class Bench:
    """Copies of one segment under several ids, and a server over them."""

    def __init__(self, folder: pathlib.Path, size_bytes: int, found: Findings) -> None:
        self._folder, self._found = folder, found
        self._segment = make_segment(folder / "source", size_bytes)
        self._description = str(write_description(self._segment))
        self._size_bytes = self._segment.metadata.segment_size_in_bytes

    def copied(self, form: str, copies: int) -> pathlib.Path:
        """A folder with the segment under the ids 1 to ``copies``."""
        root = self._folder / form.replace(" + ", "-")
        with manager_over(form_keys(form) | folder_keys(root)) as (manager, _):
            for number in range(1, copies + 1):
                attempt = self._segment.with_id(number)
                manager.copy_log_segment_data(attempt.metadata, attempt.data)
        return root

    def places(self, count: int, step: int) -> list[Place]:
        """No two in the same ``step`` bytes."""
        each = (self._size_bytes - READ_BYTES) // step
        return [(1 + number // each, number % each * step) for number in range(count)]

    def slow(self, fetches: int, wait_ms: float, rounds: int) -> None:
        """By threads and by tasks, with and without a cache, and the plain GETs, in turn."""
        places = self.places(fetches, READ_BYTES)
        root = self.copied("plain", places[-1][0])
        kinds = [(what, name) for what in ("threads", "tasks") for name in CACHES]
        told: dict[tuple[str, str], list[dict[str, Any]]] = {kind: [] for kind in kinds}
        gets: list[float] = []
        with slow_store.running(root, wait_ms) as server:
            paths = self._paths(root)
            for number in range(rounds):
                gets.append(asyncio.run(plain_gets(server.quick, paths, places)))
                for what, name in kinds:
                    keys = form_keys("plain") | server.keys(server.slow) | CACHES[name]
                    job = {"what": what, "keys": keys, "segment": self._description, "places": places}
                    server.counts()
                    answer = in_a_process({**job, "check": number == 0})
                    told[what, name].append({**answer, "asked": server.counts()})
        size, budget = fetches * READ_BYTES, budget_bytes()
        limit = statistics.median(gets) + wait_ms / 1000 * math.ceil(size / budget)
        for (what, name), answers in told.items():
            about = f"{fetches} {what} fetch a MiB at once, {wait_ms:.0f} ms, {name}"
            self._tell_slow(about, answers, limit, gets)

    def _paths(self, root: pathlib.Path) -> list[str]:
        """Paths of the objects by the number of the copy, as plain GETs ask for them."""
        logs = {}
        for path in root.rglob("*.log"):
            for number in range(1, 1 + sum(1 for _ in root.rglob("*.log"))):
                if str(self._segment.with_id(number).metadata.remote_log_segment_id.id) in path.name:
                    logs[number] = path.relative_to(root).as_posix()
        return ["", *(logs[number] for number in sorted(logs))]

    def _tell_slow(self, name: str, answers: Sequence[Mapping[str, Any]], limit: float, gets: Sequence[float]) -> None:
        seconds = [answer["seconds"] for answer in answers]
        asked = answers[-1]["asked"]
        text = f"{spread(seconds, '.2f')} s, the limit {limit:.2f} s (plain GETs {spread(gets, '.2f')} s); "
        text += f"{asked['requests']} requests, at most {asked['at once']} at once"
        self._found.add(f"{name}, of the limit", text, statistics.median(seconds) / limit, SLOW_MAX)
        errors = sum(answer["errors"] + answer["missing"] for answer in answers)
        first = next((answer["first"][0] for answer in answers if answer["first"]), "")
        self._found.add(f"{name}, errors", first[:160] or "none", errors, 0)
        cores = len(os.sched_getaffinity(0))
        threads = max(answer["threads"] for answer in answers)
        most = max(answer["VmHWM"] for answer in answers) / MIB
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(answers[-1]["kinds"].items()))
        text = f"beside its callers', at the end {kinds}; {most:.0f} MiB resident at most"
        self._found.add(f"{name}, threads", text, threads, cores + 8)

    def open(self, form: str, streams: int, stream_bytes: int) -> None:
        """Once: it is memory and requests that are told, not time."""
        places = self.places(streams, CHUNK)
        root = self.copied(form, places[-1][0])
        stored = sum(path.stat().st_size for path in root.rglob("*.log"))
        share = stored / (places[-1][0] * self._size_bytes)
        with slow_store.running(root, 0) as server:
            server.counts()
            keys = form_keys(form) | server.keys(server.quick)
            job = {"what": "open", "keys": keys, "segment": self._description, "places": places, "bytes": stream_bytes}
            told, asked = in_a_process(job), server.counts()
        read = told["read"] / MIB
        opened = asked["bytes"] / share / MIB / read
        text = f"{told['idle']['VmRSS'] / MIB:.0f} MiB idle, {told['most']['VmHWM'] / MIB:.0f} at most; "
        text += f"{read:.0f} MiB in {told['seconds']:.1f} s, {asked['requests'] / read:.2f} GETs a MiB, "
        text += f"{opened:.2f} MiB of the log fetched{' and opened' if form != 'plain' else ''} a MiB read"
        growth = (told["most"]["VmHWM"] - told["idle"]["VmRSS"]) / MIB
        name = f"{streams} open streams, {form}"
        self._found.add(f"{name}, RSS growth in MiB", text, growth, budget_bytes() / MIB + OPEN_MIB_MORE)
        self._found.add(f"{name}, unfinished", f"after {told['seconds']:.1f} s", told["unfinished"], 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="slow,open")
    parser.add_argument("--fetches", type=int, default=2000)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--stream-bytes", type=int, default=MIB)
    parser.add_argument("--forms", default="plain,zstd + AES", help="of the open streams")
    parser.add_argument("--wait-ms", type=float, default=200.0)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--size", type=int, default=256, help="MiB of a segment")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(json.load(sys.stdin))
        return
    found = Findings()
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as name:
        bench = Bench(pathlib.Path(name), arguments.size * MIB, found)
        if "slow" in arguments.only.split(","):
            bench.slow(arguments.fetches, arguments.wait_ms, arguments.rounds)
        for form in arguments.forms.split(",") if "open" in arguments.only.split(",") else ():
            bench.open(form.replace("zstd+AES", "zstd + AES"), arguments.streams, arguments.stream_bytes)
    found.save("many_readers", {})


if __name__ == "__main__":
    main()
