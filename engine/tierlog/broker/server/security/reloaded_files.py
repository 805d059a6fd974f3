"""Files that may change while a server runs: certificates, users."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from tierlog.errors import ConfigError, StoreError
from tierlog.runtime.machine.files import FileInfo, Files

_log = logging.getLogger(__name__)

Value = TypeVar("Value")


class ReloadedFiles(Generic[Value]):
    """A value made of some files, and made again when the files have changed.

    Args:
        what: One word, for the log: ``event=<what>_changed``, ``event=<what>_kept``.
        paths: The files; the first one is named in the log.
        load: Makes the value. Raises ConfigError, StoreError: the files cannot be used.
        files: Tells when they change.

    Attributes:
        value: From the files as they were when they were last fine.

    Raises:
        What ``load`` raises; StoreError: the files cannot be looked at.

    Thread safety: one thread at a time makes and reloads; any thread may read ``value``.
    """

    def __init__(self, what: str, paths: Sequence[str], load: Callable[[], Value], files: Files) -> None:
        self._what = what
        self._paths = tuple(paths)
        self._load = load
        self._files = files
        self._stamp = self._read_stamp()
        self.value = load()

    def reload(self) -> bool:
        """Read the files again if they have changed. Whether there is another value now.

        What is wrong with new files is logged, and the value stays: a change that is half written must not take the
        server down. Reads files: not for the loop's thread.
        """
        try:
            stamp = self._read_stamp()
            if stamp == self._stamp:
                return False
            self.value = self._load()
        except (ConfigError, StoreError) as error:
            _log.error("event=%s_kept path=%s reason=%r", self._what, self._paths[0], str(error))
            return False
        self._stamp = stamp
        _log.info("event=%s_changed path=%s", self._what, self._paths[0])
        return True

    def _read_stamp(self) -> tuple[FileInfo | None, ...]:
        return tuple(map(self._files.find, self._paths))
