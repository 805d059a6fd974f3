"""Our storage manager as a side of :mod:`bench.turns`: one round for each line of JSON on stdin, one line of answer.

python -m bench.turns_ours SEGMENT.json
"""

from __future__ import annotations

import json
import mmap
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bench.storage_segment import read_description
from bench.turns import READ_BYTES
from tests.support.closed_segments import ClosedSegment
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager

Job = Mapping[str, Any]


def memory() -> dict[str, int]:
    """Memory of this process: bytes resident now and at most, and threads."""
    fields = dict(line.split(":", 1) for line in pathlib.Path("/proc/self/status").read_text().splitlines())
    told = {name: int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")}
    return {**told, "threads": int(fields["Threads"])}


def reader_buffer() -> memoryview:
    """The buffer of one reader. Its pages exist before, and go with it, so that remaining memory is the manager's."""
    return memoryview(mmap.mmap(-1, READ_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))


class Clock:
    """Wall and CPU seconds of this process."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def stop(self) -> dict[str, Any]:
        return {"wall": time.perf_counter() - self._wall, "cpu": time.process_time() - self._cpu}


def at_once(jobs: Sequence[Callable[[], object]]) -> dict[str, Any]:
    """Run all calls, a thread each, from the moment that all threads wait; raises what the first one raised."""
    ready = threading.Barrier(len(jobs) + 1)
    problems: list[BaseException] = []

    def run(job: Callable[[], object]) -> None:
        ready.wait()
        try:
            job()
        except BaseException as error:  # noqa: BLE001 - raised where the threads are joined
            problems.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    ready.wait()
    clock = Clock()
    for thread in threads:
        thread.join()
    told = clock.stop()
    if problems:
        raise problems[0]
    return told


class Ours:
    """Managers by name, over one segment."""

    def __init__(self, segment: ClosedSegment) -> None:
        self._segment = segment
        self._managers: dict[str, TieredStorageManager] = {}
        self._log = memoryview(b"")

    def answer(self, job: Job) -> dict[str, Any]:
        """One round."""
        if job.get("check") and not self._log:
            self._log = memoryview(self._segment.log)
        elif not job.get("check"):
            self._log = memoryview(b"")
        told: dict[str, Any] | None = getattr(self, f"_{job['op']}")(job)
        return told or {}

    def _open(self, job: Job) -> None:
        manager = self._managers[job["manager"]] = TieredStorageManager()
        manager.configure(job["keys"])

    def _close(self, job: Job) -> None:
        self._managers.pop(job["manager"]).close()

    def _copy(self, job: Job) -> dict[str, Any]:
        attempt, clock = self._segment.with_id(job["id"]), Clock()
        self._managers[job["manager"]].copy_log_segment_data(attempt.metadata, attempt.data)
        return clock.stop()

    def _copies(self, job: Job) -> dict[str, Any]:
        return at_once([partial(self._copy, {**job, "id": number}) for number in job["ids"]])

    def _delete(self, job: Job) -> None:
        self._managers[job["manager"]].delete_log_segment_data(self._segment.with_id(job["id"]).finished())

    def _whole(self, job: Job) -> dict[str, Any]:
        """By views, which nobody keeps, or (``into``) into one buffer of a mebibyte, as Java's streams are read."""
        metadata, total = self._segment.with_id(job["id"]).finished(), 0
        buffer = reader_buffer()
        clock = Clock()
        with self._managers[job["manager"]].fetch_log_segment(metadata, 0) as stream:
            if job.get("into"):
                while count := stream.readinto(buffer):
                    self._same(buffer[:count], total)
                    total += count
            else:
                for view in stream.buffers():
                    self._same(view, total)
                    total += view.nbytes
        told = clock.stop()
        if total != metadata.segment_size_in_bytes:
            raise OSError(f"a fetch gave {total} of {metadata.segment_size_in_bytes} bytes")
        return told

    def _same(self, found: memoryview, position: int) -> None:
        if self._log and found != self._log[position : position + found.nbytes]:
            raise OSError(f"other bytes than the log's at {position}")

    def _reads(self, job: Job, starts: Sequence[int], each: list[float], buffer: memoryview) -> None:
        manager = self._managers[job["manager"]]
        metadata = self._segment.with_id(job["id"]).finished()
        for start in starts:
            began = time.perf_counter()
            end = start + READ_BYTES - 1 if job["given"] else None
            with manager.fetch_log_segment(metadata, start, end) as stream:
                if stream.readinto(buffer) != READ_BYTES:
                    raise OSError(f"a short answer at {start}")
            each.append(time.perf_counter() - began)
            self._same(buffer, start)

    def _random(self, job: Job) -> dict[str, Any]:
        each: list[float] = []
        clock = Clock()
        self._reads(job, job["starts"], each, reader_buffer())
        return {**clock.stop(), "each": each}

    def _many(self, job: Job) -> dict[str, Any]:
        lists: list[list[float]] = [[] for _ in job["lists"]]
        told = at_once(
            [
                partial(self._reads, job, starts, each, reader_buffer())
                for starts, each in zip(job["lists"], lists, strict=True)
            ]
        )
        return {**told, "each": [seconds for each in lists for seconds in each]}

    def _peak(self, job: Job) -> None:
        pathlib.Path("/proc/self/clear_refs").write_text("5")

    def _memory(self, job: Job) -> dict[str, Any]:
        return memory()


def serve(answer: Callable[[Job], dict[str, Any]]) -> None:
    """Lines in, lines out, until stdin ends; a failed round answers with its error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            told = answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - the driver ends with it
            told = {"error": f"{type(error).__name__}: {error} <- {error.__cause__!r}"}
        print(json.dumps(told), file=out, flush=True)


if __name__ == "__main__":
    serve(Ours(read_description(pathlib.Path(sys.argv[1]))).answer)
