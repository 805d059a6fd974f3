"""A consumer over a tier and brokers: each record once, whatever the border between them does. The brokers here are a
replica over a bucket that has all of the log; the tier is another bucket, which has less of it.
"""

from __future__ import annotations

import os
import pathlib
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import tierlog
from tests.support.batches import Batch, message
from tests.support.buckets import Bucket
from tests.support.replica_server import replica
from tests.support.segments import Aborted
from tierlog.errors import ConfigError, DataLossError, ObjectNotFoundError, UnknownTopicError
from tierlog.tier_consumer import OFFSET_END, TierConsumer, TopicPartitionOffset

ORDERS = TopicPartitionOffset("orders", 0)
COLUMNS = ("partition", "offset", "value")


def segment(bucket: Bucket, first: int, end: int, **more: Any) -> None:
    batches = [message(offset, f"m{offset}", 0) for offset in range(first, end)]
    bucket.segment(f"s{first}", batches, lineage={0: 0}, **more)


def drained(consumer: TierConsumer, count: int | None = None) -> list[tuple[int, int]]:
    """Partition and offset of what comes, until nothing does for a while, or there are so many."""
    found: list[tuple[int, int]] = []
    while count is None or len(found) < count:
        batch = consumer.poll(0.0 if count is None else 20.0)
        if batch is None:
            assert count is None, f"{len(found)} of {count}"
            return found
        assert batch.num_rows
        found += zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True)
    return found


def wanted(*ends: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition, end in enumerate(ends) for offset in range(end)]


@pytest.fixture
def tier(tmp_path: pathlib.Path) -> Bucket:
    """Offsets 0 to 9."""
    made = Bucket(tmp_path / "tier")
    segment(made, 0, 10)
    return made


def test_a_tier_that_grows(tier: Bucket) -> None:
    """If this fails, a consumer of a tier reads records twice, or never those of new segments."""
    with tierlog.consume(tier.root, "orders", refresh_seconds=0.0) as consumer:
        assert drained(consumer) == wanted(10)
        assert consumer.position([ORDERS]) == [("orders", 0, 10)]
        segment(tier, 10, 15)
        assert drained(consumer) == wanted(15)[10:]
        consumer.seek(TopicPartitionOffset("orders", 0, 12))
        assert drained(consumer) == wanted(15)[12:]
        consumer.pause([ORDERS])
        consumer.seek(TopicPartitionOffset("orders", 0, 3))
        assert drained(consumer) == []
        consumer.resume([ORDERS])
        assert drained(consumer) == wanted(15)[3:]
        assert consumer.get_watermark_offsets(ORDERS) == (0, 15)
        at = consumer.offsets_for_times([TopicPartitionOffset("orders", 0, 1_700_000_000_000 + 7_000)])
        assert at == [("orders", 0, 7)]
        late = consumer.offsets_for_times([TopicPartitionOffset("orders", 0, 1_900_000_000_000)])
        assert late == [("orders", 0, OFFSET_END)]


def test_a_store_that_is_away_for_a_moment(tier: Bucket) -> None:
    """If this fails, one failed request ends a consumer, though its error says that trying again may cure it."""
    with tierlog.consume(tier.root, "orders", refresh_seconds=3600.0) as consumer:
        lost = tier.path("s0", "log")
        away = lost.with_name("away")
        lost.rename(away)
        for _ in range(2):
            with pytest.raises(ObjectNotFoundError):
                consumer.poll()
        away.rename(lost)
        assert drained(consumer) == wanted(10)


def test_partitions_and_starts(tier: Bucket) -> None:
    """If this fails, an assignment is of other partitions or offsets than it says."""
    segment(Bucket(tier.root, partition=2), 0, 4)
    with tierlog.consume(tier.root, "orders", start="latest") as consumer:
        assert consumer.assignment() == [("orders", 0, 10), ("orders", 2, 4)]
        assert drained(consumer) == []
        consumer.assign(
            [
                TopicPartitionOffset("orders", 2, 1),
                TopicPartitionOffset("orders", 0),
            ]
        )
        assert sorted(drained(consumer)) == [(2, 1), (2, 2), (2, 3)]
        with pytest.raises(UnknownTopicError, match="no partition 1 of topic orders"):
            consumer.assign([TopicPartitionOffset("orders", 1)])
        with pytest.raises(ValueError, match="orders-1 is not assigned"):
            consumer.seek(TopicPartitionOffset("orders", 1, 0))
    with pytest.raises(ValueError, match="closed"):
        consumer.poll()


