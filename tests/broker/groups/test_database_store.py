"""The groups' store in SQLite: killed, full, locked, damaged."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from tests.support.checkout import ROOT
from tests.support.group_rig import Rig, StepStore
from tests.support.group_writer import GROUPS
from tests.support.stored_groups import reopened, write
from tests.support.waiting import LIMIT_SECONDS
from tierlog.broker.groups.database_store import CREATE, DatabaseStore, open_group_store
from tierlog.broker.groups.stored_state import (
    Change,
    CommittedOffset,
    DeleteGroup,
    DeleteOffsets,
    MemoryStore,
    SaveGroup,
    SaveOffsets,
    StoredGroup,
    StoredMember,
    StoredState,
)
from tierlog.errors import ConfigError, CorruptDataError, StoreError, StorePermissionError
from tierlog.remote.api import Uuid
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.sqlite.database import Database, Step

MACHINE = Machine()
COMMITS = 40
NOTE = CommittedOffset(5, 2, "nöte", 17, 99, Uuid(b"i" * 16))
MEMBER = StoredMember("m", "i", "c", "/h", 60_000, 10_000, (("range", b"\x00"), ("sticky", b"")), b"\xff")
GROUP = StoredGroup("readers", 3, "consumer", "range", "m", 17, (MEMBER,))


def test_what_is_stored_is_there_again(tmp_path: pathlib.Path) -> None:
    """Otherwise a restart loses offsets and members."""
    folder = tmp_path / "new" / "state"
    store = open_group_store(MACHINE, str(folder))
    assert store.load() == StoredState()
    assert write(store, SaveGroup(GROUP), SaveOffsets("readers", [("orders", 0, NOTE), ("orders", 1, NOTE)])) is None
    assert write(store, SaveOffsets("readers", [("orders", 0, CommittedOffset(6, -1, "", 18))])) is None
    assert write(store, DeleteOffsets("readers", [("orders", 1), ("nowhere", 0)])) is None
    assert write(store, SaveGroup(StoredGroup("gone", 0, None, None, None, 0)), DeleteGroup("gone")) is None
    assert write(store) is None
    store.close()
    store.close()
    assert isinstance(write(store, SaveGroup(GROUP)), StoreError)
    state = reopened(folder)
    assert state.groups == {"readers": GROUP}
    assert state.offsets == {"readers": {("orders", 0): CommittedOffset(6, -1, "", 18)}}


texts = st.text(max_size=5)
offsets = st.builds(
    CommittedOffset,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    texts,
    st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(0, 2**62),
    st.binary(min_size=16, max_size=16).map(Uuid),
)
members = st.builds(
    StoredMember,
    texts,
    st.none() | texts,
    texts,
    texts,
    st.integers(-1, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.lists(st.tuples(texts, st.binary(max_size=20)), min_size=1, unique_by=lambda each: each[0]).map(tuple),
    st.binary(max_size=20),
)


@st.composite
def groups(draw: st.DrawFn) -> StoredGroup:
    group_id = draw(st.sampled_from(["a", "b", "\x00", ""]))
    its = draw(st.lists(members, max_size=3, unique_by=lambda member: member.member_id))
    common = set.intersection(*({name for name, _ in member.protocols} for member in its)) if its else set()
    if not common:
        return StoredGroup(group_id, draw(st.integers(0, 2**31 - 1)), draw(st.none() | texts), None, None, 5)
    name = draw(st.sampled_from(sorted(common)))
    leader = draw(st.sampled_from(its)).member_id
    return StoredGroup(group_id, draw(st.integers(0, 2**31 - 1)), draw(texts), name, leader, 5, tuple(its))


group_ids = st.sampled_from(["a", "b", "\x00", ""])
topics = st.sampled_from(["t", "u", ""])
changes = st.one_of(
    groups().map(SaveGroup),
    group_ids.map(DeleteGroup),
    st.builds(SaveOffsets, group_ids, st.lists(st.tuples(topics, st.integers(0, 2), offsets), max_size=3)),
    st.builds(DeleteOffsets, group_ids, st.lists(st.tuples(topics, st.integers(0, 2)), max_size=3)),
)


@settings(max_examples=12)
@given(st.lists(st.lists(changes, max_size=4), max_size=6))
def test_any_changes_are_stored_as_they_are(
    tmp_path_factory: pytest.TempPathFactory, writes: list[list[Change]]
) -> None:
    """Otherwise some odd name or number comes back as another, or takes a neighbour with it."""
    folder = tmp_path_factory.mktemp("state")
    model = StepStore()
    store = open_group_store(MACHINE, str(folder))
    for each in writes:
        assert write(store, *each) is None
        model.write(each, lambda _: None)
    store.close()
    model.flush()
    state, expected = reopened(folder), model.load()
    assert state.groups == expected.groups
    assert state.offsets == {group_id: of for group_id, of in expected.offsets.items() if of}


class GatedDatabase(Database):
    """A Database whose commits wait, or fail, when a test says so.

    Attributes:
        commits: How many there were.
        fault: What each commit fails with; None: it goes on.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.gate = threading.Event()
        self.gate.set()
        self.commits = 0
        self.fault: Exception | None = None

    def commit(self, steps: Iterable[Step]) -> None:
        assert self.gate.wait(LIMIT_SECONDS)
        self.commits += 1
        if self.fault is not None:
            raise self.fault
        self._database.commit(steps)

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        return self._database.rows(statement)

    def close(self) -> None:
        self._database.close()


