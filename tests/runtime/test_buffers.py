"""Memory that is used again, and never while somebody holds it."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest

from tierlog.runtime.buffers import BufferPool, new_buffer

MIB = 1 << 20


@pytest.mark.parametrize("size", [0, 1, 65_535, 65_536, 65_537, 4 * MIB, 4 * MIB + 28, 65 * MIB])
def test_a_buffer_has_the_size_that_was_asked_for(size: int) -> None:
    """If this fails, chunks are cut or have a tail of other bytes."""
    buffer = new_buffer(size)
    assert len(buffer) == buffer.nbytes == size
    assert not buffer.readonly
    buffer[:] = bytes(size)


def test_memory_is_used_again_when_the_last_view_is_gone() -> None:
    """If this fails, each chunk pays for fresh pages, or a reader's bytes change under her."""
    pool = BufferPool(64 * MIB)
    first = pool.take(4 * MIB)
    first[:4] = b"mine"
    address = np.frombuffer(first, np.uint8).ctypes.data
    view = first[1:3].toreadonly()
    del first
    gc.collect()
    second = pool.take(4 * MIB)
    second[:4] = b"next"
    assert np.frombuffer(second, np.uint8).ctypes.data != address
    assert view == b"in"
    del view
    gc.collect()
    assert pool.kept_bytes == 4 * MIB
    third = pool.take(4 * MIB - 1000)
    assert np.frombuffer(third, np.uint8).ctypes.data == address
    assert pool.kept_bytes == 0


def test_what_is_kept_is_bounded() -> None:
    """If this fails, the memory of one burst is never given back."""
    pool = BufferPool(10 * MIB)
    buffers = [pool.take(4 * MIB) for _ in range(10)]
    del buffers
    gc.collect()
    assert pool.kept_bytes == 8 * MIB


def test_threads_never_share_a_buffer() -> None:
    """If this fails, readers get each other's bytes."""
    pool = BufferPool(64 * MIB)
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
