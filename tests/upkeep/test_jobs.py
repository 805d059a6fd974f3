"""The jobs as a Python program calls them: their results, and their errors in the words of their arguments."""

from __future__ import annotations

import os
import pathlib
import pkgutil
import re
import shutil
import time
from collections.abc import Callable
from typing import Any

import pytest

import tierlog
from tests.support.kip_scripts import SCRIPTS
from tierlog import upkeep
from tierlog.errors import ConfigError, DataLossError, UnknownTopicError
from tierlog.remote.api import Uuid


@pytest.fixture
def bucket(tmp_path: pathlib.Path, data: pathlib.Path) -> pathlib.Path:
    """A bucket that nobody writes to."""
    shutil.copytree(data / "main-plain" / "objects", tmp_path / "bucket")
    for path in (tmp_path / "bucket").rglob("*"):
        os.utime(path, (time.time() - 48 * 3600,) * 2)
    return tmp_path / "bucket"


def damaged(bucket: pathlib.Path) -> pathlib.Path:
    """A log of the bucket with a byte changed."""
    log = min(bucket.rglob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    return log


class TestVerify:
    """``tierlog.upkeep.verify``."""

    def test_a_sound_bucket(self, bucket: pathlib.Path) -> None:
        """A nightly job would raise the alarm, or never."""
        reports: list[upkeep.Report] = []
        result = upkeep.verify(bucket, on_report=reports.append)
        assert result.is_sound
        assert result.segments == len(reports) - 1
        assert result.records == sum(report.records for report in reports) > 0

    def test_damage_is_a_finding(self, bucket: pathlib.Path) -> None:
        """Damage would be an exception that ends the check, or silence."""
        log = damaged(bucket)
        steps: list[tuple[int, int]] = []
        result = upkeep.verify(bucket, on_bytes=lambda done, all_bytes: steps.append((done, all_bytes)))
        assert (result.is_sound, result.errors) == (False, 0)
        assert any(log.name in finding.where for finding in result.findings)
        assert {total for _, total in steps} == {steps[0][1]}

    def test_one_file(self, data: pathlib.Path) -> None:
        """The file that is at hand needs no bucket around it."""
        log = next((data / "main-plain" / "local-before").rglob("fx-txn-0/*.log"))
        result = upkeep.verify(log)
        assert (result.segments, result.is_sound) == (None, True)


class TestExport:
    """``tierlog.upkeep.export``."""

    def test_it_reads_as_the_bucket_does(self, bucket: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """The export would be another log than the one that was asked for."""
        result = upkeep.export(bucket, "fx-txn", tmp_path / "out")
        (written,) = result.partitions
        assert written.folder == str(tmp_path / "out" / "fx-txn-0")
        ours, theirs = (tierlog.read(path, "fx-txn").read_all() for path in (tmp_path / "out", bucket))
        assert ours.equals(theirs)

    def test_log_start_offsets(self, bucket: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """Segments that were deleted would come back."""
        everything = upkeep.export(bucket, "fx-txn", tmp_path / "all").partitions[0]
        later = upkeep.export(bucket, "fx-txn", tmp_path / "late", log_start_offsets={None: 700}).partitions[0]
        assert 0 < later.segments < everything.segments

    def test_data_loss(self, tmp_path: pathlib.Path, bucket: pathlib.Path) -> None:
        """A hole would be exported without a word."""
        manifests = sorted(bucket.glob("fx-txn-*/0/*.rsm-manifest"))
        manifests[len(manifests) // 2].unlink()
        with pytest.raises(DataLossError, match="are in no segment"):
            upkeep.export(bucket, "fx-txn", tmp_path / "out")
        result = upkeep.export(bucket, "fx-txn", tmp_path / "out", fail_on_data_loss=False)
        assert "are in no segment" in result.partitions[0].warnings[0]


class TestCopy:
    """``tierlog.upkeep.copy``."""

    def test_a_second_run_finds_all_there(self, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """A job that is run again would copy again, or not say what it found."""
        source = data / "main-plain" / "local-before" / "broker1"
        first = upkeep.copy(source, tmp_path / "to", ["fx-txn"])
        second = upkeep.copy(source, tmp_path / "to", ["fx-txn"])
        assert (first.present, second.copied) == (0, 0)
        assert first.copied == second.present > 1
        assert first.is_whole
        assert second.is_whole

    def test_damage_is_the_outcome_of_its_segment(self, bucket: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """One rotten segment would end the copy of all others."""
        damaged(bucket)
        outcomes: list[upkeep.SegmentOutcome] = []
        result = upkeep.copy(bucket, tmp_path / "to", on_segment=outcomes.append)
        assert len(result.failed) == 1
        assert not result.is_whole
        assert result.copied == len(outcomes) - 1 > 1

    def test_onto_itself(self, bucket: pathlib.Path) -> None:
        """A bucket would be rewritten in its own place."""
        with pytest.raises(ConfigError, match="both the source and the destination"):
            upkeep.copy(bucket, bucket)


class TestOrphans:
    """``tierlog.upkeep.orphans``."""

    def test_found_then_deleted(self, bucket: pathlib.Path) -> None:
        """A dry run would delete, or a deletion leave them."""
        for manifest in sorted(bucket.glob("fx-txn-*/0/*.rsm-manifest"))[:2]:
            manifest.unlink()
        found = upkeep.orphans(bucket)
        assert [orphan.kind for orphan in found.orphans] == [upkeep.OrphanKind.LEFTOVER] * 2
        assert found.left == found.orphans
        gone: list[upkeep.Orphan] = []
        deleted = upkeep.orphans(bucket, delete=True, on_deleted=gone.append)
        assert (len(deleted.deleted), deleted.left) == (2, [])
        assert gone == deleted.deleted
        assert not upkeep.orphans(bucket).orphans


class TestRestore:
    """``tierlog.upkeep.restore`` and ``restore_copied``."""

    def test_a_snapshot_that_readers_take(self, bucket: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """Metadata that was restored would show another log."""
        seen: list[upkeep.RestoredPartition] = []
        result = upkeep.restore(bucket, "fx-txn", to=f"{tmp_path}/snapshot", on_partition=seen.append)
        assert result.written == result.segments == sum(len(each.segments) for each in seen) > 1
        assert not result.left_out
        ours = tierlog.read(bucket, "fx-txn", metadata=tmp_path / "snapshot").read_all()
        assert ours.equals(tierlog.read(bucket, "fx-txn").read_all())

    def test_nothing_is_written_without_a_place(self, bucket: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """A dry run would leave a snapshot that somebody takes for a restore."""
        assert upkeep.restore(bucket).written == 0
        assert upkeep.restore(bucket, to=f"{tmp_path}/snapshot", dry_run=True).written == 0
        assert not (tmp_path / "snapshot").exists()

    def test_what_is_left_out_is_named(self, bucket: pathlib.Path) -> None:
        """A segment would be missing and nobody would know."""
        log = min(bucket.glob("fx-txn-*/0/*.log"))
        log.unlink()
        ((name, reason),) = upkeep.restore(bucket).left_out.items()
        assert log.stem in name
        assert reason

    def test_a_bucket_that_is_written_to(self, bucket: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """A restore beside a broker that still copies would lack what comes behind it."""
        os.utime(min(bucket.rglob("*.log")))
        with pytest.raises(ConfigError, match="then wait 10 min"):
            upkeep.restore(bucket, to=f"{tmp_path}/snapshot")
        assert "nothing in a bucket keeps a broker" in upkeep.restore(bucket).warnings[0]


WRONG: dict[str, Callable[[Any], object]] = {
    "path": upkeep.verify,
    "topic": lambda wrong: upkeep.export("bucket", wrong, "out"),
    "dest": lambda wrong: upkeep.export("bucket", "orders", wrong),
    "partitions": lambda wrong: upkeep.copy("bucket", "to", partitions=wrong),
    "config": lambda wrong: upkeep.verify("bucket", config=wrong),
    "metadata": lambda wrong: upkeep.verify("bucket", metadata=wrong),
    "older_than": lambda wrong: upkeep.orphans("bucket", older_than=wrong),
    "delete": lambda wrong: upkeep.orphans("bucket", delete=wrong),
    "to": lambda wrong: upkeep.restore("bucket", to=wrong),
    "quiet_minutes": lambda wrong: upkeep.restore("bucket", quiet_minutes=wrong),
    "machine": lambda wrong: upkeep.copy("bucket", "to", machine=wrong),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_type_is_named(name: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error would come from far below, in other words, perhaps after something was written."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=rf"^{name} is "):
        WRONG[name](object())
    assert not list(tmp_path.iterdir())


def test_no_error_speaks_in_options_of_the_command(bucket: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A Python user would look for an option that the function does not have."""
    SCRIPTS["1"](tmp_path / "other")
    (tmp_path / "full").write_text("something")
    wrong: list[Callable[[], object]] = [
        lambda: upkeep.verify(bucket, metadata=[]),
        lambda: upkeep.verify(bucket, metadata_client={"security.protocol": "SSL"}),
        lambda: upkeep.verify(min(bucket.rglob("*.log")), metadata=bucket),
        lambda: upkeep.verify(bucket, "nobody"),
        lambda: upkeep.export(bucket, "nobody", tmp_path / "out"),
        lambda: upkeep.export(bucket, "fx-txn", tmp_path / "out", partitions=[7]),
        lambda: upkeep.copy(bucket, bucket, topic_map={Uuid.random(): Uuid.random()}),
        lambda: upkeep.copy(bucket, bucket),
        lambda: upkeep.restore(bucket, topic_map={Uuid.random(): Uuid.random()}),
        lambda: upkeep.restore(bucket, "nobody"),
        lambda: upkeep.restore(bucket, to=str(tmp_path / "full")),
        lambda: upkeep.restore(bucket, to=f"{tmp_path}/new", quiet_minutes=1e9),
        lambda: upkeep.orphans(tmp_path / "full"),
    ]
    for call in wrong:
        with pytest.raises((ConfigError, UnknownTopicError)) as refused:
            call()
        assert not re.search(r"(^|\W)--\w", str(refused.value)), refused.value


def test_no_module_hides_a_job() -> None:
    """``tierlog.upkeep.verify`` would be a module for a program that imported something else first."""
    modules = {module.name for module in pkgutil.iter_modules(upkeep.__path__)}
    assert not modules & set(upkeep.__all__)
    assert set(upkeep.__all__) <= set(dir(tierlog.upkeep))