@pytest.fixture
def gated(tmp_path: pathlib.Path) -> Iterator[tuple[DatabaseStore, GatedDatabase]]:
    store = open_group_store(MACHINE, str(tmp_path))
    assert isinstance(store, DatabaseStore)
    database = GatedDatabase(store._database)
    store._database = database
    yield store, database
    store.close()


def commit_of(number: int) -> SaveOffsets:
    return SaveOffsets("readers", [("orders", number, NOTE)])


def test_writes_that_wait_share_a_transaction(gated: tuple[DatabaseStore, GatedDatabase]) -> None:
    """Otherwise a thousand consumers that commit at once wait for a thousand fsyncs."""
    store, database = gated
    told: list[tuple[int, Exception | None]] = []
    database.gate.clear()
    for number in range(300):
        store.write([commit_of(number)], lambda error, number=number: told.append((number, error)))
    assert told == []
    database.gate.set()
    assert write(store) is None
    assert told == [(number, None) for number in range(300)]
    assert database.commits <= 3
    assert len(store.load().offsets["readers"]) == 300


def test_a_failed_transaction_is_told_to_all_and_the_next_is_tried(
    gated: tuple[DatabaseStore, GatedDatabase],
) -> None:
    """Otherwise a disk that was full for a minute has the server refuse commits for ever."""
    store, database = gated
    database.fault = StoreError("disk full")
    told: list[Exception | None] = []
    database.gate.clear()
    for number in range(5):
        store.write([commit_of(number)], told.append)
    database.gate.set()
    assert write(store, commit_of(9)) is database.fault
    assert told == [database.fault] * 5
    database.fault = None
    assert write(store, commit_of(1)) is None
    assert list(store.load().offsets["readers"]) == [("orders", 1)]


