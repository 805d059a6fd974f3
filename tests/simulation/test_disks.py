"""A broker's disk: what befalls it, and when."""

from __future__ import annotations

import pytest

from tests.simulation.disks import Disk
from tests.support.batches import Batch, encode
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


def test_a_power_cut_that_was_called_off_does_not_come() -> None:
    """If this fails, a broker that was spared crashes behind the end of the faults, and nobody starts it again."""
    disk = Disk(ManualClock(), SeededRng(1))
    cuts: list[str] = []
    disk.cut_power_at(1, lambda: cuts.append("first"), ".swap")
    disk.cut_power_at(1, lambda: cuts.append("second"))
    disk.spare()
    disk.files.put("/log", b"")
    disk.files.put("/log.swap", b"")
    assert not cuts
    disk.cut_power_at(1, lambda: cuts.append("third"))
    disk.files.put("/log", b"")
    assert cuts[:1] == ["third"]


def test_a_failed_disk_and_decay() -> None:
    """If this fails, a broker is never tried with a disk that refuses changes, or with rotten chunks in its cache."""
    disk = Disk(ManualClock(), SeededRng(1))
    chunk = f"{disk.folders.cache}/1.chunk"
    with disk.files.open_update(chunk) as file:
        file.append(bytes(10))  # which nobody syncs
    disk.fail()
    with pytest.raises(StoreError):
        disk.files.put(f"{disk.folders.cache}/other", b"")
    disk.mend()
    assert disk.rot(3, lambda _: True, cached=True) == chunk
    assert sum(disk.files.read_whole(chunk)).bit_count() == 1
    assert disk.rot(3, lambda _: True, cached=False) is None
    disk.wipe()
    assert disk.rot(3, lambda _: True, cached=True) is None


def test_what_strikes_a_chosen_kind_of_file() -> None:
    """If this fails, no crash comes amid a cleaning or a swap but by chance, and no disk fails there."""
    disk = Disk(ManualClock(), SeededRng(1))
    cuts: list[str] = []
    disk.cut_power_at(2, lambda: cuts.append("cut"), ".swap")
    disk.files.make_directories("/logs")
    for name in ("a.log", "a.swap"):
        disk.files.open_update(f"/logs/{name}").close()
    assert not cuts
    disk.files.rename("/logs/a.swap", "/logs/b.log")
    assert cuts
    disk.files.mend()
    disk.fail(".cleaned")
    disk.files.open_update("/logs/b.log").append(b"b")
    for name in ("a.cleaned", "a.log"):
        with pytest.raises(StoreError):
            disk.files.put(f"/logs/{name}", b"")


def test_a_directory_that_fails_alone_and_a_file_that_is_lost() -> None:
    """If this fails, a broker is never tried with one directory of two, or without a lineage."""
    disk = Disk(ManualClock(), SeededRng(1))
    lineages = [f"/{logs}/{folder}/leader-epoch-checkpoint" for logs in ("logs", "logs-2") for folder in ("a-0", "b-1")]
    for path in lineages:
        disk.files.put(path, b"")
    disk.fail(below="/logs-2")
    disk.files.put("/logs/a-0/00.log", b"")
    with pytest.raises(StoreError):
        disk.files.put("/logs-2/a-0/00.log", b"")
    disk.mend()
    disk.fail()
    with pytest.raises(StoreError):
        disk.files.put("/logs/a-0/01.log", b"")
    disk.mend()
    assert disk.lose("leader-epoch-checkpoint", {"a", "c"}) == [lineages[0], lineages[2]]
    assert [disk.files.find(each) is None for each in lineages] == [True, False, True, False]


def test_a_newest_segment_rots() -> None:
    """If this fails, segments rot when they are in the tier already, and none stops its copies."""
    disk = Disk(ManualClock(), SeededRng(1))
    for folder in ("orders-0", "orders-1"):
        for base in range(5):
            disk.files.put(f"/logs/{folder}/{base:020d}.log", bytes(100))
    found = {disk.rot(index, lambda _: True, cached=False) for index in range(1, 9, 2)}
    assert found <= {f"/logs/orders-{at}/{3:020d}.log" for at in range(2)}


def test_what_no_checksum_covers_does_not_rot() -> None:
    """If this fails, a broker passes a batch over by its rotten header, as Kafka does, and the run is blamed on it."""
    path, batch = "/logs/orders-0/00000000000000000000.log", encode(Batch(0, (b"one", b"two")))
    places = set()
    for seed in range(400):
        disk = Disk(ManualClock(), SeededRng(seed))
        disk.files.put(path, batch * 2)
        disk.files.put("/logs/orders-0/00000000000000000004.log", b"")
        if disk.rot(0, lambda _: True, cached=False):
            rotten = disk.files.read_whole(path)
            places |= {at % len(batch) for at in range(len(rotten)) if rotten[at] != (batch * 2)[at]}
    assert min(places) == 17
    assert places.isdisjoint(range(23, 27))
    assert {17, 21, 22, 27} <= places
