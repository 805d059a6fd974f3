"""``tierlog cat --follow``: what a bucket or a log directory gains, each record once, until a signal."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.batches import Batch, encode, message
from tests.support.buckets import Bucket
from tests.support.command import Run, command_line, environment
from tierlog.cli.records.following import FollowedRecords
from tierlog.errors import CorruptDataError, ObjectNotFoundError, StoreUnavailableError
from tierlog.remote.tier import Tier, open_tier
from tierlog.scan.planning.plan import ScanPlan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import ScanRequest, TopicSelection


def segment(bucket: Bucket, name: str, first: int, end: int) -> None:
    bucket.segment(name, [message(offset, f"m{offset}", 0) for offset in range(first, end)], lineage={0: 0})


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    made = Bucket(tmp_path / "bucket")
    segment(made, "a", 0, 3)
    return made


class Follower:
    """A followed tier and what was told."""

    def __init__(self, tier: Tier, **options: Any) -> None:
        self.told: list[str] = []
        self.tier = tier
        request = ScanRequest(TopicSelection.of_names(["orders"]), clamp_offsets=True, **options)
        self.followed = FollowedRecords(tier, request, self.told.append)
        self.plan: ScanPlan | None = self.followed.first_plan(lambda asked, _: asked)[0]

    def take(self) -> list[int]:
        """The offsets of the next round."""
        plan, self.plan = self.plan or self.followed.next_plan(), None
        offsets = []
        for scan_range in plan.ranges:
            for rows in read_scan_range(self.tier, scan_range, columns=FollowedRecords.COLUMNS):
                offsets += rows.column("offset").to_pylist()
                self.followed.printed(rows)
        self.followed.finish(plan)
        return offsets


@pytest.fixture
def tier(bucket: Bucket) -> Iterator[Tier]:
    with open_tier(bucket.root) as opened:
        yield opened


def test_each_record_comes_once(bucket: Bucket, tier: Tier) -> None:
    """Otherwise a copy that grows has records twice, or lacks those of a segment that came between two listings."""
    follower = Follower(tier)
    assert follower.take() == [0, 1, 2]
    assert follower.take() == []
    segment(bucket, "b", 3, 5)
    segment(bucket, "overlap", 4, 7)
    segment(Bucket(bucket.root, partition=1), "p1", 0, 2)
    assert follower.take() == [3, 4, 5, 6, 0, 1]
    assert follower.take() == []
    assert follower.told == []


def test_from_an_offset(bucket: Bucket, tier: Tier) -> None:
    """Otherwise --from holds for the first listing alone."""
    follower = Follower(tier, starting_offsets=4)
    assert follower.take() == []
    segment(bucket, "b", 3, 6)
    assert follower.take() == [4, 5]


def test_what_retention_deleted_is_named(bucket: Bucket, tier: Tier) -> None:
    """Otherwise records that were never shown are missing without a word, or old ones come again."""
    follower = Follower(tier)
    assert follower.take() == [0, 1, 2]
    segment(bucket, "b", 3, 5)
    segment(bucket, "c", 5, 7)
    for name in ("a", "b"):
        bucket.path(name, "rsm-manifest").unlink()
    assert follower.take() == [5, 6]
    assert follower.told == ["warning: orders-0: offsets 3 to 4 were deleted before they came"]


def test_a_topic_may_go_and_come_again(bucket: Bucket, tier: Tier) -> None:
    """Otherwise retention of the last segment ends the command, or a topic made anew is passed over."""
    follower = Follower(tier)
    assert follower.take() == [0, 1, 2]
    bucket.path("a", "rsm-manifest").unlink()
    for _ in range(3):
        assert follower.take() == []
    (told,) = follower.told
    assert "no topic orders" in told
    segment(Bucket(bucket.root, topic_id="AAAAAAAAAAAAAAAAAAAAAQ"), "new", 0, 2)
    assert follower.take() == [0, 1]


def test_a_gap_is_waited_for(bucket: Bucket, tier: Tier) -> None:
    """Otherwise a segment that arrives behind its successor is passed over for ever."""
    follower, careless = Follower(tier), Follower(tier, fail_on_data_loss=False)
    assert follower.take() == careless.take() == [0, 1, 2]
    segment(bucket, "c", 5, 7)
    assert follower.take() == []
    assert follower.take() == []
    assert careless.take() == []
    waits = ["warning: orders-0 waits: offsets 3 to 4 are in no segment of the tier"]
    assert follower.told == careless.told == waits
    for each in bucket.root.rglob("*"):  # it is as old as a segment that comes late may be
        os.utime(each, (0, 0))
    assert careless.take() == [5, 6]
    assert follower.take() == []
    assert follower.told == waits
    segment(bucket, "b", 3, 5)
    assert follower.take() == [3, 4, 5, 6]
    assert careless.take() == []


def test_manifests_are_fetched_once(bucket: Bucket, tier: Tier, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each look at a bucket of ten thousand segments costs ten thousand requests."""
    loaded: list[str] = []
    load = tier.listing.load

    def counted(candidate: Any) -> Any:
        loaded.append(candidate.segment_path)
        return load(candidate)

    monkeypatch.setattr(tier.listing, "load", counted)
    follower = Follower(tier)
    assert follower.take() == [0, 1, 2]
    segment(bucket, "b", 3, 5)
    assert follower.take() == [3, 4]
    assert follower.take() == []
    assert len(loaded) == len(set(loaded)) == 2