def test_a_full_disk_is_told_once_a_minute(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line a commit fills the disk further, and hides all else that is logged."""
    clock = ManualClock()
    store = open_group_store(Machine(clock=clock), str(tmp_path))
    assert isinstance(store, DatabaseStore)
    database = store._database = GatedDatabase(store._database)
    database.fault = StoreError("disk full")
    for seconds in (0, 1, 58, 1, 0):
        clock.advance(seconds)
        assert write(store, commit_of(1), commit_of(2)) is database.fault
    assert [record.getMessage() for record in caplog.records] == [
        "groups: 2 changes were not stored: disk full",
        "groups: 6 changes were not stored: disk full",
    ]
    store.close()


def test_a_damaged_database_is_written_no_more(gated: tuple[DatabaseStore, GatedDatabase]) -> None:
    """Otherwise a file that is broken is broken further, and some commits seem to work."""
    store, database = gated
    database.fault = damage = CorruptDataError("malformed")
    assert write(store, commit_of(1)) is damage
    database.fault = None
    assert write(store, commit_of(1)) is damage
    assert database.commits == 1


def test_one_bad_value_does_not_fail_its_neighbours(gated: tuple[DatabaseStore, GatedDatabase]) -> None:
    """Otherwise one client can fail the commits of all others."""
    store, database = gated
    told: list[Exception | None] = []
    database.gate.clear()
    store.write([commit_of(1)], told.append)
    for topic in ("a", "\ud800", "b"):
        store.write([SaveOffsets("readers", [(topic, 0, NOTE)])], told.append)
    database.gate.set()
    assert write(store) is None
    assert [type(error) for error in told] == [type(None), type(None), UnicodeEncodeError, type(None)]
    assert {topic for topic, _ in store.load().offsets["readers"]} == {"orders", "a", "b"}


def test_a_directory_that_is_in_use_is_refused(tmp_path: pathlib.Path) -> None:
    """Otherwise two servers over one state directory overwrite each other's offsets."""
    store = open_group_store(MACHINE, str(tmp_path))
    with pytest.raises(ConfigError, match=r"groups\.sqlite is in use: each server needs a state directory of its own"):
        open_group_store(MACHINE, str(tmp_path))
    store.close()
    open_group_store(MACHINE, str(tmp_path)).close()


def stored(folder: pathlib.Path) -> pathlib.Path:
    """A state directory with a group and offsets; its file."""
    store = open_group_store(MACHINE, str(folder))
    assert write(store, SaveGroup(GROUP), SaveOffsets("readers", [("orders", 0, NOTE)])) is None
    store.close()
    return folder / "groups.sqlite"


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("DELETE FROM groups", "members of 'readers', and no such group"),
        ("DELETE FROM members", "members of"),
        ("DELETE FROM protocols", "a protocol that not all its members support"),
        ("UPDATE groups SET leader_id = 'nobody'", "of table groups do not match their checksum"),
        ("UPDATE groups SET protocol_name = NULL", "of table groups do not match their checksum"),
        ("UPDATE groups SET generation_id = 'x'", "of table groups do not match their checksum"),
        ("UPDATE offsets SET committed_offset = 5.5", "of table offsets do not match their checksum"),
        ("UPDATE offsets SET metadata = CAST(metadata AS BLOB)", "of table offsets do not match their checksum"),
        ("UPDATE offsets SET metadata = CAST(x'ff' AS TEXT)", "of table offsets do not match their checksum"),
        ("UPDATE offsets SET expire_timestamp_ms = NULL", "of table offsets do not match their checksum"),
        ("UPDATE members SET assignment = 7", "of table members do not match their checksum"),
        ("UPDATE protocols SET metadata = 'text'", "of table protocols do not match their checksum"),
        ("UPDATE protocols SET name = name || metadata, metadata = x''", "of table protocols do not match"),
        ("DROP TABLE offsets", "its tables are not those of version 2"),
        ("CREATE INDEX topics ON offsets (topic)", "its tables are not those of version 2"),
    ],
)
def test_tables_that_make_no_sense_are_an_error(tmp_path: pathlib.Path, statement: str, text: str) -> None:
    """Otherwise a damaged file is taken for less than it was, and members and offsets vanish without a word."""
    path = stored(tmp_path)
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    with pytest.raises(CorruptDataError, match=text):
        reopened(tmp_path)


