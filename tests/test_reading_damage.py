"""Damaged buckets through ``tierlog.read``: an error that names them or the whole answer, never a shorter one."""

from __future__ import annotations

import json
import pathlib
import resource
import shutil

import pyarrow as pa
import pytest

import tierlog
from tests.conftest import DATA
from tierlog.errors import TierlogError

OBJECTS = DATA / "bad" / "objects"
DAMAGED = sorted(path.name for path in OBJECTS.iterdir() if "good" not in path.name)
#: What these hold is legal or lies outside of what reading the records needs.
READABLE = {
    "14-index-position-beyond",
    "22-indexes-truncated",
    "5e-aes-index-tag-flipped",
}
MEMORY_MIB_MAX = 512


CONTROLS = {"3": "30-zstd-good", "5": "50-aes-good", "7": "70-zstd-aes-good"}


def good_one(name: str) -> str:
    """The unchanged control of the same kind."""
    return CONTROLS.get(name[0], "00-plain-good")


def peak_memory_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


def bucket_of(name: str, root: pathlib.Path) -> str:
    """The objects under the keys that they had; returns the topic."""
    (manifest,) = (OBJECTS / good_one(name)).glob("*.rsm-manifest")
    about = json.loads(manifest.read_text())["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"]
    topic, partition = about["topicPartition"]["topic"], about["topicPartition"]["partition"]
    folder = root / f"{topic}-{about['topicId']}" / str(partition)
    shutil.copytree(OBJECTS / name, folder)
    return str(topic)


def read(root: pathlib.Path, topic: str, **options: object) -> pa.Table:
    keys = {"encryption.key.pairs": "k1,k2"}
    for key_id in ("k1", "k2"):
        if (DATA / "keys" / key_id).is_dir():
            keys[f"encryption.key.pairs.{key_id}.private.key.file"] = str(DATA / "keys" / key_id / "private.der")
        else:
            keys["encryption.key.pairs"] = "k1"
    return tierlog.read(root, topic, config=keys, **options).read_all()


@pytest.mark.parametrize("name", sorted(path.name for path in OBJECTS.iterdir() if "good" in path.name))
def test_the_controls_read(name: str, tmp_path: pathlib.Path) -> None:
    """The other tests of this file would pass on a reader that refuses everything."""
    assert read(tmp_path, bucket_of(name, tmp_path)).num_rows > 100


@pytest.mark.parametrize("name", DAMAGED)
def test_damage_is_an_error_or_does_not_matter(name: str, tmp_path: pathlib.Path) -> None:
    """A damaged bucket would give fewer or other records than were written, or a traceback, or fill the memory."""
    topic = bucket_of(name, tmp_path / "damaged")
    bucket_of(good_one(name), tmp_path / "good")
    before = peak_memory_mib()
    try:
        table = read(tmp_path / "damaged", topic)
    except TierlogError as error:
        named = name not in READABLE and (topic in str(error) or "k1" in str(error))
    else:
        named = table.equals(read(tmp_path / "good", topic))
    assert named, "an error that names the object or the key, or the same rows"
    assert peak_memory_mib() - before < MEMORY_MIB_MAX
