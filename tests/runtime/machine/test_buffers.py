"""Memory that is used again, never while somebody holds it, and that goes back to the system."""

from __future__ import annotations

import gc
import os
import pathlib
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.forked import told_by_fork
from tests.support.open_files import count_open_files
from tests.support.waiting import wait_until
from tierlog._native.buffers import BufferPool, copy_into, joined
from tierlog.errors import ObjectNotFoundError, StoreError
from tierlog.runtime.machine.buffers import PROCESS_BUFFERS, new_buffer, note_foreign
from tierlog.runtime.machine.files import Files
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.memory_files import MemoryFiles

MIB = 1 << 20


def pool_of(kept_bytes_max: int = 64 * MIB, *, kept_bytes_min: int = 64 * MIB, idle_ms: int = 60_000) -> BufferPool:
    return BufferPool(
        kept_bytes_max=kept_bytes_max, kept_bytes_spare=4 * MIB, kept_bytes_min=kept_bytes_min, idle_ms=idle_ms
    )


def address_of(buffer: memoryview) -> int:
    return int(np.frombuffer(buffer, np.uint8).ctypes.data)


#: Two bursts of 200 MiB in a process of its own (a test before this one may give memory back meanwhile). It prints the
#: resident bytes before; for each burst those while it held the buffers, what the pool kept, and those when idle.
BURSTS = """
import mmap, pathlib, time
from tierlog._native.buffers import BufferPool

MIB = 1 << 20
def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * mmap.PAGESIZE

pool = BufferPool(kept_bytes_max=512 * MIB, kept_bytes_spare=4 * MIB, kept_bytes_min=2 * MIB, idle_ms=50)
print(resident_bytes())
for _ in range(2):
    buffers = [pool.take(MIB) for _ in range(200)]
    for buffer in buffers:
        buffer[:: mmap.PAGESIZE] = b"x" * (MIB // mmap.PAGESIZE)
    held = resident_bytes()
    del buffers, buffer
    assert pool.kept_bytes == 200 * MIB
    until = time.monotonic() + 20
    while pool.has_thread and time.monotonic() < until:
        time.sleep(0.01)
    print(held, pool.kept_bytes, resident_bytes())
"""


class TestPool:
    """Buffers that come and go."""

    @pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 4 * MIB, 4 * MIB + 28, 65 * MIB])
    def test_a_buffer_has_the_size_that_was_asked_for(self, size: int) -> None:
        """If this fails, chunks are cut or have a tail of other bytes."""
        buffer = new_buffer(size)
        assert len(buffer) == buffer.nbytes == size
        assert (buffer.format, buffer.itemsize, buffer.readonly, buffer.contiguous) == ("B", 1, False, True)
        buffer[:] = bytes(size)
        assert bytes(buffer) == bytes(size)

    def test_what_cannot_be_mapped_is_a_memory_error(self) -> None:
        """If this fails, a hostile size is a crash."""
        pool = pool_of()
        with pytest.raises(MemoryError):
            pool.take(1 << 62)
        with pytest.raises(OverflowError):
            pool.take(-1)
        assert pool.lent_bytes == 0

    def test_memory_is_used_again_when_the_last_view_is_gone(self) -> None:
        """If this fails, each chunk pays for fresh pages, or a reader's bytes change while it has them."""
        pool = pool_of()
        first = pool.take(4 * MIB)
        first[:4] = b"mine"
        address = address_of(first)
        view = first[1:3].toreadonly()
        del first
        second = pool.take(4 * MIB)
        second[:4] = b"next"
        assert address_of(second) != address
        assert view == b"in"
        assert (pool.kept_bytes, pool.lent_bytes) == (0, 8 * MIB)
        del view
        assert (pool.kept_bytes, pool.lent_bytes) == (4 * MIB, 4 * MIB)
        third = pool.take(4 * MIB - 1000)
        assert address_of(third) == address
        assert (pool.kept_bytes, pool.lent_bytes) == (0, 8 * MIB)

    def test_a_buffer_outlives_its_pool(self) -> None:
        """If this fails, a thread that still reads at the end of the process reads memory that is gone."""
        buffer = pool_of().take(MIB)
        gc.collect()
        buffer[:] = b"x" * MIB
        assert bytes(buffer) == b"x" * MIB

    def test_what_is_kept_is_bounded(self) -> None:
        """If this fails, the memory of one burst is held whole."""
        pool = pool_of(10 * MIB)
        buffers = [pool.take(4 * MIB) for _ in range(10)]
        del buffers
        assert (pool.kept_bytes, pool.lent_bytes) == (8 * MIB, 0)

    def test_what_is_kept_makes_room_for_other_sizes(self) -> None:
        """If this fails, a process takes as much again of the system as it ever used at once."""
        pool = pool_of(200 * MIB, kept_bytes_min=0)
        buffers = [pool.take(2 * MIB) for _ in range(20)]
        del buffers
        assert pool.kept_bytes == 40 * MIB
        buffers = []
        for _ in range(20):
            buffers.append(pool.take(3 * MIB))
            assert pool.lent_bytes + pool.kept_bytes <= max(40 * MIB, pool.lent_bytes) + 4 * MIB
        assert pool.kept_bytes == 4 * MIB

    def test_threads_never_share_a_buffer(self) -> None:
        """If this fails, readers get each other's bytes."""
        pool = pool_of(idle_ms=1, kept_bytes_min=0)
        wrong: list[int] = []

        def work(number: int) -> None:
            for _ in range(300):
                buffer = pool.take(100_000 + number)
                buffer[:] = bytes([number]) * len(buffer)
                if bytes(buffer) != bytes([number]) * len(buffer):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        assert pool.lent_bytes == 0


