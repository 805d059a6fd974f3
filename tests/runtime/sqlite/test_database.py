"""A SQLite database that survives, or says clearly what is wrong with it."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

from tierlog.errors import CorruptDataError, ObjectNotFoundError, StoreError, StoreUnavailableError
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.sqlite.database import Database, open_database

FILES = PosixFiles()
CREATE = ("CREATE TABLE t (k TEXT PRIMARY KEY, v BLOB)",)
INSERT = "INSERT OR REPLACE INTO t VALUES (?, ?)"


def opened(folder: pathlib.Path) -> Database:
    return open_database(FILES, str(folder / "t.sqlite"), create=CREATE)


def test_what_is_committed_is_there_again(tmp_path: pathlib.Path) -> None:
    """Otherwise a server forgets what it answered for."""
    database = opened(tmp_path)
    database.commit([(INSERT, [("a", b"1"), ("b", b"2")]), ("DELETE FROM t WHERE k = ?", [("a",)])])
    database.close()
    database.close()
    again = opened(tmp_path)
    assert list(again.rows("SELECT * FROM t")) == [("b", b"2")]
    again.close()
    assert [path.name for path in tmp_path.iterdir()] == ["t.sqlite"]


def test_a_commit_that_fails_has_done_nothing(tmp_path: pathlib.Path) -> None:
    """Otherwise half of a change is there after an error, and the next commit makes it last."""
    database = opened(tmp_path)
    with pytest.raises(StoreError, match="no such table"):
        database.commit([(INSERT, [("a", b"1")]), ("INSERT INTO nowhere VALUES (?)", [("b",)])])
    with pytest.raises(UnicodeEncodeError):
        database.commit([(INSERT, [("a", b"1"), ("\ud800", b"1")])])
    database.commit([(INSERT, [("c", b"3")])])
    assert list(database.rows("SELECT * FROM t")) == [("c", b"3")]
    database.close()


def test_two_do_not_have_it_open(tmp_path: pathlib.Path) -> None:
    """Otherwise two servers write over each other."""
    database = opened(tmp_path)
    with pytest.raises(StoreUnavailableError, match=r"t\.sqlite: database is locked"):
        opened(tmp_path)
    code = (
        "import sys; from tierlog.runtime.machine.posix_files import PosixFiles\n"
        "from tierlog.runtime.sqlite.database import open_database\n"
        "open_database(PosixFiles(), sys.argv[1], create=())"
    )
    other = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "t.sqlite")], capture_output=True, text=True, check=False
    )
    assert "StoreUnavailableError" in other.stderr
    database.commit([(INSERT, [("a", b"1")])])
    database.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("damage", ["empty", "text", "header", "page", "cut"])
def test_a_damaged_file_is_an_error(tmp_path: pathlib.Path, damage: str) -> None:
    """Otherwise it is taken for a new one, and everything that was committed is gone without a word."""
    database = opened(tmp_path)
    database.commit([(INSERT, [(f"key-{number}", os.urandom(100)) for number in range(500)])])
    database.close()
    path = tmp_path / "t.sqlite"
    whole = path.read_bytes()
    path.write_bytes(
        {
            "empty": b"",
            "text": b"not a database at all " * 500,
            "header": bytes(100) + whole[100:],
            "page": whole[:8192] + b"\xff" * 4096 + whole[12288:],
            "cut": whole[: len(whole) // 2],
        }[damage]
    )
    left = path.read_bytes()
    if damage == "empty":  # SQLite cannot tell; whoever knows the tables can
        again = opened(tmp_path)
        with pytest.raises(StoreError, match="no such table"):
            list(again.rows("SELECT * FROM t"))
        again.close()
        return
    with pytest.raises(CorruptDataError, match=r"t\.sqlite"):
        opened(tmp_path)
    assert path.read_bytes() == left, "nothing was mended, or emptied"


def test_a_journal_without_its_database_is_an_error(tmp_path: pathlib.Path) -> None:
    """Otherwise a new database takes over the pages of one that is gone."""
    (tmp_path / "t.sqlite-wal").write_bytes(b"x")
    with pytest.raises(CorruptDataError, match=r"t\.sqlite-wal: the database is gone"):
        opened(tmp_path)
    assert not (tmp_path / "t.sqlite").exists()


def test_what_a_crash_left_while_it_was_made_is_thrown_away(tmp_path: pathlib.Path) -> None:
    """Otherwise a server that was killed in its first second never starts again."""
    for suffix in ("", "-wal", "-journal"):
        (tmp_path / f"t.sqlite.tierlog-part{suffix}").write_bytes(b"half")
    database = opened(tmp_path)
    assert list(database.rows("SELECT * FROM t")) == []
    database.close()
    assert [path.name for path in tmp_path.iterdir()] == ["t.sqlite"]


def test_a_directory_that_is_not_there_is_an_error(tmp_path: pathlib.Path) -> None:
    """Otherwise a path that was mistyped looks like an empty database."""
    with pytest.raises((StoreError, ObjectNotFoundError)):
        opened(tmp_path / "nowhere")
    folder = tmp_path / "folder"
    (folder / "t.sqlite").mkdir(parents=True)
    with pytest.raises(StoreError):
        opened(folder)


def test_a_full_disk_is_an_error_and_passes(tmp_path: pathlib.Path) -> None:
    """Otherwise a server whose disk was full for a minute stays dead, or has lost what it had."""
    database = opened(tmp_path)
    database.commit([(INSERT, [("a", b"1")])])
    [(pages,)] = database.rows("PRAGMA page_count")
    assert list(database.rows(f"PRAGMA max_page_count = {pages}"))
    with pytest.raises(StoreError, match="full"):
        database.commit([(INSERT, [(f"key-{number}", bytes(1000)) for number in range(100)])])
    assert list(database.rows("SELECT * FROM t")) == [("a", b"1")]
    assert list(database.rows("PRAGMA max_page_count = 1000000"))
    database.commit([(INSERT, [("b", bytes(100_000))])])
    assert [key for [key] in database.rows("SELECT k FROM t ORDER BY k")] == ["a", "b"]
    database.close()
