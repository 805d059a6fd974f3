"""``tierlog bench``: its answers are checked, its ratios are right, and a saved run is compared."""

from __future__ import annotations

import json
import pathlib

import pytest

from tests.support.command import Run
from tierlog.errors import ConfigError
from tierlog.measuring import limits
from tierlog.measuring.made_log import make_log
from tierlog.measuring.measurement import Task, measure
from tierlog.records import CODEC_NAMES, decode
from tierlog.runtime.machine.clock import ManualClock

TINY = ("bench", "--size", "1", "--rounds", "2")
LIMITS = {"scan": "CRC-32C", "decode, none": "memcpy into Arrow's pool", "decode, zstd": "zstd alone"}


def test_json_names_every_limit_and_what_is_held_against_it(tierlog: Run) -> None:
    """A measurement without its limit, or a limit without speed, cannot be compared with another machine's."""
    done = tierlog(*TINY, "--output", "json")
    assert done.code == 0, done.err
    (run,) = done.lines
    found = {row["name"]: row for row in run["measurements"]}
    for name, limit in LIMITS.items():
        row = found[name]
        assert row["limit"] == limit
        assert row["records"] > 500
        assert row["ratio"] == pytest.approx(row["bytesPerSecond"] / found[limit]["bytesPerSecond"], abs=0.002)
        assert len(row["seconds"]) == 2
    assert run["machine"]["cores"] >= 1
    assert run["machine"]["processor"]
    assert "change" not in found["scan"]


def test_text_has_a_line_for_each(tierlog: Run) -> None:
    """Somebody who just types it must see the same numbers without knowing of JSON."""
    done = tierlog(*TINY)
    assert done.code == 0, done.err
    names = [line.strip() for line in done.text.splitlines()]
    for name in (*LIMITS, *LIMITS.values()):
        assert any(line.startswith(name) for line in names), name


def test_path_is_read_by_plain_gets_and_by_us(tierlog: Run, data: pathlib.Path) -> None:
    """The share of a store's bandwidth is only told if both sides read the same stored bytes."""
    done = tierlog(*TINY, "--path", data / "main-plain" / "objects", "--output", "json")
    assert done.code == 0, done.err
    (run,) = done.lines
    found = {row["name"]: row for row in run["measurements"]}
    assert found["scan PATH"]["limit"] == "store GET"
    assert found["scan PATH"]["bytes"] == found["store GET"]["bytes"] > 0
    assert found["scan PATH"]["records"] > 0
    assert found["scan PATH"]["notes"]["getsPerGiB"] > 0


def test_chunks_are_counted_as_they_are_stored(tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Compressed and encrypted chunks counted by their log bytes would show more than the store's bandwidth."""
    from tests.support.command import config_file

    run = data / "zstd-aes"
    done = tierlog(*TINY, "--path", run / "objects", *config_file(run, tmp_path), "--output", "json")
    assert done.code == 0, done.err
    rows = {row["name"]: row for row in done.lines[0]["measurements"]}
    assert rows["scan PATH"]["notes"]["logBytesPerStoredByte"] != 1
    stored = sum(path.stat().st_size for path in (run / "objects").rglob("*.log"))
    assert 0 < rows["store GET"]["bytes"] <= stored


def test_compare_tells_the_change(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """After a change of the machine or of a version one wants to see what it did."""
    saved = tmp_path / "before.json"
    done = tierlog(*TINY, "--output", "json")
    before = json.loads(done.out)
    for row in before["measurements"]:
        row["bytesPerSecond"] = row["bytesPerSecond"] * 1000
    before["measurements"] = [row for row in before["measurements"] if row["name"] != "scan"]
    saved.write_text(json.dumps(before))
    rows = {row["name"]: row for row in tierlog(*TINY, "--output", "json", "--compare", saved).lines[0]["measurements"]}
    assert rows["CRC-32C"]["change"] < -0.5
    assert rows["scan"]["change"] is None


@pytest.mark.parametrize(
    "content", ["", "[]", '{"measurements": 3}', '{"measurements": [{"name": "scan"}]}', "[" * 90000]
)
def test_a_file_that_is_no_saved_run(tierlog: Run, tmp_path: pathlib.Path, content: str) -> None:
    """The wrong file given is said before half a minute has gone by, not by a traceback."""
    saved = tmp_path / "other.json"
    saved.write_text(content)
    done = tierlog(*TINY, "--compare", saved)
    assert done.code == 2
    assert "--compare" in done.err
    assert "Traceback" not in done.err
    assert done.out == b""


def test_a_path_that_is_not_there(tierlog: Run, tmp_path: pathlib.Path) -> None:
    """A wrong PATH ends the command with the code of a store's error and its name."""
    done = tierlog(*TINY, "--path", tmp_path / "nothing")
    assert done.code == 3
    assert "nothing" in done.err


def test_a_wrong_answer_is_no_measurement(monkeypatch: pytest.MonkeyPatch, tierlog: Run) -> None:
    """A fast decoder that loses records must not be shown as fast."""
    monkeypatch.setattr(limits, "decode", lambda data: 0)
    done = tierlog(*TINY)
    assert done.code == 3
    assert "records" in done.err


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_made_logs_are_sound(codec: str) -> None:
    """Numbers over a log that differs from run to run, or is not what it says, cannot be compared."""
    log = make_log(codec, size_bytes=1 << 20)
    batch = decode(log.data)
    assert batch.num_rows == log.records
    assert batch.column("offset").to_pylist() == list(range(log.records))
    assert make_log(codec, size_bytes=1 << 20).data == log.data
    if codec != "none":
        assert 0.3 < len(log.data) / log.uncompressed_bytes < 0.95


def test_rounds_are_timed_in_turn_and_end_with_the_budget() -> None:
    """A busy machine must hit both sides of a ratio, and a slow one must not make the command last for minutes."""
    clock = ManualClock()
    order: list[str] = []

    def side(name: str, seconds: float) -> Task:
        def run() -> None:
            order.append(name)
            clock.advance(seconds)

        return Task(name, run, 100)

    limit, ours = measure(clock, side("limit", 1.0), [side("ours", 2.0)], rounds=9, budget_seconds=10.0)
    assert order == ["limit", "ours"] * 4
    assert limit.seconds == (1.0, 1.0, 1.0)
    assert limit.bytes_per_second == 100
    assert limit.ratio is None
    assert ours.ratio == pytest.approx(0.5)
    assert ours.limit == "limit"


def test_compare_reads_through_the_files_of_the_runtime(tmp_path: pathlib.Path) -> None:
    """A saved run of a huge file must not fill the memory."""
    from tierlog.measuring.measurement import read_saved
    from tierlog.runtime.machine.posix_files import PosixFiles

    path = tmp_path / "saved.json"
    path.write_text(json.dumps({"measurements": [{"name": "scan", "bytesPerSecond": 5}]}))
    assert read_saved(str(path), PosixFiles()) == {"scan": 5.0}
    path.write_text(json.dumps({"measurements": [{"name": "scan", "bytesPerSecond": "fast"}]}))
    with pytest.raises(ConfigError):
        read_saved(str(path), PosixFiles())
