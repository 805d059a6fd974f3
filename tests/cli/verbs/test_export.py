"""`tierlog export`: the broker's own files, whole or not at all, and a folder that Kafka could load."""

from __future__ import annotations

import itertools
import os
import pathlib
import re
import signal
import subprocess

import pytest

from tests.support.batches import Batch, encode, message
from tests.support.buckets import Bucket
from tests.support.command import Run, command_line, config_file, environment
from tests.support.golden import Case, tiered_offsets, tiered_topics
from tests.support.kip_scripts import SCRIPTS
from tests.support.segments import Aborted
from tierlog.runtime.machine.posix_files import PosixFiles

DATA = pathlib.Path(__file__).resolve().parents[2] / "data"
CASES = [case for case in tiered_topics(DATA) if any((case.run / "local-before").rglob(f"{case.topic}-*/*.log"))]
TEMPORARY = "*.tierlog-part"


def broker_files(case: Case) -> dict[str, bytes]:
    """What the broker had of the segments that were tiered: name below the destination -> content."""
    found = {}
    for partition, (first, last) in tiered_offsets(case).items():
        for log in (case.run / "local-before").rglob(f"{case.topic}-{partition}/*.log"):
            base = int(log.stem)
            later = [int(other.stem) for other in log.parent.glob("*.log") if int(other.stem) > base]
            if not first <= base <= last or not later:
                continue  # the active segment was never tiered
            names = [log.with_suffix(suffix) for suffix in (".log", ".index", ".timeindex", ".txnindex")]
            names += [log.with_name(f"{min(later):020d}.snapshot"), log.with_name("partition.metadata")]
            found |= {f"{log.parent.name}/{path.name}": path.read_bytes() for path in names if path.exists()}
    return found


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_file_is_the_brokers(tierlog: Run, tmp_path: pathlib.Path, case: Case) -> None:
    """Otherwise what comes back from the tier is not what went in."""
    expected = broker_files(case)
    assert expected
    outcome = tierlog("export", case.objects, case.topic, tmp_path / "out", *config_file(case.run, tmp_path))
    assert outcome.code == 0, outcome.err
    written = contents(tmp_path / "out")
    assert {name: written.get(name) for name in expected} == expected
    for name in {str(pathlib.PurePath(name).parent) for name in expected}:
        assert f"{name}/leader-epoch-checkpoint" in written


@pytest.mark.few(3)
@pytest.mark.parametrize("name", sorted(SCRIPTS))
def test_the_kips_scripts_come_back_as_one_log(tierlog: Run, tmp_path: pathlib.Path, name: str) -> None:
    """Otherwise a broker that loads the folder sees dead records, or logs that overlap."""
    expected = SCRIPTS[name](tmp_path / "bucket")
    out = tmp_path / "out"
    assert tierlog("export", tmp_path / "bucket", "orders", out).code == 0
    found = tierlog("cat", out, "orders", "--format", "json", "--value-as", "utf8").lines
    assert [(line["offset"], line["value"], line["leaderEpoch"]) for line in found] == expected
    lines = tierlog("ls", out, "--output", "json").lines
    ends = [(line["startOffset"], line["endOffset"]) for line in lines]
    assert all(before[1] < after[0] for before, after in itertools.pairwise(ends))
    checked = tierlog("verify", out, "--output", "json", "--notes")
    assert checked.code == 0
    assert "MISSING_PART" not in [line["kind"] for line in checked.lines]


