"""A process that answers a line with a line, for tests with peers that are slow to start."""

from __future__ import annotations

import contextlib
import pathlib
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import Self

import pytest

END_SECONDS = 30.0


class LineProcess:
    """The process; one question at a time. ``with`` ends it.

    Args:
        command: Reads questions from stdin until its end, and answers each on stdout.
        errors: Where its stderr goes.
        environment: Instead of this process's.
    """

    def __init__(
        self, command: Sequence[str], errors: pathlib.Path, *, environment: Mapping[str, str] | None = None
    ) -> None:
        self._errors = errors
        with errors.open("wb") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=out, env=environment
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._questions, self._answers = self._process.stdin, self._process.stdout

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has failed, which ``ask`` told
            self._questions.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._answers.close()

    def ask(self, question: bytes, seconds: float) -> bytes:
        """The answer; where none comes in time the process is killed, and the test fails with the end of its stderr."""
        deadline = threading.Timer(seconds, self._process.kill)
        deadline.start()
        try:
            self._questions.write(question + b"\n")
            self._questions.flush()
            answer = self._answers.readline()
        except BrokenPipeError:
            answer = b""
        finally:
            deadline.cancel()
            deadline.join()
        if not answer:
            told = self._errors.read_text(errors="replace")[-3000:]
            pytest.fail(f"no answer within {seconds:.0f} s to {question.decode()}: {told}", pytrace=False)
        return answer