def test_a_file_of_somebody_else_is_left_alone(tmp_path: pathlib.Path) -> None:
    """Otherwise a path that was mistyped destroys another program's data, or an older release a newer one's."""
    path = stored(tmp_path)
    for statement, text in (
        ("PRAGMA user_version = 1", "version 1 of the groups' tables; this release knows 2"),
        ("PRAGMA application_id = 5", "not one of consumer groups"),
    ):
        connection = sqlite3.connect(path)
        connection.execute(statement)
        connection.commit()
        connection.close()
        before = path.read_bytes()
        with pytest.raises(ConfigError, match=text):
            reopened(tmp_path)
        assert path.read_bytes() == before
    path.write_bytes(b"")
    with pytest.raises((ConfigError, CorruptDataError)):
        reopened(tmp_path)
    path.write_bytes(b"kept for years " * 1000)
    with pytest.raises(CorruptDataError, match=r"groups\.sqlite"):
        reopened(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: pathlib.Path) -> None:
    """Otherwise the server starts, and refuses every commit."""
    tmp_path.chmod(0o500)
    with pytest.raises(StorePermissionError):
        open_group_store(MACHINE, str(tmp_path))


def test_a_file_in_the_place_of_the_directory_is_an_error(tmp_path: pathlib.Path) -> None:
    """Otherwise the server starts without a store."""
    (tmp_path / "state").write_text("")
    with pytest.raises(StoreError):
        open_group_store(MACHINE, str(tmp_path / "state"))


