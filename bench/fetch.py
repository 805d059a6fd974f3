"""Fetches of one segment in a folder against the bare calls over the same chunks: the cost that our code adds.

    python -m bench.fetch [random threads whole] [--scale 0.1] [--rounds 5] [--forms zstd]

A segment of 256 MiB, all of it in the page cache, no chunk cache. The bare calls are a C loop a thread over a file of
chunks with the same borders and sizes: pread, EVP's AES-256-GCM, ZSTD_decompressDCtx, buffers and contexts reused; no
manifest, no checksum of batches, no Python. Both sides put a mebibyte into a buffer of the reader's, and every read of
a first round is compared with the log. The bare calls open every chunk whole; ours stops decompressing where the range
ends, which is how it can be faster than they are.

*random*: a mebibyte at 100 positions, one thread, p50. *threads*: 50 threads of random mebibytes, and what the process
holds ten seconds later. *whole*: the segment once, the bare side on a thread a core.
"""

from __future__ import annotations

import contextlib
import pathlib
import random
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

from bench import bare
from bench.bare import READ_BYTES
from bench.harness import MIB, Round, Rounds, Side, Suite, arguments, in_turn, measured, spread, work_folder
from bench.storage_sides import (
    FORMS,
    SEGMENT_BYTES,
    bench_segment,
    folder_keys,
    form_keys,
    positions,
    side,
    write_description,
)

#: (form, chunk bytes) of one reader's random mebibytes to the part of the bare calls' speed at least.
RANDOM_FORMS: dict[tuple[str, int], float | None] = {
    ("plain", 4 * MIB): None,
    ("zstd", MIB): 1 / 1.15,
    ("zstd", 4 * MIB): 1 / 1.1,
    ("AES", 4 * MIB): None,
    ("zstd + AES", 4 * MIB): None,
}
READS, THREADS, EACH = 100, 50, 20
PLAIN_MICROSECONDS_ABOVE_MAX = 120
#: Of plain bytes so many MB/s are enough, and of the bare calls' speed these shares at least.
PLAIN_THREADS_MB, PLAIN_THREADS_MIN, THREADS_MIN, WHOLE_MIN = 8000.0, 0.8, 0.85, 0.85
REST_SECONDS, REST_MIB_MAX = 10.0, 64
PEER = "the bare calls"


