"""Directories and many small files by one call each: what is there, and nothing of what is not."""

from __future__ import annotations

import os
import pathlib

import pytest

from tierlog._native.files import list_directory, read_small_files
from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.optional_reads import find_small_reads
from tierlog.runtime.stores.wrappers.passing_store import CountingStore, PassingStore


def test_the_entries_of_a_directory(tmp_path: pathlib.Path) -> None:
    """An entry that is listed and not there, or is there and not listed, is a segment too many or too few."""
    for name in ("b", "a.x", "é", "\udcff", "Z"):
        (tmp_path / name).write_bytes(name.encode("utf-8", "surrogateescape") * 3)
    (tmp_path / "folder").mkdir()
    (tmp_path / "to-b").symlink_to("b")
    (tmp_path / "to-folder").symlink_to("folder")
    (tmp_path / "to-nothing").symlink_to("nothing")
    (tmp_path / "round").symlink_to("round")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "b").chmod(0o600)
    found = list_directory(str(tmp_path))
    assert [name for name, *_ in found] == ["Z", "a.x", "b", "folder", "to-b", "to-folder", "é", "\udcff"]
    for name, size_bytes, modified_ms, is_directory, identity, readable_by_all in found:
        expected = (tmp_path / name).stat()
        assert size_bytes == (0 if is_directory else expected.st_size)
        assert modified_ms == expected.st_mtime_ns // 1_000_000
        assert is_directory == (tmp_path / name).is_dir()
        assert identity == (expected.st_dev, expected.st_ino)
        assert readable_by_all == bool(expected.st_mode & 0o004)


def test_a_time_before_1970(tmp_path: pathlib.Path) -> None:
    """Times are rounded down, as elsewhere, or one file is another one by its time."""
    (tmp_path / "a").touch()
    os.utime(tmp_path / "a", ns=(-1_500_000_001, -1_500_000_001))
    assert list_directory(str(tmp_path))[0][2] == -1501


def test_a_directory_that_cannot_be_listed(tmp_path: pathlib.Path) -> None:
    """Nothing found is not the same as not looked at."""
    (tmp_path / "file").touch()
    with pytest.raises(FileNotFoundError):
        list_directory(f"{tmp_path}/none")
    with pytest.raises(NotADirectoryError):
        list_directory(f"{tmp_path}/file")
    with pytest.raises(ValueError, match="null byte"):
        list_directory(f"{tmp_path}\0")
    with pytest.raises(ObjectNotFoundError, match="none"):
        list(PosixFiles().iter_directory(f"{tmp_path}/none"))
    with pytest.raises(StoreError, match="null byte"):
        list(PosixFiles().iter_directory(f"{tmp_path}/a\0"))


def test_a_large_directory(tmp_path: pathlib.Path) -> None:
    """Memory for names grows with them."""
    names = [f"{number:05d}" for number in range(3000)]
    for name in names:
        (tmp_path / name).touch()
    assert [name for name, *_ in list_directory(str(tmp_path))] == names
    assert [info.name for info in PosixFiles().iter_directory(f"{tmp_path}/")] == names


def files_of(kind: str, folder: pathlib.Path) -> tuple[Files, str]:
    if kind == "posix":
        return PosixFiles(), str(folder)
    files = MemoryFiles()
    files.make_directories("/f")
    return files, "/f"


@pytest.mark.parametrize("kind", ["posix", "memory"])
def test_small_files(tmp_path: pathlib.Path, kind: str) -> None:
    """A file that cannot be read is asked for again by itself, and no other one's bytes stand in for it."""
    files, folder = files_of(kind, tmp_path)
    files.write_whole(f"{folder}/a", b"first")
    files.write_whole(f"{folder}/b", b"")
    files.write_whole(f"{folder}/c", b"third")
    paths = [f"{folder}/{name}" for name in ("a", "none", "b", "c", "c")]
    assert list(files.read_small(paths, [9, 9, 9, 3, 0])) == [b"first", None, b"", b"thi", b""]
    assert list(files.read_small([], [])) == []
    assert list(files.read_small([folder], [1])) == [None]
    assert next(iter(files.read_small([f"{folder}/a\0", f"{folder}/a"], [1, 1]))) is None


def test_refused_lists() -> None:
    """Limits that are of other files would be memory of nobody's."""
    with pytest.raises(ValueError, match="1 paths and 2 limits"):
        read_small_files(["a"], [1, 2])
    with pytest.raises((MemoryError, OverflowError)):
        read_small_files(["a", "b"], [2**62, 2**62])
    with pytest.raises(OverflowError):
        read_small_files(["a"], [-1])


def test_a_wrapper_sees_each_read(tmp_path: pathlib.Path) -> None:
    """If this fails, a store that somebody wrapped to change its reads is read past the wrapper."""
    local = LocalStore(str(tmp_path))
    local.put("k", b"abc")
    assert find_small_reads(local) is local
    assert find_small_reads(PassingStore(local)) is None
    assert find_small_reads(CountingStore(local)) is None
    before = local.requests["GET"]
    assert list(local.fetch_small(["k", "none"], [2, 2])) == [b"ab", None]
    assert local.requests["GET"] == before + 2
    with pytest.raises(StoreError, match="not a key"):
        local.fetch_small(["../k"], [2])
