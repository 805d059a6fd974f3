"""Brokers' own folders, loaded after a clean stop and after a kill."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import DATA, FIXTURES
from tests.support.living_logs import contents, load, trimmed
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.producers.producer_state import ProducerState
from tierlog.runtime.machine.posix_files import PosixFiles
from tierlog.runtime.simulated.memory_files import MemoryFiles


def folders() -> Iterator[Path]:
    """Every partition's folder of a broker's disk."""
    roots = [DATA, *([FIXTURES] if (FIXTURES / "README.md").is_file() else [])]
    for root in roots:
        for run in sorted(root.iterdir()):
            for disk in ("local-before", "broker-after-stop"):
                logs = sorted({log.parent for log in (run / disk).rglob("*.log")}) if (run / disk).is_dir() else []
                yield from logs


FOLDERS = list(folders())


def own_interval(folder: Path) -> bool:
    """Whether the topic had an index.interval.bytes of its own, or a broker was restarted in the middle of a segment:
    then a recovery makes other entries.
    """
    run = next(parent for parent in folder.parents if (parent / "topics.json").exists() or parent == DATA.parent)
    topics = json.loads((run / "topics.json").read_text()) if (run / "topics.json").exists() else {}
    topic = folder.name.rpartition("-")[0]
    config = topics.get(topic, {}).get("config", {})
    return run.name == "aes" or topic.endswith("epochs") or "index.interval.bytes" in config


def config_of(folder: Path) -> LogConfig:
    """Of a compacted topic what is missing between two segments is none's loss."""
    return LogConfig(cleanup_policy=frozenset(("compact",))) if "compact" in folder.name else LogConfig()


def test_there_are_folders() -> None:
    """Otherwise the tests below pass because they try nothing."""
    assert len(FOLDERS) > 10


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "/".join(folder.parts[-4:]))
def test_a_brokers_log_opens_as_it_is(folder: Path) -> None:
    """Otherwise a user's log is cut, or its indexes change, though nothing was wrong with it."""
    before = contents(PosixFiles(), str(folder))
    bases = sorted(int(name[:20]) for name in before if name.endswith(".log"))
    ends = set()
    for clean in (True, False):
        files = MemoryFiles(base=PosixFiles())
        loaded = load(files, folder=str(folder), clean=clean, tiered=True, config=config_of(folder))
        after = contents(files, str(folder))
        assert not [action for action in loaded.report.actions if action.kind in ("cut", "split", "swapped")]
        assert [segment.base_offset for segment in loaded.segments] == bases
        assert (loaded.log_start_offset, loaded.local_log_start_offset) == (0, bases[0])
        assert {n: d for n, d in after.items() if n.endswith(".log")} == {
            n: d for n, d in before.items() if n.endswith(".log")
        }
        ends.add(loaded.log_end_offset)
        again = load(files, folder=str(folder), clean=clean, tiered=True, config=config_of(folder))
        # Without the checkpoint of its log start, a log that was cut in the tier has no lineage from 0 on.
        assert [action for action in again.report.actions if action.kind != "lineage"] == []
        assert contents(files, str(folder)) == after
        if clean:
            continue
        for base_offset in bases[:-1]:
            for suffix in (".index", ".timeindex"):
                name = f"{base_offset:020d}{suffix}"
                if name in before and not own_interval(folder):
                    assert trimmed(name, after[name]) == trimmed(name, before[name]), name
        for name in before:
            if name.endswith(".txnindex"):
                assert after[name] == before[name], name
    assert len(ends) == 1
    assert contents(PosixFiles(), str(folder)) == before


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "/".join(folder.parts[-4:]))
def test_lost_and_damaged_indexes_come_back(folder: Path) -> None:
    """Otherwise a kill, or a disk's fault in an index, costs lookups, aborted transactions or the log."""
    expected = MemoryFiles(base=PosixFiles())
    end = load(expected, folder=str(folder), config=config_of(folder)).log_end_offset
    rng = random.Random(str(folder.relative_to(folder.parents[3])))
    files = MemoryFiles(base=PosixFiles())
    is_whole = (folder / f"{0:020d}.log").exists()  # else the snapshots alone know the producers of what was deleted
    for entry in list(files.iter_directory(str(folder))):
        if not entry.name.endswith(("index", ".snapshot") if is_whole else "index"):
            continue
        damage = rng.choice(("keep", "remove", "cut", "zero", "noise"))
        if damage == "remove":
            files.remove(entry.path)
        elif damage != "keep":
            data = files.read_whole(entry.path)
            cut = data[: rng.randrange(0, 20)]
            damaged = {"cut": cut, "zero": bytes(len(data)), "noise": rng.randbytes(min(len(data), 5000))}[damage]
            files.write_whole(entry.path, damaged)
    loaded = load(files, folder=str(folder), config=config_of(folder))
    assert loaded.log_end_offset == end
    found, wanted = contents(files, str(folder)), contents(expected, str(folder))
    for name, data in wanted.items():
        if name.endswith(("index", ".log")) and (data or not name.endswith(".txnindex")):
            assert found[name] == data, name
    if end and "compact" not in folder.name:  # a cleaner takes batches away, and with them their producers
        newest = max(name for name in wanted if name.endswith(".snapshot"))
        assert found[newest] == wanted[newest]


def test_a_clean_stop_of_a_version_without_snapshots() -> None:
    """Otherwise an upgrade reads all of every log, which takes hours (Kafka takes empty snapshots instead)."""
    folder = next(folder for folder in FOLDERS if len(list(folder.glob("*.log"))) > 2)
    files = MemoryFiles(base=PosixFiles())
    for entry in list(files.iter_directory(str(folder))):
        if entry.name.endswith(".snapshot"):
            files.remove(entry.path)
    loaded = load(files, folder=str(folder), clean=True, producers=ProducerState())
    bases = [segment.base_offset for segment in loaded.segments]
    assert loaded.snapshots.offsets == (*bases[-2:], loaded.log_end_offset)
    assert not loaded.producers.producers
    assert loaded.report.bytes_checked == 0
