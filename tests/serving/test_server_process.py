"""A server as a process: signals, exit codes, and what is left."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from tests.support.broker_servers import Client
from tests.support.waiting import LIMIT_SECONDS

_SCRIPT = """
import logging
from tests.support.broker_servers import MetadataHandler
from tierlog.serving.server import run_server
from tierlog.broker.server.server import Server
from tierlog.broker.server.server_config import ServerConfig
from tierlog.runtime.machine import Machine

logging.basicConfig(level=logging.INFO)

class Slow(Server):
    async def start(self):
        print("starting", flush=True)
        await __import__("asyncio").sleep(60)

server = (Slow if %(slow)r else Server)([MetadataHandler()], ServerConfig(port=0), Machine())
code = run_server(server.start, server.stop, server.reload_files, lambda host, port: print(host, port, flush=True))
import threading
import gc
assert gc.get_freeze_count() > 1000 or %(slow)r, "what was loaded is looked through again and again"
assert gc.get_threshold()[2] >= 1000
print("ended", code, threading.active_count(), flush=True)
raise SystemExit(code)
"""


@contextlib.contextmanager
def server_process(*, slow: bool = False) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The process, and the words of the first line that it printed."""
    script = _SCRIPT % {"slow": slow}
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline().split()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server(number: signal.Signals) -> None:
    """Supervisors restart what ends with an error, and kill what does not end."""
    with server_process() as (process, (host, port)), Client(host, int(port)) as client:
        assert client.ask_metadata()
        process.send_signal(signal.SIGHUP)
        assert client.ask_metadata()
        process.send_signal(number)
        assert client.is_closed()
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert process.returncode == 0, err
    assert out == "ended 0 1\n"
    assert f"event=signal name={number.name}" in err
    assert "Warning" not in err
    assert "Error" not in err


def test_signals_that_come_again() -> None:
    """A supervisor that asks twice would take a clean stop for a crash: the second one came behind the loop's end."""
    with server_process() as (process, _):
        while process.poll() is None:
            process.send_signal(signal.SIGTERM)
            time.sleep(0.001)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, out) == (0, "ended 0 1\n"), err


def test_a_signal_ends_a_server_that_still_starts() -> None:
    """Listing a large bucket takes minutes: whoever sees a wrong name in the command must not have to wait, or kill."""
    with server_process(slow=True) as (process, words):
        assert words == ["starting"]
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT_SECONDS)
    assert (process.returncode, out) == (0, "ended 0 1\n"), err
    assert "Error" not in err
