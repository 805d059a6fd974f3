"""The lock of a log directory: ``.lock``, which a broker holds as long as it runs."""

from __future__ import annotations

from tierlog.errors import StoreUnavailableError
from tierlog.log.formats.segment_files import LOCK
from tierlog.runtime.machine.files import FileLock, Files


def lock_directory(files: Files, path: str) -> FileLock:
    """Lock a log directory that exists, against brokers and against Tierlog; the file stays, as Kafka's does.

    Raises:
        StoreUnavailableError: somebody has the directory open. StoreError: the file cannot be made or locked.
    """
    held = files.try_record_lock(f"{path}/{LOCK}")
    if held is None:
        raise StoreUnavailableError(f"{path}: a broker, or another process, has this log directory open ({LOCK})")
    return held