def test_a_real_disk_that_is_full_refuses_and_recovers(tmp_path: pathlib.Path) -> None:
    """Otherwise commits on a full disk are answered, or earlier ones lost. Here a file may not grow past a limit."""
    code = (
        "import resource, signal, sys, threading\n"
        "from tierlog.broker.groups.database_store import open_group_store\n"
        "from tierlog.broker.groups.stored_state import CommittedOffset, SaveOffsets\n"
        "from tierlog.runtime.machine import Machine\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "store = open_group_store(Machine(), sys.argv[1])\n"
        "def write(number):\n"
        "    done, told = threading.Event(), []\n"
        "    offset = CommittedOffset(number, -1, 'x' * 4000, 0)\n"
        "    store.write([SaveOffsets('g', [('t', number, offset)])], lambda e: (told.append(e), done.set()))\n"
        "    done.wait(20)\n"
        "    return told[0]\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))\n"
        "fine = [number for number in range(100) if write(number) is None]\n"
        "assert 10 < len(fine) < 100, fine\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))\n"
        "assert write(1000) is None\n"
        "assert sorted(n for _, n in store.load().offsets['g']) == [*fine, 1000]\n"
        "store.close()\n"
        "store = open_group_store(Machine(), sys.argv[1])\n"
        "assert sorted(n for _, n in store.load().offsets['g']) == [*fine, 1000]\n"
        "store.close()\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "state")], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0, ran.stderr


def run_writer(folder: pathlib.Path, *arguments: int, kill_after: float | None = None) -> tuple[dict[str, int], int]:
    """The last offset that each group was answered, and how the process ended; killed some seconds after its first
    answer if told so.
    """
    command = [sys.executable, "-m", "tests.support.group_writer", str(folder), *map(str, arguments)]
    out, err = folder.with_suffix(".out"), folder.with_suffix(".err")
    with out.open("wb") as told, err.open("wb") as said:
        process = subprocess.Popen(command, stdout=told, stderr=said, cwd=ROOT)
        if kill_after is not None:
            while process.poll() is None and not out.stat().st_size:
                time.sleep(0.005)
            time.sleep(kill_after)
            process.kill()
        process.wait(timeout=60)
    assert process.returncode in (0, -signal.SIGKILL), err.read_text()
    answered: dict[str, int] = {}
    for line in out.read_text().splitlines():
        group_id, _, offset = line.partition(" ")
        answered[group_id] = max(answered.get(group_id, 0), int(offset))
    return answered, process.returncode


def check_answered(folder: pathlib.Path, answered: dict[str, int]) -> None:
    """All that was answered is there, and a commit is there with all its partitions or not at all."""
    state = reopened(folder)
    for group_id, offset in answered.items():
        of_group = state.offsets[group_id]
        assert set(of_group) == {("orders", partition) for partition in range(3)}
        [found] = {each.committed_offset for each in of_group.values()}
        assert found >= offset, f"{group_id} went back from {offset} to {found}"


def killed_at(folder: pathlib.Path, step: int) -> bool:
    """Kill a writer at a step, and check; whether it came so far."""
    answered, code = run_writer(folder / str(step), COMMITS, step)
    if (folder / str(step) / "groups.sqlite").exists():
        check_answered(folder / str(step), answered)
    else:
        assert not answered
    return code != 0


@pytest.mark.parametrize("step", [1, 2, 4, 7, 12, 30])
def test_an_answered_commit_survives_a_kill(tmp_path: pathlib.Path, step: int) -> None:
    """Otherwise a consumer reads again, or has skipped, what it was told is committed."""
    assert killed_at(tmp_path, step)


@pytest.mark.slow
def test_an_answered_commit_survives_a_kill_at_every_step(tmp_path: pathlib.Path) -> None:
    """Otherwise there is a moment at which a kill loses a commit."""
    steps = 1
    while killed_at(tmp_path, steps):
        steps += 1
    assert steps > 2 * COMMITS


@pytest.mark.slow
def test_an_answered_commit_survives_kills_at_any_time(tmp_path: pathlib.Path) -> None:
    """Otherwise a kill inside SQLite's own work loses a commit."""
    times = random.Random(5)
    seen: dict[str, int] = {}
    for _ in range(40):
        answered, code = run_writer(tmp_path / "state", 100_000, kill_after=times.uniform(0, 0.2))
        assert code != 0, "it was killed in the midst of its work"
        check_answered(tmp_path / "state", answered)
        seen.update(answered)
    assert len(seen) == GROUPS


def test_a_coordinator_over_the_database_goes_on(tmp_path: pathlib.Path) -> None:
    """Otherwise the coordinator and its store disagree on what a generation is."""

    class WaitingStore:
        """Writes are done when they return."""

        def __init__(self) -> None:
            self.store = open_group_store(MACHINE, str(tmp_path))
            self.load = self.store.load
            self.close = self.store.close

        def write(self, changes: list[Change], done: Any) -> None:
            done(write(self.store, *changes))

        def flush(self) -> None:
            pass

        def crash(self) -> None:
            self.close()
            self.__init__()  # type: ignore[misc]

    rig = Rig(store=WaitingStore())
    leader, follower = rig.stable(2)
    rig.commit(5, follower)
    rig.restart()
    assert rig.heartbeat(leader) == rig.heartbeat(follower) == 0
    assert rig.sync(follower).only.assignment == follower.member_id.encode()
    assert rig.committed() == 5
    rig.store.close()


def test_memory_keeps_nothing() -> None:
    """Otherwise a server without --state is slower than it need be, or pretends to remember."""
    store = open_group_store(MACHINE, None)
    assert isinstance(store, MemoryStore)
    assert write(store, SaveGroup(GROUP)) is None
    assert store.load() == StoredState()
    store.close()


def test_the_tables_are_those_of_the_version_that_is_named() -> None:
    """Otherwise the tables change, and an older file is read as if it were new: raise SCHEMA_VERSION, and migrate."""
    names = [line.split()[2] for line in CREATE if line.startswith("CREATE TABLE")]
    columns = {line.split()[2]: line.count("NOT NULL") for line in CREATE if line.startswith("CREATE TABLE")}
    assert names == ["groups", "members", "protocols", "offsets"]
    assert columns == {"groups": 4, "members": 9, "protocols": 6, "offsets": 9}
