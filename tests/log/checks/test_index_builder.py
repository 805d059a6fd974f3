"""Indexes rebuilt from a log, against those that Kafka 4.3 wrote."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog._native.batches import scan_batches
from tierlog.errors import CorruptRecordError
from tierlog.log.checks.index_checks import INDEX_INTERVAL_BYTES, IndexBuilder
from tierlog.log.formats.segment_indexes import OffsetIndex, TimeIndex


def closed_segments(run: Path) -> list[Path]:
    """Logs of tiered topics that were rolled, in folders whose broker was not restarted meanwhile (a restart begins
    the interval anew, so its next entry comes later).
    """
    found = []
    for folder in sorted(p for p in run.glob("local-before/**/fx-*") if p.is_dir() and p.parent.name != "broker2"):
        found += sorted(folder.glob("*.log"))[:-1]
    return found


def interval_of(run: Path, log: Path) -> int:
    config = json.loads((run / "topics.json").read_text())[log.parent.name.rsplit("-", 1)[0]]["config"]
    return int(config.get("index.interval.bytes", INDEX_INTERVAL_BYTES))


def rebuild(log: Path, interval: int, step: int = 1 << 30) -> IndexBuilder:
    builder = IndexBuilder(int(log.stem), index_interval_bytes=interval)
    columns = scan_batches(log.read_bytes())[0]
    for start in range(0, len(columns["position"]), step):
        builder.add({name: column[start : start + step] for name, column in columns.items()})
    return builder


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes", "local-tiered"])
def test_equal_to_the_brokers_own(data: Path, run: str) -> None:
    """Else an exported segment has an index that differs from the one its broker had."""
    logs = closed_segments(data / run)
    assert logs or run == "local-tiered"
    for log in logs:
        builder = rebuild(log, interval_of(data / run, log))
        assert builder.offset_index() == log.with_suffix(".index").read_bytes(), log
        assert builder.time_index() == log.with_suffix(".timeindex").read_bytes(), log


def test_equal_to_the_brokers_own_in_the_full_set(fixtures: Path) -> None:
    """The same for compacted logs, dense indexes, old and new codecs."""
    count = 0
    for run in ("main-plain", "plain-4m", "zstd", "heuristic", "zstd-aes", "custom-meta", "local-tiered"):
        for log in closed_segments(fixtures / run):
            if "compact" in log.parent.name:  # rewritten by the cleaner, which indexes by chunk of its own
                continue
            builder = rebuild(log, interval_of(fixtures / run, log))
            assert builder.offset_index() == log.with_suffix(".index").read_bytes(), log
            assert builder.time_index() == log.with_suffix(".timeindex").read_bytes(), log
            count += 1
    assert count > 100


def test_an_open_segment_lacks_the_closing_entry(data: Path) -> None:
    """Else the time index of an active segment says more than the broker's."""
    log = closed_segments(data / "main-plain")[0]
    builder = rebuild(log, INDEX_INTERVAL_BYTES)
    opened = builder.time_index(closed=False)
    closed = builder.time_index()
    assert opened in (closed, closed[:-12])


@given(st.data())
def test_any_cut_of_the_run_gives_the_same_and_sound_indexes(data: st.DataObject) -> None:
    """Else the index depends on how the log was fetched."""
    count = data.draw(st.integers(0, 40))
    sizes = np.array(data.draw(st.lists(st.integers(61, 9000), min_size=count, max_size=count)), np.int64)
    gaps = np.array(data.draw(st.lists(st.integers(1, 50), min_size=count, max_size=count)), np.int64)
    times = np.array(data.draw(st.lists(st.integers(-1, 500), min_size=count, max_size=count)), np.int64)
    positions = np.cumsum(sizes) - sizes
    columns = {
        "last_offset": 99 + np.cumsum(gaps),
        "position": positions,
        "max_timestamp": times,
        "size_bytes": sizes,
    }
    whole, cut = IndexBuilder(100), IndexBuilder(100)
    whole.add(columns)
    step = data.draw(st.integers(1, 7))
    for start in range(0, count, step):
        cut.add({name: column[start : start + step] for name, column in columns.items()})
    assert (cut.offset_index(), cut.time_index()) == (whole.offset_index(), whole.time_index())
    OffsetIndex(whole.offset_index(), 100).check()
    TimeIndex(whole.time_index(), 100).check()
    if count and times.max() > -1:
        assert TimeIndex(whole.time_index(), 100).columns()[0][-1] == times.max()


def test_offsets_that_no_index_can_hold() -> None:
    """Else a log whose batches are out of order gets an index that hides some of them."""
    fine = {name: np.array([value]) for name, value in (("last_offset", 10), ("position", 0), ("max_timestamp", 0))}
    fine["size_bytes"] = np.array([700])
    builder = IndexBuilder(5)
    builder.add(fine)
    with pytest.raises(CorruptRecordError) as caught:
        builder.add({**fine, "position": np.array([700])})
    assert caught.value.position == 700
    with pytest.raises(CorruptRecordError):
        IndexBuilder(5).add({**fine, "last_offset": np.array([2**31 + 5])})
