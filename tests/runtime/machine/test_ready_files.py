"""Files that are read, and sent, without waiting for a disk."""

from __future__ import annotations

import errno
import os
import pathlib
import random
import socket

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.file_parts import drop_from_memory, reads_at_once, tells_what_is_in_memory
from tests.support.open_files import count_open_files
from tierlog._native.files import SEND_VIEWS_MAX, ReadyFile, send_views
from tierlog.errors import StoreError
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.memory_files import MemoryFiles

MIB = 1 << 20


def opened(path: pathlib.Path) -> ReadyFile:
    path.stat()  # its name is in memory
    file = PosixFiles().open_ready(str(path))
    if file is None:
        pytest.skip("this system does not open files without waiting for a disk")
    return file


@given(size=st.integers(0, 200_000), start=st.integers(0, 250_000), length=st.integers(0, 250_000))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_range(tmp_path: pathlib.Path, size: int, start: int, length: int) -> None:
    """Consumers would get other bytes than the file has."""
    path = tmp_path / "f \u00fc"
    data = os.urandom(size)
    path.write_bytes(data)
    file = opened(path)
    for read in (file.read_ready_into, file.read_into):
        out = bytearray(b"\xee" * length)
        count = read(out, start)
        assert count <= max(0, size - start)  # of tmpfs none is told
        assert out[:count] == data[start : start + count]
        assert set(out[count:]) <= {0xEE}
    assert count == len(data[start : start + length])
    assert not file.holds(start, length) or not length or start + length <= size


def test_what_a_disk_would_be_waited_for(tmp_path: pathlib.Path) -> None:
    """An event loop would wait for a disk, or take what is not there for what the file has."""
    path = tmp_path / "f"
    path.write_bytes(os.urandom(MIB))
    if not tells_what_is_in_memory(tmp_path):
        pytest.skip("this file system does not tell what is in memory")
    file, out = opened(path), bytearray(MIB)
    assert file.holds(0, MIB)
    assert file.holds(MIB - 1, 1)
    assert not file.holds(0, MIB + 1)
    assert not file.holds(1 << 62, 1)
    assert not file.holds((1 << 64) - 1, 1)
    assert file.read_ready_into(out, 0) == MIB
    assert out == path.read_bytes()
    is_fast = reads_at_once(path)
    drop_from_memory(path)
    assert not file.holds(0, 1)
    assert is_fast or file.read_ready_into(out, 0) == 0
    assert file.read_into(bytearray(4096), 8192) == 4096
    assert file.holds(8192, 4096)
    assert not file.holds(0, MIB) or file.read_ready_into(out, 0) == MIB  # the system may read ahead
    assert file.read_into(out, 0) == MIB
    assert file.holds(0, MIB)


def test_what_is_no_file(tmp_path: pathlib.Path) -> None:
    """A pipe in a bucket's folder would hang the server, or a folder end it."""
    os.mkfifo(tmp_path / "pipe")
    files = PosixFiles()
    for path in (tmp_path / "none", tmp_path, tmp_path / "pipe"):
        assert files.open_ready(str(path)) is None
    with pytest.raises(StoreError, match="null"):
        files.open_ready(f"{tmp_path}/a\0b")
    odd = os.fsdecode(bytes(tmp_path) + b"/\xff")
    pathlib.Path(odd).write_bytes(b"x")
    file = files.open_ready(odd)
    assert file is None or file.read_into(bytearray(9), 0) == 1
    assert MemoryFiles().open_ready("/f") is None
    with pytest.raises(TypeError, match="open_ready"):
        ReadyFile()
    del file
    assert count_open_files(tmp_path) == 0


def test_faults(tmp_path: pathlib.Path) -> None:
    """A wrong call would write where it may not."""
    path = tmp_path / "f"
    path.write_bytes(b"0123456789")
    file = opened(path)
    for read in (file.read_ready_into, file.read_into):
        with pytest.raises(BufferError):
            read(b"x", 0)
        with pytest.raises(OverflowError):
            read(bytearray(1), -1)
    with pytest.raises(OSError, match="Invalid"):
        file.read_into(bytearray(1), 1 << 63)
    assert file.read_ready_into(bytearray(1), 1 << 63) == 0
    with pytest.raises(OverflowError):
        file.send(0, 1 << 63, 1)
    with pytest.raises(OSError, match="descriptor") as failed:
        file.send(-1, 0, 1)
    assert failed.value.errno == errno.EBADF


def test_what_is_sent(tmp_path: pathlib.Path) -> None:
    """A consumer would get other bytes, or the server would stand still for one that reads slowly."""
    data = os.urandom(20 * MIB)
    path = tmp_path / "f"
    path.write_bytes(data)
    file = opened(path)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        sent = file.send(ours.fileno(), 5, 20 * MIB - 7)
        assert 0 < sent < 20 * MIB - 7
        assert file.send(ours.fileno(), 5 + sent, 0) == 0
        assert file.send(ours.fileno(), 5 + sent, 100 * MIB) == 0, "the socket is full"
        got = bytearray()
        while len(got) < sent:
            got += theirs.recv(sent - len(got))
        assert got == data[5 : 5 + sent]
        assert file.send(ours.fileno(), 20 * MIB - 3, 100) == 3
        assert theirs.recv(100) == data[-3:]
        with pytest.raises(EOFError):
            file.send(ours.fileno(), 20 * MIB, 1)
        theirs.close()
        with pytest.raises(ConnectionError):
            file.send(ours.fileno(), 0, 1)


def test_views_go_as_far_as_the_socket_takes_them() -> None:
    """A byte that is counted as sent and was not is missing in the midst of an answer."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        data = memoryview(random.Random(5).randbytes(1 << 20))
        sent = 0
        while count := send_views(ours.fileno(), [data[sent : sent + 7], data[sent + 7 :]], has_more=sent % 2 == 0):
            sent += count
        assert 0 < sent < len(data), "a full socket takes none"
        assert send_views(ours.fileno(), [], has_more=False) == 0
        received = bytearray()
        while len(received) < sent:
            received += theirs.recv(1 << 16)
        assert received == data[:sent]
        many = [data[:1]] * SEND_VIEWS_MAX
        assert send_views(ours.fileno(), many, has_more=False) == SEND_VIEWS_MAX
        with pytest.raises(ValueError, match="65 views"):
            send_views(ours.fileno(), [*many, data], has_more=False)
        with pytest.raises(BufferError):
            send_views(ours.fileno(), [data[:1], data[::2]], has_more=False)
        theirs.close()
        with pytest.raises(BrokenPipeError):
            send_views(ours.fileno(), [data], has_more=False)
    with pytest.raises(OSError, match="descriptor"):
        send_views(-1, [data], has_more=False)
