"""Damaged buckets through ``tierlog.read``: an error that names them or the whole answer, never a shorter one."""

from __future__ import annotations

import pathlib
import resource

import pyarrow as pa
import pytest

import tierlog
from tests.conftest import DATA
from tests.support.bad_objects import DAMAGED, OBJECTS, bucket_of, good_one
from tierlog.errors import TierlogError

#: What these hold is legal or lies outside of what reading the records needs.
READABLE = {
    "14-index-position-beyond",
    "22-indexes-truncated",
    "5e-aes-index-tag-flipped",
}
MEMORY_MIB_MAX = 512


def peak_memory_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


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