def test_columns(tier: Bucket) -> None:
    """If this fails, a batch has columns that nobody asked for."""
    with tierlog.consume(tier.root, "orders", columns=["value"]) as consumer:
        batch = consumer.poll()
    assert batch is not None
    assert batch.schema == pa.schema([("value", pa.binary())])
    assert batch["value"].to_pylist() == [b"m%d" % offset for offset in range(10)]


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"mode": "local-preferred"}, ConfigError, "needs Spark's jar"),
        ({"mode": "remote"}, ConfigError, "mode is one of"),
        ({"mode": "remote-preferred"}, ConfigError, "names them"),
        ({"kafka": {"bootstrap.servers": "x:1"}}, ConfigError, "does not ask"),
        ({"mode": "local-only", "kafka": {"bootstrap.servers": "x:1"}, "columns": ["segment"]}, ConfigError, "segment"),
        ({"start": "now"}, ConfigError, "start is"),
        ({"columns": ["no"]}, ConfigError, "unknown columns"),
        ({"kafka": 5}, TypeError, "kafka"),
        ({"isolation_level": "committed"}, ConfigError, "isolation_level is one of"),
        (
            {"mode": "local-only", "kafka": {"bootstrap.servers": "x:1", "isolation.level": "read_committed"}},
            ConfigError,
            "isolation.level of kafka",
        ),
        ({"topics": "payments"}, UnknownTopicError, "no topic payments"),
    ],
    ids=str,
)
def test_what_is_refused(tier: Bucket, given: dict[str, Any], kind: type[Exception], text: str) -> None:
    """If this fails, a wrong argument is a consumer that reads nothing."""
    with pytest.raises(kind, match=text):
        tierlog.consume(tier.root, given.pop("topics", "orders"), **given)


def test_groups_need_brokers(tier: Bucket) -> None:
    """If this fails, a commit that nobody keeps looks like one."""
    with tierlog.consume(tier.root, "orders") as consumer:
        with pytest.raises(ConfigError, match="assign them yourself"):
            consumer.subscribe(["orders"])
        with pytest.raises(ConfigError, match="committed at brokers"):
            consumer.commit()
        with pytest.raises(ConfigError, match="committed at brokers"):
            consumer.committed([ORDERS])


class Cluster:
    """A replica over a whole log as brokers, and a tier that has less."""

    def __init__(self, bootstrap: str, log: Bucket, tier: Bucket) -> None:
        self.bootstrap, self.log, self.tier = bootstrap, log, tier

    def consume(self, **more: Any) -> TierConsumer:
        keys = {"bootstrap.servers": self.bootstrap, "group.id": "g"} | more.pop("kafka", {})
        more = {"mode": "remote-preferred", "refresh_seconds": 0.0, "layout": "aiven", **more}
        return tierlog.consume(self.tier.root, "orders", kafka=keys, **more)


@contextmanager
def cluster(folder: pathlib.Path, log: Bucket, tier: Bucket) -> Iterator[Cluster]:
    with replica(log.root, folder, "--refresh", "0.2") as server:
        yield Cluster(server.bootstrap, log, tier)