class TestGivingBack:
    """Memory that nobody wants any more."""

    def test_idle_buffers_go_back_to_the_system(self) -> None:
        """If this fails, one burst of fetches costs the broker's page cache gigabytes until it is restarted."""
        done = subprocess.run([sys.executable, "-c", BURSTS], capture_output=True, text=True, check=True)
        before, *bursts = (list(map(int, line.split())) for line in done.stdout.splitlines())
        assert len(bursts) == 2
        for held, kept, idle in bursts:
            assert held > before[0] + 190 * MIB
            assert kept == 2 * MIB
            assert idle < before[0] + 10 * MIB

    def test_nobody_waits_where_there_is_nothing_to_give_back(self) -> None:
        """If this fails, every process that reads a few chunks has a thread more for ever."""
        pool = pool_of(64 * MIB, kept_bytes_min=8 * MIB, idle_ms=20)
        buffers = [pool.take(MIB) for _ in range(8)]
        del buffers
        assert not pool.has_thread
        assert pool.trim(60_000) == 0
        assert pool.trim(-1000) == 8 * MIB
        assert pool.kept_bytes == 0

    def test_other_libraries_memory_goes_back_too(self) -> None:
        """If this fails, what obstore's answers took stays in malloc's arenas for ever."""
        pool = pool_of(idle_ms=20)
        pool.note_foreign(1000)
        assert not pool.has_thread
        pool.note_foreign(MIB)
        assert pool.has_thread
        wait_until(lambda: not pool.has_thread)
        note_foreign(MIB)

    def test_its_thread_takes_no_signals(self) -> None:
        """If this fails, a signal that the program waits for is handled in a thread that knows nothing of it."""
        pool = pool_of(kept_bytes_min=0, idle_ms=500)
        before = set(pathlib.Path("/proc/self/task").iterdir())
        pool.take(MIB)
        (task,) = set(pathlib.Path("/proc/self/task").iterdir()) - before
        status = (task / "status").read_text()
        blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk")).split()[1], 16)
        assert blocked & 1 << (signal.SIGTERM - 1)
        assert blocked & 1 << (signal.SIGINT - 1)

    def test_a_child_of_a_fork_has_the_pool(self) -> None:
        """If this fails, a child waits for a lock that its parent's thread held, or never gives memory back."""
        stop = threading.Event()

        def work() -> None:
            while not stop.is_set():
                new_buffer(100_000)

        held = [new_buffer(20 * MIB)]
        held[0][:4] = b"mine"

        def used() -> tuple[bool, int]:
            is_sound = held[0][:4] == b"mine"
            held.clear()  # more than stays for good
            return is_sound, len(new_buffer(100_000))

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(20):
                assert told_by_fork(used, lambda: PROCESS_BUFFERS.has_thread) == ["(True, 100000)", "True"]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
        with pytest.raises(ValueError, match="shared"):
            pool_of().share()


