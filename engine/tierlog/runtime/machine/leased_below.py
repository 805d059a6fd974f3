"""A file of a directory below a given one, opened through no symbolic link, whoever may rename things there.

Names of one level are opened each below a descriptor of the level above, so nothing outside is reached: what openat2
promises with RESOLVE_BENEATH and RESOLVE_NO_SYMLINKS for a path, on every Linux.
"""

from __future__ import annotations

import contextlib
import os
import stat
from functools import partial

from tierlog.errors import StoreError
from tierlog.runtime.machine.files import LeasedFile, translated


def lease_below(root: str, folder: str, name: str) -> LeasedFile:
    """Lease the regular file ``root/folder/name``: its path opens it until it is closed.

    Args:
        root: A directory; a symbolic link there is followed, since who configured it chose it.
        folder: A directory in it, by its name.
        name: A file in that.

    Raises:
        ValueError: a name has more than one level. StoreError and its kinds: it is not there, is a symbolic link or no
        regular file, or may not be read.
    """
    for each in (folder, name):
        if not each or "/" in each or "\0" in each or each in (".", ".."):
            raise ValueError(f"{each!r} is no name in a directory")
    path = f"{root}/{folder}/{name}"
    with contextlib.ExitStack() as opened:
        with translated(path):
            at = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, at)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
            below = os.open(folder, flags | os.O_DIRECTORY, dir_fd=at)
            opened.callback(os.close, below)
            descriptor = os.open(name, flags | os.O_NONBLOCK, dir_fd=below)  # a FIFO would wait for its writer
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise StoreError(f"{path}: is no regular file")
        return LeasedFile(f"/proc/{os.getpid()}/fd/{descriptor}", partial(os.close, descriptor))


def real_directory(path: str) -> str:
    """Return the name of a directory without symbolic links and dots."""
    return os.path.realpath(path)
