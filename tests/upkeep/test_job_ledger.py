"""Ledgers: a job goes on where it was interrupted, and believes no other job's ledger, nor a damaged one."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.support.batches import message
from tests.support.buckets import Bucket
from tierlog.errors import ConfigError, CorruptDataError, ObjectConflictError
from tierlog.log.checks.findings import Report
from tierlog.runtime.machine import Machine
from tierlog.upkeep import JobEstimate, VerifyResult, copy, verify
from tierlog.upkeep.job_ledger import open_ledger
from tierlog.upkeep.segment_work import LedgerKey


def bucket_of(root: pathlib.Path, topic: str = "orders") -> Bucket:
    """Six segments; one has a damaged batch, and one a gap in front of it."""
    bucket = Bucket(root, topic=topic)
    for number in (0, 1, 2, 4, 5, 6):
        offsets = range(3 * number, 3 * number + 3)
        bucket.segment(f"s{number}", [message(offset, f"m{offset}", 0) for offset in offsets], lineage={0: 0})
    flip(bucket.path("s5", "log"))
    return bucket


def flip(path: pathlib.Path) -> None:
    """Damage a log, and leave its size and time as they were."""
    about, data = path.stat(), bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def verified(bucket: Bucket, ledger: pathlib.Path | None = None) -> tuple[VerifyResult, list[str]]:
    told: list[str] = []
    result = verify(bucket.root, ledger=ledger, workers=1, on_report=lambda each: told.extend(map(str, each.findings)))
    result.findings = []
    return result, sorted(told)


def interrupt(bucket: Bucket, ledger: pathlib.Path, *, behind: int) -> list[str]:
    """Verify until so many segments are done; returns their names."""
    done: list[str] = []

    def stop(report: Report) -> None:
        done.append(report.name)
        if len(done) == 1 + behind:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        verify(bucket.root, ledger=ledger, workers=1, on_report=stop)
    return done[1:]


@pytest.mark.parametrize("behind", [1, 4])
def test_a_run_goes_on_where_it_was_interrupted(tmp_path: pathlib.Path, behind: int) -> None:
    """A night's work that is begun anew after each interruption never ends; faults that were found are told again."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    plain = verified(bucket)
    done = interrupt(bucket, ledger, behind=behind)
    for name in done:
        flip(bucket.root / name)  # who reads them again finds other faults
    assert verified(bucket, ledger) == plain
    assert verified(bucket, ledger) == plain
    assert len(ledger.read_text().splitlines()) == 1 + 6


def test_a_killed_run_is_gone_on_with(tmp_path: pathlib.Path) -> None:
    """Machines go down without a word: what was told is in the ledger, whose lock is nobody's any more."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    code = (
        "import os, sys\nfrom tierlog.upkeep import verify\ndone = []\n"
        "def die(report):\n    done.append(report.name)\n"
        "    if len(done) == 4:\n        print(*done[1:], flush=True)\n        os.kill(os.getpid(), 9)\n"
        "verify(sys.argv[1], ledger=sys.argv[2], workers=2, on_report=die)\n"
    )
    line = [sys.executable, "-c", code, str(bucket.root), str(ledger)]
    killed = subprocess.run(line, capture_output=True, text=True, check=False)
    assert killed.returncode == -9
    plain = verified(bucket)
    for name in killed.stdout.split():
        flip(bucket.root / name)
    assert verified(bucket, ledger) == plain


def test_a_changed_segment_is_done_again(tmp_path: pathlib.Path) -> None:
    """Otherwise a log that was copied anew, or is written to, counts as checked."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    before, _ = verified(bucket, ledger)
    flip(bucket.path("s5", "log"))
    manifest = bucket.path("s5", "rsm-manifest")
    os.utime(manifest, ns=(0, manifest.stat().st_mtime_ns + 10**9))
    after, _ = verified(bucket, ledger)
    assert (before.faults, after.faults) == (2, 1)


