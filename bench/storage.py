"""The storage manager: copies and fetches of one segment, on a folder and on a real S3 server on loopback.

    TIERLOG_PLUGIN_JARS=FOLDER python -m bench.storage [plugin steps requests footers] [--scale 0.1] [--rounds 5]
                                                       [--forms zstd]

One segment of 256 MiB in chunks of 4 MiB, zstd at level 3, everything in the page cache; copies are read back and
compared before anything is timed.

*plugin*: beside the Java plugin in a JVM of its own (``-Xmx2g``, G1), in turn, where TIERLOG_PLUGIN_JARS names its jars
(no registry has them). It is warmed first: its JVM needs some 13 copies until it has AES in machine code. It syncs
nothing and checks no batch; ours checks every batch of a copy and of a fetch, and syncs file and folder unless a row
says *without fsync*. Whole segments and random mebibytes are read into a buffer of the reader's on both sides; *by
views* is our read without that copy. *steps*: a copy against pread, ZSTD_compress2, AES-256-GCM and write with fsync,
one after another in one thread. *requests*: the store requests of a copy and of fetches, and the seconds of ten copies
at once. *footers*: of batches of 16 KiB, what they take, what `tierlog index` takes of the time of `tierlog verify` of
the same four segments, and an hour of a day by time, planned and read.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import numpy as np

from bench import bare
from bench.data import bench_log
from bench.harness import (
    MIB,
    Round,
    Rounds,
    Side,
    Suite,
    arguments,
    in_turn,
    measured,
    quotient,
    spread,
    work_folder,
)
from bench.storage_sides import (
    CHUNK,
    FORMS,
    SEGMENT_BYTES,
    bench_segment,
    folder_keys,
    form_keys,
    manager_over,
    positions,
    s3_keys,
    side,
    write_description,
)
from tests.support.closed_segments import ClosedSegment
from tests.support.footers import DAY_KEYS, HOUR_MS, RangesStore, fill_day, stored_between
from tests.support.peers import plugin
from tests.support.segments import make_segment
from tests.support.servers import seaweed
from tierlog import upkeep
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier import open_tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.scan.history import TierHistory
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import RecordFilter, ScanRequest, TopicSelection

PLUGIN, UNSYNCED = "the plugin", "ours without fsync"
WARM, OUR_WARM = 15, 2
RANDOM_READS, COPIES_AT_ONCE = 100, 10
#: Times the plugin's speed at least, by form.
COPY_BARS = {"plain": 1.0, "zstd": 2.1, "AES": 1.5, "zstd + AES": 2.2}
UNSYNCED_BARS = {"plain": 3.0, "zstd": 1.0, "AES": 1.0, "zstd + AES": 1.0}
WHOLE_BARS = {"plain": 1.2, "zstd": 1.9, "AES": 2.2, "zstd + AES": 2.2}
RANDOM_BARS = {"plain": 1.0, "zstd": 1 / 0.75, "AES": 2.0, "zstd + AES": 1 / 0.7}
OF_STEPS_MIN, OF_ZSTD_MIN, RSS_MIB_MAX = 0.8, 0.9, 256
#: Of the time that `tierlog verify` takes.
INDEX_MAX, INDEXED = 1.0, 4
FULL_REQUESTS_MAX, RANDOM_REQUESTS_MAX, PART = 20, 104, 16 * MIB


# ---- beside the plugin


class BesidePlugin:
    """One segment, one form at a time: both are processes that live through all rounds of a form."""

    def __init__(self, suite: Suite, segment: ClosedSegment, folder: pathlib.Path, rounds: int, warm: int) -> None:
        self.suite, self.folder, self.rounds, self.warm = suite, folder, rounds, warm
        self.description = str(write_description(segment))
        self.size_bytes = segment.metadata.segment_size_in_bytes
        self.found: dict[str, Rounds] = {}

    def run(self, form: str) -> None:
        """Measure all cells of one form."""
        self.found = {}
        with side(PLUGIN, self.description) as theirs, side("ours", self.description) as mine:
            sides = {PLUGIN: theirs, "ours": mine, UNSYNCED: mine}
            roots = {name: self.folder / name.replace(" ", "-") for name in sides}
            for name, each in sides.items():
                each("open", name, keys=self._keys(form, roots[name], name))
            for number in range(self.warm + self.rounds):
                self._copies(sides, number)
            self._same_size(form, roots, sides)
            for number in range(self.warm + self.rounds):
                self._fetches(sides, number)
            for name, each in sides.items():
                each("close", name)
        for root in roots.values():
            shutil.rmtree(root)
        self._tell(form)
        self._memory(form)

    def _keys(self, form: str, root: pathlib.Path, name: str) -> dict[str, str]:
        keys = form_keys(form) | folder_keys(root) | {"compression.heuristic.enabled": "false"}
        if name == UNSYNCED:
            keys["store.durable"] = "false"
        return plugin.with_pem_keys(keys, self.folder) if name == PLUGIN else keys

    def _awake(self, sides: Mapping[str, Side], number: int) -> Iterator[tuple[str, Side]]:
        """Yield the sides of a round: the plugin warms up by itself until the last rounds before the ones
        that count.
        """
        for name, each in sides.items():
            if name == PLUGIN or number >= self.warm - OUR_WARM:
                yield name, each

    def _keep(self, cell: str, name: str, number: int, taken: Round) -> None:
        if number >= self.warm:
            self.found.setdefault(cell, {}).setdefault(name, []).append(taken)

    def _copies(self, sides: Mapping[str, Side], number: int) -> None:
        for name, each in self._awake(sides, number):
            os.sync()  # writes that an earlier side left behind do not count for this one
            self._keep("copy", name, number, measured(partial(each, "copy", name, id=number + 1)))
            each("delete", name, id=number + 1)

    def _same_size(self, form: str, roots: Mapping[str, pathlib.Path], sides: Mapping[str, Side]) -> None:
        """One copy stays for the fetches: every byte of it is compared, and all sides have to store about as much."""
        stored = {}
        for name, each in sides.items():
            each("copy", name, id=1)
            each("whole", name, id=1, check=True)
            stored[name] = sum(file.stat().st_size for file in roots[name].rglob("*.log"))
        if max(stored.values()) > 1.01 * min(stored.values()):
            raise SystemExit(f"{form}: the sides store different things: {stored}")
        os.sync()

    def _fetches(self, sides: Mapping[str, Side], number: int) -> None:
        starts = positions(self.size_bytes, RANDOM_READS, random.Random(number))
        asked = {
            "whole": ("whole", {"into": True}),
            "whole by views": ("whole", {}),
            "random": ("random", {"starts": starts, "given": True}),
            "random, open end": ("random", {"starts": starts, "given": False}),
        }
        for cell, (operation, fields) in asked.items():
            for name, each in self._awake(sides, number):
                if name == UNSYNCED or (cell == "whole by views" and name == PLUGIN):
                    continue
                check = number == self.warm - 1
                taken = measured(partial(each, operation, name, id=1, check=check, **fields))
                if operation == "random":
                    taken = Round(statistics.median(taken.told["each"]), taken.cpu)
                self._keep(cell, name, number, taken)

    def _tell(self, form: str) -> None:
        def speed(what: str, found: Rounds, bar: float | None, *, ours: str = "ours", amount: int = MIB) -> None:
            self.suite.speed(what, found, PLUGIN, amount=amount, unit="MB/s", ours=ours, bar=bar)

        whole, size = self.found["whole"], self.size_bytes
        speed(f"copy, {form}", self.found["copy"], COPY_BARS[form], amount=size)
        speed(f"copy, {form}, without fsync", self.found["copy"], UNSYNCED_BARS[form], ours=UNSYNCED, amount=size)
        speed(f"fetch whole, {form}", whole, WHOLE_BARS[form], amount=size)
        speed(
            f"fetch whole, {form}, by views",
            whole | self.found["whole by views"] | {PLUGIN: whole[PLUGIN]},
            None,
            amount=size,
        )
        speed(f"fetch random MiB, p50, {form}", self.found["random"], RANDOM_BARS[form])
        speed(f"fetch random MiB, open end, p50, {form}", self.found["random, open end"], None)

    def _memory(self, form: str) -> None:
        """Ten copies at once in fresh processes, behind one copy: what each is at most."""
        peaks, told = {}, []
        for name in ("ours", PLUGIN):
            root = self.folder / "ten"
            with side(name, self.description) as each:
                each("open", name, keys=self._keys(form, root, name))
                idle = each("memory")["VmRSS"]
                each("copy", name, id=1)
                each("peak")
                os.sync()
                answer = each("copies", name, ids=list(range(2, 2 + COPIES_AT_ONCE)))
                peaks[name] = each("memory")["VmHWM"]
            shutil.rmtree(root)
            speed = COPIES_AT_ONCE * self.size_bytes / answer["wall"] / 1e6
            told.append(f"{name} {peaks[name] / MIB:.0f} MiB ({idle / MIB:.0f} idle, {speed:.0f} MB/s)")
        what = f"resident at most, {COPIES_AT_ONCE} copies at once, {form}, of the plugin's"
        self.suite.add(what, ", ".join(told), peaks["ours"] / peaks[PLUGIN], 1.0, least=False)


# ---- beside the steps of a copy


def steps_alone(segment: ClosedSegment, rounds: int, folder: pathlib.Path) -> dict[str, float]:
    """Bytes a second of each step alone: one thread, the log in the page cache."""
    path, size = segment.data.log_segment, segment.metadata.segment_size_in_bytes
    room, out, log = np.ones(CHUNK, np.uint8), np.ones(2 * CHUNK, np.uint8), np.fromfile(path, np.uint8)
    chunks = [log[start : start + CHUNK] for start in range(0, size, CHUNK)]

    def pread() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        for start in range(0, size, CHUNK):
            os.preadv(descriptor, [room.data], start)
        os.close(descriptor)

    def write() -> None:
        descriptor = os.open(folder / "limit", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        for chunk in chunks:
            os.write(descriptor, chunk.data)
        os.fsync(descriptor)
        os.close(descriptor)
        (folder / "limit").unlink()

    steps: dict[str, Callable[[], object]] = {
        "pread": pread,
        "zstd": lambda: [bare.compress(3, chunk, out) for chunk in chunks],
        "AES": lambda: [bare.seal(bytes(12), chunk, out) for chunk in chunks],
        "write and fsync": write,
    }
    taken = {name: [measured(step) for _ in range(rounds + 1)][1:] for name, step in steps.items()}
    alone = {name: size / statistics.median(each.wall for each in found) for name, found in taken.items()}
    return {**alone, "zstd, CPU": size / statistics.median(each.cpu for each in taken["zstd"])}


def measure_steps(suite: Suite, segment: ClosedSegment, folder: pathlib.Path, rounds: int) -> None:
    """Copies to a folder: against the steps one after another, and the bare codec by CPU second."""
    alone = steps_alone(segment, rounds, folder)
    print(", ".join(f"{name} {speed / 1e6:.0f} MB/s" for name, speed in alone.items()), file=sys.stderr)
    size = segment.metadata.segment_size_in_bytes
    for form, (compressed, encrypted) in FORMS.items():
        taken, share = copied(segment, rounds, folder / "store", form_keys(form))
        wall, cpu = (statistics.median(getattr(each, name) for each in taken) for name in ("wall", "cpu"))
        slowness = 1 / alone["pread"] + share / alone["write and fsync"]
        slowness += (1 / alone["zstd"] if compressed else 0) + (share / alone["AES"] if encrypted else 0)
        told = f"{size / wall / 1e6:.0f} MB/s; one after another {1 / slowness / 1e6:.0f} MB/s, fsync among them"
        suite.add(f"copy, {form}, × its steps", told, size / wall * slowness, OF_STEPS_MIN)
        if form == "zstd":
            told = f"{size / cpu / 1e6:.0f} MB a CPU second, ZSTD_compress2 alone {alone['zstd, CPU'] / 1e6:.0f}; "
            told += f"stored {share:.4f} of the log"
            suite.add("copy, zstd, by CPU second × the bare codec", told, size / cpu / alone["zstd, CPU"], OF_ZSTD_MIN)


def copied(
    segment: ClosedSegment, rounds: int, root: pathlib.Path, keys: Mapping[str, str]
) -> tuple[list[Round], float]:
    """Rounds of a copy to a folder, and its stored bytes by those of the log."""
    found: list[Round] = []
    share = 1.0
    with manager_over(dict(keys) | folder_keys(root)) as (manager, store):
        for number in range(rounds + 1):
            attempt = segment.with_id(1000 + number)
            found.append(measured(partial(manager.copy_log_segment_data, attempt.metadata, attempt.data)))
            share = stored_log_bytes(store) / segment.metadata.segment_size_in_bytes
            if number == 0:
                with manager.fetch_log_segment(attempt.finished(), 0) as stream:
                    if stream.read() != attempt.log:
                        raise SystemExit("what was copied reads otherwise")
            manager.delete_log_segment_data(attempt.finished())
    shutil.rmtree(root)
    return found[1:], share


def stored_log_bytes(store: ObjectStore) -> int:
    """Size of the stored log of the only segment."""
    return sum(info.size_bytes for info in store.iter_objects() if info.key.endswith(".log"))


# ---- requests


def measure_requests(suite: Suite, segment: ClosedSegment, folder: pathlib.Path, rounds: int) -> None:
    """Requests on a folder and on an S3 server, and ten copies at once on that server."""
    _requests(suite, segment, "folder", folder_keys(folder / "store"))
    (folder / "s3").mkdir()
    with seaweed(folder / "s3") as server:
        keys = s3_keys(server.options)
        _requests(suite, segment, "S3", keys)
        with side("ours", str(write_description(segment))) as ours:
            ours("open", "ten", keys=form_keys("zstd + AES") | keys)
            idle = ours("memory")["VmRSS"]
            ours("peak")
            seconds = ours("copies", "ten", ids=list(range(2000, 2000 + COPIES_AT_ONCE)))["wall"]
            peak = ours("memory")["VmHWM"]
    told = f"{idle / MIB:.0f} MiB idle, {peak / MIB:.0f} MiB at most, {seconds:.1f} s"
    what = f"RSS growth in MiB, {COPIES_AT_ONCE} copies at once, S3"
    suite.add(what, told, (peak - idle) / MIB, RSS_MIB_MAX, least=False)


def _requests(suite: Suite, segment: ClosedSegment, where: str, keys: Mapping[str, str]) -> None:
    attempt = segment.with_id(500)
    metadata, size = attempt.finished(), segment.metadata.segment_size_in_bytes
    starts = positions(size, RANDOM_READS, random.Random(7))
    for form in ("plain", "zstd + AES"):
        with manager_over(form_keys(form) | dict(keys)) as (manager, store):
            actions: dict[str, tuple[Callable[[], object], int]] = {
                "a copy": (partial(manager.copy_log_segment_data, attempt.metadata, attempt.data), 0),
                "a full fetch": (partial(_read, manager, metadata, [(0, size)]), FULL_REQUESTS_MAX),
                f"{RANDOM_READS} random MiB": (
                    partial(_read, manager, metadata, [(start, start + MIB) for start in starts]),
                    RANDOM_REQUESTS_MAX,
                ),
            }
            for name, (action, bar) in actions.items():
                before = dict(store.requests)
                action()
                counts = {verb: count - before.get(verb, 0) for verb, count in store.requests.items()}
                counts = {verb: count for verb, count in counts.items() if count}
                if name == "a copy":
                    bar = 3 if where == "folder" else 4 - (-stored_log_bytes(store) // PART)
                limit = None if where == "folder" and name != "a copy" else bar
                what = f"requests of {name}, {form}, {where}"
                suite.add(what, str(counts), sum(counts.values()), limit, least=False)
            manager.delete_log_segment_data(metadata)


def _read(manager: TieredStorageManager, metadata: RemoteLogSegmentMetadata, ranges: list[tuple[int, int]]) -> None:
    """Read ranges, each by a fetch of its own, and drop the bytes."""
    for start, end in ranges:
        with manager.fetch_log_segment(metadata, start, end - 1) as stream:
            if sum(view.nbytes for view in stream.buffers(end - start)) != end - start:
                raise SystemExit("a short answer")


# ---- footers


def measure_footers(suite: Suite, folder: pathlib.Path, size_bytes: int, rounds: int) -> None:
    """What footers of small batches take, as the store has them, and what writing them later takes."""
    for codec in ("none", "zstd"):
        log = bench_log(codec, batch_bytes=16 << 10, mean_size=1000, total_bytes=size_bytes)
        source = make_segment(log.data, lineage={0: 0}).closed_in(folder / f"small-{codec}").with_id(1)
        for form in ("plain", "zstd + AES"):
            root, keys = folder / "indexed", form_keys(form)
            with manager_over(dict(keys) | folder_keys(root)) as (manager, _):
                for number in range(INDEXED):
                    attempt = source.with_id(1 + number)
                    manager.copy_log_segment_data(attempt.metadata, attempt.data)
            config = {"key.prefix": "", **{name: value for name, value in keys.items() if "encryption.key" in name}}

            def indexed(root: pathlib.Path = root, config: dict[str, str] = config) -> None:
                for path in root.rglob("*.footer"):
                    path.unlink()
                if upkeep.index(root, config=config).written != INDEXED:
                    raise SystemExit("a segment got no footer")

            def verified(root: pathlib.Path = root, config: dict[str, str] = config) -> None:
                if not upkeep.verify(root, config=config).is_sound:
                    raise SystemExit("a segment is not sound")

            found = in_turn({"tierlog verify": verified, "ours": indexed}, rounds)
            what = f"tierlog index, {codec} batches, {form}"
            walls = {name: [each.wall for each in taken] for name, taken in found.items()}
            told = f"{spread(walls['ours'], '.2f')} s, tierlog verify {spread(walls['tierlog verify'], '.2f')} s"
            told += suite.cpu_of(found, "ours", "tierlog verify")
            value = quotient(walls["ours"], walls["tierlog verify"])
            suite.add(f"{what}, time by tierlog verify's", told, value, INDEX_MAX, least=False)
            size = max(path.stat().st_size for path in root.rglob("*.footer"))
            told = f"{size} bytes, {len(log.table)} batches, {100 * size / len(log.data):.3f} % of the log"
            suite.add(f"footer, {codec} batches, {form}, bytes a batch", told, size / len(log.table), 10, least=False)
            shutil.rmtree(root)
    _hour(suite, folder / "day")


def _hour(suite: Suite, folder: pathlib.Path) -> None:
    """The bytes that one hour of a day costs, of those of the chunks that hold it."""
    fill_day(folder, partitions=8)
    stores: list[RangesStore] = []

    def wrap(store: ObjectStore) -> ObjectStore:
        stores.append(RangesStore(store))
        return stores[-1]

    first, end = 9 * HOUR_MS, 10 * HOUR_MS
    with open_tier(str(folder / "bucket"), config={"key.prefix": "", **DAY_KEYS}, wrap_store=wrap) as tier:
        histories = TierHistory(tier).partitions(["orders"])
        stores[-1].ranges.clear()
        chosen = RecordFilter(None, 0, 2**63 - 1, first, end)
        request = ScanRequest(TopicSelection.of_names(["orders"]), record_filter=chosen)
        ranges = plan_scan(tier, request, histories=histories).ranges
        records = sum(rows.num_rows for each in ranges for rows in read_scan_range(tier, each, columns=("offset",)))
        fetched, probes = sum(size for _, _, size in stores[-1].ranges), len(stores[-1].of("indexes"))
        chunks = stored_between(tier, histories, first, end)
    told = f"{fetched} bytes for {records} records, their chunks {chunks}; {probes} reads of indexes"
    suite.add(
        "an hour of a day, 8 partitions, zstd + AES, bytes by the hour's chunks",
        told,
        fetched / chunks,
        1.1,
        least=False,
    )


def main() -> None:
    chosen = arguments(__doc__, ("plugin", "steps", "requests", "footers"), forms=",".join(FORMS), warm=WARM)
    suite = Suite("storage", bare.versions())
    with work_folder() as folder:
        segment = bench_segment(folder / "source", max(8 * MIB, int(SEGMENT_BYTES * chosen.scale)))
        if "plugin" in chosen.parts and plugin.jars():
            beside = BesidePlugin(suite, segment, folder, chosen.rounds, chosen.warm)
            for form in chosen.forms.split(","):
                beside.run(form)
        elif "plugin" in chosen.parts:
            print(plugin.HOW, file=sys.stderr)
        if "steps" in chosen.parts:
            measure_steps(suite, segment, folder, chosen.rounds)
        if "requests" in chosen.parts:
            measure_requests(suite, segment, folder, chosen.rounds)
        if "footers" in chosen.parts:
            measure_footers(suite, folder, max(8 * MIB, int(SEGMENT_BYTES * chosen.scale)), chosen.rounds)
    suite.save()


if __name__ == "__main__":
    main()
