"""`tierlog recover`: what a broker would do, told before it is done, and done once."""

from __future__ import annotations

import hashlib
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.support.batches import Batch, encode
from tests.support.command import Run
from tierlog.runtime.machine.posix_files import PosixFiles

EPOCH_MARKER = b'{"version":0,"brokerEpoch":10}'


def hashes(folder: pathlib.Path) -> dict[str, str]:
    """Path to digest; folders too."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        for path in sorted(folder.rglob("*"))
    }


def batches(start: int, count: int) -> bytes:
    return b"".join(encode(Batch(start + 2 * i, (b"a", b"b"))) for i in range(count))


@pytest.fixture
def logs(tmp_path: pathlib.Path) -> pathlib.Path:
    """A log directory that a kill left: one torn log, one sound, and what is no log."""
    folder = tmp_path / "logs"
    for name in ("orders-0", "orders-1", "remote-log-index-cache", "x-0.0123456789abcdef0123456789abcdef-delete"):
        (folder / name).mkdir(parents=True)
    (folder / "orders-0" / f"{0:020d}.log").write_bytes(batches(0, 5))
    (folder / "orders-0" / f"{10:020d}.log").write_bytes(batches(10, 5) + b"torn")
    (folder / "orders-0" / f"{20:020d}.log").write_bytes(batches(20, 2))
    (folder / "orders-1" / f"{0:020d}.log").write_bytes(batches(0, 4))
    (folder / "x-0.0123456789abcdef0123456789abcdef-delete" / f"{0:020d}.log").write_bytes(b"torn")
    (folder / "__cluster_metadata-0").mkdir()
    (folder / "replication-offset-checkpoint").write_bytes(b"0\n2\norders 0 24\norders 1 8\n")
    (folder / "cleaner-offset-checkpoint").write_bytes(b"0\n2\norders 0 24\norders 1 8\n")
    (folder / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\norders 0 12\n")
    return folder


def test_a_dry_run_tells_all_and_leaves_no_trace(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise the look before the leap is the leap: not even the lock's file may appear."""
    before = hashes(logs)
    told = tierlog("recover", logs, "--dry-run", "--output", "json")
    assert told.code == 1, told.err
    assert hashes(logs) == before
    first, second, last = told.lines
    assert (first["topic"], first["partition"], first["logEndOffset"]) == ("orders", 0, 20)
    cut = [action for action in first["actions"] if action["kind"] == "cut"]  # type: ignore[attr-defined]
    assert [action["bytesCut"] for action in cut] == [4]
    assert (second["logEndOffset"], second["batchesChecked"], second["error"]) == (8, 4, None)
    assert (last["wasClean"], last["dryRun"], last["notes"]) == (False, True, [])
    done = tierlog("recover", logs, "--output", "json")
    assert done.code == 0
    assert done.lines[:2] == told.lines[:2]


