"""`tierlog rewrap`: nothing without being told, everything when it is."""

from __future__ import annotations

import json
import pathlib
import shutil
from dataclasses import replace

import pytest

from tests.support.command import Run
from tests.support.key_pairs import pairs
from tests.support.metadata_topic import write_topic
from tierlog.remote.api import RemoteLogSegmentState
from tierlog.remote.tier import open_tier


@pytest.fixture
def config(data: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "both.properties"
    path.write_text("".join(f"{k}={v}\n" for k, v in pairs(data, "k1", "k2", active="k2").items()))
    return path


@pytest.fixture
def bucket(data: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    shutil.copytree(data / "zstd-aes/objects", tmp_path / "bucket")
    return tmp_path / "bucket"


def manifests(bucket: pathlib.Path) -> dict[str, str]:
    """Name → id of the pair."""
    found = {path.name: json.loads(path.read_text()) for path in bucket.rglob("*.rsm-manifest")}
    return {name: about["encryption"]["dataKey"].partition(":")[0] for name, about in found.items()}


def test_a_dry_run_then_the_real_one(tierlog: Run, config: pathlib.Path, bucket: pathlib.Path) -> None:
    """If this fails, an operator who only looks changes the bucket, or one who rotates does not."""
    count = len(manifests(bucket))
    dry = tierlog("rewrap", bucket, "--config", config)
    assert dry.code == 1
    assert f"{count} manifests ({count} k1): 0 rewrapped, {count} to do, 0 failed" in dry.out.decode()
    assert set(manifests(bucket).values()) == {"k1"}
    done = tierlog("rewrap", bucket, "--config", config, "--apply", "--no-digests", "--output", "json")
    assert done.code == 0, done.err
    assert [(line["state"], line["from"], line["to"]) for line in done.lines] == [("rewrapped", "k1", "k2")] * count
    assert set(manifests(bucket).values()) == {"k2"}
    again = tierlog("rewrap", bucket, "--config", config)
    assert again.code == 0
    assert f"{count} manifests ({count} k2): 0 rewrapped, 0 to do, 0 failed" in again.out.decode()
    assert tierlog("verify", bucket, "--config", config).code == 0


@pytest.mark.parametrize("more", [[], ["--no-digests", "--metadata", "x"]])
def test_to_write_it_wants_to_know_of_digests(
    tierlog: Run, config: pathlib.Path, bucket: pathlib.Path, more: list[str]
) -> None:
    """If this fails, segments whose digests brokers check become unreadable by one command."""
    outcome = tierlog("rewrap", bucket, "--config", config, "--apply", *more)
    assert outcome.code == 2
    assert "--no-digests" in outcome.err
    assert set(manifests(bucket).values()) == {"k1"}


def test_by_the_metadata_topic(
    tierlog: Run, config: pathlib.Path, bucket: pathlib.Path, data: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """If this fails, what the metadata topic does not know is changed, or what it does is not."""
    with open_tier(str(bucket), config=pairs(data, "k1", active="k1")) as tier:
        known, *_ = tier.iter_segments()
    started = replace(known.metadata, state=RemoteLogSegmentState.COPY_SEGMENT_STARTED)
    write_topic(tmp_path / "broker", 0, [started])
    outcome = tierlog("rewrap", bucket, "--config", config, "--apply", "--metadata", tmp_path / "broker")
    assert outcome.code == 3
    assert "does not know the segment" in outcome.err
    moved = [name for name, key_id in manifests(bucket).items() if key_id == "k2"]
    assert [str(known.metadata.remote_log_segment_id.id) in name for name in moved] == [True]
