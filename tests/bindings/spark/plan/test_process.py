"""The child as a process: it answers what it can, says what it cannot, leaks nothing and ends with its driver."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator

import pytest

import pyspark_tierlog
import tierlog
from pyspark_tierlog.listing import list_tiers
from pyspark_tierlog.options.source_options import parse_options
from pyspark_tierlog.plan.frames import FRAME_BYTES_MAX, PROTOCOL
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.planner import HEAD, PlannerChild, PlannerError
from tests.support.waiting import ENDLESS_SECONDS, ends
from tierlog._version import __version__
from tierlog.errors import TierlogError

SECRET = "hunter2hunter2"
LEFT_OUT = {"failOnDataLoss": "false"}
#: obstore tells how long it tried.
ELAPSED = re.compile(r"in [\d.]+[µm]?s")


@pytest.fixture
def orders(tmp_path: pathlib.Path) -> Bucket:
    bucket = Bucket(tmp_path / "orders")
    for number in range(3):
        bucket.segment(f"u{number}", [Batch(30 * number + 10 * n, (b"x" * 50,) * 10) for n in range(3)], lineage={0: 0})
    return bucket


def of(bucket: Bucket, **more: str) -> dict[str, str]:
    return {"path": str(bucket.root), "subscribe": "orders"} | more


class TestVersion:
    def test_the_first_frame(self) -> None:
        """The jar compares it before it believes anything: a plan misread by another version is wrong rows."""
        with PlannerChild() as child:
            assert child.hello is not None
            kind, body = child.hello
        assert kind == "V"
        version = ".".join(str(part) for part in sys.version_info[:3])
        assert json.loads(body) == {"protocol": PROTOCOL, "version": __version__, "python": version}

    def test_planning_needs_no_pyspark(self) -> None:
        """An interpreter for planning may lack PySpark, and importing it costs half a second of every first query."""
        code = (
            "import sys; import pyspark_tierlog.plan.process, pyspark_tierlog.plan.planner; "
            "print(sorted(name for name in sys.modules if name.split('.')[0] in ('pyspark', 'pandas')))"
        )
        roots = os.pathsep.join(str(pathlib.Path(m.__file__ or "").parents[1]) for m in (tierlog, pyspark_tierlog))
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": roots}, capture_output=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"[]\n", b"")


def gap(bucket: Bucket) -> dict[str, str]:
    for path in (bucket.path("u1", name) for name in ("log", "indexes", "rsm-manifest")):
        path.unlink()
    return of(bucket)


def bad_manifest(bucket: Bucket) -> dict[str, str]:
    bucket.path("u1", "rsm-manifest").write_text('{"version": "1"')
    return of(bucket)


def empty(bucket: Bucket) -> dict[str, str]:
    folder = bucket.root.parent / "empty"
    folder.mkdir()
    return of(bucket) | {"path": str(folder)}


ERRORS: dict[str, Callable[[Bucket], dict[str, str]]] = {
    "ConfigError: an option": lambda bucket: of(bucket, startingofset="1"),
    "ConfigError: a column": lambda bucket: of(bucket, columns="valeu"),
    "ConfigError: nothing there": empty,
    "ConfigError: offsets": lambda bucket: of(bucket, startingOffsets='{"orders": {"7": 1}}'),
    "ConfigError: no record so late": lambda bucket: of(bucket, startingTimestamp="99999999999999"),
    "ConfigError: memory": lambda bucket: of(bucket) | {"path": "memory://here"},
    "UnknownTopicError: a topic": lambda bucket: of(bucket, subscribe="order"),
    "ObjectNotFoundError: a folder": lambda bucket: of(bucket) | {"path": str(bucket.root / "none")},
    "DataLossError: a gap": gap,
    "DataLossError: offsets": lambda bucket: of(bucket, startingOffsets='{"orders": {"0": 500}}'),
    "CorruptObjectError: a manifest": bad_manifest,
    "StoreUnavailableError: no store": lambda bucket: (
        of(bucket)
        | {"path": "s3://bucket/x", "store.endpoint": "http://127.0.0.1:9", "store.max_retries": "0"}
        | {"store.aws_access_key_id": "id", "store.secret_access_key": SECRET, "store.region": "us-east-1"}
    ),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_those_of_the_python_path(child: PlannerChild, orders: Bucket, case: str) -> None:
    """A user who switches paths must find the words that the documents and the forums have."""
    options = ERRORS[case](orders)
    kind = case.partition(":")[0]
    with pytest.raises(PlannerError) as told:
        child.plan(options)
    assert told.value.kind == kind
    assert told.value.retriable == (kind == "StoreUnavailableError")
    with pytest.raises(TierlogError) as raised:
        in_process(options)
    assert ELAPSED.sub("", str(told.value)) == ELAPSED.sub("", str(raised.value))
    assert child.plan({"path": str(orders.root), "subscribePattern": "none"} | LEFT_OUT).tasks == []


def in_process(options: dict[str, str]) -> None:
    from pyspark_tierlog.request import scan_requests
    from pyspark_tierlog.table_columns import chosen_schema
    from tierlog import open_tier
    from tierlog.scan.planning.plan import plan_scan

    checked, _ = parse_options(options)
    chosen_schema(checked)
    tiers = list_tiers(checked).checked()
    for pinned, request in zip(tiers, scan_requests(checked, [tier.size_bytes for tier in tiers]), strict=True):
        with open_tier(pinned.path, layout=pinned.layout) as tier:
            plan_scan(tier, request, histories=pinned.histories)


class TestNonsense:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"[]",
            b"\xff",
            b"[" * 100_000,
            b'{"op": "fly"}',
            b'{"op": "list"}',
            b'{"op": "list", "options": {"path": 7}}',
            b'{"op": "list", "options": {}, "more": 1}',
            b'{"op": "plan", "options": {}, "columns": []}',
            b'{"op": "plan", "options": {}, "columns": "value"}',
            b'{"op": "plan", "options": {}, "columns": [], "filters": [["value", "=", 1]]}',
            b'{"op": "plan", "options": {}, "columns": [], "filters": [["offset", "=", true]]}',
            b'{"op": "plan", "options": {}, "columns": [], "limit": -1}',
            b'{"op": "plan", "options": {}, "columns": [], "aggregates": {"group_by": [], "functions": [["sum"]]}}',
        ],
    )
    def test_a_request_that_is_none(self, child: PlannerChild, orders: Bucket, body: bytes) -> None:
        """The driver's session must not lose its planner to one bad request."""
        child.write("Q", body)
        child.write("B", b"a part that nobody waits for")
        child.requests.flush()
        frame = child.read()
        assert frame is not None
        assert frame[0] == "E"
        assert json.loads(frame[1])["kind"] == "PlanProtocolError"
        assert child.plan(of(orders)).tasks != []

    @pytest.mark.parametrize("options", [{}, {"path": "x"}])
    def test_filters_of_another_type(self, child: PlannerChild, orders: Bucket, options: dict[str, str]) -> None:
        """A topic compared with a number is a fault of the jar, and no reason to read everything."""
        listing = child.list(of(orders))
        for wrong in (["topic", "=", 1], ["offset", "=", "x"], ["partition", "in", []]):
            with pytest.raises(PlannerError) as told:
                child.plan(of(orders), listing, filters=[wrong])
            assert told.value.kind == "PlanProtocolError"

    def test_a_listing_that_is_none(self, orders: Bucket) -> None:
        """What comes back is not trusted: a pickle can name any function there is."""
        hostile = b"cos\nsystem\n(S'touch " + str(orders.root / "owned").encode() + b"'\ntR."
        with PlannerChild() as child:
            listing = child.list(of(orders))
            other = child.list(of(orders) | {"path": f"{orders.root}/"})
            whole = b"".join(listing)
            for blobs in ([], [whole[: len(whole) // 2]], [b"\x80\x05N."], [hostile], other):
                with pytest.raises(PlannerError) as told:
                    child.plan(of(orders), blobs)
                assert told.value.kind == "PlanProtocolError"
            assert child.plan(of(orders), [whole[:10], b"", whole[10:]]).tasks != []
        assert not (orders.root / "owned").exists()

    @pytest.mark.few(3)
    @pytest.mark.parametrize(
        "data",
        [
            b"\0",
            HEAD.pack(100, ord("Q")) + b"{}",
            HEAD.pack(-1, ord("Q")),
            HEAD.pack(FRAME_BYTES_MAX + 1, ord("Q")),
            HEAD.pack(2, 0) + b"{}",
            HEAD.pack(38, ord("Q")) + b'{"op":"list","options":{},"blobs": 2} ' + HEAD.pack(1, ord("B")) + b"x",
        ],
        ids=["half a head", "half a body", "negative", "too large", "no type", "a part is missing"],
    )
    def test_a_cut_frame(self, data: bytes) -> None:
        """Nobody knows where the next frame would begin: the child says so and ends, and is started anew."""
        with tempfile.TemporaryFile() as errors:
            child = PlannerChild(stderr=errors)
            child.requests.write(data)
            child.requests.close()
            frame = child.read()
            assert frame is not None
            assert frame[0] == "E"
            assert json.loads(frame[1])["kind"] == "BrokenStreamError"
            assert child.read() is None
            assert child.end() == 1
            errors.seek(0)
            assert b"Traceback" not in errors.read()


def test_a_stream_that_ended_is_forgotten(child: PlannerChild, orders: Bucket) -> None:
    """Others use the child of a query behind it: what it knew must neither stay in memory, nor be told to them."""
    options = of(orders, refreshInterval="1h")

    def ends() -> dict[str, int]:
        ((kind, body),) = child.iter_answer({"op": "stream", "ask": "ends", "stream": "one", "options": options})
        assert kind == "O"
        found: dict[str, int] = json.loads(body)["offsets"]["orders"]
        return found

    assert ends() == {"0": 90}
    orders.segment("u3", [Batch(90, (b"x" * 50,) * 10)], lineage={0: 0})
    assert ends() == {"0": 90}
    for _ in range(2):
        assert list(child.iter_answer({"op": "stream", "ask": "end", "stream": "one", "options": options})) == []
    assert ends() == {"0": 100}


@pytest.mark.parametrize("mode", ["remote-preferred", "local-only"])
def test_columns_of_the_tier_alone_are_refused_with_brokers(child: PlannerChild, orders: Bucket, mode: str) -> None:
    """A schema of the user's names them, and the jar would take other bytes of the brokers' rows for them."""
    options = of(orders, mode=mode) | {"kafka.bootstrap.servers": "broker:9092"}
    asked = {"op": "stream", "ask": "seams", "stream": mode, "options": options, "columns": ["offset", "leaderEpoch"]}
    with pytest.raises(PlannerError, match="does not have the column leaderEpoch"):
        list(child.iter_answer(asked))


class TestEnd:
    def test_at_the_end_of_its_input(self, orders: Bucket) -> None:
        """The driver closed the pipe: what was asked is answered, and nothing stays behind."""
        child = PlannerChild()
        frames = child.iter_answer({"op": "list", "options": of(orders)})
        assert next(frames)[0] == "L"
        assert list(frames) == []
        assert child.end() == 0

    def test_by_a_signal(self) -> None:
        """The jar's way to end it."""
        child = PlannerChild()
        child.process.send_signal(signal.SIGINT)  # Ctrl-C in the shell of the driver
        with pytest.raises(subprocess.TimeoutExpired):
            child.process.wait(0.3)
        child.process.terminate()
        assert child.end() == -signal.SIGTERM

    def test_when_the_driver_is_killed_in_the_middle_of_a_listing(self, tmp_path: pathlib.Path) -> None:
        """Planners of crashed drivers would list a bucket for minutes, each for nobody."""
        options = {"path": "s3://bucket/x", "subscribe": "a", "store.endpoint": "http://127.0.0.1:9"}
        options |= {
            "store.max_retries": "100",
            "store.retry_timeout": f"{ENDLESS_SECONDS}s",
            "store.skip_signature": "true",
        }
        with tempfile.TemporaryFile() as errors:
            child = PlannerChild(stderr=errors)
            child.write("Q", json.dumps({"op": "list", "options": options}).encode())
            child.requests.flush()
            with pytest.raises(subprocess.TimeoutExpired):
                child.process.wait(1)
            with ends():
                assert child.end() == 0

    def test_killed_and_started_anew(self, orders: Bucket) -> None:
        """The jar keeps the listing: another child must plan from it the same."""
        with PlannerChild() as child:
            listing = child.list(of(orders))
            first = child.plan(of(orders), listing)
            child.process.kill()
        shutil.rmtree(orders.root)
        orders.root.mkdir()
        with PlannerChild() as child:
            second = child.plan(of(orders), listing)
        assert (second.segments, second.tasks, second.stores) == (first.segments, first.tasks, first.stores)


class TestOutput:
    def test_what_is_printed_does_not_reach_the_frames(self, tmp_path: pathlib.Path, orders: Bucket) -> None:
        """A library's banner on standard output would be read as a frame of a gigabyte."""
        (tmp_path / "sitecustomize.py").write_text(
            "import atexit, os, threading\n"
            "def shout():\n"
            "    print('from Python'); os.write(1, b'from C\\n'); os.system('echo from a child')\n"
            "import pyspark_tierlog.listing as listing\n"
            "inner = listing.list_tiers\n"
            "def loud(options, *_: object):\n    shout()\n    return inner(options)\n"
            "listing.list_tiers = loud\n"
        )
        paths = os.pathsep.join([str(tmp_path), *sys.path])
        with tempfile.TemporaryFile() as errors:
            with PlannerChild(stderr=errors, environment={"PYTHONPATH": paths}) as child:
                assert child.plan(of(orders)).tasks != []
            errors.seek(0)
            said = errors.read()
        assert [said.count(text) for text in (b"from Python", b"from C", b"from a child")] == [1, 1, 1]

    def test_secrets_reach_the_store_and_nothing_else(self, data: pathlib.Path, orders: Bucket) -> None:
        """The driver's log is read by more people than the bucket."""
        wrong = [
            {"store.secret_access_key": SECRET, "path": "s3://bucket/x", "store.endpoint": "http://127.0.0.1:9"},
            {"store.secret_access_key": SECRET, "minPartitions": "0"},
            {"store.secret_access_key": SECRET, "rsm.encryption.key.pairs": "k1"},
            {"rsm.storage.aws.secret.access.key": SECRET, "rsm.unknown.key": SECRET},
            {"store.no_such_key": SECRET, "path": "s3://bucket/x"},
            {"rsm.storage.azure.connection.string": f"AccountKey={SECRET}", "path": "az://container/x"},
        ]
        with tempfile.TemporaryFile() as errors:
            with PlannerChild(stderr=errors) as child:
                texts = []
                for each in wrong:
                    with pytest.raises(PlannerError) as told:
                        child.plan(of(orders, **{"store.max_retries": "0"}) | each)
                    texts.append(str(told.value))
                child.write("Q", b'{"op": "list", "options": {"store.secret_access_key": "' + SECRET.encode())
                child.write("Q", json.dumps({"op": "list", "options": {"x": [SECRET]}}).encode())
                child.requests.flush()
                texts += [str(child.read()), str(child.read())]
                listing = child.list(of(orders, **{"store.secret_access_key": SECRET}))
                assert SECRET.encode() not in b"".join(listing)
            errors.seek(0)
            assert SECRET.encode() not in errors.read()
        assert not [text for text in texts if SECRET in text]


def resident_bytes(pid: int, name: str) -> int:
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith(name))) * 1024


@contextlib.contextmanager
def counted(child: PlannerChild, options: dict[str, str], listing: list[bytes]) -> Iterator[list[int]]:
    """[ranges] of a plan, its frames thrown away as they come."""
    found = [0]
    for kind, body in child.iter_answer({"op": "plan", "options": options, "columns": []}, listing):
        if kind == "T":
            found[0] += struct.unpack_from(">i", body)[0]
    yield found


@pytest.mark.slow
def test_a_million_ranges_are_a_stream(tmp_path: pathlib.Path) -> None:
    """A plan of a large topic as one value is a gigabyte in the driver's Python, beside the driver."""
    import pickle
    from dataclasses import replace

    segments, entries = 20, 50_000
    bucket = Bucket(tmp_path)
    for number in range(segments):
        bucket.segment(
            f"u{number:02}", [Batch(entries * number, (b"x",))], end_offset=entries * (number + 1) - 1, lineage={0: 0}
        )
    index = tmp_path / "index"
    index.write_bytes(b"".join(struct.pack(">ii", n + 1, 100 * (n + 1)) for n in range(entries - 1)))
    options = {"path": str(tmp_path), "subscribe": "orders", "maxPartitions": "2000000", "maxBytesPerPartition": "64"}
    checked, _ = parse_options(options)
    listing = list_tiers(checked)
    (pinned,) = listing.tiers
    (history,) = pinned.histories

    def inflated(span):  # type: ignore[no-untyped-def]
        from tierlog.remote.api import IndexType
        from tierlog.remote.tier.chunks.stored_segment import StoredPart

        size = 100 * entries
        metadata = replace(span.segment.metadata, segment_size_in_bytes=size)
        parts = [(kind, part) for kind, part in span.segment.parts if kind is not IndexType.OFFSET]
        offsets = (IndexType.OFFSET, StoredPart("index", 0, index.stat().st_size))
        return replace(
            span, segment=replace(span.segment, metadata=metadata, parts=(*parts, offsets), chunk_index=None)
        )

    lineage = replace(history.lineage, spans=tuple(inflated(span) for span in history.lineage.spans))
    huge = replace(pinned, histories=(replace(history, lineage=lineage),))
    blobs = [pickle.dumps(replace(listing, tiers=(huge,)))]
    with PlannerChild() as child:
        child.plan(options, child.list(options))
        before = resident_bytes(child.process.pid, "VmRSS")
        with counted(child, options, blobs) as found:
            assert found == [segments * entries]
        growth = resident_bytes(child.process.pid, "VmHWM") - before
    assert growth < 200 << 20, growth
