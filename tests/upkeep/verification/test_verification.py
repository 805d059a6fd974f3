"""Verifying a tier: what cannot be checked is distinguished from what is wrong, and stops nothing else."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Iterator

import pytest
from typing_extensions import Buffer

from tests.support.batches import message
from tests.support.buckets import Bucket
from tierlog.errors import StoreUnavailableError, UnknownTopicError
from tierlog.log.checks.findings import Finding, Severity
from tierlog.remote.tier import Tier
from tierlog.remote.tier.chunks.key_ring import KeyRing
from tierlog.remote.tier.layouts.aiven import AivenLayout
from tierlog.remote.tier.layouts.listing import Scope
from tierlog.runtime.machine.thread_scheduler import ThreadScheduler
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.runtime.waiting.threads import Event
from tierlog.upkeep.verification.segment_verification import verify_segment
from tierlog.upkeep.verification.verification import Verification


class OneKeyDown(CountingStore):
    """A real store that cannot give one object."""

    def __init__(self, store: ObjectStore, broken: str) -> None:
        super().__init__(store)
        self._broken = broken

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        if key == self._broken:
            raise StoreUnavailableError(f"{key}: 503 after all retries")
        return super().fetch_range(key, start_position=start_position, end_position_exclusive=end_position_exclusive)


def bucket_of(root: pathlib.Path, *, segments: int = 4) -> Bucket:
    bucket = Bucket(root)
    for number in range(segments):
        offsets = range(3 * number, 3 * number + 3)
        bucket.segment(f"s{number}", [message(offset, f"m{offset}", 0) for offset in offsets], lineage={0: 0})
    return bucket


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    return bucket_of(tmp_path)


def tier_over(store: ObjectStore) -> Tier:
    return Tier(store, AivenLayout(store, Scope("", "", mask=False), KeyRing({})))


def findings(run: Verification) -> Iterator[Finding]:
    for report in run:
        yield from report.findings


@pytest.mark.parametrize("workers", [1, 3])
def test_a_store_that_fails_is_no_damage(bucket: Bucket, workers: int) -> None:
    """Otherwise a flaky network is reported as a corrupt bucket, or ends the check of everything else."""
    store = OneKeyDown(open_store(str(bucket.root)), f"{bucket.keys['s1']}.log")
    with tier_over(store) as tier:
        run = Verification(tier, workers=workers)
        reports = list(run)
    found = [finding for report in reports for finding in report.findings]
    assert [finding.severity for finding in found] == [Severity.ERROR]
    assert found[0].kind == "StoreUnavailableError"
    assert (found[0].topic, found[0].partition) == ("orders", 0)
    assert sum(report.records for report in reports) == 9


def test_every_segment_has_a_report(bucket: Bucket) -> None:
    """Otherwise progress and totals do not add up."""
    with tier_over(open_store(str(bucket.root))) as tier:
        run = Verification(tier, workers=2)
        reports = list(run)
    assert len(reports) == 1 + 4
    assert sum(report.size_bytes for report in reports) == run.size_bytes
    assert not any(report.findings for report in reports)


def test_giving_up_ends_the_workers(bucket: Bucket) -> None:
    """Otherwise ^C waits until the whole bucket was read."""
    with tier_over(open_store(str(bucket.root))) as tier:
        run = iter(Verification(tier, workers=2))
        next(run)
        next(run)
        run.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tierlog-verify")]


def test_a_stopped_segment_says_nothing_false(bucket: Bucket) -> None:
    """Otherwise what was not read is reported as missing."""
    stopped = Event(ThreadScheduler())
    stopped.set()
    with tier_over(open_store(str(bucket.root))) as tier:
        segment = next(iter(tier.iter_segments()))
        report = verify_segment(tier, segment, stopped=stopped)
    assert report.batches == 0
    assert report.count(Severity.FAULT) == 0


def test_unknown_topics(bucket: Bucket) -> None:
    """Otherwise a misspelt topic verifies."""
    with tier_over(open_store(str(bucket.root))) as tier, pytest.raises(UnknownTopicError):
        Verification(tier, topic="order")


def test_a_topic_of_which_nothing_can_be_read_is_not_unknown(bucket: Bucket) -> None:
    """Otherwise a topic with damaged manifests is said not to exist."""
    for name in bucket.keys:
        bucket.path(name, "rsm-manifest").write_text("{")
    with tier_over(open_store(str(bucket.root))) as tier:
        found = list(findings(Verification(tier, topic="orders")))
    assert [finding.severity for finding in found] == [Severity.FAULT] * 4
