"""The log directories whose segments a sidecar copies, and the files of a segment in them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.remote.api import RemoteLogSegmentMetadata
from tierlog.runtime.machine.leased_below import lease_below, real_directory
from tierlog.sidecar.protocol import Copy, RefusedRequestError

_log = logging.getLogger(__name__)

#: Directories that are learned: a broker has some disks.
_LEARNED_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class _Place:
    """A path of Kafka's, in its three parts."""

    directory: str
    folder: str
    name: str


class AllowedLogs:
    """The directories below which a sidecar opens files, and no others.

    Args:
        allowed: Their paths.
        learns: Whether the directory of each copy is allowed: the client is who started this process.

    Not thread-safe: it belongs to one event loop, or to one thread.
    """

    def __init__(self, allowed: Iterable[str] = (), *, learns: bool = False) -> None:
        self._allowed = {real_directory(each) for each in allowed}
        self._learns = learns

    @property
    def paths(self) -> list[str]:
        """The directories, sorted."""
        return sorted(self._allowed)

    def lease(self, copy: Copy, held: ExitStack) -> LogSegmentData:
        """Lease the files of a segment: their paths open them whatever is renamed meanwhile, until ``held`` ends.

        Raises:
            RefusedRequestError: a path is none of the segment's own, or lies in no allowed directory. StoreError and
                its kinds: a file is not there, or cannot be read.
        """
        wanted = _files_of(copy)
        places = [_place(path, name, copy.metadata) for path, name in wanted]
        directories = {place.directory for place in places}
        if len(directories) > 1:
            raise RefusedRequestError(f"the files of one segment lie in several log directories: {sorted(directories)}")
        directory = self._require(directories.pop())
        paths = [held.enter_context(lease_below(directory, each.folder, each.name)).path for each in places]
        log, offsets, times, snapshot = paths[:4]
        return LogSegmentData(
            log, offsets, times, paths[4] if len(paths) > 4 else None, snapshot, copy.leader_epoch_index
        )

    def _require(self, directory: str) -> str:
        found = real_directory(directory)
        if found in self._allowed:
            return found
        if self._learns and len(self._allowed) < _LEARNED_MAX:
            _log.info("event=log_directory path=%s", found)
            self._allowed.add(found)
            return found
        known = ", ".join(self.paths) or "none"
        raise RefusedRequestError(f"{directory} is no log directory that this sidecar may read (--allow-logs): {known}")


def _files_of(copy: Copy) -> list[tuple[str, str]]:
    """The paths of a copy's files, and the names that Kafka gives these files."""
    start, end = copy.metadata.start_offset, copy.metadata.end_offset + 1
    files = [
        (copy.log_segment, f"{start:020d}.log"),
        (copy.offset_index, f"{start:020d}.index"),
        (copy.time_index, f"{start:020d}.timeindex"),
        (copy.producer_snapshot, f"{end:020d}.snapshot"),
    ]
    if copy.transaction_index is not None:
        files.append((copy.transaction_index, f"{start:020d}.txnindex"))
    return files


def _place(path: str, name: str, metadata: RemoteLogSegmentMetadata) -> _Place:
    """Take a path apart. Raises RefusedRequestError: it does not end with the partition's folder and the file."""
    folder = str(metadata.topic_id_partition)
    directory = path.removesuffix(f"/{folder}/{name}")
    if directory == path or not directory.startswith("/") or "\0" in directory:
        raise RefusedRequestError(f"{path!r} is not the absolute path of {folder}/{name} in a log directory")
    return _Place(directory, folder, name)