def test_from_the_tier_to_the_brokers(tier: Bucket, tmp_path: pathlib.Path) -> None:
    """If this fails, a record at the seam is read twice, or never."""
    log = Bucket(tmp_path / "log")
    segment(log, 0, 10)
    segment(log, 10, 30)
    segment(Bucket(log.root, partition=1), 0, 5)
    with cluster(tmp_path, log, tier) as here:
        with here.consume() as consumer:
            assert sorted(drained(consumer, 35)) == wanted(30, 5)
            assert consumer.commit() == [("orders", 0, 30), ("orders", 1, 5)]
            consumer.seek(TopicPartitionOffset("orders", 0, 8))
            assert drained(consumer, 22) == wanted(30)[8:]
            consumer.commit([TopicPartitionOffset("orders", 0, 12)])
            assert consumer.committed([ORDERS]) == [("orders", 0, 12)]
        with here.consume() as consumer:
            assert consumer.assignment() == [("orders", 0, 12), ("orders", 1, 5)]
            assert drained(consumer, 18) == wanted(30)[12:]
        with here.consume(kafka={"group.id": "other"}, mode="local-only") as consumer:
            assert sorted(drained(consumer, 35)) == wanted(30, 5)


def test_transactions_across_the_seam(tmp_path: pathlib.Path) -> None:
    """If this fails, records of an aborted transaction that begins in the tier are read, or committed ones are not."""
    ours: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0}
    first = [message(0, "m0", 0), Batch(1, (b"a", b"b"), transactional=True, **ours), message(3, "m3", 0)]
    then = [Batch(4, (b"",), marker="abort", **ours), message(5, "m5", 0)]
    log, tier = Bucket(tmp_path / "log"), Bucket(tmp_path / "tier")
    for bucket in (log, tier):
        bucket.segment("a", first, lineage={0: 0}, open_transactions={7: 1})
    log.segment("b", then, lineage={0: 0}, aborted=[Aborted(7, 1, 4, 5)])
    with cluster(tmp_path, log, tier) as here:
        for isolation, found in (("read_committed", [0, 3, 5]), ("read_uncommitted", [0, 1, 2, 3, 5])):
            with here.consume(isolation_level=isolation, kafka={"group.id": isolation}) as consumer:
                assert [offset for _, offset in drained(consumer, len(found))] == found
                assert consumer.position([ORDERS])[0].offset == 6


def test_another_log(tmp_path: pathlib.Path) -> None:
    """If this fails, two clusters' records become one history."""
    log = Bucket(tmp_path / "log")
    segment(log, 0, 30)
    others = Bucket(tmp_path / "others", topic_id="AAAAAAAAAAAAAAAAAAAAAQ"), Bucket(tmp_path / "ahead")
    segment(others[0], 0, 10)
    segment(others[1], 0, 50)
    for tier, text in zip(others, ("has the id", "ends at offset 50 in the tier, and at 30"), strict=True):
        with cluster(tmp_path, log, tier) as here, here.consume() as consumer:
            for _ in range(2):
                with pytest.raises(ConfigError, match=text):
                    drained(consumer)


def test_records_that_are_gone(tmp_path: pathlib.Path) -> None:
    """If this fails, a hole in the tier is passed over without a word."""
    tier = Bucket(tmp_path / "tier")
    segment(tier, 5, 10)
    with tierlog.consume(tier.root, "orders") as consumer:
        consumer.seek(TopicPartitionOffset("orders", 0, 2))
        with pytest.raises(DataLossError, match="offsets 2 to 4 have gone"):
            consumer.poll()
    with tierlog.consume(tier.root, "orders", fail_on_data_loss=False) as consumer:
        consumer.seek(TopicPartitionOffset("orders", 0, 2))
        assert drained(consumer) == wanted(10)[5:]


def test_records_that_brokers_have_no_more(tmp_path: pathlib.Path) -> None:
    """If this fails, a consumer stands for ever in front of records that retention took, or passes over them."""
    log, tier = Bucket(tmp_path / "log"), Bucket(tmp_path / "tier")
    segment(log, 5, 10)
    segment(tier, 5, 8)
    with cluster(tmp_path, log, tier) as here:
        with here.consume(mode="local-only") as consumer:
            consumer.seek(TopicPartitionOffset("orders", 0, 2))
            for _ in range(2):
                with pytest.raises(DataLossError, match="offsets 2 to 4 are not at the brokers"):
                    drained(consumer, 1)
        with here.consume(mode="local-only", fail_on_data_loss=False) as consumer:
            consumer.seek(TopicPartitionOffset("orders", 0, 2))
            assert drained(consumer, 5) == wanted(10)[5:]


