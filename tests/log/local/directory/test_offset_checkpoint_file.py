"""A log directory's offset checkpoints, as files."""

from __future__ import annotations

import pytest

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.segment_files import RECOVERY_POINTS
from tierlog.log.local.directory.offset_checkpoint_file import OffsetCheckpointFile
from tierlog.runtime.simulated.memory_files import MemoryFiles


def test_it_survives_a_crash() -> None:
    """Else a broker reads all logs from the start after a power cut, or believes in what was never flushed."""
    files = MemoryFiles()
    files.make_directories("/logs")
    checkpoint = OffsetCheckpointFile(files, "/logs", RECOVERY_POINTS)
    assert checkpoint.read() == {}
    checkpoint.write({("b", 1): 7, ("a", 0): 9})
    checkpoint = OffsetCheckpointFile(files.crash(), "/logs", RECOVERY_POINTS)
    assert list(checkpoint.read().items()) == [(("b", 1), 7), (("a", 0), 9)]


def test_a_malformed_one_is_named() -> None:
    """Else an operator does not know which of three files is broken."""
    files = MemoryFiles()
    files.make_directories("/logs")
    files.write_whole(f"/logs/{RECOVERY_POINTS}", b"0\n1\nx\n")
    with pytest.raises(CorruptIndexError, match="/logs/recovery-point-offset-checkpoint"):
        OffsetCheckpointFile(files, "/logs", RECOVERY_POINTS).read()
