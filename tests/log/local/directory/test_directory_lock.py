"""The lock of a log directory."""

from __future__ import annotations

import pytest

from tierlog.errors import ObjectNotFoundError, StoreUnavailableError
from tierlog.log.local.directory.directory_lock import lock_directory
from tierlog.runtime.simulated.memory_files import MemoryFiles


def test_one_has_a_directory() -> None:
    """If this fails, two processes append to one log."""
    files = MemoryFiles()
    with pytest.raises(ObjectNotFoundError):
        lock_directory(files, "/logs")
    files.make_directories("/logs")
    with lock_directory(files, "/logs"), pytest.raises(StoreUnavailableError, match="/logs: a broker"):
        lock_directory(files, "/logs")
    assert files.find("/logs/.lock") is not None
    lock_directory(files, "/logs").release()
