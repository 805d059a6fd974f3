"""Fetches of one segment in a folder against the bare calls over the same chunks, in turn: the cost that our code adds.

    python -m bench.fetch_limits [--rounds 5] [--size 256] [--reads 100] [--only random,threads,whole] [--forms zstd]

The peer (``bench/turns_bare.py``) reads chunks with the same borders and sizes by pread, EVP and ZSTD_decompressDCtx in
a C loop, its buffers and contexts kept; it has no manifest, no checksum of batches, no Python. Both sides put a
mebibyte into a buffer of the reader's. All is in the page cache; neither side keeps chunks. Every read of a first round
is compared with the log before anything is timed.

*random*: a mebibyte at 100 positions, one thread, p50. *threads*: 50 threads of random mebibytes, and what the process
holds ten seconds later. *whole*: the segment once, the bare side on a thread a core.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import Any

from bench.bare_chunks import versions
from bench.findings import Findings, ratios, spread
from bench.logs import MIB
from bench.side_by_side import ROUNDS
from bench.storage_segment import FORMS, folder_keys, form_keys, make_segment, write_description
from bench.turns import READ_BYTES, Side, bare, ours, positions

#: (form, chunk bytes) of one reader's random mebibytes: µs above the bare calls at most, or times theirs at most.
RANDOM_FORMS = (("plain", 4 * MIB), ("zstd", MIB), ("zstd", 4 * MIB), ("AES", 4 * MIB), ("zstd + AES", 4 * MIB))
PLAIN_MICROSECONDS_ABOVE_MAX = 120
RANDOM_BARS = {("zstd", MIB): 1.15, ("zstd", 4 * MIB): 1.1}
THREADS, EACH = 50, 20
PLAIN_THREADS_MB, PLAIN_THREADS_MIN, THREADS_MIN = 8000.0, 0.8, 0.85
REST_SECONDS, REST_MIB_MAX = 10.0, 64
WHOLE_MIN = 0.85


class Bench:
    """One segment and the findings about it."""

    def __init__(self, folder: pathlib.Path, size_bytes: int, rounds: int, reads: int) -> None:
        self.found = Findings()
        self._folder, self._rounds, self._reads = folder, rounds, reads
        segment = make_segment(folder / "source", size_bytes)
        self._description = str(write_description(segment))
        self.size_bytes = segment.metadata.segment_size_in_bytes

    @contextlib.contextmanager
    def sides(self, form: str, chunk_bytes: int) -> Iterator[tuple[Side, Side]]:
        """Fresh processes of both sides over fresh copies, which a third process makes."""
        root = self._folder / "store"
        keys = form_keys(form, chunk_bytes) | folder_keys(root)
        with ours(self._description) as copier:
            copier("open", form, keys=keys)
            copier("copy", form, id=1)
        with ours(self._description) as our_side, bare(self._description) as bare_side:
            our_side("open", form, keys=keys)
            path = str(self._folder / "bare.chunks")
            told = bare_side("open", form, form=FORMS[form], chunk_bytes=chunk_bytes, path=path)
            stored = sum(file.stat().st_size for file in root.rglob("*.log"))
            if abs(stored / told["stored"] - 1) > 0.001:  # another libzstd may make a few bytes more or less
                raise SystemExit(f"{form}: our object has {stored} bytes, the bare calls' file {told['stored']}")
            yield our_side, bare_side
        shutil.rmtree(root)

    def random(self, form: str, chunk_bytes: int) -> None:
        """One thread, p50 of a round, medians over rounds."""
        chance, p50s, cpus = random.Random(5), _two(), _two()
        with self.sides(form, chunk_bytes) as both:
            for number in range(self._rounds + 1):
                starts = positions(self.size_bytes, self._reads, chance)
                for side, p50, cpu in zip(both, p50s, cpus, strict=True):
                    told = side("random", form, id=1, starts=starts, given=True, check=number == 0)
                    p50.append(1000 * statistics.median(told["each"]))
                    cpu.append(1000 * told["cpu"] / self._reads)
        mine, theirs = (p50[1:] for p50 in p50s)
        name = f"random MiB, p50, {form}, chunks of {chunk_bytes // MIB} MiB"
        told = f"{spread(mine, '.3f')} ms, bare {spread(theirs, '.3f')}"
        told += f"; CPU ms {spread(cpus[0][1:], '.2f')}, bare {spread(cpus[1][1:], '.2f')}"
        ratio = statistics.median(mine) / statistics.median(theirs)
        if form == "plain":
            above = 1000 * (statistics.median(mine) - statistics.median(theirs))
            self.found.add(f"{name}, µs above pread", told, above, PLAIN_MICROSECONDS_ABOVE_MAX)
            return
        told += f"; rounds {ratios(mine, theirs)}"
        self.found.add(f"{name}, of the bare calls' time", told, ratio, RANDOM_BARS.get((form, chunk_bytes)))

    def threads(self, form: str, chunk_bytes: int = 4 * MIB) -> None:
        """Many readers at once on both sides, and our process at rest behind them."""
        chance, answers = random.Random(6), _two()
        with self.sides(form, chunk_bytes) as both:
            both[0]("random", form, id=1, starts=positions(self.size_bytes, 4, chance), given=True, check=False)
            both[1]("random", form, id=1, starts=positions(self.size_bytes, 20, chance), given=True, check=True)
            idle = both[0]("memory")
            for number in range(self._rounds + 1):
                lists = [positions(self.size_bytes, EACH, chance) for _ in range(THREADS)]
                for side, told in zip(both, answers, strict=True):
                    told.append(side("many", form, id=1, lists=lists, given=True, check=number == 0))
                if number == 0:
                    both[0]("peak")  # the log that was compared with is no memory of a fetch
            time.sleep(REST_SECONDS)
            rest = both[0]("memory")
        name = f"{THREADS} threads, random MiB, {form}"
        theirs = statistics.median(told["wall"] for told in answers[1][1:])
        limit = PLAIN_THREADS_MB * 1e6 * theirs / (THREADS * EACH * READ_BYTES)
        bar = min(PLAIN_THREADS_MIN, limit) if form == "plain" else THREADS_MIN
        self._speeds(f"{name}, of the bare calls' speed", answers, THREADS * EACH * READ_BYTES, bar)
        growth = (rest["VmRSS"] - idle["VmRSS"]) / MIB
        text = f"{idle['VmRSS'] / MIB:.0f} MiB idle, {rest['VmRSS'] / MIB:.0f} MiB {REST_SECONDS:.0f} s later, "
        text += f"{rest['VmHWM'] / MIB:.0f} at most; threads {idle['threads']}, {rest['threads']}"
        self.found.add(f"{name}, RSS growth in MiB", text, growth, REST_MIB_MAX)

    def whole(self, form: str, chunk_bytes: int = 4 * MIB) -> None:
        """Read the segment once: ours by one reader, the bare calls by a thread for each core."""
        answers = _two()
        with self.sides(form, chunk_bytes) as both:
            both[1]("random", form, id=1, starts=[0], given=True, check=True)
            for number in range(self._rounds + 1):
                for side, told in zip(both, answers, strict=True):
                    told.append(side("whole", form, id=1, check=number == 0))
        bar = WHOLE_MIN if FORMS[form][0] else None
        self._speeds(f"whole, {form}, of the bare calls on all cores", answers, self.size_bytes, bar)

    def _speeds(self, name: str, answers: tuple[list[Any], list[Any]], size_bytes: int, bar: float | None) -> None:
        """Speeds of the rounds behind the first one."""
        speeds = [[size_bytes / told["wall"] / 1e6 for told in each[1:]] for each in answers]
        cpu = [spread([told["cpu"] for told in each[1:]], ".2f") for each in answers]
        mine, theirs = (statistics.median(each) for each in speeds)
        told = f"{spread(speeds[0])} MB/s, bare {spread(speeds[1])}; CPU s {cpu[0]}, bare {cpu[1]}"
        self.found.add(name, f"{told}; rounds {ratios(*speeds)}", mine / theirs, bar, least=True)


def _two() -> tuple[list[Any], list[Any]]:
    """A list for our figures, one for those of the bare calls."""
    return [], []


def run(bench: Bench, only: Sequence[str], forms: Sequence[str]) -> None:
    if "random" in only:
        for form, chunk_bytes in RANDOM_FORMS:
            if form in forms:
                bench.random(form, chunk_bytes)
    for form in forms:
        if "threads" in only:
            bench.threads(form)
        if "whole" in only:
            bench.whole(form)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--size", type=int, default=256, help="MiB of the segment")
    parser.add_argument("--reads", type=int, default=100, help="random reads of a round")
    parser.add_argument("--only", default="random,threads,whole")
    parser.add_argument("--forms", default=",".join(FORMS))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tierlog-bench-") as name:
        bench = Bench(pathlib.Path(name), arguments.size * MIB, arguments.rounds, arguments.reads)
        run(bench, arguments.only.split(","), arguments.forms.split(","))
    bench.found.save("fetch_limits", versions())


if __name__ == "__main__":
    main()
