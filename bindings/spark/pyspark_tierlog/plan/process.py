"""The child: requests from its input, frames to its output, until the driver is gone.

Only the protocol writes to its output: anything else that prints goes to standard error, which Spark's driver logs.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import platform
import select  # noqa: TID251 - whether the driver is gone is asked of a pipe, on a thread of its own
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, BinaryIO

from pyspark_tierlog.plan.frames import (
    PROTOCOL,
    BrokenStreamError,
    FrameWriter,
    PlanProtocolError,
    read_frame,
)
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.process import claim_pipes, point_at_nothing

if TYPE_CHECKING:
    from pyspark_tierlog.plan.requests import Request

_logger = logging.getLogger(__name__)
_OUT_BUFFER_BYTES = 1 << 18
#: Objects more than there were; Python's own number is 700.
_ALLOCATIONS_A_COLLECTION = 100_000


def main() -> int:
    """Serve until the input ends. Returns the exit code: 0, or 1 after input that is no frame."""
    _arrange_signals()
    requests, answers = claim_pipes(out_buffer_bytes=_OUT_BUFFER_BYTES)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    _watch(answers.fileno())
    try:
        return _serve(requests, FrameWriter(answers))
    except BrokenPipeError:
        _drop(answers)
        return 0  # the driver is gone: no process is left to answer


def _arrange_signals() -> None:
    """Ignore Ctrl-C, which a user means for a query; the driver ends this process by closing the pipe or by SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _watch(descriptor: int) -> None:
    """End at once when the driver can read no answer any more, even during a listing that takes minutes."""

    def wait() -> None:
        poll = select.poll()
        poll.register(descriptor, 0)
        while not any(event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in poll.poll()):
            pass
        os._exit(0)

    Machine().scheduler.start(wait, name="tierlog-driver-watch")


def _drop(answers: BinaryIO) -> None:
    """Let buffered output go nowhere, since Python complains at exit otherwise."""
    point_at_nothing(answers.fileno())


def _serve(requests: BinaryIO, out: FrameWriter) -> int:
    from tierlog._version import __version__

    out.write_json("V", {"protocol": PROTOCOL, "version": __version__, "python": platform.python_version()})
    out.flush()
    with contextlib.suppress(ImportError):  # reported once there is a request
        _brain()
    _collect_seldom()
    while True:
        try:
            frame = read_frame(requests)
            if frame is None:
                return 0
            if frame[0] == "B":
                continue  # of a request that was refused
            _answer(frame, requests, out)
        except BrokenStreamError as error:
            _logger.error("the requests end: %s", error)
            _tell(out, error)
            return 1


def _collect_seldom() -> None:
    """Collect garbage seldom: of a listing's objects hardly any are in cycles, and to look for them took a quarter of
    its time.
    """
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS_A_COLLECTION)


def _answer(frame: tuple[str, bytes], requests: BinaryIO, out: FrameWriter) -> None:
    try:
        parse, answer = _brain()
        if frame[0] != "Q":
            raise PlanProtocolError(f"a frame of type {frame[0]} is no request")
        request = parse(frame[1])
        answer(request, _blobs(requests, request.blobs), out)
        out.write("Z")
        out.flush()
    except (BrokenPipeError, BrokenStreamError):
        raise
    except Exception as error:  # noqa: BLE001  whatever it is, the driver waits for an answer
        _tell(out, error)


def _brain() -> tuple[Callable[[bytes], Request], Callable[[Request, Sequence[bytes], FrameWriter], None]]:
    """Return the module that plans. It is imported after the greeting, so that the driver goes on meanwhile.

    Raises:
        ImportError: this interpreter has Tierlog, but not its dependencies.
    """
    from pyspark_tierlog.plan.planner import answer
    from pyspark_tierlog.plan.requests import parse_request

    return parse_request, answer


def _blobs(requests: BinaryIO, count: int) -> list[bytes]:
    blobs: list[bytes] = []
    while len(blobs) < count:
        frame = read_frame(requests)
        if frame is None or frame[0] != "B":
            raise BrokenStreamError(f"a request with {len(blobs)} of its {count} parts")
        blobs.append(frame[1])
    return blobs


def _tell(out: FrameWriter, error: Exception) -> None:
    """Write an error as the Python path would show it."""
    kind, text = type(error).__name__, str(error)
    if isinstance(error, ImportError):
        text = f"tierlog does not work under {sys.executable} (Python {platform.python_version()}): {error}"
    elif not isinstance(error, PlanProtocolError) and not _is_ours(error):
        _logger.error("a fault of tierlog", exc_info=error)
        text = f"a fault of tierlog: {kind}: {text}"
    out.write_json("E", {"kind": kind, "text": text, "retriable": bool(getattr(error, "retriable", False))})
    out.flush()


def _is_ours(error: Exception) -> bool:
    from tierlog.errors import TierlogError

    return isinstance(error, TierlogError)