class Partition:
    """A partition's log, which grows by segments, sometimes under another leader, and its tier, which has its begin."""

    def __init__(self, log: pathlib.Path, tier: pathlib.Path, number: int) -> None:
        self.place = TopicPartitionOffset("orders", number)
        self.log, self.tier = Bucket(log, partition=number), Bucket(tier, partition=number)
        self.end = self.tiered_end = 0
        self.lineage = {0: 0}
        self.values: list[str] = []
        self.segments: list[tuple[int, int]] = []

    def grow(self, count: int, *, elect: bool) -> None:
        """Append a segment; a leader that was elected before has truncated what nobody could read."""
        if elect and self.lineage[max(self.lineage)] < self.end:
            self.lineage[max(self.lineage) + 2] = self.end
        self.segments.append((self.end, self.end + count))
        self.end += count
        self.values += [f"m{offset}/{max(self.lineage)}" for offset in range(*self.segments[-1])]
        self._write(self.log, *self.segments[-1])

    def copy(self) -> tuple[int, int] | None:
        """The next segment for the tier."""
        return next((each for each in self.segments if each[0] >= self.tiered_end), None)

    def put(self, first: int, end: int) -> None:
        self._write(self.tier, first, end)
        self.tiered_end = end

    def expire(self, before: int) -> None:
        """Delete the oldest segment, everywhere, if there is a later one and it was read."""
        if len(self.segments) > 1 and self.segments[0][1] <= before:
            first, _ = self.segments.pop(0)
            for bucket in (self.tier, self.log):
                for suffix in ("rsm-manifest", "log", "indexes") if f"s{first}" in bucket.keys else ():
                    bucket.path(f"s{first}", suffix).unlink()

    def _write(self, bucket: Bucket, first: int, end: int) -> None:
        batches = [
            message(offset, self.values[offset], int(self.values[offset].split("/")[1])) for offset in range(first, end)
        ]
        bucket.segment(f"s{first}", batches, lineage={epoch: at for epoch, at in self.lineage.items() if at < end})


SEEDS = int(os.environ.get("TIERLOG_CONSUMER_SEEDS", "40"))


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.more) for seed in range(2, SEEDS))])
def test_each_record_is_read_once(tmp_path: pathlib.Path, seed: int) -> None:
    """If this fails, some order of growth, elections, retention and restarts has records twice, or loses them."""
    chance = random.Random(seed)
    log, tier = Bucket(tmp_path / "log"), Bucket(tmp_path / "tier")
    tier.root.mkdir()
    partitions = [Partition(log.root, tier.root, number) for number in range(2)]
    seen: list[list[tuple[int, str]]] = [[], []]

    def take(batch: pa.RecordBatch | None) -> None:
        for number, offset, value in zip(*(batch[name].to_pylist() for name in COLUMNS) if batch else (), strict=True):
            seen[number].append((offset, value.decode()))

    for each in partitions:
        each.grow(chance.randrange(1, 9), elect=False)
    with cluster(tmp_path, log, tier) as here:
        consumer = here.consume()
        for _ in range(30):
            step, partition = (
                chance.choice(("grow", "tier", "poll", "poll", "restart", "expire")),
                chance.choice(partitions),
            )
            if step == "grow":
                partition.grow(chance.randrange(1, 9), elect=chance.random() < 0.4)
            elif step == "tier" and (segment := partition.copy()):
                until = time.monotonic() + 60
                while consumer.get_watermark_offsets(partition.place)[1] < segment[1]:  # brokers tier what they have
                    assert time.monotonic() < until
                    time.sleep(0.05)
                partition.put(*segment)
            elif step == "poll":
                take(consumer.poll(0.05))
            elif step == "restart":
                consumer.commit()
                consumer.close()
                consumer = here.consume()
            elif step == "expire":
                partition.expire(len(seen[partition.place.partition]))
        until = time.monotonic() + 60
        while sum(map(len, seen)) < sum(each.end for each in partitions):
            assert time.monotonic() < until
            take(consumer.poll(1.0))
        assert consumer.poll(0.3) is None
        consumer.close()
    for partition, found in zip(partitions, seen, strict=True):
        assert found == list(enumerate(partition.values))
