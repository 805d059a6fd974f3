"""Spark for the command: a session of ``--spark MASTER``, whose executors do a verb's work on segments."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tierlog.cli import use_all_packages
from tierlog.cli.exits import complain
from tierlog.cli.options import Output

if TYPE_CHECKING:
    from tierlog.upkeep import Executor, JobEstimate

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def spark_executor(master: str | None, verb: str, cores: int | None) -> Generator[Executor | None]:
    """Start a session, which ends with the block; None, and nothing is started, where no master is named.

    Args:
        master: Value of --spark.
        verb: For the application's name.
        cores: To keep busy; None for those of the session.

    Raises:
        ConfigError: Spark is not installed, or does not start.
    """
    if master is None:
        yield None
        return
    from tierlog._extras import require_extra

    use_all_packages()
    require_extra("spark", "--spark")
    from pyspark_tierlog.jobs import SparkExecutor, open_session

    if master.startswith("local"):  # else the workers take the python3 of PATH, which need not have Tierlog
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    session = open_session(master, f"tierlog {verb}")
    for number, handler in handlers.items():  # Spark has set its own
        if handler is not None:
            signal.signal(number, handler)
    try:
        yield SparkExecutor(session, cores=cores)
    finally:
        session.stop()


def tell_estimate(verb: str, estimate: JobEstimate, output: Output, *, is_answer: bool, is_told: bool) -> None:
    """Print what a job is going to do.

    Args:
        verb: In front of it.
        estimate: What it is.
        output: Form of an answer.
        is_answer: Whether it is what the command was asked for, and goes to stdout.
        is_told: Whether else it is printed at all, for people.
    """
    if is_answer:
        fields = {"segments": estimate.segments, "requests": estimate.requests, "sizeBytes": estimate.size_bytes}
        output.show(fields, f"{verb}: {estimate}")
    elif is_told:
        complain(f"{verb}: {estimate}", level=logging.INFO)
