"""The judge of what stays behind a broker's close, by histories made by hand; and that what stays is seen at all."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.disks import Disk
from tests.simulation.leftovers import open_files, paths_of
from tests.simulation.made_cluster import FACTS, MadeCluster, breaks
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import SeededRng
from tierlog.runtime.simulated.manual_scheduler import ManualScheduler
from tierlog.runtime.simulated.memory_files import MemoryFiles

_OWNED = [
    "/cache/tierlog-chunks/0a/0123456789abcdef-0123456789abcdef-4.1f.chunk",
    "/logs/.kafka_cleanshutdown",
    "/logs/.lock",
    "/logs/orders-0/00000000000000000007.log",
    "/logs/orders-0/00000000000000000007.index",
    "/logs/orders-0/00000000000000000009.snapshot",
    "/logs/orders-0/leader-epoch-checkpoint",
    "/logs/orders-0/moved-from",
    "/logs/recovery-point-offset-checkpoint",
]
_ASIDE = "/logs/orders-0/00000000000000000000.log.deleted"
_FOLDER = "/logs/notes-3.0123456789abcdef0123456789abcdef-delete/00000000000000000000.log"


def test_8_files_that_are_owned_stay() -> None:
    """So do those that are about to be deleted: the next start does it."""
    made = MadeCluster()
    made.judge.settled(made.now_ms)
    made.files = {1: [*_OWNED, _ASIDE, _FOLDER]}
    made.judge.broker_stopped(1, 0, True, made.now_ms)
    made.judge.closed(made.now_ms)


@pytest.mark.parametrize(
    "path",
    [
        "/logs/orders-0/00000000000000000007.log.cleaned",
        "/logs/orders-0/00000000000000000007.log.swap",
        "/logs/orders-0/00000000000000000003.timeindex",
        "/logs/orders-0/leader-epoch-checkpoint.tierlog-part",
        "/logs/orders-0.0123456789abcdef0123456789abcdef-future/00000000000000000007.log",
        "/logs-2/orders-0/00000000000000000007.log",
        "/logs/orders-1/00000000000000000007.log",
        "/logs/recovery-point-offset-checkpoint.tmp",
        "/cache/tierlog-chunks/lock",
        "/cache/tierlog-chunks/0a/0123456789abcdef-0123456789abcdef-4.1f.chunk.new",
    ],
)
def test_8_nobody_owns_a_file(path: str) -> None:
    """A cleaning, a swap, an index without its log, a move, a partition that is elsewhere, what is half written."""
    made = MadeCluster()
    made.files = {1: [*_OWNED, path], 2: []}
    made.judge.broker_stopped(1, 0, False, made.now_ms)
    made.judge.closed(made.now_ms)  # its power went: the next start tidies up
    made.judge.broker_started(1, 1, made.now_ms)
    made.judge.broker_stopped(1, 1, True, made.now_ms)
    with breaks(8, "leak"):
        made.judge.closed(made.now_ms)


@pytest.mark.parametrize("path", [_ASIDE, _FOLDER])
def test_8_what_was_set_aside_goes(path: str) -> None:
    """It waits for its time, and no longer; of a compacted log the same name comes again."""
    made = MadeCluster(dataclasses.replace(FACTS, is_tiered=False))
    made.files = {1: [*_OWNED, path]}
    made.judge.settled(made.now_ms)
    with breaks(8, "leak"):
        made.judge.closed(made.now_ms)


def test_what_is_left_is_seen() -> None:
    """A file that is open, a lease, a lock: each once, until it is closed, dropped or released."""
    files = MemoryFiles()
    files.put("/logs/a", b"a")
    assert open_files(files) == {}
    held = files.open_read("/logs/a"), files.open_update("/logs/a")
    lease, lock = files.lease("/logs/a"), files.try_lock("/logs/lock")
    assert lock is not None
    assert open_files(files) == {"/logs/a": 2, "/logs/lock": 1, lease.path.removeprefix("/"): 1}
    held[0].close()
    del held
    lease.close()
    lock.release()
    assert open_files(files) == {}
    disk = Disk(ManualClock(), SeededRng(1))
    disk.files.put("/logs/orders-0/a", b"a")
    assert list(paths_of(disk)) == ["/logs/orders-0/a"]

    group = ManualScheduler(1).group("broker")
    condition = group.condition()
    with group.lock(), condition:
        assert group.held_locks == 2
    assert group.held_locks == 0
