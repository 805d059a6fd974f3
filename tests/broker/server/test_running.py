"""A server as a process: signals, exit codes, and what is left."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.broker_servers import Client

_SCRIPT = """
import logging
from tests.support.broker_servers import MetadataHandler
from tierlog.broker.server.running import run_server
from tierlog.broker.server.server import Server
from tierlog.broker.server.server_config import ServerConfig
from tierlog.runtime.machine import Machine

logging.basicConfig(level=logging.INFO)

async def make_server():
    return Server([MetadataHandler()], ServerConfig(port=0), Machine())

code = run_server(make_server, lambda host, port: print(host, port, flush=True))
import threading
print("ended", code, threading.active_count(), flush=True)
raise SystemExit(code)
"""


@contextlib.contextmanager
def server_process() -> Iterator[tuple[subprocess.Popen[str], str, int]]:
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-c", _SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            host, port = process.stdout.readline().split()
            yield process, host, int(port)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server(number: signal.Signals) -> None:
    """Supervisors restart what ends with an error, and kill what does not end."""
    with server_process() as (process, host, port), Client(host, port) as client:
        assert client.ask_metadata()
        process.send_signal(signal.SIGHUP)
        assert client.ask_metadata()
        process.send_signal(number)
        assert client.is_closed()
        out, err = process.communicate(timeout=20)
    assert process.returncode == 0, err
    assert out == "ended 0 1\n"
    assert f"event=signal name={number.name}" in err
    assert "Warning" not in err
    assert "Error" not in err