def test_what_could_not_be_checked_is_tried_again(tmp_path: pathlib.Path) -> None:
    """Otherwise a store that was away for a minute leaves segments unchecked for ever."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    log = bucket.path("s1", "log")
    data, about = log.read_bytes(), log.stat()
    log.unlink()
    log.mkdir()
    broken, _ = verified(bucket, ledger)
    log.rmdir()
    log.write_bytes(data)
    os.utime(log, ns=(about.st_atime_ns, about.st_mtime_ns))
    assert broken.errors + broken.faults > 2
    assert verified(bucket, ledger) == verified(bucket)


def test_a_dry_run_reads_nothing(tmp_path: pathlib.Path) -> None:
    """It is asked for because reading costs money: the count has to come before the first request for a log."""
    bucket, told = bucket_of(tmp_path), list[JobEstimate]()
    result = verify(bucket.root, dry_run=True, on_estimate=told.append, on_report=lambda _: pytest.fail("it read"))
    (estimate,) = told
    size_bytes = sum(path.stat().st_size for path in bucket.root.rglob("*.log"))
    assert (result.segments, result.size_bytes) == (6, 0)
    assert (estimate.segments, estimate.size_bytes) == (6, size_bytes)
    assert 6 * 2 <= estimate.requests <= 6 * 8


def test_another_jobs_ledger_is_refused(tmp_path: pathlib.Path) -> None:
    """Else a bucket of which nothing was read is called sound; and the other job loses its ledger."""
    one, two = bucket_of(tmp_path / "one"), bucket_of(tmp_path / "two")
    ledger, machine = tmp_path / "ledger", Machine()
    verified(one, ledger)
    before = ledger.read_bytes()
    with pytest.raises(ConfigError, match=r"is the ledger of another job: job verify, path .*one .*asked for is .*two"):
        verified(two, ledger)
    asked = {"job": "index", "path": f"{one.root} (aiven)"}
    with pytest.raises(ConfigError, match="the ledger of another job"), open_ledger(str(ledger), asked, machine):
        pass
    assert ledger.read_bytes() == before


@pytest.mark.parametrize(
    "content",
    [b"x", b"rsm.config.key=1\n", b"{}\n", b"[]\n", b"\xff" * 2_000_000, b'{"tierlog": "ledger"}\n', b"{" * 99],
)
def test_a_file_that_is_no_ledger_stays_as_it_is(tmp_path: pathlib.Path, content: bytes) -> None:
    """A mistyped path must not cost a user her file."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    ledger.write_bytes(content)
    with pytest.raises(ConfigError, match=r"is no ledger|another version"):
        verified(bucket, ledger)
    assert ledger.read_bytes() == content


def test_a_torn_ledger_is_cut_at_its_last_whole_line(tmp_path: pathlib.Path) -> None:
    """A run that is killed while it writes must not be the last one with this ledger."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    plain = verified(bucket, ledger)
    whole = ledger.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for size in (0, 1, 20, last + 1, len(whole) - 1):
        ledger.write_bytes(whole[:size])
        assert verified(bucket, ledger) == plain
        assert len(ledger.read_bytes()) == len(whole)


def test_a_damaged_entry_is_an_error(tmp_path: pathlib.Path) -> None:
    """A ledger is a file that anybody may have written to: what is wrong with it is named, and never believed."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    verified(bucket, ledger)
    head, *entries = ledger.read_text().splitlines()
    fields = json.loads(entries[0])
    wrong: list[object] = [
        {**fields, name: value} for name in fields for value in (None, 1.5, [], "x" if name != "segment" else 1)
    ]
    outcome = fields["outcome"]
    wrong += [
        {**fields, "outcome": {**outcome, name: value}} for name in outcome for value in (None, "x", {}, True, 2**70)
    ]
    finding = {"severity": "error", "kind": "x", "text": "x", "where": "x"}
    wrong += [{**fields, "outcome": {**outcome, "findings": [each]}} for each in (1, {}, finding)]
    wrong.append([])
    for entry in wrong:
        ledger.write_text("\n".join([head, json.dumps(entry), *entries[1:], ""]))
        with pytest.raises(CorruptDataError, match="ledger"):
            verified(bucket, ledger)


@pytest.mark.parametrize("mask", ["false", "true"])
def test_a_copy_under_another_prefix_is_another_job(tmp_path: pathlib.Path, mask: str) -> None:
    """Segments that lie under one prefix would be told as copied to the other, where there is nothing."""
    Bucket(tmp_path / "b").segment("s", [message(0, "m", 0)], lineage={0: 0})

    def run(prefix: str) -> int:
        config = {"chunk.size": "100", "key.prefix": prefix, "key.prefix.mask": mask}
        return copy(tmp_path / "b", tmp_path / "dest", dest_config=config, ledger=tmp_path / "ledger").copied

    assert (run("secret-a/"), run("secret-a/")) == (1, 1)
    assert ("secret" in (tmp_path / "ledger").read_text()) is (mask == "false")
    with pytest.raises(ConfigError, match="of another job"):
        run("secret-b/")


def test_a_folder_has_a_ledger_for_each_job(tmp_path: pathlib.Path) -> None:
    """So that one folder serves all jobs over a bucket."""
    bucket, folder = bucket_of(tmp_path / "bucket"), tmp_path / "ledgers"
    folder.mkdir()
    assert verified(bucket, folder) == verified(bucket, folder)
    assert [path.name for path in folder.iterdir()] == ["tierlog-verify.jsonl"]


def test_two_jobs_share_no_ledger(tmp_path: pathlib.Path) -> None:
    """Their lines would be written into each other."""
    path, asked = str(tmp_path / "ledger"), {"job": "verify", "path": "x"}
    with open_ledger(path, asked, Machine()) as ledger:
        ledger.add(LedgerKey("a", 1, 2), {})
        with pytest.raises(ObjectConflictError, match="another job writes"), open_ledger(path, asked, Machine()):
            pass
    with open_ledger(path, asked, Machine()) as ledger:
        assert len(ledger) == 1
