"""What the engine is made of: counted from a tree's files, and traced by runs through it.

    python docs/structure.py count [REVISION …]     code lines (no blanks, comments, docstrings), modules, protocols
    python docs/structure.py journeys [--names]     the modules that six calls enter, everything warm

A column each revision; without one, the files as they are. Rooms are folders below the engine's root, two deep.
"""

from __future__ import annotations

import ast
import asyncio
import datetime
import io
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import tokenize
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENGINE = "engine/tierlog/"
_NO_CODE = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


# ---- counting


def _git(*words: str) -> str:
    return subprocess.run(("git", *words), cwd=ROOT, capture_output=True, text=True, check=True).stdout


def sources(revision: str | None) -> Iterator[tuple[str, str]]:
    """(path, text) of the Python files of the engine and the benches."""
    listed = ("ls-files",) if revision is None else ("ls-tree", "-r", "--name-only", revision)
    for path in _git(*listed, "--", ENGINE, "bench").splitlines():
        if path.endswith(".py") and (revision or (ROOT / path).is_file()):
            yield path, (ROOT / path).read_text() if revision is None else _git("show", f"{revision}:{path}")


def code_lines(source: str) -> int:
    """Lines that hold code."""
    words: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(getattr(first.value, "value", None), str):
                words.update(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - words)


def protocols(source: str) -> int:
    """Classes that name Protocol among their bases."""
    classes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))
    return sum(any(ast.unparse(base).split("[")[0] == "Protocol" for base in node.bases) for node in classes)


def count(revision: str | None) -> tuple[Counter[str], Counter[str]]:
    """The figures of a tree, and the code lines of its rooms."""
    found: Counter[str] = Counter()
    rooms: Counter[str] = Counter()
    for path, source in sources(revision):
        if not path.startswith(ENGINE):
            found["bench, all lines"] += source.count("\n")
            continue
        folders, is_module = path.removeprefix(ENGINE).split("/")[:-1], not path.endswith("/__init__.py")
        lines = code_lines(source)
        rooms[".".join(folders[:2]) or "(top)"] += lines
        if folders[:1] == ["testing"]:
            found["tierlog.testing, code lines"] += lines
            continue
        found["engine, code lines"] += lines
        found["modules (__init__ not counted)"] += is_module
        found["folders"] += not is_module
        found["modules below 40 code lines"] += is_module and lines < 40
        found["protocols"] += protocols(source)
    return found, rooms


def print_counts(revisions: list[str | None]) -> None:
    columns = [count(revision) for revision in revisions]
    print(f"{'':34}", *(f"{revision or 'here':>12.12}" for revision in revisions))
    for part in (0, 1):
        for name in sorted({name for column in columns for name in column[part]}):
            print(f"{name:34}", *(f"{column[part][name]:>12}" for column in columns))
        print()


# ---- tracing


class Trace:
    """The modules whose functions run while it records, in any thread that began behind ``install``."""

    def __init__(self) -> None:
        self.is_recording = False
        self.modules: set[str] = set()

    def install(self) -> None:
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if self.is_recording and event == "call":
            name = str(frame.f_globals.get("__name__"))
            if name.startswith("tierlog.") and frame.f_code.co_name not in ("<module>", "_find_and_load"):
                self.modules.add(name)

    def of(self, call: Callable[[], object]) -> set[str]:
        """The modules that a call enters."""
        self.modules = set()
        self.is_recording = True
        try:
            call()
        finally:
            self.is_recording = False
        return self.modules