class Bench:
    """One segment, and fresh processes over it for each figure."""

    def __init__(self, suite: Suite, folder: pathlib.Path, size_bytes: int, rounds: int) -> None:
        self.suite, self.folder, self.rounds = suite, folder, rounds
        segment = bench_segment(folder / "source", size_bytes)
        self.description = str(write_description(segment))
        self.size_bytes = segment.metadata.segment_size_in_bytes

    @contextlib.contextmanager
    def sides(self, form: str, chunk_bytes: int = 4 * MIB) -> Iterator[tuple[Side, Side]]:
        """Both sides over fresh copies, which a third process makes."""
        root = self.folder / "store"
        keys = form_keys(form, chunk_bytes) | folder_keys(root)
        with side("ours", self.description) as copier:
            copier("open", form, keys=keys)
            copier("copy", form, id=1)
        with side("ours", self.description) as ours, side("bare", self.description) as theirs:
            ours("open", form, keys=keys)
            path = str(self.folder / "bare.chunks")
            told = theirs("open", form, form=FORMS[form], chunk_bytes=chunk_bytes, path=path)
            stored = sum(file.stat().st_size for file in root.rglob("*.log"))
            if abs(stored / told["stored"] - 1) > 0.001:  # another libzstd may make a few bytes more or less
                raise SystemExit(f"{form}: our object has {stored} bytes, the bare calls' file {told['stored']}")
            yield ours, theirs
        shutil.rmtree(root)

    def random(self, form: str, chunk_bytes: int, bar: float | None) -> None:
        """One thread, p50 of a round, medians over rounds."""
        chance, p50s = random.Random(5), Rounds({"ours": [], PEER: []})
        with self.sides(form, chunk_bytes) as (ours, theirs):
            for number in range(self.rounds + 1):
                starts = positions(self.size_bytes, READS, chance)
                for name, each in ((PEER, theirs), ("ours", ours)):
                    told = each("random", form, id=1, starts=starts, given=True, check=number == 0)
                    if number:
                        p50s[name].append(Round(statistics.median(told["each"]), told["cpu"]))
        what = f"random MiB, p50, {form}, chunks of {chunk_bytes // MIB} MiB"
        if form == "plain":
            mine, bare_ones = ([1e6 * each.wall for each in p50s[name]] for name in ("ours", PEER))
            above = statistics.median(mine) - statistics.median(bare_ones)
            told = f"{spread(mine)} µs, {PEER} {spread(bare_ones)} µs{self.suite.cpu_of(p50s, 'ours', PEER)}"
            self.suite.add(f"{what}, µs above {PEER}", told, above, PLAIN_MICROSECONDS_ABOVE_MAX, least=False)
            return
        self.suite.speed(what, p50s, PEER, amount=READ_BYTES, unit="MB/s", bar=bar)

    def threads(self, form: str) -> None:
        """Many readers at once on both sides, and our process at rest behind them."""
        chance = random.Random(6)
        with self.sides(form) as (ours, theirs):
            ours("random", form, id=1, starts=positions(self.size_bytes, 4, chance), given=True, check=False)
            theirs("random", form, id=1, starts=positions(self.size_bytes, 20, chance), given=True, check=True)
            idle = ours("memory")
            calls = [(theirs, True), (ours, True)]
            found: Rounds = {PEER: [], "ours": []}
            for number in range(self.rounds + 1):
                lists = [positions(self.size_bytes, EACH, chance) for _ in range(THREADS)]
                for name, each in zip(found, calls, strict=True):
                    asked = {"id": 1, "lists": lists, "given": True, "check": number == 0}
                    taken = measured(self._asks(each[0], "many", form, **asked))
                    if number:
                        found[name].append(taken)
                if number == 0:
                    ours("peak")  # the log that was compared with is no memory of a fetch
            time.sleep(REST_SECONDS)
            rest = ours("memory")
        what, amount = f"{THREADS} threads, random MiB, {form}", THREADS * EACH * READ_BYTES
        limit = PLAIN_THREADS_MB * 1e6 * statistics.median(each.wall for each in found[PEER]) / amount
        bar = min(PLAIN_THREADS_MIN, limit) if form == "plain" else THREADS_MIN
        self.suite.speed(what, found, PEER, amount=amount, unit="MB/s", bar=bar)
        told = f"{idle['VmRSS'] / MIB:.0f} MiB idle, {rest['VmRSS'] / MIB:.0f} MiB {REST_SECONDS:.0f} s later, "
        told += f"{rest['VmHWM'] / MIB:.0f} at most; threads {idle['threads']}, {rest['threads']}"
        growth = (rest["VmRSS"] - idle["VmRSS"]) / MIB
        self.suite.add(f"{what}, RSS growth in MiB", told, growth, REST_MIB_MAX, least=False)

    def whole(self, form: str) -> None:
        """Read the segment once: ours by one reader, the bare calls by a thread for each core."""
        with self.sides(form) as (ours, theirs):
            theirs("random", form, id=1, starts=[0], given=True, check=True)
            ours("whole", form, id=1, check=True)
            calls = {PEER: self._asks(theirs, "whole", form, id=1), "ours": self._asks(ours, "whole", form, id=1)}
            found = in_turn(calls, self.rounds)
        bar = WHOLE_MIN if FORMS[form][0] else None
        self.suite.speed(f"whole, {form}, on all cores", found, PEER, amount=self.size_bytes, unit="MB/s", bar=bar)

    @staticmethod
    def _asks(each: Side, *words: object, **fields: Any) -> Callable[[], dict[str, Any]]:
        return lambda: each(*words, **fields)


def main() -> None:
    chosen = arguments(__doc__, ("random", "threads", "whole"), forms=",".join(FORMS))
    suite, forms = Suite("fetch", bare.versions()), chosen.forms.split(",")
    with work_folder() as folder:
        bench = Bench(suite, folder, max(8 * MIB, int(SEGMENT_BYTES * chosen.scale)), chosen.rounds)
        for (form, chunk_bytes), bar in RANDOM_FORMS.items() if "random" in chosen.parts else ():
            if form in forms:
                bench.random(form, chunk_bytes, bar)
        for form in forms:
            if "threads" in chosen.parts:
                bench.threads(form)
            if "whole" in chosen.parts:
                bench.whole(form)
    suite.save()


if __name__ == "__main__":
    main()
