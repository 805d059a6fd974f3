"""What all tests share: where the golden data lies, and a check that a test leaves nothing open behind it."""

from __future__ import annotations

import collections
import gc
import os
import pathlib
import signal
import sys
import threading
import time
import zlib
from collections.abc import Generator, Iterator

import hypothesis
import pytest

from tests.support.open_files import iter_open_files
from tests.support.servers import StoreServer, azurite, fake_gcs, seaweed


class SessionPeers:
    """The servers of the session's fixtures, and Spark's JVM where there is one."""

    def __init__(self) -> None:
        self._servers: list[StoreServer] = []

    def add(self, server: StoreServer) -> None:
        """A server that runs from now on."""
        self._servers.append(server)

    def running(self) -> bool:
        """Whether there is any."""
        context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
        return bool(self._servers) or getattr(context, "_gateway", None) is not None


DATA = pathlib.Path(__file__).resolve().parent / "data"
CHECKOUT = DATA.parent.parent
FIXTURES = pathlib.Path(os.environ.get("TIERLOG_FIXTURES") or CHECKOUT.parent / "shared" / "fixtures")
FIXTURES_ABSENT = f"the full golden data is not at {FIXTURES} (set TIERLOG_FIXTURES)"

# A developer's runs look for new cases; CI replays the same ones, so that it is red for a change and for nothing else.
hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", deadline=None, print_blob=True, derandomize=True, database=None)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")

# A thread that ends on its own is given this long before it counts as left behind; on a busy machine it needs a while.
SETTLE_SECONDS = 30.0
# Threads that are allowed to outlive a test: name prefix -> why.
LASTING_THREADS = {
    "pytest-": "pytest's own watchers",
    "Dummy-": "a thread of a native library (DuckDB) that called into Python; the library's, not ours to end",
    "ThreadPoolExecutor-py4j": "py4j keeps its callback pool for the life of the Spark session",
}
# Marks of what `make test` leaves out.
LEFT_OUT = ("slow", "interop", "more")
# The fixtures of real servers.
SERVERS = frozenset(("s3", "azure", "gcs"))
# Marks under which sockets and foreign threads outlive a test: they belong to a server or a JVM of the whole session.
SHARED_PEER_MARKS = ("spark", "server", "interop")
PEERS = SessionPeers()


def pytest_configure() -> None:
    """Tests, and the commands that they start, get the signals that ``nohup`` and a script's ``&`` make this process
    ignore: a process hands on what it ignores, and not what it handles.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collecting makes a million objects that stay: Python's collector of garbage skips them, then and later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in this hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What shares a session of Spark or a server is run by one worker, else a file is (``-n 2 --dist loadgroup``).

    First come the tests of what others would hang by, which say so in plain words.
    """
    _leave_to_test_more(items)
    items.sort(key=lambda item: item.path.stem != "test_obstore_bridge")
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(_worker_group(item)))


def _leave_to_test_more(items: list[pytest.Item]) -> None:
    """Mark the cases of a test beyond its ``few(n)`` as ``more``: which ones is drawn by their names, so that a run has
    each value of several parameters about as often.
    """
    cases = collections.defaultdict[str, list[pytest.Item]](list)
    for item in items:
        if item.get_closest_marker("few") and not any(map(item.get_closest_marker, LEFT_OUT)):
            cases[item.nodeid.partition("[")[0]].append(item)
    for drawn in cases.values():
        few = drawn[0].get_closest_marker("few")
        drawn.sort(key=lambda item: zlib.crc32(item.name.encode()))
        for item in drawn[few.args[0] if few is not None else 0 :]:
            item.add_marker(pytest.mark.more)


def _worker_group(item: pytest.Item) -> str:
    fixtures = getattr(item, "fixturenames", ())
    if "spark_session" in fixtures:
        return "spark"
    if item.get_closest_marker("server") is not None or not SERVERS.isdisjoint(fixtures):
        return "servers"
    return f"{item.path.parent.name}/{item.path.stem}"


@pytest.fixture(scope="session")
def data() -> pathlib.Path:
    """The committed subset of the golden data: ``data/<run>/…`` in the shape of the full set."""
    return DATA


@pytest.fixture(scope="session")
def fixtures() -> pathlib.Path:
    """The full golden data; the test is skipped, and the summary says so, where it is absent."""
    if not (FIXTURES / "README.md").is_file():
        pytest.skip(FIXTURES_ABSENT)
    return FIXTURES


# One server of each kind for the whole run; each test works below a prefix of its own.


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with seaweed(tmp_path_factory.mktemp("seaweed")) as server:
        PEERS.add(server)
        yield server


@pytest.fixture(scope="session")
def azure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with azurite(tmp_path_factory.mktemp("azurite")) as server:
        PEERS.add(server)
        yield server


@pytest.fixture(scope="session")
def gcs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    with fake_gcs(tmp_path_factory.mktemp("fake-gcs")) as server:
        PEERS.add(server)
        yield server


def open_descriptors(*, sockets: bool) -> collections.Counter[str]:
    """What this process holds open: path or kind → how often.

    Event descriptors and pipes of the native runtimes (tokio in obstore) start with their first use and stay: they are
    not counted.
    """
    found: collections.Counter[str] = collections.Counter()
    for path in iter_open_files():
        target = str(path)
        if target.startswith("socket:"):
            found["a socket"] += sockets
        elif target.startswith("/") and not target.startswith(("/proc/", "/dev/", "/sys/")):
            found[target] += 1
    return found


def lasting(thread: threading.Thread) -> bool:
    return any(thread.name.startswith(prefix) for prefix in LASTING_THREADS)


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fails a test that leaves a file, a socket or a thread behind: in a daemon each one is a slow death."""
    shared_peer = any(request.node.get_closest_marker(mark) for mark in SHARED_PEER_MARKS)
    sockets = not shared_peer and not PEERS.running()
    descriptors = open_descriptors(sockets=sockets)
    threads = set(threading.enumerate())
    yield
    deadline = time.monotonic() + SETTLE_SECONDS
    while True:
        left = open_descriptors(sockets=sockets) - descriptors
        alive = [t for t in threading.enumerate() if t not in threads and not lasting(t) and not shared_peer]
        if not left and not alive:
            return
        if time.monotonic() > deadline:
            pytest.fail(f"left open: {sorted(left)}; left running: {[t.name for t in alive]}", pytrace=False)
        gc.collect()  # a traceback's cycle may hold the file for a moment longer
        time.sleep(0.02)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line that says what was left out, so that a green run is not taken for more than it is."""
    reasons = [str(getattr(report, "longrepr", "")) for report in terminalreporter.stats.get("skipped", [])]
    without = sum(FIXTURES_ABSENT in reason for reason in reasons)
    if without:
        terminalreporter.write_line(f"{without} tests skipped: {FIXTURES_ABSENT}")