def test_a_cut_segment(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise the overlap of a failover (script F) is written twice, or a cut log has the whole one's index."""
    SCRIPTS["F"](tmp_path / "bucket")
    outcome = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", "--output", "json")
    (told,) = outcome.lines
    assert (told["segments"], told["cut"]) == (3, 1)
    folder = tmp_path / "out/orders-0"
    assert sorted(path.name for path in folder.glob("*.log")) == [f"{base:020d}.log" for base in (0, 3, 5)]
    assert (folder / f"{5:020d}.log").read_bytes() == b"".join(
        encode(message(*each)) for each in ((5, "m5", 1), (6, "m6", 2))
    )
    assert (folder / f"{7:020d}.snapshot").exists()
    assert (folder / "leader-epoch-checkpoint").read_bytes() == b"0\n3\n0 0\n1 3\n2 6\n"


def test_a_cut_tail_takes_its_transactions_along(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise read_committed over the export hides records by an abort that never happened in this history."""
    bucket = Bucket(tmp_path / "bucket")

    def data(offset: int, epoch: int) -> Batch:
        return Batch(offset, (b"v",), epoch, producer_id=9, producer_epoch=0, transactional=True)

    def abort(offset: int, epoch: int) -> Batch:
        return Batch(offset, (b"",), epoch, producer_id=9, producer_epoch=0, transactional=True, marker="abort")

    bucket.segment(
        "u1",
        [data(0, 0), abort(1, 0), data(2, 0), abort(3, 0)],
        lineage={0: 0},
        aborted=[Aborted(9, 0, 1, 2), Aborted(9, 2, 3, 4)],
    )
    commit = Batch(3, (b"",), 1, producer_id=9, producer_epoch=0, transactional=True, marker="commit")
    bucket.segment("u2", [commit], lineage={0: 0, 1: 3})
    out = tmp_path / "out"
    assert tierlog("export", tmp_path / "bucket", "orders", out).code == 0
    assert len((out / f"orders-0/{0:020d}.txnindex").read_bytes()) == 34
    assert not (out / f"orders-0/{3:020d}.snapshot").exists()  # the broker makes it when it loads the folder
    for path in (tmp_path / "bucket", out):
        lines = tierlog("cat", path, "--format", "json", "--isolation", "read_committed").lines
        assert [line["offset"] for line in lines] == [2]


def test_a_second_run_fetches_nothing_again(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise an export of a terabyte that stopped at 99 % begins anew."""
    SCRIPTS["2"](tmp_path / "bucket")
    out = tmp_path / "out"
    assert tierlog("export", tmp_path / "bucket", "orders", out).code == 0
    before = {path: path.stat().st_ino for path in out.rglob("*") if path.is_file()}
    content = contents(out)
    assert tierlog("export", tmp_path / "bucket", "orders", out).code == 0
    assert {path: path.stat().st_ino for path in out.rglob("*") if path.is_file()} == before
    log = out / f"orders-0/{3:020d}.log"
    damaged = bytearray(log.read_bytes())
    damaged[100] ^= 1
    log.write_bytes(damaged)
    (out / f"orders-0/{0:020d}.index").unlink()
    (out / f"orders-0/{6:020d}.log").write_bytes(b"")
    (out / f"orders-0/{6:020d}.log.tierlog-part").write_bytes(b"half")
    assert tierlog("export", tmp_path / "bucket", "orders", out).code == 0
    assert contents(out) == content


def test_a_log_of_another_branch_is_replaced(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise records of an abandoned leader stay in the folder, as their size and checksums are right."""
    out = tmp_path / "out"
    for name, epoch in (("old", 0), ("new", 1)):
        bucket = Bucket(tmp_path / name)
        bucket.segment("u", [message(offset, "m", epoch) for offset in range(3)], lineage={epoch: 0})
        assert tierlog("export", tmp_path / name, "orders", out).code == 0
    lines = tierlog("cat", out, "--format", "json").lines
    assert {line["leaderEpoch"] for line in lines} == {1}


def test_what_is_not_ours_stays(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise two histories are mixed in one folder, or somebody's log is overwritten."""
    SCRIPTS["1"](tmp_path / "bucket")
    foreign = tmp_path / f"out/orders-0/{99:020d}.log"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"mine")
    outcome = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out")
    assert outcome.code == 2
    assert str(foreign) in outcome.err
    assert contents(tmp_path / "out") == {f"orders-0/{99:020d}.log": b"mine"}


def test_damage_leaves_no_log_behind(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a broker is started on a damaged copy."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("a", [message(offset, "m", 0) for offset in range(3)], lineage={0: 0})
    path = bucket.path("a", "log")
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(damaged)
    outcome = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out")
    assert outcome.code == 3
    assert list((tmp_path / "out").rglob("*.log*")) == []
    allowed = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", "--no-fail-on-data-loss")
    assert allowed.code == 0
    assert "checksum" in allowed.err
    assert (tmp_path / f"out/orders-0/{0:020d}.log").read_bytes() == damaged


def test_a_damaged_index_is_made_anew(tierlog: Run, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """Otherwise one lost index object keeps a whole history from being copied out."""
    bucket = Bucket(tmp_path / "bucket", index_interval_bytes=4096)
    batches = [Batch(offset, (b"v" * 900,)) for offset in range(20)]
    bucket.segment("a", batches, lineage={0: 0})
    out = tmp_path / "whole"
    assert tierlog("export", tmp_path / "bucket", "orders", out).code == 0
    indexes = bucket.path("a", "indexes")
    indexes.write_bytes(indexes.read_bytes()[:5])
    again = tmp_path / "again"
    outcome = tierlog("export", tmp_path / "bucket", "orders", again)
    assert outcome.code == 0
    assert "made anew" in outcome.err
    for suffix in ("log", "index", "timeindex"):
        name = f"orders-0/{0:020d}.{suffix}"
        assert (again / name).read_bytes() == (out / name).read_bytes()
        assert (out / name).stat().st_size


def test_an_index_that_does_not_fit_its_log_is_made_anew(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A broker believes an index behind a clean stop, and looks for records in the middle of others."""
    bucket = Bucket(tmp_path / "bucket", index_interval_bytes=4096)
    bucket.segment("a", [Batch(offset, (b"v" * 900,)) for offset in range(20)], lineage={0: 0})
    out = tmp_path / "whole"
    assert tierlog("export", tmp_path / "bucket", "orders", out).err.count("made anew") == 0
    indexes = bucket.path("a", "indexes")
    stored = bytearray(indexes.read_bytes())
    stored[7] ^= 1  # the position of the first entry of the offset index
    indexes.write_bytes(stored)
    again = tmp_path / "again"
    for _ in range(2):
        outcome = tierlog("export", tmp_path / "bucket", "orders", again)
        assert outcome.code == 0
        assert outcome.err.count("made anew") == 1
        assert f"{0:020d}.index: made anew, as the stored one does not fit the log" in outcome.err
        assert contents(again) == contents(out)


def test_lost_segments_stop_an_export(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise a hole in the history is copied as if it were the history."""
    SCRIPTS["2"](tmp_path / "bucket")
    middle = next((tmp_path / "bucket").rglob(f"{3:020d}-*.rsm-manifest"))
    middle.unlink()
    outcome = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out")
    assert outcome.code == 3
    assert not (tmp_path / "out").exists()
    allowed = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", "--no-fail-on-data-loss")
    assert allowed.code == 0
    assert "offsets 3 to 5" in allowed.err


def test_segments_below_the_log_start_are_left_out(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise what DeleteRecords took away comes back; and the segment that it cuts must stay whole, as on a disk."""
    SCRIPTS["2"](tmp_path / "bucket")
    assert tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", "--log-start", "4").code == 0
    logs = sorted(path.name for path in (tmp_path / "out").rglob("*.log"))
    assert logs == [f"{3:020d}.log", f"{6:020d}.log"]


def test_no_room_is_said_before_anything_is_written(
    tierlog: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the disk is full when it is said."""
    SCRIPTS["1"](tmp_path / "bucket")
    usage = os.statvfs(tmp_path)
    monkeypatch.setattr(
        "tierlog.upkeep.exporting.topic_export.SPARE_BYTES", usage.f_bavail * usage.f_frsize + (1 << 30)
    )
    outcome = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out")
    assert outcome.code == 3
    assert re.search(r"are free: \d+ for the logs, .* and \d+ MiB to spare", outcome.err)
    assert list((tmp_path / "out").rglob("*.log")) == []


def test_one_export_at_a_time(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Otherwise two of them write into one temporary file, and half a log gets its name."""
    import fcntl

    SCRIPTS["1"](tmp_path / "bucket")
    (tmp_path / "out").mkdir()
    with (tmp_path / "out/.tierlog-export.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out")
    assert outcome.code == 2
    assert "another export" in outcome.err
    assert tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out").code == 0


@pytest.mark.parametrize("target", [(), ("--for-cluster", "c" * 22, "--node-id", 1)])
def test_a_directory_that_a_broker_has_open_is_left_alone(
    tierlog: Run, tmp_path: pathlib.Path, target: tuple[object, ...]
) -> None:
    """Logs and checkpoints would be replaced under a broker that writes to them."""
    Bucket(tmp_path / "b").segment("u", [message(0, "of the tier", 0)], lineage={0: 0})
    logs = tmp_path / "logs"
    (logs / "orders-0").mkdir(parents=True)
    (logs / "orders-0" / f"{0:020d}.log").write_bytes(b"of the broker")
    held = PosixFiles().try_record_lock(str(logs / ".lock"))
    assert held is not None
    with held:
        before = contents(logs)
        outcome = tierlog("export", tmp_path / "b", "orders", logs, *target)
        assert outcome.code == 3
        assert "has this log directory open" in outcome.err
        assert contents(logs) == before
    assert tierlog("export", tmp_path / "b", "orders", logs, *target).code == 0


def test_killed_at_any_moment_no_log_is_half(tmp_path: pathlib.Path) -> None:
    """Otherwise a broker is started on a log that a power cut left half."""
    bucket = Bucket(tmp_path / "bucket")
    expected = {}
    for number in range(12):
        batches = [Batch(1000 * number + place, (b"v" * 20_000,)) for place in range(20)]
        bucket.segment(f"s{number}", batches, lineage={0: 0}, end_offset=1000 * number + 999)
        expected[f"{1000 * number:020d}.log"] = b"".join(encode(batch) for batch in batches)
    out = tmp_path / "out"
    command = command_line("export", tmp_path / "bucket", "orders", out)
    seen = set()
    for wanted in (1, 4, 8):
        with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            while process.poll() is None and len(list(out.rglob("*.log"))) < wanted:
                pass
            process.send_signal(signal.SIGKILL)
            process.wait()
        logs = {path.name: path.read_bytes() for path in out.rglob("*.log")}
        assert logs == {name: expected[name] for name in logs}
        seen.add(len(logs))
    assert min(seen) < len(expected)  # it was killed while it worked
    done = subprocess.run(command, env=environment(), capture_output=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert {path.name: path.read_bytes() for path in out.rglob("*.log")} == expected
    assert list(out.rglob(TEMPORARY)) == []
    assert not (out / ".tierlog-export.lock").exists()


CLUSTER = ("--for-cluster", "2w-MJbTQrcBr2DUBfU-mRg", "--node-id", "3")


def test_a_directory_for_a_cluster(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """What a broker wants beside the partitions: else it refuses the directory, or reads every log before it starts."""
    for topic in ("orders", "bills"):
        bucket = Bucket(tmp_path / "bucket", topic=topic)
        bucket.segment("u0", [message(at, f"m{at}", 4) for at in range(3)], lineage={4: 0})
        bucket.segment("u1", [message(at, f"m{at}", 4) for at in range(3, 5)], lineage={4: 0}, open_transactions={7: 4})
    topic_id = "LXgZVch-QAKKTdPy9KTPDw"
    outcome = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", *CLUSTER, "--topic-id", topic_id)
    assert outcome.code == 0, outcome.err
    assert "orders-0: needs a leader of epoch 4" in outcome.err
    assert "the transaction of producer 7 is open from offset 4" in outcome.err
    out = tmp_path / "out"
    assert (out / "orders-0/partition.metadata").read_text() == f"version: 0\ntopic_id: {topic_id}"
    assert (out / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    lines = (out / "meta.properties").read_text().splitlines()
    properties = dict(line.split("=") for line in lines if not line.startswith("#"))
    assert {name: properties[name] for name in ("version", "cluster.id", "node.id")} == {
        "version": "1",
        "cluster.id": CLUSTER[1],
        "node.id": "3",
    }
    assert len(properties["directory.id"]) == 22
    before = (out / "meta.properties").read_bytes()

    assert tierlog("export", tmp_path / "bucket", "bills", out, *CLUSTER).code == 0
    assert (out / "meta.properties").read_bytes() == before
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        assert (out / name).read_text() == "0\n2\nbills 0 5\norders 0 5\n"
    assert (out / "log-start-offset-checkpoint").read_text() == "0\n2\nbills 0 0\norders 0 0\n"


def test_what_the_log_needs_of_a_cluster_is_always_told(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """Without the epoch consumers go in circles, behind an open transaction they wait; in a moved folder too."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("u0", [message(at, f"m{at}", 3) for at in range(3)], lineage={3: 0}, open_transactions={7: 2})
    outcome = tierlog("export", bucket.root, "orders", tmp_path / "out", "--last-segment")
    assert outcome.code == 0, outcome.err
    assert "1 segments, last leader epoch 3" in outcome.text
    assert "orders-0: needs a leader of epoch 3" in outcome.err
    assert "the transaction of producer 7 is open from offset 2" in outcome.err
    (told,) = tierlog("export", bucket.root, "orders", tmp_path / "out", "--last-segment", "--output", "json").lines
    assert told["lastLeaderEpoch"] == 3


def test_an_export_that_fails_leaves_no_clean_stop(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A broker that believes it would take half of a topic for all of it."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("u0", [message(at, f"m{at}", 0) for at in range(3)], lineage={0: 0})
    assert tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", *CLUSTER).code == 0
    (log,) = (tmp_path / "bucket").rglob("*.log")
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    (exported,) = (tmp_path / "out").rglob("*.log")
    exported.unlink()
    assert tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", *CLUSTER).code == 3
    assert not (tmp_path / "out/.kafka_cleanshutdown").exists()


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--node-id", "1"), "go with --for-cluster"),
        (("--topic-id", "LXgZVch-QAKKTdPy9KTPDw"), "go with --for-cluster"),
        (("--directory-id", "LXgZVch-QAKKTdPy9KTPDw"), "go with --for-cluster"),
        ((*CLUSTER, "--directory-id", "LXgZVch-QAKKTdPy9KTPDw"), "not LXgZVch-QAKKTdPy9KTPDw"),
        (("--for-cluster", "abc"), "needs --node-id"),
        (("--for-cluster", "a b", "--node-id", "1"), "no cluster id"),
        (("--for-cluster", "abc", "--node-id", "-1"), "node id -1"),
        ((*CLUSTER, "--topic-id", "orders"), "--topic-id 'orders'"),
        ((*CLUSTER, "--topic-id", "A" * 22), "all zero"),
        (("--for-cluster", "other", "--node-id", "3"), "cluster.id is 2w-MJbTQrcBr2DUBfU-mRg, not other"),
        (("--for-cluster", CLUSTER[1], "--node-id", "4"), "node.id is 3, not 4"),
    ],
)
def test_whose_directory_it_is_must_be_said_right(
    tierlog: Run, tmp_path: pathlib.Path, options: tuple[str, ...], told: str
) -> None:
    """A broker refuses to start over a directory of another one: that is said before anything is written into it."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("u0", [message(at, f"m{at}", 0) for at in range(3)], lineage={0: 0})
    assert tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", *CLUSTER).code == 0
    before = contents(tmp_path / "out")
    outcome = tierlog("export", tmp_path / "bucket", "orders", tmp_path / "out", *options)
    assert outcome.code == 2
    assert told in outcome.err
    assert contents(tmp_path / "out") == before


def test_the_last_segment_alone_goes_with_all_epochs(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A broker finds a segment by the epoch of an offset: without the older epochs it serves nothing of the tier."""
    bucket = Bucket(tmp_path / "bucket")
    bucket.segment("a", [message(at, f"a{at}", 0) for at in range(3)], lineage={0: 0})
    bucket.segment("b", [message(3, "b", 0), message(4, "b", 2)], lineage={0: 0, 2: 4})
    bucket.segment("c", [message(5, "c", 2)], lineage={0: 0, 2: 4})
    target = ("--for-cluster", "a-cluster", "--node-id", 1, "--topic-id", bucket.topic_id)
    outcome = tierlog("export", bucket.root, "orders", tmp_path / "out", "--last-segment", *target)
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "out" / "orders-0"
    assert [path.name for path in folder.glob("*.log")] == ["00000000000000000005.log"]
    assert (folder / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n2 4\n"
    assert (tmp_path / "out" / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 0\n"
    assert (tmp_path / "out" / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 6\n"
