"""The journal of a process that was killed: damage is told from what a kill, a power cut or an earlier use leaves."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from tierlog.errors import CorruptDataError, StoreError, StoreUnavailableError
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.sqlite.database import Database, open_database

FILES = PosixFiles()
CREATE = ("CREATE TABLE t (k INTEGER PRIMARY KEY, v BLOB)",)
INSERT = "INSERT OR REPLACE INTO t VALUES (?, ?)"
HEADER_BYTES, FRAME_BYTES = 32, 24 + 4096


def opened(folder: pathlib.Path) -> Database:
    return open_database(FILES, str(folder / "t.sqlite"), create=CREATE)


def killed(folder: pathlib.Path, database: Database) -> pathlib.Path:
    """What a kill at this moment leaves; its journal."""
    shutil.rmtree(folder / "killed", ignore_errors=True)
    shutil.copytree(folder, folder / "killed")
    database.close()
    return folder / "killed" / "t.sqlite-wal"


def keys(folder: pathlib.Path) -> list[int]:
    database = opened(folder)
    try:
        return [key for [key] in database.rows("SELECT k FROM t ORDER BY k")]
    finally:
        database.close()


def flip(path: pathlib.Path, position: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def test_frames_of_an_earlier_use_are_no_damage(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """SQLite writes its journal from the start again after a checkpoint: a kill after that would end all starts."""
    database = opened(tmp_path)
    for key in range(10):
        database.commit([(INSERT, [(key, bytes(5000))])])
    assert [busy for busy, _, _ in database.rows("PRAGMA wal_checkpoint(RESTART)")] == [0]
    database.commit([(INSERT, [(10, b"")])])
    journal = killed(tmp_path, database)
    assert journal.stat().st_size > 20 * FRAME_BYTES
    assert keys(journal.parent) == list(range(11))
    assert not caplog.records


def test_frames_of_a_transaction_that_was_undone_are_no_damage(tmp_path: pathlib.Path) -> None:
    """A commit that failed on a full disk, and a kill later, would end all starts."""
    database = opened(tmp_path)
    assert list(database.rows("PRAGMA cache_size = 5")) == []
    large = [(INSERT, [(key, bytes(3000)) for key in range(300)])]
    with pytest.raises(StoreError, match="no such table"):
        database.commit([*large, ("INSERT INTO nowhere VALUES (1)", None)])
    for key in (1, 2):
        database.commit([(INSERT, [(key, b"")])])
    journal = killed(tmp_path, database)
    assert journal.stat().st_size > 100 * FRAME_BYTES, "what was undone had reached the journal"
    assert keys(journal.parent) == [1, 2]


def test_a_commit_that_a_kill_cut_off_is_no_damage(tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nobody was told that it is durable; a server that was killed as it wrote would never start again."""
    database = opened(tmp_path)
    database.commit([(INSERT, [(1, b"")])])
    first = (tmp_path / "t.sqlite-wal").stat().st_size
    database.commit([(INSERT, [(2, bytes(20_000))])])
    journal = killed(tmp_path, database)
    whole = {path: path.read_bytes() for path in journal.parent.iterdir()}
    for size in (0, 1, HEADER_BYTES, HEADER_BYTES + 24, first - 1, first, first + 24, first + FRAME_BYTES + 5):
        for path, content in whole.items():
            path.write_bytes(content if path != journal else content[:size])
        assert keys(journal.parent) == ([1] if size >= first else [])
    assert not caplog.records


def test_damage_far_inside_is_found(tmp_path: pathlib.Path) -> None:
    """The journal is read in pieces: damage behind the first one would take commits away without a word."""
    database = opened(tmp_path)
    for key in range(200):
        database.commit([(INSERT, [(key, bytes(9000))])])
    journal = killed(tmp_path, database)
    frame = 450
    assert HEADER_BYTES + (frame + 20) * FRAME_BYTES < journal.stat().st_size
    flip(journal, HEADER_BYTES + frame * FRAME_BYTES + 1000)
    damaged = journal.read_bytes()
    with pytest.raises(CorruptDataError, match=rf"t\.sqlite-wal @ {HEADER_BYTES + frame * FRAME_BYTES}: .* be lost"):
        keys(journal.parent)
    assert journal.read_bytes() == damaged, "it is left as it was, for who can mend it"
    flip(journal, HEADER_BYTES + frame * FRAME_BYTES + 1000)
    assert keys(journal.parent) == list(range(200))


def test_a_commit_that_looks_like_none_is_missed(tmp_path: pathlib.Path) -> None:
    """A frame that ends a commit has the database's size, of which a flipped bit may make 0: then it is no end."""
    database = opened(tmp_path)
    pages, key = 0, 0
    while pages != 8:
        database.commit([(INSERT, [(key, bytes(2000))])])
        [(pages,)] = database.rows("PRAGMA page_count")
        key += 1
    before = (tmp_path / "t.sqlite-wal").stat().st_size
    database.commit([(INSERT, [(0, b"")])])
    end = (tmp_path / "t.sqlite-wal").stat().st_size
    assert end == before + FRAME_BYTES
    database.commit([(INSERT, [(0, b"last")])])
    journal = killed(tmp_path, database)
    size = before + 7
    assert journal.read_bytes()[size - 3 : size + 1] == b"\0\0\0\x08"
    flip(journal, size, 3)
    with pytest.raises(CorruptDataError, match="would be lost"):
        keys(journal.parent)
    flip(journal, size, 3)
    assert keys(journal.parent) == list(range(key))


@pytest.mark.parametrize("position", [0, 3, 7, 9, 13, 17, 23, 31])
def test_a_damaged_header_is_an_error(tmp_path: pathlib.Path, position: int) -> None:
    """SQLite takes such a journal for an empty one, and all its commits are gone."""
    database = opened(tmp_path)
    database.commit([(INSERT, [(1, b"")])])
    journal = killed(tmp_path, database)
    flip(journal, position)
    with pytest.raises(CorruptDataError, match="the header of the write-ahead log"):
        keys(journal.parent)


def test_a_journal_that_another_process_writes_is_in_use(tmp_path: pathlib.Path) -> None:
    """It may look damaged at any moment: a second server would send its operator to mend what is sound."""
    database = opened(tmp_path)
    for key in range(3):
        database.commit([(INSERT, [(key, b"")])])
    flip(tmp_path / "t.sqlite-wal", HEADER_BYTES + 500)
    found = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(StoreUnavailableError, match="locked"):
        opened(tmp_path)
    flip(tmp_path / "t.sqlite-wal", HEADER_BYTES + 500)
    assert sorted(path.name for path in tmp_path.iterdir()) == found
    database.commit([(INSERT, [(3, b"")])])
    database.close()
    assert keys(tmp_path) == [0, 1, 2, 3]
