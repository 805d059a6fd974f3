"""The storage manager beside the Java plugin: copies, fetches and memory of one segment in a folder, in turn.

Both are processes that live through all rounds of a form. The plugin is warmed first: its JVM needs some 13 copies
until it has AES in machine code. It syncs nothing and checks no batch; ours checks every batch of a copy and of a
fetch, and syncs file and folder unless a row says *without fsync*. Whole segments and random mebibytes are read into a
buffer of the reader's on both sides; *by views* is what ours gives without that copy.
"""

from __future__ import annotations

import os
import pathlib
import random
import shutil
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.findings import Findings, ratios, spread
from bench.logs import MIB
from bench.storage_segment import folder_keys, form_keys, write_description
from bench.turns import Side, ours, plugin, positions
from tests.support.closed_segments import ClosedSegment
from tests.support.peers.plugin import with_pem_keys

WARM, OUR_WARM = 15, 2
RANDOM_READS, COPIES_AT_ONCE = 100, 10
#: Times the plugin's speed at least; of its time, of its memory at most.
COPY_BARS = {"plain": 1.0, "zstd": 2.1, "AES": 1.5, "zstd + AES": 2.2}
UNSYNCED_BARS = {"plain": 3.0, "zstd": 1.0, "AES": 1.0, "zstd + AES": 1.0}
WHOLE_BARS = {"plain": 1.2, "zstd": 1.9, "AES": 2.2, "zstd + AES": 2.2}
RANDOM_BARS = {"plain": 1.0, "zstd": 0.75, "AES": 0.5, "zstd + AES": 0.7}
MEMORY_BAR = 1.0
OUR_UNSYNCED = "without fsync"

Answers = dict[str, dict[str, list[dict[str, Any]]]]


