"""Starts of a broker behind a move of a log that was not finished, or that lost a directory."""

from __future__ import annotations

import pytest

from tests.replication.test_log_move import append, caught_up, moving, opened, records_of
from tests.support.crashed_log import copy_of
from tierlog.log.formats.identity_files import Uuid
from tierlog.log.formats.segment_files import CLEAN_SHUTDOWN
from tierlog.replication import LogMove
from tierlog.runtime.simulated.memory_files import MemoryFiles


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


class TestStarts:
    """A start behind a move that was not finished, or lost a directory."""

    def test_a_move_that_was_not_finished(self, files: MemoryFiles) -> None:
        """If this fails, a restart begins a long copy anew, or leaves it lying on the disk."""
        with opened(files) as directories:
            log, future, move = moving(directories)
            path, wanted = future.parent_dir, records_of(log)
            for number in range(6):
                move.step(number, max_bytes=300)
            at = future.log_end_offset
            assert 0 < at < log.log_end_offset
        assert files.find(f"{path}/{CLEAN_SHUTDOWN}") is not None
        with opened(files) as directories:
            logs = directories.load_logs()
            future = directories.future_logs["orders", 0]
            assert future.log_end_offset == at
            assert directories.begin_move("orders", 0, path) is future
            states = directories.directory(logs["orders", 0].parent_dir).cleaner_manager.states
            assert states.state_of(("orders", 0)).kind == "paused"
            caught_up(LogMove(logs["orders", 0], future))
            assert directories.finish_move("orders", 0) is future
            assert records_of(future) == wanted
            assert states.state_of(("orders", 0)).kind == "none"

    def test_a_future_log_whose_current_log_is_gone(self, files: MemoryFiles) -> None:
        """If this fails, a partition that the controller knows in its new directory is empty after a failure."""
        with opened(files) as directories:
            log, future, move = moving(directories)
            path, wanted = future.parent_dir, records_of(log)
            caught_up(move)
            gone = log.folder
        for entry in list(files.iter_directory(gone)):
            files.remove(entry.path)
        files.remove(gone)
        with opened(copy_of(files)) as directories:
            directories.load_logs()
            assert directories.log("orders", 0).parent_dir != path  # a log that is made anew
        with opened(files) as directories:
            directories.load_logs()
            properties = directories.directory(path).properties
            assert properties is not None
            assert properties.directory_id is not None
            assert directories.recover_abandoned_future_logs({("orders", 0): Uuid(b"x" * 16)}) == []
            (found,) = directories.recover_abandoned_future_logs({("orders", 0): properties.directory_id})
            assert found.folder == f"{path}/orders-0"
            assert records_of(found) == wanted
            assert directories.logs == {("orders", 0): found}

    def test_a_future_log_beside_its_log(self, files: MemoryFiles) -> None:
        """If this fails, a broker does not start over a folder that somebody copied."""
        with opened(files) as directories:
            log = directories.log("orders", 0)
            append(log, b"a")
            folder = f"{log.folder}.{'0' * 32}-future"
        files.make_directories(folder)
        with opened(files) as directories:
            assert directories.load_logs()["orders", 0].log_end_offset == 1
            assert directories.future_logs == {}
        assert files.find(folder) is not None