def test_a_recovered_directory_is_one_that_a_broker_closed(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise the broker recovers it all again, or believes offsets that are not there."""
    outcome = tierlog("recover", logs)
    assert outcome.code == 0, outcome.err
    assert "cut: " in outcome.text
    assert f"deleted: {logs}/orders-0/{20:020d}.log" in outcome.text
    assert "left alone: remote-log-index-cache" in outcome.text
    assert (logs / ".kafka_cleanshutdown").read_bytes() == b'{"version":0,"brokerEpoch":-1}'
    assert (logs / "recovery-point-offset-checkpoint").read_bytes() == b"0\n2\norders 0 20\norders 1 8\n"
    assert (logs / "log-start-offset-checkpoint").read_bytes() == b"0\n0\n"
    assert (logs / "replication-offset-checkpoint").read_bytes() == b"0\n2\norders 0 20\norders 1 8\n"
    assert (logs / "cleaner-offset-checkpoint").read_bytes() == b"0\n1\norders 1 8\n"
    assert (logs / "x-0.0123456789abcdef0123456789abcdef-delete" / f"{0:020d}.log").read_bytes() == b"torn"
    assert not list((logs / "__cluster_metadata-0").iterdir())
    before = hashes(logs)
    assert tierlog("recover", logs).code == 0
    assert hashes(logs) == before
    again = tierlog("recover", logs, "--dry-run")
    assert (again.code, "closed cleanly" in again.text) == (0, True)
    assert hashes(logs) == before


def test_a_brokers_epoch_outlives_a_second_look_alone(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise a broker tells its controller that it stopped cleanly when it had not, and is believed in sync."""
    tierlog("recover", logs)
    (logs / ".kafka_cleanshutdown").write_bytes(EPOCH_MARKER)
    tierlog("recover", logs)
    assert (logs / ".kafka_cleanshutdown").read_bytes() == EPOCH_MARKER


def test_a_running_broker_is_left_alone(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise two write into one log, and it is lost."""
    held = PosixFiles().try_record_lock(str(logs / ".lock"))
    assert held is not None
    before = hashes(logs)
    for options in ((), ("--dry-run",)):
        outcome = tierlog("recover", logs, *options)
        assert outcome.code == 3
        assert "has this log directory open" in outcome.err
    assert hashes(logs) == before
    held.release()
    assert tierlog("recover", logs).code == 0


def test_checkpoints_that_cannot_be_read_count_as_empty(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise a broken checkpoint keeps a broker's logs from being mended, or is passed over in silence."""
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (logs / name).write_bytes(b"0\n7\nnonsense\n")
    outcome = tierlog("recover", logs)
    assert outcome.code == 0
    assert outcome.text.count("taken as empty") == 2
    assert "5 batches" not in outcome.text
    assert (logs / "recovery-point-offset-checkpoint").read_bytes() == b"0\n2\norders 0 20\norders 1 8\n"
    assert tierlog("recover", logs, "--dry-run").code == 0


def test_a_hole_stays_and_is_told(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise a compacted topic, which the disk does not tell from others, loses what lies behind a hole."""
    (logs / "orders-1" / f"{30:020d}.log").write_bytes(batches(30, 2))
    outcome = tierlog("recover", logs)
    assert outcome.code == 0, outcome.err
    assert f"hole: {logs}/orders-1/{0:020d}.log: offsets 8 … 29 are in no segment" in outcome.text
    assert "orders 1 34\n" in (logs / "recovery-point-offset-checkpoint").read_text()
    assert "hole: " in tierlog("recover", logs / "orders-1").text


def test_a_lineage_that_begins_too_late_is_told(tierlog: Run, logs: pathlib.Path) -> None:
    """It is nothing to mend here, but the next leader would lose the start of what is in the tier."""
    shutil.rmtree(logs / "orders-0")
    (logs / "orders-1" / f"{0:020d}.log").rename(logs / "orders-1" / f"{8:020d}.log")
    (logs / "orders-1" / f"{8:020d}.log").write_bytes(batches(8, 4))
    (logs / "orders-1" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n2 6\n")
    (logs / "log-start-offset-checkpoint").write_bytes(b"0\n1\norders 1 3\n")
    assert tierlog("recover", logs).code == 0
    again = tierlog("recover", logs, "--dry-run")
    assert again.code == 0
    assert "the log starts at 3, its lineage at 6" in again.text


def test_a_log_that_cannot_be_recovered_does_not_keep_the_others(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise one broken partition costs all others, or the directory is called clean though it is not."""
    (logs / "orders-0" / "leader-epoch-checkpoint").write_bytes(b"0\n9\nnonsense\n")
    for options, code in ((("--dry-run",), 3), ((), 3)):
        outcome = tierlog("recover", logs, "--output", "json", *options)
        assert outcome.code == code
        assert "leader-epoch-checkpoint" in outcome.err
        assert "Traceback" not in outcome.err
        assert [line["error"] is None for line in outcome.lines[:2]] == [False, True]
    assert not (logs / ".kafka_cleanshutdown").exists()
    assert (logs / "orders-1" / f"{0:020d}.index").exists()
    (logs / "orders-0" / "leader-epoch-checkpoint").unlink()
    assert tierlog("recover", logs).code == 0


@pytest.mark.parametrize("content", [b"", b"version: 0\ntopic_id: xx\n"])
def test_a_log_whose_topic_id_cannot_be_read_is_not_recovered(tierlog: Run, logs: pathlib.Path, content: bytes) -> None:
    """Otherwise the directory is called clean, and the broker's start ends at that file."""
    (logs / "orders-0" / "partition.metadata").write_bytes(content)
    for path in (logs, logs / "orders-0"):
        outcome = tierlog("recover", path)
        assert (outcome.code, "partition.metadata" in outcome.err) == (3, True), outcome.text
    assert not (logs / ".kafka_cleanshutdown").exists()
    assert (logs / "orders-1" / f"{0:020d}.index").exists()
    (logs / "orders-0" / "partition.metadata").write_bytes(b"version: 0\ntopic_id: ASNFZ4mrze8RIjNEVWZ3iA")
    assert tierlog("recover", logs).code == 0


def test_a_dry_run_over_a_read_only_mount(logs: pathlib.Path) -> None:
    """Otherwise a snapshot of a broker's disk cannot be looked at: there is a .lock on it that cannot be locked."""
    (logs / ".lock").touch()
    script = 'mount --bind "$1" "$1" && mount -o remount,ro,bind "$1" && exec "$2" -m tierlog recover --dry-run "$1"'
    command = ["unshare", "-rm", "sh", "-c", script, "sh", str(logs), sys.executable]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no unshare")
    if "unshare" in ran.stderr or "mount:" in ran.stderr:
        pytest.skip(ran.stderr)
    assert (ran.returncode, "cut: " in ran.stdout) == (1, True), ran.stderr


def test_one_partitions_folder(tierlog: Run, logs: pathlib.Path) -> None:
    """Otherwise a folder that was copied out for a look cannot be mended; what lies around it is not its business."""
    around = hashes(logs.parent)
    outcome = tierlog("recover", logs / "orders-0")
    assert outcome.code == 0
    assert {k: v for k, v in hashes(logs.parent).items() if "orders-0" not in k} == {
        k: v for k, v in around.items() if "orders-0" not in k
    }
    alone = logs.parent / "a copy"
    shutil.copytree(logs / "orders-1", alone)
    assert tierlog("recover", alone, "--dry-run").code == 1
    assert tierlog("recover", alone).code == 0


def test_wrong_use(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a typing mistake makes a log directory of somebody's home."""
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for path, code in ((tmp_path / "file", 2), (tmp_path / "empty", 2), (tmp_path / "no", 3)):
        outcome = tierlog("recover", path)
        assert (outcome.code, outcome.err.count("\n")) == (code, 1), outcome.err
    assert not list((tmp_path / "empty").iterdir())
    assert tierlog("recover", tmp_path, "--index-interval-bytes", "-1").code == 2


def test_a_golden_directory(tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise a real broker's directory loses a record, or its copy in the tier is not that of its log any more."""
    work = tmp_path / "logs"
    shutil.copytree(data / "main-plain/local-before/broker1", work)
    before = {path.relative_to(work): path.read_bytes() for path in work.rglob("*.log")}
    outcome = tierlog("recover", work)
    assert outcome.code == 0, outcome.err
    assert {path.relative_to(work): path.read_bytes() for path in work.rglob("*.log")} == before
    left = hashes(work)
    assert tierlog("recover", work).code == 0
    assert hashes(work) == left
