"""The files of a closed segment as a copy to the tier takes them, for as long as the copy runs."""

from __future__ import annotations

import contextlib
from typing import Final

from tierlog.log.formats.segment_files import LogSegmentData
from tierlog.runtime.machine.files import Files, LeasedFile


class SegmentLease:
    """A segment's files, which open until the lease is closed, whatever the log does: retention, a truncation, the
    deletion of the log, a rename of its folder. A context manager, which gives ``data``.

    A lease makes no file: its paths are those of open files. They open for any process of this machine's user, a
    storage manager of another make among them. It holds at most five descriptors; one that is dropped closes them.

    Args:
        files: The file system.
        log_segment: Path of the ``.log``.
        offset_index: Path.
        time_index: Path.
        transaction_index: Path; there need be no such file.
        producer_snapshot: Path of the snapshot of the segment's end.
        leader_epoch_index: The lineage up to the segment's end.

    Attributes:
        data: The files, for ``RemoteStorageManager.copy_log_segment_data``.

    Raises:
        ObjectNotFoundError: a file is missing. StoreError.

    Thread safety: any number of threads use ``data``; one closes.
    """

    data: Final[LogSegmentData]

    def __init__(
        self,
        files: Files,
        *,
        log_segment: str,
        offset_index: str,
        time_index: str,
        transaction_index: str,
        producer_snapshot: str,
        leader_epoch_index: bytes,
    ) -> None:
        with contextlib.ExitStack() as opened:

            def leased(path: str) -> str:
                file: LeasedFile = opened.enter_context(files.lease(path))
                return file.path

            has_transactions = files.find(transaction_index) is not None
            self.data = LogSegmentData(
                log_segment=leased(log_segment),
                offset_index=leased(offset_index),
                time_index=leased(time_index),
                transaction_index=leased(transaction_index) if has_transactions else None,
                producer_snapshot=leased(producer_snapshot),
                leader_epoch_index=leader_epoch_index,
            )
            self._opened = opened.pop_all()

    def __enter__(self) -> LogSegmentData:
        return self.data

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the paths open nothing any more; idempotent."""
        self._opened.close()
