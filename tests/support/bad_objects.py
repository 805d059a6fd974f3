"""Damaged objects of the committed data, laid out as buckets."""

from __future__ import annotations

import json
import pathlib
import shutil

from tests.conftest import DATA

OBJECTS = DATA / "bad" / "objects"


DAMAGED = sorted(path.name for path in OBJECTS.iterdir() if "good" not in path.name)


CONTROLS = {"3": "30-zstd-good", "5": "50-aes-good", "7": "70-zstd-aes-good"}


def good_one(name: str) -> str:
    """The unchanged control of the same kind."""
    return CONTROLS.get(name[0], "00-plain-good")


def key_config(data: pathlib.Path) -> dict[str, str]:
    """The private keys of both key pairs."""
    files = {f"encryption.key.pairs.{k}.private.key.file": str(data / "keys" / k / "private.der") for k in ("k1", "k2")}
    return {"encryption.key.pairs": "k1,k2", **files}


def bucket_of(name: str, root: pathlib.Path) -> str:
    """Lay the objects of a case under the keys that they had; returns the topic."""
    (manifest,) = (OBJECTS / good_one(name)).glob("*.rsm-manifest")
    about = json.loads(manifest.read_text())["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"]
    topic, partition = about["topicPartition"]["topic"], about["topicPartition"]["partition"]
    folder = root / f"{topic}-{about['topicId']}" / str(partition)
    shutil.copytree(OBJECTS / name, folder)
    return str(topic)
