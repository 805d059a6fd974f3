"""One suite for every file system: the machine's, and the one in memory that tests trust to behave like it."""

from __future__ import annotations

import os
import pathlib

import pytest

from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.files import TEMPORARY_SUFFIX, Files, PosixFiles, store_error
from tierlog.runtime.memory_files import MemoryFiles


@pytest.fixture(params=["posix", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return PosixFiles() if request.param == "posix" else MemoryFiles()


@pytest.fixture
def root(files: Files, tmp_path: pathlib.Path) -> str:
    files.make_directories(str(tmp_path))
    return str(tmp_path)


class TestContract:
    """What everything above relies on."""

    def test_write_and_read(self, files: Files, root: str) -> None:
        """If this fails, exports are not what was written."""
        files.make_directories(f"{root}/a/b")
        files.write_whole(f"{root}/a/b/f", b"0123456789")
        assert files.read_whole(f"{root}/a/b/f") == b"0123456789"
        with files.open_read(f"{root}/a/b/f") as file:
            buffer = bytearray(4)
            assert file.size_bytes == 10
            assert file.read_into(buffer, position=3) == 4
            assert buffer == b"3456"
            assert file.read_into(buffer, position=8) == 2
            assert file.read_into(buffer, position=50) == 0
        info = files.stat(f"{root}/a/b/f")
        assert (info.name, info.size_bytes, info.is_directory) == ("f", 10, False)
        assert files.stat(f"{root}/a").is_directory

    def test_a_name_is_there_only_when_its_content_is(self, files: Files, root: str) -> None:
        """If this fails, a crash leaves half a file under its final name."""
        files.write_whole(f"{root}/f", b"old")
        with files.open_write(f"{root}/f") as file:
            file.write(b"ne")
            assert files.read_whole(f"{root}/f") == b"old"
            file.write(memoryview(b"w"))
            file.commit()
        assert files.read_whole(f"{root}/f") == b"new"
        with files.open_write(f"{root}/f") as file:
            file.write(b"half")  # and no commit, as when an error leaves the block
        assert files.read_whole(f"{root}/f") == b"new"
        assert [entry.name for entry in files.iter_directory(root)] == ["f"]

    def test_what_is_being_written_has_a_name_of_its_own(self, files: Files, root: str) -> None:
        """If this fails, a listing shows a file that is not whole."""
        with files.open_write(f"{root}/f"):
            assert [entry.name for entry in files.iter_directory(root)] == ["f" + TEMPORARY_SUFFIX]

    def test_directories(self, files: Files, root: str) -> None:
        """If this fails, listings miss files or come in an order that changes."""
        for name in ("b", "a", "c/d"):
            files.make_directories(f"{root}/{name.rpartition('/')[0]}")
            files.write_whole(f"{root}/{name}", b"")
        found = [(entry.name, entry.is_directory) for entry in files.iter_directory(root)]
        assert found == [("a", False), ("b", False), ("c", True)]
        files.rename(f"{root}/a", f"{root}/b")
        files.fsync_directory(root)
        files.remove(f"{root}/b")
        files.remove(f"{root}/b")
        with pytest.raises(StoreError):
            files.remove(f"{root}/c")
        assert [entry.name for entry in files.iter_directory(root)] == ["c"]

    def test_what_is_not_there(self, files: Files, root: str) -> None:
        """If this fails, a missing file is an error of another kind, or no error."""
        assert files.find(f"{root}/x") is None
        for call in (files.stat, files.open_read, files.read_whole, lambda p: list(files.iter_directory(p))):
            with pytest.raises(ObjectNotFoundError, match="x"):
                call(f"{root}/x")
        with pytest.raises(ObjectNotFoundError):
            files.open_write(f"{root}/no/f")

    def test_limits(self, files: Files, root: str) -> None:
        """If this fails, a huge file where a small one belongs fills the memory."""
        files.write_whole(f"{root}/f", bytes(100))
        with pytest.raises(StoreError, match="limit"):
            files.read_whole(f"{root}/f", limit_bytes=99)


class TestPosix:
    """What only a real disk does."""

    def test_special_files_and_broken_links(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a pipe in a folder hangs the listing, or a dead link breaks it."""
        os.mkfifo(tmp_path / "pipe")
        (tmp_path / "dead").symlink_to("nowhere")
        (tmp_path / "loop").symlink_to("loop")
        (tmp_path / "f").write_bytes(b"x")
        (tmp_path / "good").symlink_to("f")
        assert [entry.name for entry in PosixFiles().iter_directory(str(tmp_path))] == ["f", "good"]
        with pytest.raises(StoreError, match="regular"):
            PosixFiles().open_read(str(tmp_path))

    def test_names_with_a_nul(self) -> None:
        """If this fails, a hostile name is a traceback."""
        with pytest.raises(StoreError):
            PosixFiles().stat("a\0b")

    @pytest.mark.parametrize(
        ("number", "kind"),
        [(2, ObjectNotFoundError), (13, StorePermissionError), (24, StoreUnavailableError), (28, StoreError)],
    )
    def test_errors_tell_what_to_do(self, number: int, kind: type[StoreError]) -> None:
        """If this fails, a full disk is retried, or a passing failure is not."""
        assert type(store_error(OSError(number, "why"), "/p")) is kind
