"""Worker threads: as many as there is work for, none for long without work, none that keeps a process alive."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

from tests.support.waiting import LIMIT_SECONDS, wait_until
from tierlog.errors import NoThreadError
from tierlog.runtime.machine.scheduling import PoolClosedError
from tierlog.runtime.machine.thread_scheduler import ThreadPool, ThreadScheduler


def test_workers_come_with_work_and_go_without() -> None:
    """If this fails, an idle broker keeps a thread for each request that it ever had at once."""
    pool = ThreadPool(8, "t", idle_seconds=0.05)
    gate = threading.Event()
    futures = [pool.submit(gate.wait) for _ in range(20)]
    assert len(pool._threads) == 8
    gate.set()
    for future in futures:
        assert future.result(LIMIT_SECONDS)
    wait_until(lambda: not pool._threads)
    assert pool.submit(lambda: 5).result(LIMIT_SECONDS) == 5
    pool.close()


def test_one_call_after_another_takes_one_worker() -> None:
    """If this fails, quiet work spreads over all the threads there may be."""
    with ThreadPool(8, "t") as pool:
        for number in range(50):
            assert pool.submit(lambda number=number: number).result(LIMIT_SECONDS) == number  # type: ignore[misc]
            wait_until(lambda: pool._waiting >= 1)
        assert len(pool._threads) == 1


def test_no_call_is_lost_while_workers_end() -> None:
    """If this fails, a call that came as a worker gave up waiting is never run: whoever waits for it hangs."""
    pool = ThreadPool(2, "t", idle_seconds=0.0005)
    for number in range(2000):
        assert pool.submit(lambda number=number: number).result(LIMIT_SECONDS) == number  # type: ignore[misc]
        if number % 3 == 0:
            time.sleep(0.0005)
    pool.close()


@pytest.mark.parametrize("cancel", [True, False])
def test_closing(cancel: bool) -> None:
    """If this fails, a close loses calls that were to be run, or runs those that were to be dropped."""
    pool = ThreadPool(1, "t")
    gate, began = threading.Event(), threading.Event()

    def first() -> int:
        began.set()
        gate.wait(LIMIT_SECONDS)
        return 1

    running, waiting = pool.submit(first), pool.submit(lambda: 2)
    assert began.wait(LIMIT_SECONDS)
    threading.Timer(0.05, gate.set).start()
    pool.close(cancel=cancel)
    assert running.result(0) == 1
    assert waiting.cancelled() == cancel
    assert cancel or waiting.result(0) == 2
    with pytest.raises(PoolClosedError, match="closed"):
        pool.submit(lambda: 3)
    pool.close()


def test_closing_without_waiting() -> None:
    """If this fails, a store's call that never returns holds up a broker's shutdown."""
    pool = ThreadPool(1, "t")
    gate, began = threading.Event(), threading.Event()

    def stall() -> None:
        began.set()
        gate.wait(LIMIT_SECONDS)

    running = pool.submit(stall)
    assert began.wait(LIMIT_SECONDS)
    pool.close(wait_seconds=0)
    assert not running.done()
    gate.set()
    running.result(LIMIT_SECONDS)
    wait_until(lambda: not pool._threads)


def test_a_stalled_call_does_not_keep_the_process() -> None:
    """If this fails, a process whose store stalls cannot end."""
    code = (
        "import time; from tierlog.runtime.machine.thread_scheduler import ThreadPool\n"
        "p = ThreadPool(2, 't'); p.submit(lambda: time.sleep(600)); p.submit(lambda: print('ran')).result()\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=True)
    assert (done.stdout, done.stderr) == ("ran\n", "")


def test_a_system_without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """If this fails, a container at its limit of threads says "closed" of what is open, or a call waits for ever."""

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with ThreadPool(4, "t") as pool:
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refused)
            with pytest.raises(NoThreadError, match="no thread for t: can't start new thread"):
                pool.submit(int)
            with pytest.raises(NoThreadError, match="no thread for other"):
                ThreadScheduler().start(lambda: None, name="other")
        assert pool.submit(lambda: 1).result(LIMIT_SECONDS) == 1
        gate, began = threading.Event(), threading.Event()
        first = pool.submit(lambda: (began.set(), gate.wait(LIMIT_SECONDS)))
        assert began.wait(LIMIT_SECONDS)
        with monkeypatch.context() as full:
            full.setattr(threading.Thread, "start", refused)
            second = pool.submit(lambda: 2)  # the one worker comes to it
        gate.set()
        assert second.result(LIMIT_SECONDS) == 2
        assert first.done()


@pytest.mark.parametrize("runs", [True, False])
def test_a_signal_while_a_worker_starts(monkeypatch: pytest.MonkeyPatch, runs: bool) -> None:
    """If this fails, a command that is ended prints that it "cannot join thread before it is started", and a notebook
    whose cell was interrupted has a worker fewer for ever.
    """
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        if runs:
            start(thread)
        raise KeyboardInterrupt

    with ThreadPool(1, "t") as pool:
        with monkeypatch.context() as struck:
            struck.setattr(threading.Thread, "start", interrupted)
            with pytest.raises(KeyboardInterrupt):
                pool.submit(int)
        assert pool.submit(lambda: 1).result(LIMIT_SECONDS) == 1
