"""``tierlog index``: the words and exit codes around ``tierlog.upkeep.index``."""

from __future__ import annotations

import json
import pathlib
import shutil

import pytest

from tests.support.command import Run, config_file
from tests.support.footers import footers_in
from tests.support.golden import config_of
from tierlog import dataset
from tierlog.errors import CorruptDataError


def test_a_bucket(tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise a script cannot tell whether there is anything to do, or whether it was done."""
    run = data / "zstd-aes"
    bucket = shutil.copytree(run / "objects", tmp_path / "bucket")
    config = config_file(run, tmp_path)
    dry = tierlog("index", bucket, *config, "--dry-run", "--output", "json")
    assert dry.code == 1, dry.text
    rows = [json.loads(line) for line in dry.out.splitlines()]
    assert {row["state"] for row in rows} == {"pending"}
    assert footers_in(bucket) == []
    done = tierlog("index", bucket, *config)
    assert done.code == 0, done.text
    count = len(footers_in(bucket))
    assert count == len(rows) == done.text.count("written: ")
    assert f"{count} segments: {count} footers written" in done.text
    again = tierlog("index", bucket, *config, "--output", "json")
    assert again.code == 0, again.text
    told = [json.loads(line) for line in again.out.splitlines()]
    assert {row["state"] for row in told} == {"present"}
    assert {row["footer"] for row in told} == {str(path.relative_to(bucket)) for path in footers_in(bucket)}


def test_damage(tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise a nightly job ends well over a bucket that rots."""
    bucket = shutil.copytree(data / "main-plain" / "objects", tmp_path / "bucket")
    log = min(bucket.rglob("*.log"))
    content = bytearray(log.read_bytes())
    content[300] ^= 1
    log.write_bytes(content)
    found = tierlog("index", bucket, *config_file(data / "main-plain", tmp_path))
    assert found.code == 3, found.text
    assert f"{log.name} @ " in found.err
    assert "1 failed" in found.text + found.err
    assert len(footers_in(bucket)) == len(list(bucket.rglob("*.log"))) - 1


def test_another_place(tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise nobody can index what is read-only."""
    bucket = shutil.copytree(data / "main-plain" / "objects", tmp_path / "bucket")
    config = config_file(data / "main-plain", tmp_path)
    inside = tierlog("index", bucket, *config, "--to", bucket / "footers")
    assert (inside.code, "lies in" in inside.err) == (2, True), inside.err
    done = tierlog("index", bucket, "fx-txn", *config, "--to", tmp_path / "place")
    assert done.code == 0, done.text
    assert footers_in(bucket) == []
    assert len(footers_in(tmp_path / "place")) > 3


def test_ls_tells_the_records(tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise how many records a segment has is asked of a reader of the whole topic."""
    bucket = shutil.copytree(data / "main-plain" / "objects", tmp_path / "bucket")
    config = config_file(data / "main-plain", tmp_path)
    tierlog("index", bucket, "fx-txn", *config)
    rows = tierlog("ls", bucket, *config, "--records", "--output", "json").lines
    printed = tierlog("cat", bucket, "fx-txn", *config, "--format", "json").lines
    assert sum(row["recordCount"] for row in rows if row["topic"] == "fx-txn") == len(printed)  # type: ignore[misc]
    assert {row["recordCount"] for row in rows if row["topic"] != "fx-txn"} == {None}
    assert {row["recordCount"] for row in tierlog("ls", bucket, *config, "--output", "json").lines} == {None}
    text = tierlog("ls", bucket, *config, "--records").text
    assert "RECORDS" in text
    assert "RECORDS" not in tierlog("ls", bucket, *config).text
    refused = tierlog("ls", bucket, *config, "--records", "--totals")
    assert (refused.code, "--records" in refused.err) == (2, True)


def test_a_count_reads_no_log(tierlog: Run, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Otherwise the count of a terabyte costs a terabyte, though each segment says its own."""
    bucket = shutil.copytree(data / "main-plain" / "objects", tmp_path / "bucket")
    config = config_file(data / "main-plain", tmp_path)
    asked = [
        [],
        ["--isolation", "read_committed"],
        ["--isolation", "read_committed", "--from", "7", "--to", "150"],
        ["--since", "2020-01-01T00:00:00Z", "--last", "20"],
        ["--partition", "0", "--from", "3"],
    ]

    def count(*options: str) -> str:
        return tierlog("cat", bucket, "fx-txn", *config, "--count", *options).text

    wanted = [len(tierlog("cat", bucket, "fx-txn", *config, "--format", "json", *each).lines) for each in asked]
    assert len({*wanted}) > 3
    assert tierlog("index", bucket, "fx-txn", *config).code == 0
    assert [int(count(*each)) for each in asked] == wanted
    with dataset(bucket, "fx-txn", config=config_of(data / "main-plain")) as opened:
        assert opened.count_rows() == wanted[0]
    for log in bucket.rglob("*fx-txn*/**/*.log"):
        content = bytearray(log.read_bytes())
        content[-1] ^= 1
        log.write_bytes(content)
    assert count() == f"{wanted[0]}\n"
    with dataset(bucket, "fx-txn", config=config_of(data / "main-plain")) as opened:
        assert opened.count_rows() == wanted[0]
        with pytest.raises(CorruptDataError):
            opened.to_table()
    assert tierlog("cat", bucket, "fx-txn", *config, "--count", "--grep", "x").code == 3
