"""One of a log directory's offset checkpoints, as a file. Source: Kafka OffsetCheckpointFile."""

from __future__ import annotations

from collections.abc import Mapping

from tierlog.errors import CorruptIndexError, ObjectNotFoundError
from tierlog.log.formats.checkpoints import encode_offset_checkpoint, parse_offset_checkpoint
from tierlog.runtime.machine.files import Files

#: (topic, partition) to offset.
PartitionOffsets = Mapping[tuple[str, int], int]


class OffsetCheckpointFile:
    """A checkpoint in a log directory. One thread at a time.

    Args:
        files: The file system.
        folder: The log directory.
        name: RECOVERY_POINTS, LOG_STARTS or HIGH_WATERMARKS of ``segment_files``.
    """

    def __init__(self, files: Files, folder: str, name: str) -> None:
        self._files = files
        self.path = f"{folder}/{name}"

    def read(self) -> dict[tuple[str, int], int]:
        """What is there, in the file's order; nothing if there is no file.

        Raises:
            CorruptIndexError: the file is malformed. StoreError.
        """
        try:
            return parse_offset_checkpoint(self._files.read_whole(self.path))
        except ObjectNotFoundError:
            return {}
        except CorruptIndexError as error:
            raise error.located(self.path) from None

    def write(self, offsets: PartitionOffsets) -> None:
        """Replace what is there, durably, in the mapping's order. Raises StoreError: the old offsets are there, or the
        new ones, as after a crash.
        """
        self._files.write_whole(self.path, encode_offset_checkpoint(offsets))
