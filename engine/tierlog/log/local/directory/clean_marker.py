"""The marker of a clean stop in a log directory. Source: Kafka CleanShutdownFileHandler, LogManager#loadLogs."""

from __future__ import annotations

from typing import NamedTuple

from tierlog.errors import StoreError
from tierlog.log.formats.clean_shutdown import FILE_SIZE_BYTES_MAX, encode_clean_shutdown, parse_clean_shutdown
from tierlog.log.formats.segment_files import CLEAN_SHUTDOWN
from tierlog.runtime.machine.files import Files


class LastStop(NamedTuple):
    """How a log directory was left.

    Attributes:
        was_clean: Whether all of its logs were closed.
        broker_epoch: Of the broker that closed it; None if it is not known.
    """

    was_clean: bool
    broker_epoch: int | None


def take_marker(files: Files, folder: str) -> LastStop:
    """Read the marker and remove it, durably: a crash from now on leaves no clean directory. Raises StoreError."""
    path = f"{folder}/{CLEAN_SHUTDOWN}"
    if files.find(path) is None:
        return LastStop(was_clean=False, broker_epoch=None)
    try:
        broker_epoch = parse_clean_shutdown(files.read_whole(path, limit_bytes=FILE_SIZE_BYTES_MAX))
    except StoreError:  # its being there is what counts
        broker_epoch = None
    files.remove(path)
    files.fsync_directory(folder)
    return LastStop(was_clean=True, broker_epoch=broker_epoch)


def write_marker(files: Files, folder: str, *, broker_epoch: int = -1) -> None:
    """Write the marker, durably; -1 is no epoch. Raises StoreError."""
    files.write_whole(f"{folder}/{CLEAN_SHUTDOWN}", encode_clean_shutdown(broker_epoch))
