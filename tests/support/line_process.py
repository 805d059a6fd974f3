"""A process that answers a line with a line: a peer that is slow to start, and is asked many times."""

from __future__ import annotations

import contextlib
import os
import pathlib
import subprocess
import threading
from collections.abc import Mapping, Sequence
from typing import IO, Self

from tests.support.peers import install
from tests.support.peers.compiled import java_class_path
from tests.support.waiting import LIMIT_SECONDS


class LineProcess:
    """The process; one question at a time. ``with`` ends it.

    Args:
        command: Reads questions from stdin until its end, and answers each on stdout.
        errors: Where its stderr goes; None: where this process's goes.
        environment: Instead of this process's.
        folder: Where it runs; None: where this process does.
    """

    def __init__(
        self,
        command: Sequence[str],
        errors: pathlib.Path | None = None,
        *,
        environment: Mapping[str, str] | None = None,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._errors, pipe = errors, subprocess.PIPE
        with contextlib.ExitStack() as opened:
            out: IO[bytes] | None = None if errors is None else opened.enter_context(errors.open("wb"))
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=out, env=environment, cwd=folder, text=True
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
                self._process.wait(LIMIT_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()
            self._answers.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, *words: object, seconds: float = LIMIT_SECONDS) -> str:
        """The answer to the words, without the line's end.

        Raises:
            AssertionError: none came in time, or the process has ended; with the end of its stderr. It is killed.
        """
        question = " ".join(map(str, words))
        deadline = threading.Timer(seconds, self._process.kill)
        deadline.start()
        try:
            self._questions.write(question + "\n")
            self._questions.flush()
            answer = self._answers.readline()
        except BrokenPipeError:
            answer = ""
        finally:
            deadline.cancel()
            deadline.join()
        if not answer:
            told = self._errors.read_text(errors="replace")[-3000:] if self._errors is not None else ""
            raise AssertionError(f"no answer within {seconds:.0f} s to {question[:1000]}: {told}")
        return answer.rstrip("\n")


def kafka_peer(
    folder: pathlib.Path, program: str = "LogPeer", package: str = "org.apache.kafka.storage.internals.log"
) -> LineProcess:
    """A program of tests/support/peers, in a package of Kafka's.

    Args:
        folder: Where the peer is compiled.
        program: The name of its class.
        package: Of the class.
    """
    class_path = java_class_path(install.HERE / f"{program}.java", folder)
    command = [install.java(), "-Xmx256m", "-cp", class_path, f"{package}.{program}"]
    return LineProcess(command, folder / "errors.txt")
