"""Copies of a log directory whose transaction indexes are gone."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from tierlog.errors import DataLossError
from tierlog.remote.api import IndexType
from tierlog.remote.storage.copy.copy_target import open_copy_target
from tierlog.remote.tier import open_tier
from tierlog.upkeep.copying.bucket_copy import BucketCopy
from tierlog.upkeep.copying.copy_work import CopyState, SegmentOutcome
from tierlog.upkeep.copying.index_repair import read_through
from tierlog.upkeep.copying.segment_source import digest_log

TOPIC = "fx-txn"


@pytest.fixture
def disk(data: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A broker's folder of a topic with transactions."""
    broker = data / "main-plain/local-before/broker1"
    shutil.copytree(broker / f"{TOPIC}-0", tmp_path / f"disk/{TOPIC}-0")
    return tmp_path / "disk"


def copied(source: pathlib.Path, dest: pathlib.Path) -> list[SegmentOutcome]:
    with open_tier(str(source)) as tier:
        target = open_copy_target(str(dest), config={"chunk.size": "10000"})
        try:
            return list(BucketCopy(tier, target))
        finally:
            target.close()


def test_what_is_built_is_what_the_broker_wrote(disk: pathlib.Path) -> None:
    """If this fails, an index that is built anew shows other transactions as aborted than the broker's own did."""
    compared = 0
    with open_tier(str(disk)) as tier:
        for segment in tier.iter_segments():
            if not segment.closed:
                continue
            digest, built = read_through(tier, segment)
            assert digest == digest_log(tier, segment)
            found = tier.fetch_index(segment, IndexType.TRANSACTION)
            assert built == (None if found is None else bytes(found)), segment.name
            compared += found is not None
    assert compared >= 4


def test_a_copy_has_the_aborted_transactions_all_the_same(disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, what was aborted comes back to life in the copy, without a word."""
    sound = copied(disk, tmp_path / "sound")
    for path in disk.rglob("*.txnindex"):
        path.unlink()
    outcomes = copied(disk, tmp_path / "dest")
    assert [outcome.state for outcome in outcomes] == [CopyState.COPIED] * len(sound)
    told = [outcome for outcome in outcomes if any("transaction index" in note for note in outcome.notes)]
    assert len(told) >= 4
    assert all("the log has aborted transactions" in outcome.notes[0] for outcome in told)
    files = [
        {p.relative_to(root): p.read_bytes() for p in root.rglob("*.indexes")}
        for root in (tmp_path / "sound", tmp_path / "dest")
    ]
    assert files[0] == files[1]
    again = copied(disk, tmp_path / "dest")
    assert {outcome.state for outcome in again} == {CopyState.PRESENT}


def test_without_the_snapshot_of_the_start_it_is_an_error(disk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """If this fails, a transaction that began before the segment is lost, or one is made up."""
    indexes = sorted(disk.rglob("*.txnindex"))
    second = indexes[1]
    second.unlink()
    outcomes = copied(disk, tmp_path / "one")
    assert {outcome.state for outcome in outcomes} == {CopyState.COPIED}
    snapshot = second.with_suffix(".snapshot")
    content = snapshot.read_bytes()
    snapshot.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with open_tier(str(disk)) as tier:
        segment = next(each for each in tier.iter_segments() if each.start_offset == int(second.stem))
        with pytest.raises(DataLossError, match=r"no transaction index.*snapshot"):
            read_through(tier, segment)
        snapshot.unlink()
        with pytest.raises(DataLossError, match=f"there is no producer snapshot {second.stem}"):
            read_through(tier, segment)
    failed = [outcome for outcome in copied(disk, tmp_path / "two") if outcome.state is CopyState.FAILED]
    assert any("aborted" in str(outcome.error) for outcome in failed)


def test_no_aborts_need_no_index(data: pathlib.Path) -> None:
    """If this fails, each segment of a topic without transactions gets an empty file, or an error."""
    checked = 0
    with open_tier(str(data / "main-plain/local-before/broker1")) as tier:
        for segment in tier.iter_segments():
            if segment.closed and segment.part(IndexType.TRANSACTION) is None:
                assert read_through(tier, segment)[1] is None
                checked += 1
    assert checked
