"""A PATH becomes a tier: layouts found by looking, folders at any depth, and plain words for what is no tier."""

from __future__ import annotations

import pathlib
import shutil

import pytest

from tests.support.batches import Batch, encode, message
from tests.support.buckets import Bucket
from tests.support.golden import config_of
from tierlog.errors import (
    ConfigError,
    CorruptObjectError,
    ObjectNotFoundError,
    StoreUnavailableError,
    UnknownTopicError,
)
from tierlog.remote.tier import open_tier
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import CountingStore
from tierlog.scan.history import TierHistory

LOCAL_ID = "mn3qc-SwQUelmOW0BM5PFQ"


def offsets(path: pathlib.Path | str, **options: object) -> tuple[str, list[int]]:
    with open_tier(str(path), **options) as tier:  # type: ignore[arg-type]
        return tier.layout, [segment.start_offset for segment in tier.iter_segments()]


class TestLooking:
    """No one has to say what wrote a bucket."""

    @pytest.mark.parametrize(
        ("place", "layout"),
        [
            ("main-plain/objects", "aiven"),
            ("zstd-aes/objects", "aiven"),
            ("local-tiered/objects", "local-tiered"),
            ("local-tiered/objects/kafka-tiered-storage", "local-tiered"),
            ("main-plain/local-before/broker1", "log-dir"),
            ("record-v0-v1/v1-none.log", "file"),
        ],
    )
    def test_each_layout(self, data: pathlib.Path, place: str, layout: str) -> None:
        """If this fails, a user must know and type what the broker's plugin writes."""
        found, starts = offsets(data / place)
        assert found == layout
        assert starts

    @pytest.mark.parametrize("above", [1, 2])
    def test_the_folder_of_one_topic_or_partition(self, data: pathlib.Path, above: int) -> None:
        """If this fails, a path that was copied from a listing does not open."""
        log = next((data / "main-plain" / "objects").rglob("fx-txn-*/0/*.log"))
        layout, starts = offsets(log.parents[above - 1])
        assert layout == "aiven"
        with open_tier(str(data / "main-plain" / "objects")) as tier:
            assert starts == [segment.start_offset for segment in tier.iter_segments("fx-txn")]

    def test_one_partition_folder_of_a_disk(self, data: pathlib.Path) -> None:
        """If this fails, `tierlog verify /data/orders-0` does not work."""
        folder = next((data / "main-plain" / "local-before").rglob("fx-txn-0"))
        with open_tier(f"{folder}/") as tier:
            assert tier.layout == "log-dir"
            assert [topic.name for topic in tier.topics()] == ["fx-txn"]
            assert len(list(tier.iter_segments())) == len(list(folder.glob("*.log")))
        assert offsets(folder) == offsets(folder, layout="log-dir")

    def test_a_disk_whose_own_name_looks_like_a_partition(self, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """If this fails, /data/kafka-logs-1 is taken for partition 1 of topic kafka-logs."""
        source = next((data / "main-plain" / "local-before").rglob("fx-txn-0"))
        shutil.copytree(source, tmp_path / "kafka-logs-1" / "fx-txn-0")
        for layout in ("auto", "log-dir"):
            with open_tier(str(tmp_path / "kafka-logs-1"), layout=layout) as tier:
                assert [topic.name for topic in tier.topics()] == ["fx-txn"]

    def test_a_file_url(self, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """If this fails, file:// paths with a space or a percent sign do not open."""
        odd = tmp_path / "a b%20c"
        shutil.copytree(data / "local-tiered" / "objects", odd)
        assert offsets(f"file://{odd}") == offsets(odd)
        encoded = str(odd).replace("%", "%25").replace(" ", "%20")
        assert offsets(f"file://{encoded}") == offsets(odd)

    def test_a_store_in_memory(self, tmp_path: pathlib.Path) -> None:
        """If this fails, programs cannot try the library without a bucket."""
        Bucket(tmp_path).segment("a", [message(0, "v", 0)], lineage={0: 0})
        store = open_store("memory://opening")
        for path in tmp_path.rglob("*.*"):
            store.put(str(path.relative_to(tmp_path)), path.read_bytes())
        assert offsets("memory://opening") == ("aiven", [0])


class TestPrefix:
    """``key.prefix`` applies below PATH."""

    def test_given_found_or_part_of_the_path(self, data: pathlib.Path) -> None:
        """If this fails, a bucket reads only for those who know how its broker is configured."""
        run = data / "custom-meta"
        config = config_of(run)
        wanted = offsets(run / "objects", config=config)
        assert len(wanted[1]) > 1
        assert offsets(run / "objects") == wanted
        assert offsets(run / "objects" / "tier" / "dev-cluster") == wanted
        assert offsets(run / "objects" / "tier", config={"key.prefix": "dev-cluster/"}) == wanted

    def test_a_prefix_without_a_slash(self, tmp_path: pathlib.Path) -> None:
        """If this fails, topics get the prefix in front of their name, or are not found."""
        Bucket(tmp_path, topic="a-b", prefix="p").segment("s", [message(0, "v", 0)], lineage={0: 0})
        Bucket(tmp_path, topic="c", prefix="q").segment("s", [message(0, "v", 0)], lineage={0: 0})
        with open_tier(str(tmp_path), config={"key.prefix": "p"}) as tier:
            assert [topic.name for topic in tier.topics()] == ["a-b"]
            assert [segment.topic_id_partition.topic for segment in tier.iter_segments("a-b")] == ["a-b"]
        # Without the configuration it has to be guessed: then the error says what to give.
        with open_tier(str(tmp_path)) as tier:
            with pytest.raises(CorruptObjectError, match=r"another segment.*key\.prefix that ends in 'p'"):
                list(tier.iter_segments())
            with pytest.raises(UnknownTopicError, match=r"no topic a-b; there are: pa-b, qc; .*ends in 'p', give it"):
                TierHistory(tier).partitions(["a-b"])

    def test_a_masked_prefix_is_in_no_message(self, data: pathlib.Path, tmp_path: pathlib.Path) -> None:
        """If this fails, what an operator hides by key.prefix.mask is in logs and errors."""
        shutil.copytree(data / "custom-meta" / "objects", tmp_path / "b")
        config = config_of(data / "custom-meta")
        with open_tier(str(tmp_path / "b"), config=config) as tier:
            segment = next(tier.iter_segments())
            assert segment.name.startswith("<prefix>/fx-custom-")
            (tmp_path / "b" / segment.log.key).unlink()
            with pytest.raises(ObjectNotFoundError) as caught:
                list(tier.iter_log_windows(segment))
            assert "dev-cluster" not in str(caught.value)
            next((tmp_path / "b").rglob("*.rsm-manifest")).write_bytes(b"{")
            with pytest.raises(CorruptObjectError, match=r"^<prefix>/fx-custom-") as corrupt:
                list(tier.iter_segments())
            assert "dev-cluster" not in str(corrupt.value)

    def test_a_masked_prefix_is_not_shown_by_a_store_that_cannot_be_listed(self) -> None:
        """If this fails, the error of a store that does not answer shows the prefix that its operator hides."""
        store = {"endpoint": "http://127.0.0.1:1", "max_retries": "0", "region": "r", "skip_signature": "true"}
        config = {"key.prefix": "secret-prefix/", "key.prefix.mask": "true"}
        with pytest.raises(StoreUnavailableError, match="s3://tier/<prefix>/") as caught:
            open_tier("s3://tier", config=config | {f"store.{name}": value for name, value in store.items()})
        assert "secret-prefix" not in str(caught.value)


class TestNoTier:
    """What is there instead is said."""

    @pytest.mark.parametrize("content", [b"", b"root:x:0:0:root:/root:/bin/bash\n", b"\xff" * 40])
    def test_a_file_that_is_no_log(self, tmp_path: pathlib.Path, content: bytes) -> None:
        """If this fails, `tierlog ls /etc/passwd` shows a segment of two thousand million records."""
        path = tmp_path / "passwd"
        path.write_bytes(content)
        with pytest.raises(ConfigError, match=r"passwd is no log of Kafka's: give .*`tierlog dump`"):
            open_tier(str(path))
        path.write_bytes(encode(Batch(7)))
        assert offsets(path) == ("file", [7])

    def test_nothing(self, tmp_path: pathlib.Path) -> None:
        """If this fails, a mistyped path reads as an empty topic."""
        with pytest.raises(ConfigError, match="is empty or does not exist"):
            open_tier(str(tmp_path))
        with pytest.raises(ConfigError, match=r"below key\.prefix 'x/'.*leave that key out"):
            open_tier(str(tmp_path), config={"key.prefix": "x/"})
        with pytest.raises(ObjectNotFoundError, match="nowhere"):
            open_tier(str(tmp_path / "nowhere"))

    def test_something_else(self, data: pathlib.Path) -> None:
        """If this fails, the user does not learn that the path is one folder off."""
        with pytest.raises(ConfigError, match=r"it holds k1/private\.der"):
            open_tier(str(data / "keys"))

    def test_several_layouts(self, data: pathlib.Path) -> None:
        """If this fails, a folder above bucket and disk reads as one of the two, by chance."""
        with pytest.raises(ConfigError, match=r"several layouts: .*log-dir.*aiven"):
            open_tier(str(data / "main-plain"))

    def test_wrong_words(self, data: pathlib.Path) -> None:
        """If this fails, a misspelt layout or scheme is a traceback."""
        with pytest.raises(ConfigError, match="local-tiered"):
            open_tier(str(data), layout="local")
        with pytest.raises(ConfigError, match="unknown scheme ftp"):
            open_tier("ftp://host/x")

    def test_a_key_file_that_is_missing(self, data: pathlib.Path) -> None:
        """If this fails, it shows in the middle of a read."""
        config = {"encryption.key.pairs": "k1", "encryption.key.pairs.k1.private.key.file": "/nowhere.pem"}
        with pytest.raises(ConfigError, match=r"k1\.private\.key\.file.*nowhere"):
            open_tier(str(data / "zstd-aes" / "objects"), config=config)


def test_a_store_can_be_watched(data: pathlib.Path) -> None:
    """If this fails, benches and tests cannot count or break what a tier asks its store."""
    watched: list[CountingStore] = []

    def watch(store: ObjectStore) -> ObjectStore:
        watched.append(CountingStore(store))
        return watched[-1]

    for place in ("main-plain/objects", "record-v0-v1/v1-none.log"):
        with open_tier(str(data / place), wrap_store=watch) as tier:
            list(tier.iter_segments())
            assert watched[-1].counts.gets > 0


def test_filters(data: pathlib.Path) -> None:
    """If this fails, topics are confused whose names hold one another's, or partitions come that were not asked for."""
    with open_tier(str(data / "local-tiered" / "objects")) as tier:
        names = {segment.topic_id_partition.topic for segment in tier.iter_segments(topic_pattern=".*-json")}
        assert names == {"fx-local-json"}
        only = {s.topic_id_partition.partition for s in tier.iter_segments("fx-local-json", partitions=[1])}
        assert only == {1}
        assert not list(tier.iter_segments("fx-local"))
        for wrong in ({"topic": "a", "topic_pattern": "b"}, {"topic_pattern": "("}):
            with pytest.raises(ConfigError):
                list(tier.iter_segments(**wrong))
