"""Files that hold keys: read whole, and reported in the log if every user of the machine can read them."""

from __future__ import annotations

import logging
from typing import Final

from tierlog.errors import ConfigError
from tierlog.runtime.machine.files import Files

_log = logging.getLogger(__name__)

#: What was told of already: once a process is enough.
_told: Final[set[str]] = set()


def read_secret_file(key: str, path: str, files: Files, *, limit_bytes: int) -> bytes:
    """The content of a file that a key of the configuration names.

    Raises:
        ConfigError: the value is no path but looks like the secret itself; it is not quoted. StoreError and its kinds:
            the file cannot be read.
    """
    if "\n" in path or "-----BEGIN" in path or path.lstrip().startswith("{"):
        raise ConfigError(f"{key}: the path of a file is expected, not what it holds")
    found = files.read_whole(path, limit_bytes=limit_bytes)
    info = files.find(path)
    if info is not None and info.readable_by_all and path not in _told:
        _told.add(path)
        _log.warning("%s: %s is readable by every user of this machine: take that right away (chmod o-r)", key, path)
    return found
