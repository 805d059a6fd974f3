"""How far a tier is stable and what was aborted: from its files, and by replay where they are missing."""

from __future__ import annotations

import pathlib
import shutil

import numpy as np
import pytest

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tierlog import open_tier
from tierlog.scan.history import TierHistory
from tierlog.scan.transaction_history import (
    aborted_transactions,
    find_last_stable_offset,
    open_transactions,
)

TOPICS = [("main-plain", "fx-txn"), ("local-tiered", "fx-local-txn")]


def local_log(data: pathlib.Path, run: str, topic: str) -> pathlib.Path:
    return next((data / run / "local-before").rglob(f"{topic}-0"))


@pytest.mark.parametrize(("run", "topic"), TOPICS)
def test_replaying_the_log_says_what_the_files_say(
    data: pathlib.Path, tmp_path: pathlib.Path, run: str, topic: str
) -> None:
    """A log without its index files would give aborted records as committed, or end elsewhere."""
    whole = local_log(data, run, topic)
    bare = tmp_path / f"{topic}-0"
    bare.mkdir()
    for log in whole.glob("*.log"):
        shutil.copy(log, bare)
    found = []
    for folder in (whole.parent, tmp_path):
        with open_tier(str(folder)) as tier:
            (history,) = TierHistory(tier).partitions([topic])
            aborted, faults = aborted_transactions(tier, history, 0, history.end_offset_exclusive)
            assert not faults
            found.append((find_last_stable_offset(tier, history), open_transactions(tier, history), aborted))
    (stable, undecided, aborted), (replayed_stable, replayed_undecided, replayed) = found
    assert (stable, undecided) == (replayed_stable, replayed_undecided)
    assert len(aborted)
    np.testing.assert_array_equal(aborted, replayed)


@pytest.mark.parametrize(("run", "topic"), TOPICS)
def test_any_window_collects_what_touches_it(data: pathlib.Path, run: str, topic: str) -> None:
    """A read of a part would not know of a transaction that was aborted further on."""
    with open_tier(str(data / run / "objects")) as tier:
        (history,) = TierHistory(tier).partitions([topic])
        everything, _ = aborted_transactions(tier, history, 0, history.end_offset_exclusive)
        for first in range(0, history.end_offset_exclusive, 97):
            end = first + 50
            window, _ = aborted_transactions(tier, history, first, end)
            wanted = everything[(everything["last_offset"] >= first) & (everything["first_offset"] < end)]
            np.testing.assert_array_equal(window, wanted)


@pytest.mark.parametrize("damage", [b"\0\1" + b"\xff" * 12, b""])
def test_a_damaged_snapshot_is_replaced_by_replay_from_the_last_sound_one(
    tmp_path: pathlib.Path, damage: bytes
) -> None:
    """read_committed would fail, or go beyond an open transaction, for one damaged file."""
    bucket = Bucket(tmp_path)
    seven = {"producer_id": 7, "producer_epoch": 0}
    bucket.segment("u1", [Batch(0), Batch(1, transactional=True, **seven)], lineage={0: 0}, open_transactions={7: 1})
    bucket.segment("u2", [Batch(2), Batch(3, transactional=True, producer_id=8, producer_epoch=0)], lineage={0: 0})
    bucket.segment("u3", [Batch(4, marker="commit", **seven), Batch(5)], lineage={0: 0})
    for name in ("u2", "u3"):
        path = bucket.path(name, "indexes")
        whole = path.read_bytes()
        at = whole.index(b"\0\1\x48\x67\x4b\xc7")  # an empty snapshot
        path.write_bytes(whole[:at] + damage.ljust(10, b"\xee")[:10] + whole[at + 10 :])
    with open_tier(str(tmp_path)) as tier:
        (history,) = TierHistory(tier).partitions(["orders"])
        assert open_transactions(tier, history) == {8: 3}
        assert find_last_stable_offset(tier, history) == 3


def test_what_a_failover_cut_off_opens_no_transaction(tmp_path: pathlib.Path) -> None:
    """If this fails, a batch that the new leader's log does not have holds read_committed back for ever."""
    bucket = Bucket(tmp_path)
    eight = {"producer_id": 8, "producer_epoch": 0}
    bucket.segment("u1", [*map(Batch, range(3)), Batch(3, transactional=True, **eight), Batch(4)], lineage={0: 0})
    bucket.segment("u2", [Batch(3, epoch=1), Batch(4, epoch=1)], lineage={0: 0, 1: 3})
    path = bucket.path("u2", "indexes")
    whole = path.read_bytes()
    at = whole.index(b"\0\1\x48\x67\x4b\xc7")  # an empty snapshot, damaged so that the log is replayed
    path.write_bytes(whole[:at] + b"\0\1" + b"\xff" * 8 + whole[at + 10 :])
    with open_tier(str(tmp_path)) as tier:
        (history,) = TierHistory(tier).partitions(["orders"])
        assert history.lineage.spans[0].end_offset_exclusive == 3
        assert open_transactions(tier, history) == {}
        assert find_last_stable_offset(tier, history) == history.end_offset_exclusive


def test_a_sound_snapshot_is_believed_and_the_log_is_not_read(tmp_path: pathlib.Path) -> None:
    """If this fails, read_committed reads a topic twice: once to learn what its last snapshot says."""
    bucket = Bucket(tmp_path)
    seven = {"producer_id": 7, "producer_epoch": 0}
    bucket.segment("u1", [Batch(0), Batch(1, transactional=True, **seven)], lineage={0: 0}, open_transactions={7: 1})
    bucket.segment("u2", [Batch(2), Batch(3)], lineage={0: 0}, open_transactions={7: 1})
    with open_tier(str(tmp_path)) as tier:
        (history,) = TierHistory(tier).partitions(["orders"])
        for name in ("u1", "u2"):
            bucket.path(name, "log").unlink()
        assert open_transactions(tier, history) == {7: 1}
        assert find_last_stable_offset(tier, history) == 1
