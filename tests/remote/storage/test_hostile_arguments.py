"""The storage manager under arguments that no caller should give."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from functools import partial

import pytest

from tests.support.closed_segments import ClosedSegment
from tests.support.hostile_arguments import HOSTILE, check_calls, error_of
from tests.support.manager_configs import SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tierlog.remote.api import IndexType
from tierlog.remote.config import KNOWN_KEYS
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "log")


@pytest.fixture
def manager(tmp_path: pathlib.Path) -> Iterator[TieredStorageManager]:
    with TieredStorageManager() as manager:
        manager.configure(local_keys(tmp_path / "store") | SHAPES["aiven-custom"])
        yield manager


def test_every_call_raises_what_it_says(manager: TieredStorageManager, segment: ClosedSegment) -> None:
    """A broker's task that catches the KIP's errors, and those alone, ends without a line in its log."""
    custom = manager.copy_log_segment_data(segment.metadata, segment.data)
    finished = segment.finished(custom)
    calls = {
        manager.copy_log_segment_data: {"metadata": segment.metadata, "data": segment.data},
        manager.fetch_log_segment: {"metadata": finished, "start_position": 0, "end_position": 9},
        manager.fetch_index: {"metadata": finished, "index_type": IndexType.OFFSET},
        manager.fetch_log_index: {"metadata": finished},
        manager.call_off_copy: {"segment_id": finished.remote_log_segment_id},
        manager.set_next_segment: {"next_segment": lambda _: None},
        manager.change_rate_limit: {"direction": "upload", "bytes_per_second": 1e9},
        manager.resize_index_cache: {"size_bytes": 1000},
        manager.delete_log_segment_data: {"metadata": finished},
    }
    for call, sound in calls.items():
        assert check_calls(call, sound) > 10, call
    with manager.fetch_log_segment(finished, 0) as stream:
        for value in HOSTILE:
            for read, name in ((stream.read, "size"), (stream.readinto, "buffer"), (stream.buffers, "max_bytes")):
                error_of(partial(read, value), read, [name], f"{read}({value!r})")  # type: ignore[operator]


def test_every_configuration_raises_what_it_says(tmp_path: pathlib.Path) -> None:
    """A broker that starts with a wrong value must be told the key, not shown a trace of ours."""
    sound = local_keys(tmp_path / "store")
    with TieredStorageManager() as manager:
        assert check_calls(manager.configure, {"configs": sound}) > 10
    for name in [*KNOWN_KEYS, "rsm.config.file", "storage.root", "no.such.key", "", "\udcff"]:
        for value in (True, "", "\udcff", "\0", -1, 2**63, float("nan"), object(), [], {None: None}):
            with TieredStorageManager() as manager:
                attempt = partial(manager.configure, sound | {name: value})
                error_of(attempt, manager.configure, [name], f"{name}={value!r}")