@contextmanager
def _replica(bucket: pathlib.Path) -> Iterator[str]:
    """A replica on a loop of a thread of its own; its address."""
    from tierlog.broker.replica.replica_config import read_replica_config
    from tierlog.broker.replica.serving import Replica

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def made() -> Replica:
        return Replica(read_replica_config(str(bucket), {}, cluster_id=None))

    server = asyncio.run_coroutine_threadsafe(made(), loop).result()
    host, port = asyncio.run_coroutine_threadsafe(server.start(), loop).result()
    try:
        yield f"{host}:{port}"
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _remote_journeys(trace: Trace, folder: pathlib.Path) -> Iterator[tuple[str, set[str]]]:
    """A copy, a range of it, and what two segments are to clients of a replica."""
    from tests.support.manager_configs import local_keys
    from tests.support.raw_client import RawClient, request_class
    from tests.support.segments import make_segment, sound_log
    from tierlog import read
    from tierlog.remote import TieredStorageManager

    made = [
        make_segment(sound_log(100, base_offset=at), lineage={4: 100}).closed_in(folder / f"log-{at}")
        for at in (100, 300)
    ]
    bucket, partition = folder / "bucket", made[0].metadata.topic_id_partition.partition
    with TieredStorageManager() as manager:
        manager.configure(local_keys(bucket) | {"compression.enabled": "true"})
        manager.copy_log_segment_data(made[0].metadata, made[0].data)
        copied = trace.of(lambda: manager.copy_log_segment_data(made[1].metadata, made[1].data))
    yield "a copy", copied
    yield "tierlog.read, plan and records", trace.of(lambda: read(bucket, "orders", threads=1).read_all())
    with _replica(bucket) as bootstrap:
        client = RawClient(bootstrap)
        asked = request_class(1, 12)
        inner: Any = sys.modules[asked.__module__]

        def fetch(offset: int) -> None:
            wanted = inner.FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            answer = client.ask(
                asked(
                    topics=(inner.FetchTopic(topic="orders", partitions=(wanted,)),),
                    session_id=0,
                    session_epoch=-1,
                    max_wait=datetime.timedelta(milliseconds=100),
                    min_bytes=1,
                    forgotten_topics_data=(),
                )
            )
            if not answer.responses[0].partitions[0].records:
                raise SystemExit(f"no records from {offset} on: {answer}")

        fetch(100)
        yield "a Fetch of the replica, not cached", trace.of(lambda: fetch(300))
        yield "a Fetch of the replica, cached", trace.of(lambda: fetch(100))
        client.close()


def _log_journeys(trace: Trace, folder: pathlib.Path) -> Iterator[tuple[str, set[str]]]:
    """An append as leader, and a record of metadata."""
    from tests.contract.metadata_events import PARTITION, segment
    from tierlog.log.local import LogDirectory
    from tierlog.records.builder import RecordBatchBuilder
    from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
    from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic

    builder = RecordBatchBuilder(0)
    builder.append(b"key", b"value", timestamp_ms=1)
    batch = builder.build()
    with LogDirectory.open(str(folder / "logs")) as directory:
        log = directory.log("orders", 0)
        log.append_as_leader(bytearray(batch), leader_epoch=0)
        yield "an append as leader", trace.of(lambda: log.append_as_leader(bytearray(batch), leader_epoch=0))
    topic = MemoryMetadataTopic(1)
    with TopicBasedRemoteLogMetadataManager(open_logs=lambda config, *, machine: topic) as manager:
        manager.configure({"log.dir": str(folder), "remote.log.metadata.topic.num.partitions": 1})
        manager.on_partition_leadership_changes({PARTITION}, set())
        while not manager.is_ready(PARTITION):
            time.sleep(0.01)
        manager.add_remote_log_segment_metadata(segment(1, 0, 9)).result()
        add, second = manager.add_remote_log_segment_metadata, segment(2, 10, 19)
        yield "a record of metadata, stored", trace.of(lambda: add(second).result())


#: What each request of a server enters before its handler, and behind it.
_SOCKET = (
    *("tierlog.serving.", "tierlog.broker.server.", "tierlog.broker.handling"),
    *("tierlog.broker.protocol.requests", "tierlog.broker.protocol.decoding", "tierlog.broker.protocol.responses"),
)


def journeys() -> Iterator[tuple[str, set[str]]]:
    """(what, modules entered)."""
    sys.path.insert(0, str(ROOT))
    trace = Trace()
    trace.install()
    try:
        with tempfile.TemporaryDirectory() as name:
            yield from _remote_journeys(trace, pathlib.Path(name))
            yield from _log_journeys(trace, pathlib.Path(name))
    finally:
        threading.setprofile(None)
        sys.setprofile(None)


def main() -> None:
    if sys.argv[1:2] == ["journeys"]:
        for what, modules in journeys():
            inner = sum(not name.startswith(_SOCKET) for name in modules)
            print(f"{what:40} {len(modules):4}" + (f", from the handler on {inner}" if inner < len(modules) else ""))
            if "--names" in sys.argv:
                print(*(f"    {name}" for name in sorted(modules)), sep="\n")
        return
    print_counts([*sys.argv[2:]] or [None])


if __name__ == "__main__":
    main()
