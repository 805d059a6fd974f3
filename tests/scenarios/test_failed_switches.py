"""The end of a move that a disk or the power cuts short: what was written to the log that went on is there behind every
later start, whichever disk was away meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pytest

from tests.scenarios.test_moved_logs import KEY, PATHS, TOPIC_ID, batches_of, caught_up, flushed_disk, move_all, opened
from tests.support.crashed_log import copy_of
from tests.support.living_logs import batch_of
from tierlog.errors import ConfigError, StoreError
from tierlog.log.local.log_errors import LogOfflineError
from tierlog.log.local.log_switch import MOVED_FROM_FILE
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.simulated.memory_disk import DiskOperation
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing import FailingDisk, PowerCut


class Left(NamedTuple):
    """A disk behind a power cut in the end of a move; the directories that have the log."""

    files: MemoryFiles
    source: str
    target: str
    having: set[str]


def iter_cuts() -> Iterator[Left]:
    """A disk for each change of ``finish_move``."""
    return (each._replace(files=copy_of(each.files)) for each in made_cuts())


@functools.cache
def made_cuts() -> list[Left]:
    made: list[Left] = []
    at, is_over = 0, False
    while not is_over:
        at += 1
        files = flushed_disk()
        with opened(files) as directories:
            log = directories.load_logs()[KEY]
            source = log.parent_dir
            target = next(path for path in PATHS if path != source)
            future = directories.begin_move(*KEY, target)
            assert future is not None
            caught_up(log, future)
            power = PowerCut(files, at=at, seed=at)
            with contextlib.suppress(StoreError):
                directories.finish_move(*KEY)
            is_over = power.left is None
            left = power.cut()
            with contextlib.suppress(StoreError):
                directories.close()
        made.append(Left(left, source, target, {path for path in PATHS if left.find(f"{path}/orders-0")}))
    return made


def grown(log: UnifiedLog, files: MemoryFiles) -> list[tuple[int, bytes]]:
    """Append to the log that goes on, durably; its batches."""
    for _ in range(5):
        log.append_as_leader(batch_of(b"goes on"), leader_epoch=7)
    log.flush()
    return batches_of(log, files)


def found_at_a_start(files: MemoryFiles, paths: Sequence[str] = PATHS) -> tuple[str, list[tuple[int, bytes]]]:
    """Where the log is, and its batches."""
    with opened(files, paths=paths) as directories:
        log = directories.load_logs()[KEY]
        assert directories.offline == {}
        assert len([path for path in paths if files.find(f"{path}/orders-0")]) == 1
        return log.parent_dir, batches_of(log, files)


def move_from_failing(files: MemoryFiles, path: str, *, paths: Sequence[str] = PATHS) -> list[tuple[int, bytes]]:
    """Move the log to a directory, while the disk that it leaves fails behind the first rename; its batches, with some
    that were appended then.
    """
    with opened(files, paths=paths) as directories:
        log = directories.load_logs()[KEY]
        future = directories.begin_move(*KEY, path)
        assert future is not None
        caught_up(log, future)
        kinds = (DiskOperation.RENAME, DiskOperation.WRITE)
        with FailingDisk(files, errno.EIO, at=1, inside=log.parent_dir, lasting=True, kinds=kinds):
            with pytest.raises(LogOfflineError):
                directories.finish_move(*KEY)
            assert directories.logs == {KEY: future}
            wanted = grown(future, files)
            with contextlib.suppress(LogOfflineError):
                directories.close()
    return wanted


def move_away(files: MemoryFiles, path: str, *, paths: Sequence[str]) -> list[tuple[int, bytes]]:
    """Move the log to a directory, with some more batches; all of them."""
    with opened(files, paths=paths) as directories:
        move_all(directories, path)
        return grown(directories.log(*KEY), files)


@pytest.mark.parametrize("which", ["source", "target"])
def test_a_disk_that_is_away_at_the_next_start(which: str) -> None:
    """If this fails, a disk that comes back after a power cut takes away what was written without it."""
    went_on = 0
    for files, source, target, having in iter_cuts():
        away = source if which == "source" else target
        if having == {away}:
            continue
        broken = FailingDisk(files, errno.EIO, at=1, inside=away, lasting=True, kinds=tuple(DiskOperation))
        with broken, opened(files) as directories:
            assert list(directories.offline) == [away]
            log = directories.load_logs()[KEY]
            assert log.topic_id == TOPIC_ID
            wanted = log.parent_dir, grown(log, files)
        went_on += len(having) > 1
        assert found_at_a_start(files) == wanted
    assert went_on > 0


def test_a_log_that_the_controller_knows_where_it_moves_to() -> None:
    """If this fails, a disk that comes back deletes the log that the controller had its broker go on with."""
    went_on = 0
    for files, source, target, _ in iter_cuts():
        folders = [entry.path for entry in files.iter_directory(target) if entry.name.endswith("-future")]
        if not folders or files.find(f"{folders[0]}/{MOVED_FROM_FILE}") is None:
            continue
        broken = FailingDisk(files, errno.EIO, at=1, inside=source, lasting=True, kinds=tuple(DiskOperation))
        with broken, opened(files) as directories:
            properties = directories.directory(target).properties
            assert properties is not None
            assert properties.directory_id is not None
            (log,) = directories.recover_abandoned_future_logs({KEY: properties.directory_id})
            wanted = target, grown(log, files)
        assert found_at_a_start(files) == wanted
        went_on += 1
    assert went_on > 0


def test_a_move_back_behind_a_power_cut() -> None:
    """If this fails, a move that a power cut ended makes a later one, back, cost what is written behind it."""
    moves = 0
    for files, source, target, _ in iter_cuts():
        if found_at_a_start(files)[0] != target:
            continue
        moves += 1
        wanted = move_from_failing(files, source)
        assert found_at_a_start(files, (target, source)) == (source, wanted)
    assert moves > 0


def test_a_disk_that_fails_once() -> None:
    """If this fails, what is written behind a failed end of a move is lost where the new disk works again: the log
    counts there that never went on.
    """
    at, is_over = 0, False
    while not is_over:
        at += 1
        files = flushed_disk()
        with opened(files) as directories:
            log = directories.load_logs()[KEY]
            target = next(path for path in PATHS if path != log.parent_dir)
            future = directories.begin_move(*KEY, target)
            assert future is not None
            caught_up(log, future)
            with FailingDisk(files, errno.EIO, at=at, inside=target) as disk, contextlib.suppress(LogOfflineError):
                directories.finish_move(*KEY)
            is_over = not disk.failed
            found = directories.logs.get(KEY)
            if found is None:  # it had moved
                continue
            wanted = found.parent_dir, grown(found, files)
            with contextlib.suppress(LogOfflineError):
                directories.close()
        assert found_at_a_start(files) == wanted


def test_a_disk_that_comes_back_behind_another_move() -> None:
    """If this fails, a broker does not start over a repaired disk, whose old log has moved on twice meanwhile."""
    files = flushed_disk()
    move_from_failing(files, "/b")
    wanted = move_away(files, "/c", paths=["/b", "/c"])
    assert found_at_a_start(files) == ("/c", wanted)


def test_two_disks_that_were_away() -> None:
    """If this fails, a disk that was out of ``log.dirs`` for some moves deletes the log of today: its own one was
    moved from there once.
    """
    files = flushed_disk()
    move_from_failing(files, "/b")
    move_from_failing(files, "/c", paths=["/b", "/c"])
    for entry in list(files.iter_directory("/a/orders-0")):
        files.remove(entry.path)
    files.remove("/a/orders-0")
    wanted = move_away(files, "/a", paths=["/a", "/c"])
    with pytest.raises(ConfigError, match="Duplicate log directories"):
        opened(files)
    assert found_at_a_start(files, ["/a", "/c"]) == ("/a", wanted)


@pytest.mark.parametrize("kind", [DiskOperation.READ, DiskOperation.RENAME])
def test_a_disk_that_fails_at_the_start(kind: DiskOperation) -> None:
    """If this fails, one broken disk keeps a broker from starting, whose other disks have all of its logs."""
    files, source, target, _ = next(each for each in iter_cuts() if len(each.having) > 1)
    wanted = found_at_a_start(copy_of(files))[1]
    broken = FailingDisk(files, errno.EIO, at=1, inside=f"{target}/orders-0", lasting=True, kinds=(kind,))
    with broken, opened(files) as directories:
        assert list(directories.offline) == [target]
        log = directories.load_logs()[KEY]
        assert (log.parent_dir, batches_of(log, files)) == (source, wanted)
        wanted = grown(log, files)
    assert found_at_a_start(files) == (source, wanted)
