"""The abstract RemoteStorageManager: what an implementer gets from it."""

from __future__ import annotations

import pathlib
import pickle

import pytest

from tierlog.remote.api import LogSegmentData, RemoteStorageManager


def test_segment_data_takes_paths_of_either_kind() -> None:
    """If this fails, a caller with pathlib's paths meets an error deep in the copy."""
    folder = pathlib.Path("/logs/orders-0")
    data = LogSegmentData(
        log_segment=folder / "0.log",  # type: ignore[arg-type]
        offset_index=folder / "0.index",  # type: ignore[arg-type]
        time_index="/logs/orders-0/0.timeindex",
        transaction_index=None,
        producer_snapshot=folder / "1.snapshot",  # type: ignore[arg-type]
        leader_epoch_index=b"0\n0\n",
    )
    assert data.log_segment == "/logs/orders-0/0.log"
    assert data.producer_snapshot == "/logs/orders-0/1.snapshot"
    assert data == pickle.loads(pickle.dumps(data))
    assert data.transaction_index is None


def test_a_manager_that_lacks_a_method_is_not_made() -> None:
    """If this fails, a third party's store without delete is found out when retention fails in production."""
    names = ["configure", "copy_log_segment_data", "fetch_log_segment", "fetch_index", "delete_log_segment_data"]
    for name in [*names, "close"]:
        rest = {each: lambda self, *_: None for each in [*names, "close"] if each != name}
        kind = type("Incomplete", (RemoteStorageManager,), rest)
        with pytest.raises(TypeError, match=name):
            kind()


def test_a_manager_is_closed_at_the_end_of_its_block() -> None:
    """If this fails, buffers and threads of a manager stay when its block is left."""
    closed = []
    kind = type(
        "Whole",
        (RemoteStorageManager,),
        dict.fromkeys(RemoteStorageManager.__abstractmethods__, lambda self, *_: None)
        | {"close": lambda self: closed.append(self)},  # noqa: PLW0108 (a method, not a bound one),
    )
    with kind() as manager:
        assert not closed
    assert closed == [manager]
