"""Bad input through both engines: the same rows, or the same error in the same words."""

from __future__ import annotations

import json
import pathlib
import re
import shutil
from collections.abc import Callable

import pytest

from tests.bindings.spark.conftest import Read
from tests.conftest import DATA
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.golden import config_of

pytestmark = pytest.mark.spark

BAD = DATA / "bad"
OBJECTS = sorted(path.name for path in (BAD / "objects").iterdir())
LOGS = sorted(path.name for path in (BAD / "log").iterdir())
COLUMNS = "topic,partition,offset,timestamp,timestampType,leaderEpoch,key,value,headers,segment"
#: A few kinds of fault: a manifest, a chunk index, a chunk, a batch, a record; all of them run with the slow tests.
SOME_OBJECTS = (*("00-plain-good", "06-manifest-version-2", "37-zstd-chunks-last-size", "52-aes-tag-flipped"),)
SOME_LOGS = ("04-flipped-byte.log", "17-key-length-minus2.log")
TYPED = re.compile(r"(?:tierlog\.errors\.|: )(\w+Error): ([^\n]*)")
AGE = re.compile(r"written [^()]* ago")


def said(text: str) -> str:
    """Class and message as both engines show them, in the midst of Spark's own words."""
    found = TYPED.search(text)
    assert found is not None, text[:2000]
    message = found[2].removesuffix(" SQLSTATE: 38000").strip()
    return AGE.sub("written … ago", f"{found[1]}: {message}")


def outcome(read: Read, path: pathlib.Path, **options: str) -> object:
    given = {"subscribePattern": ".*", "columns": COLUMNS} | options
    if given.keys() & {"subscribe", "assign"}:
        del given["subscribePattern"]
    try:
        return sorted(map(repr, read(path, **given).collect()))
    except Exception as error:  # noqa: BLE001  what a user sees of any error is the matter
        return said(str(error))


def same(by_engine: dict[str, Read], path: pathlib.Path, **options: str) -> object:
    found = {engine: outcome(read, path, **options) for engine, read in by_engine.items()}
    assert found["jar"] == found["python"]
    return found["jar"]


def placed(name: str, bucket: pathlib.Path) -> dict[str, str]:
    """The case under the key that its sound sibling's manifest names; the options that the run needs."""
    sound = next(n for n in OBJECTS if n.endswith("-good") and n[0] == (name[0] if name[0] in "357" else "0"))
    manifest = next((BAD / "objects" / sound).glob("*.rsm-manifest"))
    about = json.loads(manifest.read_text())["remoteLogSegmentMetadata"]["remoteLogSegmentId"]["topicIdPartition"]
    at = about["topicPartition"]
    shutil.copytree(BAD / "objects" / name, bucket / f"{at['topic']}-{about['topicId']}" / str(at["partition"]))
    family = "rsm.config.encryption.key.pairs"
    files = {
        f"{family}.{key_id}.{kind}.key.file": str(DATA / "keys" / key_id / f"{kind}.der")
        for key_id in ("k1", "k2")
        for kind in ("public", "private")
    }
    return files | {family: "k1,k2"}


def check_object(by_engine: dict[str, Read], name: str, folder: pathlib.Path) -> None:
    options = placed(name, folder)
    strict = same(by_engine, folder, **options)
    if name.endswith("-good"):
        assert isinstance(strict, list)
        assert strict
    same(by_engine, folder, failOnDataLoss="false", **options)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", SOME_OBJECTS)
def test_a_damaged_segment(by_engine: dict[str, Read], tmp_path: pathlib.Path, name: str) -> None:
    """A user who follows an error text of the one engine in a runbook does not find it in the other's logs."""
    check_object(by_engine, name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in OBJECTS if name not in SOME_OBJECTS])
def test_every_damaged_segment(by_engine: dict[str, Read], tmp_path: pathlib.Path, name: str) -> None:
    """The same over all of them."""
    check_object(by_engine, name, tmp_path)


def check_log(by_engine: dict[str, Read], name: str) -> None:
    same(by_engine, BAD / "log" / name)
    same(by_engine, BAD / "log" / name, failOnDataLoss="false", verifyChecksums="false")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", SOME_LOGS)
def test_a_damaged_log(by_engine: dict[str, Read], name: str) -> None:
    """The two engines would disagree about what is damage: one reads what the other refuses."""
    check_log(by_engine, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in LOGS if name not in SOME_LOGS])
def test_every_damaged_log(by_engine: dict[str, Read], name: str) -> None:
    """The same over all of them."""
    check_log(by_engine, name)


