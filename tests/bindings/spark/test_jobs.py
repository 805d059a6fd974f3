"""Jobs by Spark's executors: the same findings as in this process, kept through interruptions and dying workers."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import pickle
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle

from pyspark_tierlog import jobs
from pyspark_tierlog.job_tasks import TASK_PICKLE_BYTES, cut_tasks
from tests.support.buckets import Bucket
from tests.support.command import Outcome, config_file, run_process
from tests.support.footers import footers_in, indexed_copy
from tests.support.golden import config_of
from tests.support.key_pairs import pairs
from tests.support.waiting import LIMIT_SECONDS, wait_until
from tests.upkeep.test_job_ledger import bucket_of, interrupt, verified
from tierlog.cli.verbs.copy import _as_dict as copied_fields
from tierlog.errors import ConfigError, CorruptDataError, StoreUnavailableError
from tierlog.opening import TierLocation
from tierlog.remote.tier import open_tier
from tierlog.upkeep import (
    CopyResult,
    IndexResult,
    JobEstimate,
    Report,
    Rewrap,
    RewrapResult,
    SegmentOutcome,
    VerifyResult,
    copy,
    index,
    rewrap,
    verify,
)
from tierlog.upkeep.segment_looks import Wanted, look_at
from tierlog.upkeep.segment_work import TierOrder, WorkOrder
from tierlog.upkeep.verification.segment_verification import Verified, VerifyWork
from tierlog.upkeep.verification.verification import Verification

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def told_by(spark: SparkSession | None, path: pathlib.Path, **options: Any) -> tuple[VerifyResult, list[str]]:
    """The exit code, counts and reports of verify: by Spark, or in this process."""
    told: list[str] = []
    options["on_report"] = lambda report: told.extend(
        re.sub("written .* ago", "", str(each)) for each in report.findings
    )
    result = verify(path, **options) if spark is None else jobs.verify(spark, path, **options)
    result.findings = []
    return result, sorted(told)


def damage(bucket: pathlib.Path) -> None:
    """A flipped bit in one log, a log cut short, an index that is gone."""
    one, two, three, *_ = sorted(bucket.rglob("*.log"))
    data = bytearray(one.read_bytes())
    data[len(data) // 2] ^= 4
    one.write_bytes(data)
    two.write_bytes(two.read_bytes()[:-100])
    three.with_suffix(".indexes").unlink()


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
def test_the_same_faults_are_found(spark: SparkSession, tmp_path: pathlib.Path, data: pathlib.Path, run: str) -> None:
    """A second opinion that differs by where it was asked for is none."""
    bucket, config = indexed_copy(data / run, tmp_path / "bucket"), config_of(data / run)
    damage(bucket)
    (bucket / next(iter(sorted(bucket.rglob("*.footer"))))).write_bytes(b"x")
    plain = told_by(None, bucket, config=config)
    assert plain[0].faults > 3
    assert told_by(spark, bucket, config=config) == plain
    assert told_by(spark, bucket, config=config, ledger=tmp_path / "ledger") == plain
    assert told_by(None, bucket, config=config, ledger=tmp_path / "ledger") == plain


def test_a_brokers_disk_is_verified_too(spark: SparkSession, data: pathlib.Path) -> None:
    """Its active segments, and the logs that readers leave out, are work as any other."""
    path = data / "main-plain/local-before/broker1"
    assert told_by(spark, path) == told_by(None, path)


def test_a_file_is_not_for_executors(spark: SparkSession, data: pathlib.Path) -> None:
    """Executors see no file of the driver's: one that is verified by itself would have to be on all of them."""
    path = next((data / "main-plain/local-before/broker1").rglob("*.log"))
    with pytest.raises(ConfigError, match="one file"):
        jobs.verify(spark, path)