class TestReadRange:
    """A part of a file in one call."""

    @pytest.fixture(params=["posix", "memory"])
    def files(self, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> tuple[Files, str]:
        if request.param == "posix":
            return PosixFiles(), str(tmp_path)
        files = MemoryFiles()
        files.make_directories("/root")
        return files, "/root"

    @given(size=st.integers(0, 200_000), start=st.integers(0, 250_000), length=st.integers(-10, 250_000))
    @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_any_range(self, files: tuple[Files, str], size: int, start: int, length: int) -> None:
        """If this fails, readers get other bytes than the file has."""
        data = np.arange(size, dtype=np.uint32).view(np.uint8)[:size].tobytes()
        files[0].write_whole(f"{files[1]}/f ü", data)
        end = max(0, start + length)
        found = files[0].read_range(f"{files[1]}/f ü", start_position=start, end_position_exclusive=end)
        assert bytes(found) == data[start:end]
        assert not found.readonly
        out = bytearray(b"\xee" * max(0, length))
        count = files[0].read_range_into(f"{files[1]}/f ü", memoryview(out), start_position=start)
        assert out[:count] == data[start : start + len(out)]
        assert set(out[count:]) <= {0xEE}

    def test_what_is_no_file(self, files: tuple[Files, str]) -> None:
        """If this fails, a folder or a hostile name is a crash, or a deleted object a broken store."""
        with pytest.raises(ObjectNotFoundError, match="none"):
            files[0].read_range(f"{files[1]}/none", start_position=0, end_position_exclusive=1)
        with pytest.raises(StoreError):
            files[0].read_range(files[1], start_position=0, end_position_exclusive=1)
        with pytest.raises(ObjectNotFoundError, match="none"):
            files[0].read_range_into(f"{files[1]}/none", memoryview(bytearray(1)), start_position=0)
        with pytest.raises(StoreError):
            files[0].read_range_into(files[1], memoryview(bytearray(1)), start_position=0)

    def test_names_and_pipes(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a pipe in a bucket's folder hangs a reader."""
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(StoreError, match="regular"):
            PosixFiles().read_range(str(tmp_path / "pipe"), start_position=0, end_position_exclusive=1)
        with pytest.raises(StoreError, match="regular"):
            PosixFiles().read_range_into(str(tmp_path / "pipe"), memoryview(bytearray(1)), start_position=0)
        with pytest.raises(BufferError):
            PosixFiles().read_range_into(str(tmp_path / "pipe"), memoryview(b"x"), start_position=0)
        with pytest.raises(StoreError, match="null"):
            PosixFiles().read_range_into(f"{tmp_path}/a\0b", memoryview(bytearray(1)), start_position=0)
        with pytest.raises(StoreError, match="null"):
            PosixFiles().read_range(f"{tmp_path}/a\0b", start_position=0, end_position_exclusive=1)
        odd = os.fsdecode(bytes(tmp_path) + b"/\xff")
        pathlib.Path(odd).write_bytes(b"x")
        assert PosixFiles().read_range(odd, start_position=0, end_position_exclusive=9) == b"x"
        assert count_open_files(tmp_path) == 0


class TestCopies:
    """Bytes from one place to another, without the interpreter's lock if they are many."""

    @given(sizes=st.lists(st.integers(0, 200_000), max_size=4), room=st.integers(0, 10))
    @settings(max_examples=40, deadline=None)
    def test_any_sizes(self, sizes: list[int], room: int) -> None:
        """If this fails, readers get other bytes than were fetched."""
        parts = [np.arange(size, dtype=np.uint32).view(np.uint8)[:size].tobytes() for size in sizes]
        assert joined([memoryview(part) for part in parts]) == b"".join(parts)
        for part in parts:
            out = bytearray(b"\xee" * (len(part) + room))
            assert copy_into(out, memoryview(part)) == len(part)
            assert out == part + b"\xee" * room

    def test_what_does_not_fit(self) -> None:
        """If this fails, a wrong size writes behind a buffer's end."""
        with pytest.raises(ValueError, match="2 bytes into 1"):
            copy_into(bytearray(1), b"ab")
        with pytest.raises(BufferError):
            copy_into(b"ab", b"ab")
        with pytest.raises(BufferError):
            copy_into(bytearray(8), memoryview(bytearray(8))[::2])
        with pytest.raises(ValueError, match="no view of bytes"):
            joined([memoryview(np.zeros(3, dtype=np.uint16))])