@pytest.fixture
def orders(tmp_path: pathlib.Path) -> Bucket:
    """Three segments of twenty records."""
    made = Bucket(tmp_path / "orders")
    for first in (0, 20, 40):
        batches = [Batch(offset, (b"x" * 9,) * 5) for offset in range(first, first + 20, 5)]
        made.segment(f"s{first}", batches, lineage={0: 0})
    return made


@pytest.mark.few(4)
@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "ordrs"},
        # In lower case: so PySpark hands names to Python, where the jar names them as they were given.
        {"subscribe": "orders", "startingoffset": "earliest"},
        {"subscribe": "orders", "startingOffsets": '{"orders":{"7":0}}'},
        {"subscribe": "orders", "endingOffsets": '{"orders":{"0":9999}}'},
        {"subscribe": "orders", "columns": "offset,valeu"},
        {"subscribe": "orders", "kafka.isolation.level": "serializable"},
        {"subscribe": "orders", "store.secret_access_key": "hunter2", "rsm.no.such.key": "x"},
        {"assign": '{"orders":[0,3]}'},
    ],
    ids=str,
)
def test_options(by_engine: dict[str, Read], orders: Bucket, options: dict[str, str]) -> None:
    """A mistake in an option is most users' first error."""
    text = same(by_engine, orders.root, **options)
    assert isinstance(text, str)
    assert "hunter2" not in text


def lose_object(bucket: Bucket) -> None:
    bucket.path("s20", "log").unlink()


def lose_segment(bucket: Bucket) -> None:
    for suffix in ("log", "indexes", "rsm-manifest"):
        bucket.path("s20", suffix).unlink()


def swap_manifests(bucket: Bucket) -> None:
    shutil.copy(bucket.path("s40", "rsm-manifest"), bucket.path("s20", "rsm-manifest"))


def lose_chunk(bucket: Bucket) -> None:
    path = bucket.path("s20", "log")
    path.write_bytes(path.read_bytes()[:-100])


def flip(bucket: Bucket) -> None:
    path = bucket.path("s20", "log")
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


def folder_in_place(bucket: Bucket) -> None:
    path = bucket.path("s20", "log")
    path.unlink()
    path.mkdir()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("harm", "after_load"),
    [
        (lose_object, True),
        (flip, False),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((lose_chunk, True), (folder_in_place, True), (lose_segment, False), (swap_manifests, False))
        ),
    ],
)
def test_a_bucket_that_is_harmed(
    by_engine: dict[str, Read], orders: Bucket, harm: Callable[[Bucket], None], after_load: bool
) -> None:
    """Retention, a hand that slipped, a bad disk: before the listing or after it, both engines report each alike."""
    if not after_load:
        harm(orders)
    frames = {
        (engine, loss): read(orders.root, subscribe="orders", columns=COLUMNS, failOnDataLoss=loss)
        for engine, read in by_engine.items()
        for loss in ("true", "false")
    }
    if after_load:
        harm(orders)
    found: dict[tuple[str, str], object] = {}
    for key, frame in frames.items():
        try:
            found[key] = sorted(map(repr, frame.collect()))
        except Exception as error:  # noqa: BLE001  as above
            found[key] = said(str(error))
    assert found["jar", "true"] == found["python", "true"]
    assert found["jar", "false"] == found["python", "false"]


def test_a_masked_prefix(by_engine: dict[str, Read], data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What an operator hides by key.prefix.mask would be in the logs of executors."""
    run = data / "custom-meta"
    shutil.copytree(run / "objects", tmp_path / "objects")
    options = config_of(run) | {"subscribePattern": ".*"}
    frames = {engine: read(tmp_path / "objects", **options) for engine, read in by_engine.items()}
    for log in (tmp_path / "objects").rglob("*.log"):
        log.unlink()
    found = {}
    for engine, frame in frames.items():
        with pytest.raises(Exception, match="gone since it was listed") as caught:
            frame.collect()
        assert "dev-cluster" not in str(caught.value)
        found[engine] = said(str(caught.value))
    assert found["jar"] == found["python"]
    assert found["jar"].count("<prefix>/fx-custom-") == 2


@pytest.mark.parametrize("what", ["no keys", "other key", "no such file"])
def test_keys(by_engine: dict[str, Read], data: pathlib.Path, tmp_path: pathlib.Path, what: str) -> None:
    """A key that was rotated away is an operator's task, if the message names it."""
    options = config_of(data / "zstd-aes") | {"subscribe": "fx-zstd-a-json"}
    private = next(key for key in options if key.endswith("k1.private.key.file"))
    if what == "no keys":
        options = {key: value for key, value in options.items() if ".encryption." not in key}
    else:
        options[private] = str(data / "keys" / "k2" / "private.der") if what == "other key" else str(tmp_path / "none")
    assert isinstance(same(by_engine, data / "zstd-aes" / "objects", **options), str)