def test_failures(tier: Tier) -> None:
    """Otherwise a store that is away for a minute ends the command, or damage is asked for again for ever."""
    follower = Follower(tier)
    follower.followed.fail(StoreUnavailableError("away"))
    follower.followed.fail(StoreUnavailableError("away"))
    assert follower.take() == [0, 1, 2]
    follower.followed.fail(ObjectNotFoundError("gone since it was listed"))
    with pytest.raises(ObjectNotFoundError):
        follower.followed.fail(ObjectNotFoundError("gone since it was listed"))
    with pytest.raises(CorruptDataError):
        follower.followed.fail(CorruptDataError("damaged"))
    assert follower.told == [
        "warning: away; tried again at the next listing",
        "warning: gone since it was listed; tried again at the next listing",
    ]


def test_a_limit_ends_it(tierlog: Run, bucket: Bucket) -> None:
    """Otherwise a script that wants the next record never ends."""
    assert tierlog("cat", bucket.root, "--follow", "--limit", "2", "--format", "raw").text == "m0\nm1\n"
    assert tierlog("cat", bucket.root, "--follow", "--last", "1", "--limit", "1", "--template", "%o").text == "2"


@pytest.mark.parametrize(
    "options", [["--count"], ["--to", "0"], ["--until", "1h"], ["--out", "x"], ["--format", "parquet"]], ids=" ".join
)
def test_what_needs_an_end_is_refused(tierlog: Run, bucket: Bucket, options: list[str]) -> None:
    """Otherwise the command runs for ever and never answers."""
    outcome = tierlog("cat", bucket.root, "--follow", *options)
    assert outcome.code == 2
    assert "--follow does not go together with" in outcome.err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(tmp_path: pathlib.Path, number: signal.Signals) -> None:
    """Otherwise ^C prints a traceback, or what was printed does not reach the pipe before the end."""
    log = tmp_path / "orders-0" / f"{0:020d}.log"
    log.parent.mkdir()
    first, second = (encode(Batch(offset, (b"m%d" % offset, b"m%d" % (offset + 1)))) for offset in (0, 2))
    log.write_bytes(first)
    options = ["--follow", "--refresh", "0.1", "--format", "csv", "--columns", "value"]
    command = command_line("cat", tmp_path, "orders", *options)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment()) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        with log.open("ab") as file:  # a broker's append, seen in its midst
            file.write(second[:-7])
            file.flush()
            time.sleep(0.3)
            file.write(second[-7:])
        lines += [process.stdout.readline() for _ in range(2)]
        time.sleep(0.3)  # it waits again
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert (lines, out, err.decode()) == ([b"value\n", b"m0\n", b"m1\n", b"m2\n", b"m3\n"], b"", "")
    assert process.returncode == 0
