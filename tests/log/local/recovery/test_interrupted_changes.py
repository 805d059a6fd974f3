"""Deletions, cleanings and swaps that were interrupted; and recoveries that are."""

from __future__ import annotations

import contextlib
import itertools

import pytest

from tests.support.batches import Batch, encode
from tests.support.living_logs import FOLDER, contents, load, name_of, put_log
from tierlog.errors import StoreError
from tierlog.log.local.log_config import LogConfig
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.testing.failing_disk import PowerCut

SEEDS = (2, 5)


def batch(offset: int, count: int = 10, value: bytes = b"old") -> bytes:
    producer_id = 5 if offset < 2**31 else -1
    return encode(
        Batch(offset, (value,) * count, epoch=min(offset // 15, 9), producer_id=producer_id, producer_epoch=0)
    )


def left(files: MemoryFiles) -> set[str]:
    return {name for name in contents(files) if not name.endswith(("index", ".snapshot", "checkpoint"))}


def two_segments() -> MemoryFiles:
    files = MemoryFiles()
    put_log(files, {0: [batch(0)], 10: [batch(10)], 20: [batch(20)]})
    load(files)
    return files


def test_a_deletion_is_finished() -> None:
    """Otherwise files that retention set aside stay for ever."""
    files = two_segments()
    for suffix in (".log", ".index", ".timeindex", ".snapshot"):
        files.put(name_of(5, f"{suffix}.deleted"), b"x" * 100)
    files.put(f"{FOLDER}/00000000000000000005-0000000001.checkpoint.deleted", b"of KRaft")
    files.put(f"{FOLDER}/leader-epoch-checkpoint.tierlog-part", b"half")
    loaded = load(files, clean=True)
    assert left(files) - {f"{offset:020d}.log" for offset in (0, 10, 20)} == {
        "00000000000000000005-0000000001.checkpoint.deleted"
    }
    assert sum(action.bytes_cut for action in loaded.report.actions) == 400


#: Suffixes of the lowest and the highest new segment, and which of the two old ones are there: the highest is renamed
#: first, and nothing is removed before all are.
STATES = [
    (".cleaned", ".cleaned", (True, True)),
    (".cleaned", ".swap", (True, True)),
    *((".swap", ".swap", old) for old in itertools.product((True, False), repeat=2)),
]


@pytest.mark.parametrize(("lowest", "highest", "old"), STATES)
def test_a_cleaning_is_undone_or_its_swap_finished(lowest: str, highest: str, old: tuple[bool, bool]) -> None:
    """Otherwise the log holds records twice, or loses what a cleaner had kept: the names say how far it had come."""
    files = two_segments()
    for offset, suffix in ((0, lowest), (10, highest)):
        files.put(name_of(offset, f".log{suffix}"), batch(offset, value=b"new"))
        files.put(name_of(offset, f".index{suffix}"), b"")
        files.put(name_of(offset, f".timeindex{suffix}"), b"")
    for offset, is_there in zip((0, 10), old, strict=True):
        if not is_there:
            for suffix in (".log", ".index", ".timeindex"):
                files.remove(name_of(offset, suffix))
    loaded = load(files)
    value = b"old" if lowest == ".cleaned" else b"new"
    assert left(files) == {f"{offset:020d}.log" for offset in (0, 10, 20)}
    assert files.read_whole(name_of(0)) == batch(0, value=value)
    assert files.read_whole(name_of(10)) == batch(10, value=value)
    assert loaded.log_end_offset == 30


def test_one_cleaned_segment_replaces_several() -> None:
    """Otherwise the records of the segments that were merged are there twice."""
    files = two_segments()
    files.put(name_of(0, ".log.swap"), batch(0, value=b"new") + batch(10, value=b"new"))
    loaded = load(files)
    assert left(files) == {f"{0:020d}.log", f"{20:020d}.log"}
    assert [segment.base_offset for segment in loaded.segments] == [0, 20]
    assert loaded.log_end_offset == 30


def test_a_swap_whose_log_has_its_name_already() -> None:
    """Otherwise the new log keeps the indexes of the old one."""
    files = two_segments()
    before = contents(files)
    for suffix in (".index", ".timeindex"):
        files.rename(name_of(10, suffix), name_of(10, f"{suffix}.swap"))
    load(files, clean=True)
    assert contents(files) == before


def interrupted(name: str) -> MemoryFiles:
    """A folder that a crash left."""
    files = MemoryFiles()
    if name == "torn":
        put_log(files, {0: [batch(0)], 10: [batch(10), b"torn" * 30], 20: [batch(20)], 30: [batch(30)]})
        for offset in (10, 20, 30):
            files.put(name_of(offset, ".snapshot"), b"torn")
    elif name == "split":
        far = 2**31 + 5
        put_log(files, {0: [batch(0), batch(far), batch(3 * far), b"torn"], 4 * far: [batch(4 * far)]})
    elif name == "swap":
        put_log(files, {0: [batch(0)], 10: [batch(10)], 20: [batch(20)], 30: [batch(30)]})
        files.put(name_of(0, ".log.swap"), batch(0, value=b"new") + batch(10, value=b"new"))
        files.put(name_of(20, ".log.swap"), batch(20, value=b"new"))
    elif name == "cleaned":
        put_log(files, {0: [batch(0)], 10: [batch(10)], 20: [batch(20)], 30: [batch(30)]})
        files.put(name_of(0, ".log.cleaned"), batch(0, value=b"new"))
        files.put(name_of(10, ".log.swap"), batch(10, value=b"new") + batch(20, value=b"new"))
    else:  # the log start lies behind all of it
        put_log(files, {0: [batch(0)], 10: [batch(10)], 20: [batch(20)]})
    return files


def config_of(name: str) -> LogConfig:
    """Logs whose offsets lie far apart are compacted ones: what is missing between their segments is none's loss."""
    return LogConfig(cleanup_policy=frozenset(("compact",))) if name == "split" else LogConfig()


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["torn", "split", "swap", "cleaned", "behind"])
def test_a_recovery_that_is_interrupted_anywhere_ends_the_same(name: str) -> None:
    """Otherwise a second power cut, while the broker recovers from the first, costs what the first had left."""
    log_start = 1000 if name == "behind" else 0
    expected = interrupted(name)
    end = load(expected, log_start=log_start, config=config_of(name)).log_end_offset
    wanted = {k: v for k, v in contents(expected).items() if not k.endswith(".snapshot")}
    at = 0
    for seed in SEEDS:
        for at in itertools.count(1):
            files = interrupted(name)
            power = PowerCut(files, at=at, seed=seed * 1000 + at)
            with contextlib.suppress(StoreError):
                load(files, log_start=log_start, config=config_of(name))
            if power.left is None:
                break
            loaded = load(power.left, log_start=log_start, config=config_of(name))
            found = {k: v for k, v in contents(power.left).items() if not k.endswith(".snapshot")}
            assert (loaded.log_end_offset, found) == (end, wanted), (name, seed, at)
    assert at > 10


@pytest.mark.parametrize("name", ["torn", "split", "swap", "behind"])
def test_what_is_loaded_survives_a_power_cut(name: str) -> None:
    """Otherwise what was mended is not, and what is appended behind a cut meets what was cut off. Only indexes that
    the next start makes again, for no flush has been there, may be as before.
    """
    log_start = 1000 if name == "behind" else 0
    for seed in SEEDS:
        files = interrupted(name)
        load(files, log_start=log_start, config=config_of(name))
        before = contents(files)
        found = PowerCut(files, at=0, seed=seed).cut()
        logs = {each: data for each, data in before.items() if not each.endswith(("index", ".snapshot"))}
        assert {
            each: data for each, data in contents(found).items() if not each.endswith(("index", ".snapshot"))
        } == logs
        load(found, log_start=log_start, config=config_of(name))
        assert contents(found) == before