class BesidePlugin:
    """One segment, one form at a time."""

    def __init__(self, segment: ClosedSegment, folder: pathlib.Path, rounds: int, found: Findings) -> None:
        self._description = str(write_description(segment))
        self._size_bytes = segment.metadata.segment_size_in_bytes
        self._folder, self._rounds, self._found = folder, rounds, found
        self._answers: Answers = {}

    def run(self, form: str, warm: int = WARM) -> None:
        """Measure all cells of one form."""
        self._answers = {}
        with plugin(self._description) as theirs, ours(self._description) as mine:
            sides = {"plugin": theirs, "ours": mine, OUR_UNSYNCED: mine}
            roots = {name: self._folder / name.replace(" ", "-") for name in sides}
            for name, side in sides.items():
                side("open", name, keys=self._keys(form, roots[name], name))
            for number in range(warm + self._rounds):
                self._copies(sides, number, warm)
            self._same_size(form, roots, sides)
            for number in range(warm + self._rounds):
                self._fetches(sides, number, warm)
            for name, side in sides.items():
                side("close", name)
        for root in roots.values():
            shutil.rmtree(root)
        self._report(form)
        self._memory(form)

    def _keys(self, form: str, root: pathlib.Path, side: str) -> dict[str, str]:
        keys = form_keys(form) | folder_keys(root) | {"compression.heuristic.enabled": "false"}
        if side == OUR_UNSYNCED:
            keys["store.durable"] = "false"
        return with_pem_keys(keys, self._folder) if side == "plugin" else keys

    def _keep(self, cell: str, side: str, answer: dict[str, Any]) -> None:
        self._answers.setdefault(cell, {}).setdefault(side, []).append(answer)

    def _copies(self, sides: Mapping[str, Side], number: int, warm: int) -> None:
        for name, side in _awake(sides, number, warm):
            os.sync()  # what the one before left to write is not on this one's account
            answer = side("copy", name, id=number + 1)
            if number >= warm:
                self._keep("copy", name, answer)
            side("delete", name, id=number + 1)

    def _same_size(self, form: str, roots: Mapping[str, pathlib.Path], sides: Mapping[str, Side]) -> None:
        """One copy stays for the fetches: every byte of it is compared, and all sides have to store about as much."""
        stored = {}
        for name, side in sides.items():
            side("copy", name, id=1)
            side("whole", name, id=1, check=True)
            stored[name] = sum(file.stat().st_size for file in roots[name].rglob("*.log"))
        if max(stored.values()) > 1.01 * min(stored.values()):
            raise SystemExit(f"{form}: the sides store different things: {stored}")
        os.sync()

    def _fetches(self, sides: Mapping[str, Side], number: int, warm: int) -> None:
        chance = random.Random(number)
        starts = positions(self._size_bytes, RANDOM_READS, chance)
        asked: list[tuple[str, str, dict[str, Any]]] = [
            ("whole", "whole", {"into": True}),
            ("whole by views", "whole", {}),
            ("random", "random", {"starts": starts, "given": True}),
            ("random, open end", "random", {"starts": starts, "given": False}),
        ]
        for cell, operation, fields in asked:
            for name, side in _awake(sides, number, warm):
                if name == OUR_UNSYNCED or (cell == "whole by views" and name == "plugin"):
                    continue
                answer = side(operation, name, id=1, check=number == warm - 1, **fields)
                if number >= warm:
                    self._keep(cell, name, answer)

    def _report(self, form: str) -> None:
        for side, bars in (("ours", COPY_BARS), (OUR_UNSYNCED, UNSYNCED_BARS)):
            name = f"copy {form}" + (f" {side}" if side == OUR_UNSYNCED else "")
            self._speeds(name, self._answers["copy"][side], self._answers["copy"]["plugin"], bars[form])
        whole = self._answers["whole"]
        self._speeds(f"fetch whole {form}", whole["ours"], whole["plugin"], WHOLE_BARS[form])
        views = self._answers["whole by views"]["ours"]
        self._speeds(f"fetch whole {form} by views", views, whole["plugin"], None)
        for cell, bar in (("random", RANDOM_BARS[form]), ("random, open end", None)):
            p50s = {
                side: [1000 * statistics.median(answer["each"]) for answer in answers]
                for side, answers in self._answers[cell].items()
            }
            told = f"p50 {spread(p50s['ours'], '.2f')} ms, the plugin {spread(p50s['plugin'], '.2f')}; "
            told += f"rounds {ratios(p50s['ours'], p50s['plugin'])}"
            value = statistics.median(p50s["ours"]) / statistics.median(p50s["plugin"])
            what = "fetch random MiB" + cell.removeprefix("random")
            self._found.add(f"{what}, {form}, of the plugin's time", told, value, bar)

    def _speeds(self, what: str, mine: Sequence[Any], theirs: Sequence[Any], bar: float | None) -> None:
        speeds = [[self._size_bytes / answer["wall"] / 1e6 for answer in answers] for answers in (mine, theirs)]
        cpu = [spread([answer["cpu"] for answer in answers], ".2f") for answers in (mine, theirs)]
        told = f"{spread(speeds[0])} MB/s, the plugin {spread(speeds[1])}; CPU s {cpu[0]}, {cpu[1]}; "
        told += f"rounds {ratios(*speeds)}"
        value = statistics.median(speeds[0]) / statistics.median(speeds[1])
        self._found.add(f"{what}, times the plugin", told, value, bar, least=True)

    def _memory(self, form: str) -> None:
        """Ten copies at once in fresh processes, behind one copy: what each is at most."""
        peaks, told = {}, []
        for name, start in (("ours", ours), ("plugin", plugin)):
            root = self._folder / "ten"
            with start(self._description) as side:
                side("open", name, keys=self._keys(form, root, name))
                idle = side("memory")["VmRSS"]
                side("copy", name, id=1)
                side("peak")
                os.sync()
                answer = side("copies", name, ids=list(range(2, 2 + COPIES_AT_ONCE)))
                peaks[name] = side("memory")["VmHWM"]
            shutil.rmtree(root)
            speed = COPIES_AT_ONCE * self._size_bytes / answer["wall"] / 1e6
            told.append(f"{name} {peaks[name] / MIB:.0f} MiB ({idle / MIB:.0f} idle, {speed:.0f} MB/s)")
        value = peaks["ours"] / peaks["plugin"]
        what = f"resident at most, {COPIES_AT_ONCE} copies at once {form}, of the plugin's"
        self._found.add(what, ", ".join(told), value, MEMORY_BAR)


def _awake(sides: Mapping[str, Side], number: int, warm: int) -> Iterator[tuple[str, Side]]:
    """Whose turn it is: the plugin warms up by itself until the last rounds before the ones that count."""
    for name, side in sides.items():
        if name == "plugin" or number >= warm - OUR_WARM:
            yield name, side
