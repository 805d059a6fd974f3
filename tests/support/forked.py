"""Calls in a child made by fork, with a time limit: what would wait for ever is killed, and told."""

from __future__ import annotations

import os
import select
import signal
import warnings
from collections.abc import Callable

SECONDS = 10.0


def told_by_fork(*calls: Callable[[], object], seconds: float = SECONDS) -> list[str]:
    """``TypeName: text`` of what each call raises in one child, or the repr of what it gives, in order.

    A child that says nothing for ``seconds`` is killed: its list ends with "hung".
    """
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: a fork in a process with threads
        child = os.fork()
    if child == 0:
        _tell(calls, writing)
    os.close(writing)
    try:
        return _heard(reading, seconds)
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _tell(calls: tuple[Callable[[], object], ...], writing: int) -> None:
    try:
        for call in calls:
            try:
                said = repr(call())
            except Exception as error:  # noqa: BLE001 - it is what the test asks for
                said = f"{type(error).__name__}: {error}"
            os.write(writing, said.replace("\n", " ").encode()[:4000] + b"\n")
    finally:
        os._exit(0)


def _heard(reading: int, seconds: float) -> list[str]:
    heard = b""
    while select.select([reading], [], [], seconds)[0]:
        piece = os.read(reading, 1 << 16)
        if not piece:
            return heard.decode().splitlines()
        heard += piece
    return [*heard.decode().splitlines(), "hung"]
