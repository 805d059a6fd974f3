"""One flipped bit in the groups' database, or in the journal of a server that was killed."""

from __future__ import annotations

import collections
import pathlib
import shutil
import sqlite3

import pytest

from tests.support.command import run_process
from tests.support.replica_server import free_port
from tests.support.stored_groups import reopened, write
from tierlog.broker.groups.database_store import open_group_store
from tierlog.broker.groups.stored_state import (
    Change,
    CommittedOffset,
    DeleteOffsets,
    SaveGroup,
    SaveOffsets,
    StoredGroup,
    StoredMember,
    StoredState,
)
from tierlog.errors import ConfigError, CorruptDataError, StoreError
from tierlog.remote.api import Uuid
from tierlog.runtime.machine import Machine

MACHINE = Machine()
HEADER_BITS = 8 * 100
MEMBERS = tuple(
    StoredMember(
        f"m{number}", instance, "client", "/h", 60_000, 10_000, (("range", b"\x00abc"), ("sticky", b"")), b"\xff"
    )
    for number, instance in enumerate(("i", None))
)


def group(group_id: str, generation_id: int = 3) -> StoredGroup:
    return StoredGroup(group_id, generation_id, "consumer", "range", "m0", 17, MEMBERS)


def commit(group_id: str, offset: int) -> SaveOffsets:
    each = CommittedOffset(offset, 2, "nöte", 17, None if offset % 2 else 99, Uuid(b"i" * 16))
    return SaveOffsets(group_id, [("orders", partition, each) for partition in range(4)])


def make(folder: pathlib.Path, *, page_size: int) -> None:
    """A state directory with a few groups, members and offsets. Small pages make several of each kind."""
    store = open_group_store(MACHINE, str(folder))
    for number in range(3):
        assert write(store, SaveGroup(group(f"g{number}")), commit(f"g{number}", 1000 + number)) is None
    assert write(store, commit("tool", 1)) is None
    store.close()
    connection = sqlite3.connect(folder / "groups.sqlite", isolation_level=None)
    for statement in ("journal_mode = DELETE", f"page_size = {page_size}"):
        connection.execute(f"PRAGMA {statement}").fetchall()
    connection.execute("VACUUM")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.close()
    reopened(folder)


