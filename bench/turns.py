"""Sides of a comparison as processes that do one round for each line of JSON, so that they can take turns.

Every side answers the same questions (``OPERATIONS``): our storage manager (``bench/turns_ours.py``), the bare calls
(``bench/turns_bare.py``) and the Java plugin (``bench/peers/PluginTurns.java``). A side measures itself, so the
hand-over does not count; a process that lives for all rounds is warm, and its memory can be told.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from bench.logs import MIB
from bench.side_by_side import ROOT
from tests.support.peers import install
from tests.support.peers import plugin as plugin_peer

#: What a side is asked, and the fields of it beside ``manager``, the name of one that was opened.
OPERATIONS = {
    "open": "keys: configure a manager of that name",
    "close": "end it",
    "copy": "id: copy the segment under that id; answers wall and cpu seconds",
    "copies": "ids: the same at once, a thread each",
    "delete": "id: remove it",
    "whole": "id, check: read the whole segment once; wall, cpu",
    "random": "id, starts, given, check: a mebibyte at each position, one thread; wall, cpu, each",
    "many": "id, lists, given, check: a thread for each list of positions; wall, cpu, each",
    "peak": "the high-water mark of resident memory begins anew",
    "memory": "VmRSS and VmHWM in bytes, and threads",
}
READ_BYTES = MIB


class Side:
    """One process; call it as ``side("copy", "zstd", id=3)``."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self._process = process

    def __call__(self, operation: str, manager: str = "", **fields: Any) -> dict[str, Any]:
        """The answer to one line. If the side failed, the program ends with its message."""
        assert operation in OPERATIONS
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": operation, "manager": manager, **fields}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self.name} ended with {self._process.wait()} at {operation} {manager}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SystemExit(f"{self.name}, {operation} {manager}: {answer['error']}")
        return answer


@contextlib.contextmanager
def started(name: str, command: Sequence[str]) -> Iterator[Side]:
    """A block around a running side."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        yield Side(name, process)
    finally:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def ours(segment_file: str) -> Iterator[Side]:
    with started("ours", [sys.executable, "-m", "bench.turns_ours", segment_file]) as side:
        yield side


@contextlib.contextmanager
def bare(segment_file: str) -> Iterator[Side]:
    with started("bare calls", [sys.executable, "-m", "bench.turns_bare", segment_file]) as side:
        yield side


@contextlib.contextmanager
def plugin(segment_file: str) -> Iterator[Side]:
    """A JVM of its own until the block ends."""
    java = [install.java(), "-Xmx2g", "-XX:+UseG1GC", "-cp", plugin_peer.class_path()]
    with started(
        "the plugin", [*java, str(ROOT / "bench" / "peers" / "PluginTurns.java"), segment_file, plugin_peer.MANAGER]
    ) as side:
        yield side


def positions(size_bytes: int, count: int, chance: random.Random) -> list[int]:
    """The positions of mebibytes in a segment that are read."""
    return [chance.randrange(size_bytes - READ_BYTES) for _ in range(count)]
