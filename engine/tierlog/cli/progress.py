"""Progress on stderr, if that is a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ByteProgress:
    """A bar of bytes done out of a total. A context manager; silent without a terminal.

    Args:
        what: Text in front of the bar.
        total_bytes: The total; None if it is not yet known.
    """

    def __init__(self, what: str, total_bytes: int | None = None) -> None:
        self._what = what
        self._total_bytes = total_bytes
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

            columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self._what, total=self._total_bytes)
            self._bar.start()
        return self

    def step(self, size_bytes: int, total_bytes: int) -> None:
        """Advance the bar of a job, which knows its total from its first step on."""
        if total_bytes != self._total_bytes and self._bar is not None and self._task is not None:
            self._bar.update(self._task, total=total_bytes)
        self._total_bytes = total_bytes
        self.advance(size_bytes)

    def advance(self, size_bytes: int) -> None:
        if self._bar is not None and self._task is not None:
            self._bar.advance(self._task, size_bytes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
