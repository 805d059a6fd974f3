"""One suite for every file system: the machine's, and the one in memory that tests trust to behave like it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import resource
import stat
import threading

import pytest

from tierlog.errors import ObjectNotFoundError, StoreError, StorePermissionError, StoreUnavailableError
from tierlog.runtime.machine.files import TEMPORARY_SUFFIX, Files, store_error
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.local.upload import NewObject


@pytest.fixture(params=["posix", "memory", "overlay", "overlay of nothing"])
def files(request: pytest.FixtureRequest) -> Files:
    if request.param.startswith("overlay"):
        return MemoryFiles(base=PosixFiles() if request.param == "overlay" else MemoryFiles())
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

    def test_one_writes_a_file_at_a_time(self, files: Files, root: str) -> None:
        """If this fails, two exports into one folder mix their bytes in files that look whole."""
        with files.open_write(f"{root}/f") as first:
            first.write(b"first, ")
            with pytest.raises(StoreUnavailableError, match="written by somebody else"):
                files.open_write(f"{root}/f")
            first.write(b"alone")
            first.commit()
        assert files.read_whole(f"{root}/f") == b"first, alone"
        with files.open_write(f"{root}/f") as second:
            second.write(b"half")
        files.write_whole(f"{root}/f", b"third")
        assert files.read_whole(f"{root}/f") == b"third"
        assert [entry.name for entry in files.iter_directory(root)] == ["f"]

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


class TestChangingInPlace:
    """What caches and appended indexes rely on."""

    def test_append_overwrite_and_cut(self, files: Files, root: str) -> None:
        """If this fails, an entry of an index lies where its reader does not look."""
        with files.open_update(f"{root}/f") as file:
            assert file.size_bytes == 0
            assert [file.append(b"0123"), file.append(memoryview(b"4567"))] == [0, 4]
            file.write_at(b"xy", position=3)
            file.write_at(b"end", position=10)
            assert file.size_bytes == 13
            buffer = bytearray(20)
            assert file.read_into(buffer, position=0) == 13
            assert bytes(buffer[:13]) == b"012xy567\0\0end"
            file.truncate(5)
            assert file.append(b"!") == 5
            file.truncate(8)
            file.fsync()
        file.close()
        assert files.read_whole(f"{root}/f") == b"012xy!\0\0"
        with files.open_update(f"{root}/f") as file:
            assert file.size_bytes == 8
            assert file.append(b"more") == 8
        assert files.stat(f"{root}/f").size_bytes == 12

    def test_reserved_room_is_not_seen(self, files: Files, root: str) -> None:
        """If this fails, a log has zeros behind its end, which recovery takes for a torn batch."""
        piece = bytes(range(256)) * 1024
        with files.open_update(f"{root}/f") as file:
            file.reserve_ahead(8 << 20)
            for number in range(12):
                assert file.append(piece) == number * len(piece)
            assert file.size_bytes == files.stat(f"{root}/f").size_bytes == 12 * len(piece)
            file.reserve_ahead(0)
            assert file.append(b"end") == 12 * len(piece)
        assert files.read_whole(f"{root}/f") == 12 * piece + b"end"

    def test_a_reader_sees_what_is_appended(self, files: Files, root: str) -> None:
        """If this fails, a follower of an index reads its old end for ever."""
        with files.open_update(f"{root}/f") as file:
            file.append(b"first")
            with files.open_read(f"{root}/f") as reader:
                file.append(b"second")
                buffer = bytearray(20)
                assert reader.read_into(buffer, position=5) == 6

    def test_what_cannot_be_opened(self, files: Files, root: str) -> None:
        """If this fails, a cache in a folder that is gone is a traceback."""
        with pytest.raises(ObjectNotFoundError):
            files.open_update(f"{root}/no/f")
        with pytest.raises(StoreError):
            files.open_update(root)

    def test_room(self, files: Files, root: str) -> None:
        """If this fails, a cache or an export fills the disk that a broker needs."""
        files.write_whole(f"{root}/f", b"x")
        assert files.free_bytes(root) > 0
        assert files.free_bytes(f"{root}/f") > 0
        assert files.total_bytes(root) >= files.free_bytes(root)
        for ask in (files.free_bytes, files.total_bytes):
            with pytest.raises(ObjectNotFoundError):
                ask(f"{root}/no")

    def test_names_without_more(self, files: Files, root: str) -> None:
        """If this fails, a broker with thousands of segments starts with a file that is a folder, or without one."""
        for name in ("b.log", "a.index", "c.log"):
            files.write_whole(f"{root}/{name}", b"xy")
        files.make_directories(f"{root}/d.log")
        assert files.list_files(root) == [("a.index", -1), ("b.log", -1), ("c.log", -1)]
        assert files.list_files(root, sized=".log") == [("a.index", -1), ("b.log", 2), ("c.log", 2)]
        with pytest.raises(ObjectNotFoundError):
            files.list_files(f"{root}/no")

    def test_one_at_a_time(self, files: Files, root: str) -> None:
        """If this fails, two processes write into one cache, or one export."""
        with pytest.raises(ObjectNotFoundError):
            files.try_lock(f"{root}/no/lock")
        first = files.try_lock(f"{root}/lock")
        assert first is not None
        assert files.try_lock(f"{root}/lock") is None
        assert files.find(f"{root}/lock") is not None
        first.release()
        first.release()
        assert files.find(f"{root}/lock") is None
        with files.try_lock(f"{root}/lock") or pytest.fail("still held"):
            first.release()
            assert files.try_lock(f"{root}/lock") is None

    def test_one_at_a_time_by_record_lock(self, files: Files, root: str) -> None:
        """If this fails, two brokers write into one log directory; or the lock's file goes, and Kafka makes another."""
        with pytest.raises(ObjectNotFoundError):
            files.try_record_lock(f"{root}/no/.lock")
        first = files.try_record_lock(f"{root}/.lock")
        assert first is not None
        assert files.try_record_lock(f"{root}/.lock") is None
        files.read_whole(f"{root}/.lock")  # closing another descriptor does not free it, as it would Java's
        assert files.try_record_lock(f"{root}/.lock") is None
        first.release()
        first.release()
        assert files.find(f"{root}/.lock") is not None
        with files.try_record_lock(f"{root}/.lock") or pytest.fail("still held"):
            first.release()
            assert files.try_record_lock(f"{root}/.lock") is None


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

    def test_directories_are_fsynced_with_their_parents(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If this fails, a crash takes a whole new folder with all its fsynced files."""
        synced = []
        fsync = os.fsync

        def seen(descriptor: int) -> None:
            synced.append(str(pathlib.Path(f"/proc/self/fd/{descriptor}").readlink()))
            fsync(descriptor)

        monkeypatch.setattr(os, "fsync", seen)
        files = PosixFiles()
        files.make_directories(f"{tmp_path}/a/b")
        assert synced == [str(tmp_path), f"{tmp_path}/a"]
        files.make_directories(f"{tmp_path}/a/b")
        files.write_whole(f"{tmp_path}/a/b/f", b"x")
        assert synced[2:] == [f"{tmp_path}/a/b/f{TEMPORARY_SUFFIX}", f"{tmp_path}/a/b"]
        (tmp_path / "file").write_bytes(b"")
        with pytest.raises(StoreError):
            files.make_directories(f"{tmp_path}/file/below")

    def test_what_need_not_be_durable_is_not_fsynced(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If this fails, a cache, or a store that was told to be fast, waits for the disk at each file."""
        synced: list[int] = []
        monkeypatch.setattr(os, "fsync", synced.append)
        files = PosixFiles()
        files.make_directories(f"{tmp_path}/a/b", durable=False)
        with files.open_update(f"{tmp_path}/a/b/f") as file:
            file.append(b"x")
        files.rename(f"{tmp_path}/a/b/f", f"{tmp_path}/a/b/g", durable=False)
        store = LocalStore(str(tmp_path / "a"), durable=False)
        store.put("new/folder/object", b"x")
        upload = store.begin_upload("newer/object", part_bytes=4)
        upload.put_part(1, [b"x"])
        upload.complete()
        store.delete(["new/folder/object"])
        assert synced == []

    def test_the_disk_writes_while_an_upload_goes_on(
        self, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """If this fails, a copy that is done waits for its fsync with nothing on the disk yet: twice the time."""
        begun: list[tuple[int, int]] = []

        def begin(file: object, *, position: int, size_bytes: int) -> None:
            del file
            begun.append((position, size_bytes))

        monkeypatch.setattr(NewObject, "begin_write_out", begin)
        upload = LocalStore(str(tmp_path)).begin_upload("object", part_bytes=4)
        for number, part in ((2, b"5678"), (1, b"1234"), (3, b"9")):
            upload.put_part(number, [part])
        assert begun == [(4, 4), (0, 4), (8, 1)]
        upload.complete()
        monkeypatch.undo()

        asked: list[tuple[int, int]] = []
        advise = getattr(os, "posix_fadvise", None)
        if advise is None:
            pytest.skip("this system has no posix_fadvise")
        monkeypatch.setattr(os, "posix_fadvise", lambda _file, *span: asked.append(span[:2]))
        for durable in (True, False):
            upload = LocalStore(str(tmp_path), durable=durable).begin_upload(f"durable={durable}", part_bytes=4)
            upload.put_part(1, [b"1234"])
            upload.complete()
        assert asked == [(0, 4)]

    def test_what_is_private_is_for_its_owner_alone(self, tmp_path: pathlib.Path) -> None:
        """If this fails, other users of the host read what only the broker may; or nobody reads what all may."""
        files, before = PosixFiles(), os.umask(0o022)
        try:
            for private in (True, False):
                files.make_directories(f"{tmp_path}/{private}/below", private=private)
                files.open_update(f"{tmp_path}/{private}/below/f", private=private).close()
        finally:
            os.umask(before)
        modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
        assert modes == {
            "True": 0o700,
            "True/below": 0o700,
            "True/below/f": 0o600,
            "False": 0o755,
            "False/below": 0o755,
            "False/below/f": 0o644,
        }

    def test_devices_links_and_pipes_are_written_into(self, tmp_path: pathlib.Path) -> None:
        """If this fails, output to /dev/stdout puts a file in place of the device, or one in place of a link."""
        (tmp_path / "real").write_bytes(b"old")
        (tmp_path / "link").symlink_to("real")
        files = PosixFiles()
        files.write_whole(str(tmp_path / "link"), b"new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real").read_bytes() == b"new"
        os.mkfifo(tmp_path / "pipe")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            files.write_whole(str(tmp_path / "pipe"), b"through")
            assert os.read(reader, 100) == b"through"
        finally:
            os.close(reader)
        with files.open_write("/dev/null") as file:
            file.write(b"gone")
        assert stat.S_ISCHR(pathlib.Path("/dev/null").stat().st_mode)

    def test_a_failed_append_leaves_the_file_as_it_was(self, tmp_path: pathlib.Path) -> None:
        """If this fails, half an entry stays behind the end on a full disk, and the next one lies behind it."""
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        with PosixFiles().open_update(str(tmp_path / "f")) as file:
            file.append(bytes(100))
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (110, limits[1]))
                with pytest.raises(StoreError):
                    file.append(bytes(20))
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            assert file.size_bytes == 100
            assert (tmp_path / "f").stat().st_size == 100
            assert file.append(b"x") == 100
        with PosixFiles().open_update(str(tmp_path / "f")) as file:
            assert file.size_bytes == 101
        with pytest.raises(StoreError, match="regular"):
            PosixFiles().open_update("/dev/null")

    def test_what_a_killed_writer_left_is_overwritten(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a run that was killed ends every later one, or its bytes are in their files."""
        (tmp_path / f"f{TEMPORARY_SUFFIX}").write_bytes(b"the longer half of another life")
        PosixFiles().write_whole(str(tmp_path / "f"), b"new")
        assert (tmp_path / "f").read_bytes() == b"new"

    def test_writers_of_one_file_never_mix(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a file that looks whole holds bytes of two writers."""
        refused, seen = [0], set()

        def work(number: int) -> None:
            for _ in range(60):
                try:
                    with PosixFiles().open_write(str(tmp_path / "f")) as file:
                        for _ in range(5):
                            file.write(bytes([number]) * 100)
                        file.commit()
                except StoreUnavailableError:
                    refused[0] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            with contextlib.suppress(FileNotFoundError):
                seen.add((tmp_path / "f").read_bytes())
        assert seen <= {bytes([number]) * 500 for number in range(4)}
        assert refused[0]
        assert [path.name for path in tmp_path.iterdir()] == ["f"]

    def test_names_with_a_nul(self) -> None:
        """If this fails, a hostile name is a traceback."""
        with pytest.raises(StoreError):
            PosixFiles().stat("a\0b")

    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.ENOENT, ObjectNotFoundError),
            (errno.EACCES, StorePermissionError),
            (errno.EMFILE, StoreUnavailableError),
            (errno.ENOTCONN, StoreUnavailableError),
            (errno.ENODEV, StoreUnavailableError),
            (errno.ENOSPC, StoreError),
        ],
    )
    def test_errors_tell_what_to_do(self, number: int, kind: type[StoreError]) -> None:
        """If this fails, a full disk is retried, or a passing failure is not."""
        assert type(store_error(OSError(number, "why"), "/p")) is kind


@pytest.mark.parametrize("call", ["open", "flock", "fstat", "ftruncate"])
def test_a_signal_while_a_file_is_made_leaves_no_part(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """If this fails, a job that its scheduler ends at the wrong moment leaves a part of a file, one each time."""
    module = fcntl if call == "flock" else os
    real = getattr(module, call)

    def struck(*args: object, **kwargs: object) -> object:
        monkeypatch.setattr(module, call, real)
        found = real(*args, **kwargs)
        if call == "open":
            os.close(found)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, call, struck)
    with pytest.raises(KeyboardInterrupt):
        PosixFiles().open_write(str(tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_is_no_text_can_be_printed(tmp_path: pathlib.Path) -> None:
    """A log file in UTF-8 would get a traceback of the logging module in place of the line that names the file."""
    with pytest.raises(ObjectNotFoundError) as found:
        PosixFiles().read_stream(str(tmp_path / "\udcff"), limit_bytes=1)
    assert "\\udcff" in str(found.value)
    str(found.value).encode("utf-8")
