"""Native code over files in memory: its reads and appends meet the same faults as Python's."""

from __future__ import annotations

import threading

import pytest

from tests.support.living_logs import batch_of
from tierlog._native.batches import BatchSearch
from tierlog.errors import StoreError
from tierlog.runtime.machine.files import UpdatableFile
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.memory_disk import DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles


class Stopped(BaseException):
    """The exception that a simulator throws into a task."""


def search(file: UpdatableFile) -> int | None:
    found = BatchSearch(position=0, end_position=file.size_bytes, least_last_offset=0)
    found.run(file.growing)
    return found.passed_last_offset if found.found is None else found.found.last_offset


def test_what_a_hook_raises_reaches_the_caller() -> None:
    """If this fails, a simulated crash in the middle of an append is an error of the disk, or none."""
    files = MemoryFiles()
    with files.open_update("/log") as file:
        file.append(batch_of(b"value"))
        size_bytes = file.size_bytes

        def stop(operation: DiskOperation, path: str) -> None:
            raise Stopped(operation, path)

        files.befall(stop)
        with pytest.raises(Stopped) as stopped:
            file.append(b"x")
        assert stopped.value.args == (DiskOperation.WRITE, "/log")
        with pytest.raises(Stopped) as stopped:
            search(file)
        assert stopped.value.args == (DiskOperation.READ, "/log")
        files.mend(stop)
        assert file.size_bytes == size_bytes
        assert search(file) == 0
        assert file.append(b"x") == size_bytes
    with pytest.raises(StoreError, match="closed"):
        file.append(b"x")
    with pytest.raises(StoreError, match="closed"):
        search(file)


def test_each_caller_gets_its_own_error() -> None:
    """If this fails, a reader is told of the writer's full disk, and the writer of nothing."""
    files = MemoryFiles()
    errors: dict[str, BaseException] = {}
    both_failed = threading.Barrier(2, timeout=60)

    def fail(operation: DiskOperation, path: str) -> None:
        if operation in (DiskOperation.READ, DiskOperation.WRITE):
            disk_lock.release()  # that the other one comes in between
            both_failed.wait()
            disk_lock.acquire()
            raise Stopped(operation)

    with files.open_update("/log") as file:
        file.append(batch_of(b"value"))
        disk_lock = files._disk.held()._lock
        files.befall(fail)

        def note(name: str, call: object) -> None:
            try:
                call()  # type: ignore[operator]
            except Stopped as error:
                errors[name] = error

        threads = [
            threading.Thread(target=note, args=("append", lambda: file.append(b"x"))),
            threading.Thread(target=note, args=("search", lambda: search(file))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors["append"].args == (DiskOperation.WRITE,)
    assert errors["search"].args == (DiskOperation.READ,)


def test_a_power_cut_takes_what_native_code_wrote() -> None:
    """If this fails, bytes that were appended natively survive every crash of a simulated broker."""
    sizes = set()
    for seed in range(40):
        files = MemoryFiles()
        files.put("/log", b"synced")
        with files.open_update("/log") as file:
            file.append(b"a" * 512)
            file.append(b"b" * 512)
            assert files.read_whole("/log") == b"synced" + b"a" * 512 + b"b" * 512
        left = files.crash(SeededRng(seed)).read_whole("/log")
        assert left.startswith(b"synced")
        sizes.add(len(left))
    assert sizes == {6, 518, 1030}
