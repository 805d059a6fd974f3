"""A broker's disk: what befalls it, and when."""

from __future__ import annotations

import pytest

from tests.simulation.disks import Disk
from tierlog.errors import StoreError
from tierlog.runtime.machine.clock import ManualClock
from tierlog.runtime.machine.randomness import SeededRng


def test_the_power_goes_in_front_of_a_change() -> None:
    """If this fails, no broker crashes in the middle of what it does to its disk, but between two turns alone."""
    disk = Disk(ManualClock(), SeededRng(1))
    cuts = []

    def cut() -> None:
        cuts.append(disk.files.read_whole("/log"))
        disk.crash()

    with disk.files.open_update("/log") as file:
        disk.cut_power_at(3, cut)
        file.append(b"one")
        file.fsync()
        assert file.read_into(bytearray(3), position=0) == 3
        with pytest.raises(StoreError, match="crashed"):
            file.append(b"two")
    assert cuts == [b"one"]
    disk.files.put("/log", b"next life")
    assert disk.files.read_whole("/log") == b"next life"


def test_a_failed_disk_and_decay() -> None:
    """If this fails, a broker is never tried with a disk that refuses changes, or with rotten chunks in its cache."""
    disk = Disk(ManualClock(), SeededRng(1))
    chunk = f"{disk.folders.cache}/chunk"
    disk.files.put(chunk, bytes(10))
    disk.fail()
    with pytest.raises(StoreError):
        disk.files.put(f"{disk.folders.cache}/other", b"")
    disk.mend()
    assert disk.rot(3, lambda _: True, cached=True) == chunk
    assert sum(disk.files.read_whole(chunk)).bit_count() == 1
    assert disk.rot(3, lambda _: True, cached=False) is None
    disk.wipe()
    assert disk.rot(3, lambda _: True, cached=True) is None