def test_an_interrupted_job_goes_on(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Whether here or there: a ledger does not know who did the work."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    plain, done = verified(bucket), interrupt(bucket, ledger, behind=2)
    for name in done:
        (bucket.root / name).write_bytes((bucket.root / name).read_bytes()[::-1])
    estimates: list[JobEstimate] = []
    assert told_by(spark, bucket.root, ledger=ledger, on_estimate=estimates.append) == plain
    assert [each.segments for each in estimates] == [6]


def indexed_by(spark: SparkSession | None, path: pathlib.Path, **options: Any) -> tuple[IndexResult, list[str]]:
    told: list[str] = []
    options["on_segment"] = lambda each: told.append(f"{each.state} {each.name} {each.size_bytes} {each.error}")
    result = index(path, **options) if spark is None else jobs.index(spark, path, **options)
    result.failures = []
    return result, sorted(told)


@pytest.mark.parametrize("run", ["main-plain", "zstd-aes"])
def test_the_same_footers_are_written(
    spark: SparkSession, tmp_path: pathlib.Path, data: pathlib.Path, run: str
) -> None:
    """A footer is believed by all readers, whoever wrote it; and a segment that is damaged gets none."""
    here, there, config = tmp_path / "here", tmp_path / "there", config_of(data / run)
    for place in (here, there):
        shutil.copytree(data / run / "objects", place)
        log = sorted(place.rglob("*.log"))[1]
        log.write_bytes(log.read_bytes()[:-3])
    read = [0, 0]
    ledger = tmp_path / "ledger"
    pending = indexed_by(spark, there, config=config, dry_run=True)
    assert pending == indexed_by(None, here, config=config, dry_run=True)
    found = indexed_by(spark, there, config=config, ledger=ledger, on_bytes=lambda done, _: read.append(done))
    assert found == indexed_by(None, here, config=config)
    assert (found[0].failed, found[0].written) == (1, found[0].segments - 1)
    assert sum(read) == 3 + sum(path.stat().st_size for path in there.rglob("*.log"))
    assert [path.name for path in footers_in(there)] == [path.name for path in footers_in(here)]
    if run == "main-plain":  # encryption takes another IV each time
        assert [path.read_bytes() for path in footers_in(there)] == [path.read_bytes() for path in footers_in(here)]
    assert verify(there, config=config).faults == verify(here, config=config).faults
    for path in footers_in(there):
        path.unlink()
    assert indexed_by(spark, there, config=config, ledger=ledger) == found  # told again, not done again
    assert not footers_in(there)


def copied_by(
    spark: SparkSession | None, source: pathlib.Path, dest: pathlib.Path, **options: Any
) -> tuple[CopyResult, list[str]]:
    told: list[str] = []
    options["on_segment"] = lambda each: told.append(json.dumps(copied_fields(each)))
    result = copy(source, dest, **options) if spark is None else jobs.copy(spark, source, dest, **options)
    return dataclasses.replace(result, failed=()), sorted(told)


def contents(place: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.parametrize("source", ["main-plain/objects", "main-plain/local-before/broker1"])
def test_the_same_segments_are_copied(
    spark: SparkSession, tmp_path: pathlib.Path, data: pathlib.Path, source: str
) -> None:
    """Whoever copies a segment gives it the same id, the same bytes, and the same line for `restore --from-copy`."""
    here, there, origin = tmp_path / "here", tmp_path / "there", tmp_path / "origin"
    shutil.copytree(data / source, origin)
    log = sorted(path for path in origin.rglob("*.log") if path.stat().st_size)[1]
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    keys = {"dest_config": {"compression.enabled": "true", "chunk.size": "4096"}, "ledger": tmp_path / "ledger"}
    plain = copied_by(None, origin, here, dest_config=keys["dest_config"])
    assert copied_by(spark, origin, there, dry_run=True, **keys)[0].copied == 0
    assert not there.exists()
    found = copied_by(spark, origin, there, **keys)
    assert found == plain
    assert contents(there) == contents(here)
    for path in origin.rglob("*.timeindex"):
        path.unlink()
    shutil.rmtree(there)
    assert copied_by(spark, origin, there, **keys)[0].copied == found[0].copied  # of the ledger, without a look
    assert not contents(there)


def test_an_interrupted_copy_goes_on(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Each segment is copied once, whoever was interrupted, and all are told by the run that ends."""
    bucket, ledger = bucket_of(tmp_path / "bucket"), tmp_path / "ledger"
    plain, done = copied_by(None, bucket.root, tmp_path / "here"), list[str]()

    def stop(outcome: SegmentOutcome) -> None:
        done.append(outcome.source.name)
        if len(done) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.copy(spark, bucket.root, tmp_path / "there", ledger=ledger, on_segment=stop, cores=1)
    first = len(ledger.read_text().splitlines()) - 1
    assert first >= 1
    result, told = copied_by(spark, bucket.root, tmp_path / "there", ledger=ledger)
    assert (result.copied >= 2, result.copied + result.present) == (True, plain[0].copied)  # some were on their way
    assert sorted(each.replace('"present"', '"copied"') for each in told) == plain[1]
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    entry = json.loads(ledger.read_text().splitlines()[1])
    for name, value in (("metadata", "AAAA"), ("state", "failed"), ("kept", ["x"]), ("storedBytes", None)):
        wrong = {**entry, "outcome": {**entry["outcome"], name: value}}
        ledger.write_text(ledger.read_text().splitlines()[0] + "\n" + json.dumps(wrong) + "\n")
        with pytest.raises(CorruptDataError, match="ledger"):
            copied_by(None, bucket.root, tmp_path / "there", ledger=ledger)


def rewrapped_by(spark: SparkSession | None, path: pathlib.Path, **options: Any) -> tuple[RewrapResult, list[Rewrap]]:
    told: list[Rewrap] = []
    options["on_manifest"] = told.append
    return rewrap(path, **options) if spark is None else jobs.rewrap(spark, path, **options), told


def test_the_same_manifests_are_rewrapped(spark: SparkSession, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """In the same order too; and a footer beside a segment is written for its new manifest."""
    bucket, ledger = indexed_copy(data / "zstd-aes", tmp_path / "bucket"), tmp_path / "ledger"
    keys = pairs(data, "k1", "k2", active="k2")
    next(iter(sorted(bucket.rglob("*.rsm-manifest")))).write_bytes(b"{}")
    before = rewrapped_by(None, bucket, config=keys)
    assert rewrapped_by(spark, bucket, config=keys)[0] == before[0]
    found, told = rewrapped_by(spark, bucket, config=keys, apply=True, no_digests=True, ledger=ledger)
    assert (found.states["failed"], found.states["rewrapped"]) == (1, before[0].states["pending"])
    assert found.counts == before[0].counts
    assert [(each.name, each.key_id) for each in told] == [(each.name, each.key_id) for each in before[1]]
    again = rewrapped_by(spark, bucket, config=keys, apply=True, no_digests=True, ledger=ledger)
    assert [str(each.error or each) for each in again[1]] == [str(each.error or each) for each in told]
    assert again[0] == found
    after, _ = rewrapped_by(None, bucket, config=keys)
    assert (set(after.counts), after.states["pending"]) == ({"k2"}, 0)
    assert {
        finding.kind for finding in verify(bucket, config=keys).findings if finding.where.endswith("footer")
    } == set()


def test_the_same_is_seen_of_segments(spark: SparkSession, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """`ls --times --records` over a million segments is a million small reads."""
    bucket, config, ledger = indexed_copy(data / "zstd-aes", tmp_path / "bucket"), config_of(data / "zstd-aes"), None
    footers_in(bucket)[0].write_bytes(b"x")
    with open_tier(str(bucket), config=config) as tier:
        segments = list(tier.iter_segments())
        for wanted in (Wanted(times=True), Wanted(records=True), Wanted(times=True, records=True)):
            plain = look_at(tier, segments, wanted, config=config)
            seen = [look.totals is not None for look in plain.values()]
            assert sum(seen) == wanted.records * (len(segments) - 1)
            ledger = tmp_path / f"{wanted}"
            for executor in (jobs.SparkExecutor(spark), jobs.SparkExecutor(spark), None):
                assert look_at(tier, segments, wanted, config=config, executor=executor, ledger=ledger) == plain
    lines = ledger.read_text().splitlines()
    # In the order in which they ended: that of the damaged footer, which has none, may be the last.
    entry = next(each for each in map(json.loads, lines[1:]) if each["outcome"]["totals"])
    for totals in ({"batches": 1}, {**entry["outcome"]["totals"], "has_transactions": 1}, []):
        ledger.write_text("\n".join([lines[0], json.dumps({**entry, "outcome": {"totals": totals}}), ""]))
        with open_tier(str(bucket), config=config) as tier, pytest.raises(CorruptDataError, match="ledger"):
            look_at(tier, segments, wanted, config=config, ledger=ledger)


@pytest.mark.few(1)
@pytest.mark.parametrize("output", ["text", "json"])
def test_the_command_says_the_same(tmp_path: pathlib.Path, data: pathlib.Path, output: str) -> None:
    """Scripts read its lines and its exit code."""
    bucket, ledger = indexed_copy(data / "zstd-aes", tmp_path / "bucket"), tmp_path / "ledger"
    damage(bucket)
    line = [bucket, *config_file(data / "zstd-aes", tmp_path), "--output", output]
    verb = ["verify"] if output == "text" else ["ls", "--times", "--records"]
    plain = run_process(*verb, *line)
    found = run_process(*verb, *line, "--spark", "local[2]", "--ledger", ledger, SPARK_LOCAL_IP="127.0.0.1")
    assert (found.code, sorted(masked(found))) == (plain.code, sorted(masked(plain)))
    assert re.search(rf"^tierlog: {verb[0]}: \d+ segments, about \d+ requests, \d+ bytes$", found.err, re.MULTILINE)
    again = run_process(*verb, *line, "--ledger", ledger)
    assert (again.code, sorted(masked(again))) == (plain.code, sorted(masked(plain)))


def masked(outcome: Outcome) -> list[str]:
    return [re.sub("written .*? ago", "", line) for line in outcome.text.splitlines()]


@dataclass(frozen=True)
class FailingOrder(WorkOrder[Verified, Report]):
    """Opens a verification that fails at one segment: once by the death of its process, or always by an error."""

    location: TierLocation
    name: str
    marker: str = ""

    @contextmanager
    def opened(self) -> Generator[VerifyWork]:
        with self.location.opened() as tier:
            yield FailingWork(tier, self)


class FailingWork(VerifyWork):
    def do(self, item: Verified) -> Report:
        failing = self.order
        assert isinstance(failing, FailingOrder)
        if self.key(item).name == failing.name:
            if not failing.marker:
                raise StoreUnavailableError("503 after all retries")
            if not pathlib.Path(failing.marker).exists():
                pathlib.Path(failing.marker).touch()
                os.kill(os.getpid(), 9)
        return super().do(item)


@dataclass(frozen=True)
class WaitingOrder(WorkOrder[Verified, Report]):
    """Opens a verification that tells by a file that it has begun, and goes on when there is another one."""

    location: TierLocation
    began: str
    go: str

    @contextmanager
    def opened(self) -> Generator[VerifyWork]:
        with self.location.opened() as tier:
            pathlib.Path(self.began).touch()
            for _ in range(round(LIMIT_SECONDS / 0.05)):
                if pathlib.Path(self.go).exists():
                    break
                time.sleep(0.05)
            else:
                pathlib.Path(self.go).touch()
            yield VerifyWork(tier)


def test_an_interrupt_ends_what_runs(
    spark: SparkSession, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """^C has to end the job on the cluster too, where it costs money, and not only the command that waits for it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    bucket, began, go = bucket_of(tmp_path / "bucket"), tmp_path / "began", tmp_path / "go"
    order = WaitingOrder(TierLocation(str(bucket.root), "aiven", {}), str(began), str(go))

    def interrupt_it() -> None:
        wait_until(began.exists)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own would cancel all jobs
    watcher = threading.Thread(target=interrupt_it)
    watcher.start()
    try:
        with open_tier(str(bucket.root)) as tier, pytest.raises(KeyboardInterrupt):
            list(Verification(tier, order=order, executor=jobs.SparkExecutor(spark)))
    finally:
        signal.signal(signal.SIGINT, before)
        began.touch()
        watcher.join()
    assert not go.exists()  # nobody waited for it to end
    assert not spark.sparkContext.statusTracker().getActiveJobsIds()


def reports(spark: SparkSession, bucket: Bucket, order: FailingOrder) -> list[Report]:
    with open_tier(str(bucket.root)) as tier:
        return list(Verification(tier, order=order, executor=jobs.SparkExecutor(spark)))


def failing_order(bucket: Bucket, **options: str) -> FailingOrder:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    return FailingOrder(TierLocation(str(bucket.root), "aiven", {}), f"{bucket.keys['s4']}.log", **options)


def test_a_killed_worker_is_replaced(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Executors die of memory and preemption: each segment is reported once all the same."""
    bucket, marker = bucket_of(tmp_path / "bucket"), tmp_path / "died"
    found = reports(spark, bucket, failing_order(bucket, marker=str(marker)))
    assert marker.exists()
    assert len({report.name for report in found}) == len(found) == 1 + 6
    assert sum(report.count(finding.severity) > 0 for report in found for finding in report.findings[:1]) == 2


def test_an_error_keeps_its_kind(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Exit codes and callers go by it; Spark's own error would be a page of its frames."""
    bucket = bucket_of(tmp_path / "bucket")
    with pytest.raises(StoreUnavailableError, match=r"^503 after all retries$"):
        reports(spark, bucket, failing_order(bucket))


def test_a_worker_that_always_dies_is_one_error(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """After as many tries as Spark is configured for."""
    bucket, marker = bucket_of(tmp_path / "bucket"), tmp_path / "no" / "folder"
    with pytest.raises(jobs.SparkJobError, match=r"^Spark gave up a task: ") as caught:
        reports(spark, bucket, failing_order(bucket, marker=str(marker)))
    assert "\n" not in str(caught.value)


def test_tasks_are_small_and_show_no_secret(spark: SparkSession, data: pathlib.Path) -> None:
    """Plans are in Spark's UI and event log."""
    run = data / "zstd-aes"
    with open_tier(str(run / "objects"), config=config_of(run)) as tier:
        work, segments = VerifyWork(tier), list(tier.iter_segments())
        tasks = list(cut_tasks(work, enumerate(segments * 20)))
        order = TierOrder(TierLocation(str(run), "aiven", {"store.secret_access_key": "hush"}), VerifyWork)
    assert all(len(pickle.dumps(task)) <= TASK_PICKLE_BYTES + 1024 for task in tasks)
    assert sum(len(task.pickles) for task in tasks) == 20 * len(segments)
    executor = jobs.SparkExecutor(spark)
    frame = executor.query(order, tuple(tasks[:2]))
    shown = frame._jdf.queryExecution().toString()  # type: ignore[operator]
    assert "run_tasks" in shown or "partial" in shown
    assert "hush" not in shown + repr(order)
    assert str(run) not in shown