def outcome(folder: pathlib.Path, files: dict[str, bytes]) -> StoredState | str:
    """What a state directory of these files holds, or the kind of the error."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    try:
        return reopened(folder)
    except (CorruptDataError, ConfigError, StoreError) as error:
        return type(error).__name__


def flipped(content: bytes, bit: int) -> bytes:
    out = bytearray(content)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


@pytest.mark.parametrize(
    ("page_size", "step"),
    [
        (512, 41),
        (4096, 397),
        pytest.param(512, 1, marks=pytest.mark.slow),
        pytest.param(4096, 1, marks=pytest.mark.slow),
    ],
)
def test_no_flipped_bit_changes_what_is_loaded(tmp_path: pathlib.Path, page_size: int, step: int) -> None:
    """A consumer would go on at an offset that it never committed, or begin anew, and nobody would know.

    Where the bit matters to nobody, what is written later is there, too; to save time only behind bits of the
    header, unless every bit of the small pages is flipped.
    """
    make(tmp_path / "made", page_size=page_size)
    whole = (tmp_path / "made" / "groups.sqlite").read_bytes()
    expected = reopened(tmp_path / "made")
    changes: list[Change] = [commit("123", 7), SaveGroup(group("g1", 9)), DeleteOffsets("tool", [("orders", 1)])]
    later = StoredState(
        {**expected.groups, "g1": group("g1", 9)},
        {
            **expected.offsets,
            "123": {place: commit("123", 7).offsets[0][2] for place in expected.offsets["g1"]},
            "tool": {place: each for place, each in expected.offsets["tool"].items() if place != ("orders", 1)},
        },
    )
    counts: collections.Counter[str] = collections.Counter()
    state = tmp_path / "state"
    for bit in sorted({*range(0, HEADER_BITS, 7), *range(0, 8 * len(whole), step)}):
        found = outcome(state, {"groups.sqlite": flipped(whole, bit)})
        counts[found if isinstance(found, str) else "same"] += 1
        if isinstance(found, str):
            continue
        assert found == expected, f"bit {bit}"
        if bit >= HEADER_BITS and (step > 1 or page_size > 512):
            continue
        store = open_group_store(MACHINE, str(state))
        try:
            assert write(store, *changes) is None, f"bit {bit}"
        finally:
            store.close()
        assert reopened(state) == later, f"bit {bit}"
    assert counts["CorruptDataError"] > counts.total() / 20, counts
    assert counts["same"] > counts.total() / 4, counts


@pytest.mark.parametrize(("page_size", "step"), [(512, 97), (4096, 997), pytest.param(512, 1, marks=pytest.mark.slow)])
def test_no_flipped_bit_of_a_journal_takes_commits_away(
    tmp_path: pathlib.Path, page_size: int, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    """After a kill the journal alone has the last commits: SQLite drops all behind a bit that is wrong.

    The last commit may be one that a power cut interrupted: it is left out with a warning.
    """
    made = tmp_path / "made"
    make(made, page_size=page_size)
    store = open_group_store(MACHINE, str(made))
    snapshots = []
    for number in range(6):
        assert write(store, commit(f"g{number % 3}", 5000 + number)) is None
        snapshots.append({path.name: path.read_bytes() for path in made.iterdir()})
    store.close()
    killed = snapshots[-1]
    one_less, expected = (outcome(tmp_path / "state", files) for files in snapshots[-2:])
    assert isinstance(expected, StoredState)
    assert expected != one_less
    assert not caplog.records
    counts: collections.Counter[str] = collections.Counter()
    for bit in range(0, 8 * len(killed["groups.sqlite-wal"]), step):
        damaged = {**killed, "groups.sqlite-wal": flipped(killed["groups.sqlite-wal"], bit)}
        caplog.clear()
        found = outcome(tmp_path / "state", damaged)
        if isinstance(found, str):
            counts[found] += 1
            assert {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()} == damaged
        elif found != expected:
            counts["one less"] += 1
            assert found == one_less, f"bit {bit}"
            assert "is left out: it was interrupted, or is damaged" in caplog.text, f"bit {bit}"
    assert counts["CorruptDataError"] > counts["one less"] > 0, counts


def damage(folder: pathlib.Path, *statements: str) -> None:
    """Change a row as a flipped bit does: its checksum stays."""
    connection = sqlite3.connect(folder / "groups.sqlite", isolation_level=None)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def test_the_error_tells_what_damaged_rows_hold(tmp_path: pathlib.Path) -> None:
    """Whoever mends the file by hand has to know which rows to delete, and what was in them."""
    make(tmp_path, page_size=4096)
    damage(tmp_path, "UPDATE offsets SET committed_offset = 3, metadata = CAST(x'ff' AS TEXT) WHERE group_id = 'g1'")
    with pytest.raises(CorruptDataError) as raised:
        reopened(tmp_path)
    text = str(raised.value)
    assert text.startswith(f"{tmp_path}/groups.sqlite: 4 row(s) of table offsets do not match their checksum: ")
    assert "(group_id, topic, partition, committed_offset, leader_epoch, metadata, commit" in text
    assert r"is ('g1', 'orders', 0, 3, 2, '\udcff', 17, None, b'iiiiiiiiiiiiiiii') and ('g1', 'orders', 1, 3" in text
    assert text.endswith("and more")
    damage(tmp_path, "DELETE FROM offsets WHERE group_id = 'g1'")
    assert set(reopened(tmp_path).offsets) == {"g0", "g2", "tool"}


@pytest.mark.server
def test_a_replica_does_not_start_over_a_damaged_row(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """It would serve the other offset before anybody can look at it."""
    make(tmp_path, page_size=4096)
    damage(tmp_path, "UPDATE members SET group_id = 'f0' WHERE group_id = 'g0'")
    address = f"127.0.0.1:{free_port()}"
    done = run_process("replica", str(data / "main-plain" / "objects"), "--state", str(tmp_path), "--listen", address)
    assert done.code == 3, done.err
    said = " ".join(done.err.split())
    assert "groups.sqlite: 2 row(s) of table members do not match their checksum" in said
    assert "('f0', 0, 'm0', 'i'" in said
    assert "Traceback" not in done.err
    assert "Exception ignored" not in done.err
