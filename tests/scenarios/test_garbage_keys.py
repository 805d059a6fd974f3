"""Buckets full of what nobody put there on purpose: found past it, nothing of it read, nothing of it deleted."""

from __future__ import annotations

import pathlib
import random
import tracemalloc
from dataclasses import replace

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tierlog.errors import CorruptObjectError
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.simulated.memory_files import MemoryFiles
from tierlog.scan.planning.plan import plan_scan
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import ScanRequest, TopicSelection
from tierlog.upkeep.orphan_search import OrphanKind, OrphanSearch

COUNTS = pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
FOLDERS = 25
#: Nearly the keys of segments: each fails another part of the pattern.
NEARLY = (
    "orders-AAAAAAAAAAAAAAAAAAAAA/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log",
    "orders-AAAAAAAAAAAAAAAAAAAAAQ/-1/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log",
    "orders-AAAAAAAAAAAAAAAAAAAAAQ/4294967296/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log",
    "orders-AAAAAAAAAAAAAAAAAAAAAQ/0/99999999999999999999-AAAAAAAAAAAAAAAAAAAAAQ.log",
    "orders-AAAAAAAAAAAAAAAAAAAAAQ/0/00000000000000000000-AAAAAAAAAAAAAAAAAAAAAQ.log.gz",
    "orders-AAAAAAAAAAAAAAAAAAAAAQ/0/0-AAAAAAAAAAAAAAAAAAAAAQ.rsm-manifest",
    "orders-AAAAAAAAAAAAAAAAAAAAAQ/0/.rsm-manifest",
)


def files_with(bucket: Bucket, count: int) -> MemoryFiles:
    """The bucket and so many other objects, in memory."""
    files, chance = MemoryFiles(), random.Random(11)
    for path in bucket.root.rglob("*"):
        if path.is_file():
            files.put(f"/bucket/{path.relative_to(bucket.root)}", path.read_bytes())
    for key in NEARLY:
        files.put(f"/bucket/{key}", b"{}")
    for number in range(count):
        name = chance.randbytes(chance.randrange(1, 40)).hex()
        files.put(f"/bucket/{number % FOLDERS:02d}-old/{number}.{name}", b"x")
    return files


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    made = Bucket(tmp_path)
    for number in range(3):
        made.segment(f"u{number}", [message(number, f"m{number}", 0)], lineage={0: 0})
    return made


@COUNTS
def test_foreign_objects(bucket: Bucket, count: int) -> None:
    """Other tools' objects in the same bucket must cost a listing, not a wrong answer, a gigabyte or their lives."""
    machine = replace(Machine(), files=files_with(bucket, count))
    tracemalloc.start()
    try:
        with open_tier("/bucket", machine=machine) as tier:
            request = ScanRequest(TopicSelection.matching(".*"))
            batches = [batch for part in plan_scan(tier, request).ranges for batch in read_scan_range(tier, part)]
            report = OrphanSearch(tier, older_than_ms=0).run()
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [value.decode() for batch in batches for value in batch.column("value").to_pylist()] == ["m0", "m1", "m2"]
    assert (report.orphans, report.objects, report.segments) == ([], 9, 3)
    assert report.foreign == count + len(NEARLY)
    # The listing of the folder that is read is there at once; its keys take half of this.
    assert peak_bytes < 64 << 20


@COUNTS
def test_leftovers(bucket: Bucket, count: int) -> None:
    """After months of failing copies each of them is found, once."""
    files = MemoryFiles()
    chance = random.Random(12)
    topic = bucket.keys["u0"].rpartition("/")[0]
    for number in range(count):
        uuid = f"{chance.randbytes(12).hex()[:21]}A"
        files.put(f"/bucket/{topic}/{number:020d}-{uuid}.log", b"x")
    with open_tier("/bucket", machine=replace(Machine(), files=files)) as tier:
        report = OrphanSearch(tier, older_than_ms=0).run()
    assert len(report.orphans) == count
    assert {orphan.kind for orphan in report.orphans} == {OrphanKind.LEFTOVER}


@pytest.mark.parametrize("text", [b"", b"{}", b"[" * 200_000, b"{" + b'"a":' * 100_000, b"\xff" * 1000, b"null"])
def test_descriptions_that_are_none(bucket: Bucket, text: bytes) -> None:
    """A thousand of them must end with the name of the first one, not with a stack that overflows."""
    files = MemoryFiles()
    manifest = bucket.path("u0", "rsm-manifest").relative_to(bucket.root)
    for number in range(1000):
        changed = manifest.with_name(f"{number:020d}" + manifest.name[20:])
        files.put(f"/bucket/{changed}", text)
        files.put(f"/bucket/{changed.with_suffix('.log')}", b"x")
        files.put(f"/bucket/{changed.with_suffix('.indexes')}", b"x")
    with (
        open_tier("/bucket", machine=replace(Machine(), files=files)) as tier,
        pytest.raises(CorruptObjectError) as told,
    ):
        list(plan_scan(tier, ScanRequest(TopicSelection.matching(".*"))).ranges)
    assert "rsm-manifest" in str(told.value)
