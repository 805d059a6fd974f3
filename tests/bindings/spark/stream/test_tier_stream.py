"""A stream over a tier, on the driver: where it begins, what the tier has gained, what a batch reads."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyspark_tierlog import DefaultSource
from pyspark_tierlog.options.source_options import parse_options
from pyspark_tierlog.stream.stream_offsets import JsonOffsets, StreamOffsets, from_json
from pyspark_tierlog.stream.stream_reader import TierlogStreamReader
from pyspark_tierlog.stream.tier_stream import TierStream
from pyspark_tierlog.stream.trigger_limits import TriggerLimits
from tests.support.batches import Batch, message
from tests.support.buckets import Bucket
from tierlog.errors import ConfigError, DataLossError, UnknownTopicError
from tierlog.remote.metadata.lineage import Gap
from tierlog.remote.tier import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import SystemClock
from tierlog.scan.live.seams import BrokerFacts
from tierlog.scan.reading.read import read_scan_range
from tierlog.scan.scan_request import RecordFilter

Open = Callable[..., TierStream]
ORDERS = ("orders", 0)


class HastyClock(SystemClock):
    """A clock that is a second further at each reading: with an interval below it, a look is always due."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic_seconds(self) -> float:
        self._seconds += 1.0
        return self._seconds


def segment(bucket: Bucket, first: int, end: int, **options: Any) -> None:
    batches = [message(offset, f"m{offset}", 0) for offset in range(first, end)]
    bucket.segment(f"s{first}", batches, lineage={0: 0}, **options)


@pytest.fixture
def bucket(tmp_path: pathlib.Path) -> Bucket:
    made = Bucket(tmp_path / "bucket")
    segment(made, 0, 10)
    return made


@pytest.fixture
def opened(bucket: Bucket) -> Iterator[Open]:
    streams: list[TierStream] = []

    def open_stream(known: TierStream | None = None, **given: str) -> TierStream:
        options = {"path": str(bucket.root), "subscribe": "orders", "refreshInterval": "1ms"} | given
        options = {name: text for name, text in options.items() if text}
        checked = parse_options(options)[0]
        checked.check_stream()
        has = {} if known is None else {"topic_ids": known.live.topic_ids, "read": known.live.read}
        streams.append(TierStream(checked, machine=Machine(clock=HastyClock()), **has))
        return streams[-1]

    yield open_stream
    for each in streams:
        each.close()


def read(stream: TierStream, start: StreamOffsets, end: StreamOffsets) -> list[tuple[int, int]]:
    """Partition and offset of each record of a batch."""
    plan, found = stream.plan(start, end), []
    with open_tier(stream._options.paths[0]) as tier:
        for task in plan.iter_tasks():
            for scan_range in task:
                for rows in read_scan_range(tier, scan_range, columns=("partition", "offset")):
                    found += list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))
    return found


def offsets(stream: TierStream, start: StreamOffsets, end: StreamOffsets) -> list[int]:
    return [offset for _, offset in read(stream, start, end)]


@pytest.mark.parametrize(
    ("given", "first"),
    [
        ({}, 10),
        ({"startingOffsets": "latest"}, 10),
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": '{"orders":{"0":4}}'}, 4),
        ({"startingOffsets": '{"orders":{"0":-1}}'}, 10),
        ({"startingOffsets": '{"orders":{"0":-2}}'}, 0),
        ({"startingTimestamp": "1700000003000"}, 3),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":1700000004500}}'}, 5),
        ({"startingTimestamp": "1800000000000", "startingOffsetsByTimestampStrategy": "latest"}, 10),
    ],
    ids=str,
)
def test_where_a_query_begins(opened: Open, given: dict[str, str], first: int) -> None:
    """If this fails, a query reads again what it should not, or passes over records, without a word."""
    stream = opened(**given)
    assert stream.initial_offsets() == {ORDERS: first}
    assert offsets(stream, {ORDERS: first}, stream.tier_ends()) == list(range(first, 10))


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"startingOffsets": '{"orders":{"1":4}}'}, ConfigError, "not read"),
        ({"startingOffsets": '{"orders":{"0":11}}'}, DataLossError, "starting offset is 11"),
        ({"startingTimestamp": "1800000000000"}, ConfigError, "none of which is of time"),
        ({"subscribe": "order"}, UnknownTopicError, "no topic order"),
    ],
    ids=str,
)
def test_where_a_query_cannot_begin(opened: Open, given: dict[str, str], kind: type[Exception], text: str) -> None:
    """If this fails, a wrong option is a query that reads nothing."""
    stream = opened(**given)
    with pytest.raises(kind, match=text):
        stream.initial_offsets()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is not valid in a streaming query"),
        ({"endingTimestamp": "5"}, "endingTimestamp is not valid"),
        ({"table": "batches"}, "a stream has the records"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger 5 is above"),
    ],
    ids=str,
)
def test_what_no_stream_has(opened: Open, given: dict[str, str], text: str) -> None:
    """If this fails, an option of batch reads is passed over, and the query never ends where its user thinks."""
    with pytest.raises(ConfigError, match=text):
        opened(**given)


def test_each_record_is_in_one_batch(bucket: Bucket, opened: Open) -> None:
    """If this fails, a query that follows a topic has records twice, or lacks some."""
    stream = opened(startingOffsets="earliest")
    at, seen = stream.initial_offsets(), []
    for step in range(6):
        following = stream.next_offsets(at, TriggerLimits(7))
        assert sum(following.values()) - sum(at.values()) <= 8
        seen += read(stream, at, following)
        at = following
        segment(bucket, 10 + 4 * step, 14 + 4 * step)
        if step == 2:
            segment(Bucket(bucket.root, partition=3), 0, 5)
    while (following := stream.next_offsets(at, TriggerLimits(7))) != at:
        seen += read(stream, at, following)
        at = following
    assert len(seen) == len(set(seen))
    assert set(seen) == {(0, offset) for offset in range(34)} | {(3, offset) for offset in range(5)}


def test_open_transactions_are_not_read(bucket: Bucket, opened: Open) -> None:
    """If this fails, a query of read_committed passes over a transaction that ends later, or shows it before."""
    ours = {"producer_id": 7, "producer_epoch": 0}
    open_batch = Batch(10, (b"a", b"b"), transactional=True, **ours)
    bucket.segment("open", [open_batch, Batch(12, (b"c",))], lineage={0: 0}, open_transactions={7: 10})
    stream = opened(startingOffsets="earliest", **{"kafka.isolation.level": "read_committed"})
    start = stream.initial_offsets()
    assert stream.tier_ends() == {ORDERS: 10}
    bucket.segment("end", [Batch(13, (b"",), marker="commit", **ours), Batch(14, (b"d",))], lineage={0: 0})
    end = stream.next_offsets(start)
    assert end == {ORDERS: 15}
    assert offsets(stream, {ORDERS: 10}, end) == [10, 11, 12, 14]


def test_a_gap_is_waited_for(bucket: Bucket, opened: Open) -> None:
    """If this fails, the records of a segment that comes late are never read, or lost without a word."""
    stream = opened()
    segment(bucket, 14, 16)
    assert stream.next_offsets({ORDERS: 10}) == {ORDERS: 10}
    segment(bucket, 10, 14)
    assert stream.next_offsets({ORDERS: 10}) == {ORDERS: 16}
    segment(bucket, 20, 22)
    for each in bucket.root.rglob("*"):  # older than what may come late
        os.utime(each, (0, 0))
    end = stream.next_offsets({ORDERS: 16})
    assert end == {ORDERS: 22}
    with pytest.raises(DataLossError, match="offsets 16 to 19 are in no segment"):
        offsets(stream, {ORDERS: 16}, end)
    assert offsets(opened(failOnDataLoss="false"), {ORDERS: 16}, end) == [20, 21]


def test_what_retention_took(bucket: Bucket, opened: Open) -> None:
    """If this fails, a query whose records have expired reads others without a word, or begins at 0 again."""
    segment(bucket, 10, 20)
    stream, careless = opened(), opened(failOnDataLoss="false")
    bucket.path("s0", "rsm-manifest").unlink()
    with pytest.raises(DataLossError, match="offsets 10 to 19, and the starting offset is 5"):
        offsets(stream, {ORDERS: 5}, {ORDERS: 15})
    assert offsets(careless, {ORDERS: 5}, {ORDERS: 15}) == [10, 11, 12, 13, 14]
    bucket.path("s10", "rsm-manifest").unlink()
    assert stream.next_offsets({ORDERS: 15}) == {ORDERS: 15}  # nothing is left; what comes goes on behind it
    with pytest.raises(DataLossError, match="offsets 15 to 19 have gone from the tier"):
        offsets(stream, {ORDERS: 15}, {ORDERS: 20})
    assert offsets(careless, {ORDERS: 15}, {ORDERS: 20}) == []
    segment(bucket, 20, 22)
    assert stream.next_offsets({ORDERS: 15}) == {ORDERS: 22}


def test_a_topic_that_was_made_anew(bucket: Bucket, opened: Open) -> None:
    """If this fails, the offsets of one topic are those of another, and its first records are never read."""
    stream = opened()
    assert stream.tier_ends() == {ORDERS: 10}
    bucket.path("s0", "rsm-manifest").unlink()
    again = Bucket(bucket.root, topic_id="AAAAAAAAAAAAAAAAAAAAAQ")
    segment(again, 0, 30)
    for each in (stream, opened(stream)):
        with pytest.raises(DataLossError, match="topic orders was deleted and made anew"):
            each.next_offsets({ORDERS: 10})


def test_a_log_that_lost_what_was_read(bucket: Bucket, opened: Open) -> None:
    """If this fails, a query passes over records that an unclean election put in the place of those that it read."""
    stream = opened()
    assert offsets(stream, {}, {ORDERS: 10}) == list(range(10))
    assert stream.live.read == {ORDERS: (9, 0)}

    def lead(first: int) -> list[TierStream]:
        batches = [message(offset, f"n{offset}", 2 if offset >= first else 0) for offset in range(20)]
        bucket.segment(f"led-{first}", batches, lineage={0: 0, 2: first})
        return [opened(stream), opened(stream, failOnDataLoss="false"), stream]

    for each in lead(10):
        assert each.next_offsets({ORDERS: 10}) == {ORDERS: 20}
    bucket.path("led-10", "rsm-manifest").unlink()
    careful, careless, running = lead(6)
    for each in (careful, running):
        with pytest.raises(DataLossError, match="offset 9 was read as of leader epoch 0, and is of 2"):
            each.next_offsets({ORDERS: 10})
    assert careless.next_offsets({ORDERS: 10}) == {ORDERS: 20}
    assert offsets(careless, {ORDERS: 10}, {ORDERS: 20}) == list(range(10, 20))


def test_a_tier_behind_the_query(opened: Open) -> None:
    """If this fails, a bucket that was restored from an older copy has the query go back, and give records twice."""
    stream = opened()
    assert stream.next_offsets({ORDERS: 12}) == {ORDERS: 12}
    with pytest.raises(DataLossError, match="the batch ends at offset 14, the tier at 10"):
        stream.plan({ORDERS: 12}, {ORDERS: 14})
    with pytest.raises(DataLossError, match="the tier ends in front of offset 12"):
        stream.plan({ORDERS: 12}, {ORDERS: 10})  # as Spark 4.0 has it, which tells no start
    with pytest.raises(DataLossError, match="the tier ends in front of offset 12"):
        stream.plan({ORDERS: 12}, {})


def test_the_end_of_a_query_is_fixed(bucket: Bucket, opened: Open) -> None:
    """If this fails, AvailableNow over a topic that grows never ends."""
    stream = opened(startingOffsets="earliest")
    at, final = stream.initial_offsets(), stream.tier_ends(is_fresh=True)
    segment(bucket, 10, 20)
    segment(Bucket(bucket.root, partition=1), 0, 3)
    batches = 0
    while (
        following := stream.next_offsets(at, TriggerLimits(4, min_offsets=1000, max_delay_ms=10**9), final=final)
    ) != at:
        at, batches = following, batches + 1
    assert (at, batches) == ({ORDERS: 10}, 3)


def spark_reader(bucket: Bucket, starting_offsets: str) -> TierlogStreamReader:
    """As Spark 4.0 and 4.1 have it."""
    options = {"path": str(bucket.root), "subscribe": "orders", "refreshInterval": "1ms", "engine": "python"}
    options |= {"startingOffsets": starting_offsets}
    return TierlogStreamReader(parse_options(options)[0], DefaultSource(options).schema())


def rows(reader: TierlogStreamReader, start: JsonOffsets, end: JsonOffsets) -> list[tuple[int, int]]:
    batches = [batch for task in reader.partitions(start, end) for batch in reader.read(task)]
    return sorted((row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist())


@pytest.mark.parametrize(("starting_offsets", "first"), [("earliest", 0), ("latest", 10)])
def test_the_end_of_the_first_batch_is_asked_for_first(bucket: Bucket, starting_offsets: str, first: int) -> None:
    """If this fails, Spark 4.0 and 4.1 end a query that starts while its tier grows, and at each restart again."""
    reader = spark_reader(bucket, starting_offsets)
    end = reader.latestOffset()
    segment(bucket, 10, 12)
    segment(Bucket(bucket.root, partition=1), 0, 5)
    assert rows(reader, reader.initialOffset(), end) == [(0, offset) for offset in range(first, 10)]
    following = reader.latestOffset()
    assert rows(reader, end, following) == [(0, 10), (0, 11), *((1, offset) for offset in range(5))]
    reader.stop()


def test_a_partition_that_is_newer_than_the_first_batch(bucket: Bucket) -> None:
    """If this fails, a query that was killed in its first batch never starts again, since the tier has grown."""
    killed = spark_reader(bucket, "earliest")
    end = killed.latestOffset()
    killed.stop()
    segment(Bucket(bucket.root, partition=1), 0, 5)
    reader = spark_reader(bucket, "earliest")
    assert rows(reader, reader.initialOffset(), end) == [(0, offset) for offset in range(10)]
    assert rows(reader, end, reader.latestOffset()) == [(1, offset) for offset in range(5)]
    reader.stop()


@pytest.mark.parametrize("starting_offsets", ["latest", '{"orders":{"0":-1}}'])
def test_a_first_batch_that_begins_at_the_end_is_tried_again(bucket: Bucket, starting_offsets: str) -> None:
    """If this fails, a query whose first batch failed never starts again once the tier has grown, or lacks records."""
    killed = spark_reader(bucket, starting_offsets)
    end = killed.latestOffset()
    assert killed.initialOffset() == end
    killed.stop()
    segment(bucket, 10, 12)
    if starting_offsets == "latest":
        segment(Bucket(bucket.root, partition=1), 0, 5)
    reader = spark_reader(bucket, starting_offsets)
    assert rows(reader, reader.initialOffset(), end) == []
    following = rows(reader, end, reader.latestOffset())
    assert following == [(0, 10), (0, 11), *((1, each) for each in range(5) if starting_offsets == "latest")]
    reader.stop()


def test_a_first_batch_that_begins_at_the_end_has_nothing(bucket: Bucket) -> None:
    """If this fails, records that came as the query began are lost where its first batch is tried again."""
    streaming = pytest.importorskip("pyspark.sql.streaming.datasource", reason="of Spark 4.2 and newer")
    from pyspark_tierlog.stream.limited_reader import LimitedStreamReader

    options = {"path": str(bucket.root), "subscribe": "orders", "refreshInterval": "1ms", "engine": "python"}
    reader = LimitedStreamReader(parse_options(options)[0], DefaultSource(options).schema())
    begun, everything = reader.initialOffset(), streaming.ReadAllAvailable()
    segment(bucket, 10, 12)
    segment(Bucket(bucket.root, partition=1), 0, 5)
    time.sleep(0.01)
    end = reader.latestOffset(begun, everything)
    assert end == begun
    assert rows(reader, begun, end) == []
    following = reader.latestOffset(end, everything)
    assert rows(reader, end, following) == [(0, 10), (0, 11), *((1, offset) for offset in range(5))]
    reader.stop()


def test_a_look_is_made_when_it_is_due(bucket: Bucket, opened: Open) -> None:
    """If this fails, a query without news lists the bucket ten times a second."""
    stream = opened(refreshInterval="1h")
    looks: list[int] = []
    look = stream.live._followed.look

    def counted() -> Any:
        looks.append(1)
        return look()

    stream.live._followed.look = counted  # type: ignore[method-assign]
    segment(bucket, 10, 12)
    assert [stream.tier_ends() for _ in range(5)] == [{ORDERS: 12}] * 5
    segment(bucket, 12, 14)
    assert stream.tier_ends() == {ORDERS: 12}
    assert stream.tier_ends(is_fresh=True) == {ORDERS: 14}
    assert len(looks) == 2


def test_a_store_that_is_away(bucket: Bucket, opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    """If this fails, a store that is away for a moment ends a query that has nothing to read from it."""
    from tierlog.errors import StoreUnavailableError

    stream = opened()
    assert stream.tier_ends() == {ORDERS: 10}
    look = stream.live._followed.look

    def away() -> Any:
        raise StoreUnavailableError("503")

    stream.live._followed.look = away  # type: ignore[method-assign]
    assert [stream.tier_ends(is_fresh=True) for _ in range(3)] == [{ORDERS: 10}] * 3
    assert caplog.text.count("503; the tier is looked at again") == 1
    stream.live._followed.look = look  # type: ignore[method-assign]
    segment(bucket, 10, 12)
    assert stream.tier_ends(is_fresh=True) == {ORDERS: 12}


@pytest.mark.parametrize("value", [[], {"orders": 5}, {"orders": {"0": "5"}}, {"orders": {"x": 1}}, {"o": {"0": -1}}])
def test_a_checkpoint_of_something_else(value: object) -> None:
    """If this fails, a checkpoint of another source is read as offsets."""
    with pytest.raises(ConfigError, match="the checkpoint's offsets are not of a topic"):
        from_json(value)


def test_a_tier_that_has_nothing_yet(bucket: Bucket, opened: Open) -> None:
    """If this fails, a partition that is not tiered yet has all of them read from brokers, or ends the query."""
    brokers = {"mode": "remote-preferred", "kafka.bootstrap.servers": "127.0.0.1:9"}
    assert opened(subscribe="payments,orders", **brokers).live.seams({}, {ORDERS: 20}) == {ORDERS: (10, True)}
    stream = opened(**brokers | {"subscribe": "", "assign": '{"orders":[0,1]}'})
    assert stream.live.seams({}, {ORDERS: 20, ("orders", 1): 5}) == {ORDERS: (10, True)}


def test_filters_of_a_batch_over_tier_and_brokers(bucket: Bucket, opened: Open) -> None:
    """If this fails, what a filter leaves out of the tier is read all the same, or records that pass it are not."""
    stream, facts = opened(), {ORDERS: BrokerFacts(None, 20, 9, 0)}
    stream.live.seams({ORDERS: 0}, {ORDERS: 14})
    for chosen, wanted in (
        (RecordFilter(first_offset=4, end_offset_exclusive=6), (4, 6)),
        (RecordFilter(), (0, 10)),
        (RecordFilter(partitions=frozenset({1})), None),
    ):
        planned = stream.plan({ORDERS: 0}, {ORDERS: 10}, brokers=facts, record_filter=chosen)
        ranges = [each for task in planned.iter_tasks() for each in task]
        found = (ranges[0].from_offset, ranges[-1].to_offset_exclusive) if ranges else None
        assert found == wanted, chosen


def test_what_lies_behind_a_hole_is_the_brokers(bucket: Bucket, opened: Open) -> None:
    """If this fails, records that the brokers have are lost for good where the tier lacks a segment."""
    bucket.segment("behind", [message(offset, "m", 0) for offset in range(12, 15)], lineage={0: 0})
    for path in bucket.root.rglob("*"):
        os.utime(path, (0, 0))  # nobody waits for the segment between any more
    live = opened().live
    assert live.histories()[ORDERS].gaps == (Gap(10, 12),)
    assert live.seams({ORDERS: 2}, {ORDERS: 20}) == {ORDERS: (10, True)}
    assert live.seams({ORDERS: 11}, {ORDERS: 20}) == {}
    assert live.seams({ORDERS: 12}, {ORDERS: 20}) == {ORDERS: (15, True)}


def test_seams_of_a_batch(bucket: Bucket, opened: Open) -> None:
    """If this fails, a batch over tier and brokers has records twice, or lacks some, or is of two logs."""
    place, other = ORDERS, ("orders", 1)
    stream = opened()
    assert stream.live.seams({place: 2, other: 0}, {place: 14, other: 3}) == {place: (10, True)}
    assert stream.live.seams({}, {place: 14}) == {place: (10, True)}
    assert stream.live.seams({place: 2}, {place: 8}) == {place: (8, True)}
    assert stream.live.seams({place: 10}, {place: 14}) == {}
    assert stream.live.seams({place: 0}, {place: 14}, local_starts={place: 6}) == {place: (6, True)}
    assert stream.live.seams({place: 0}, {place: 14}, local_starts={}) == {}
    with pytest.raises(ConfigError, match="has leader epoch 2 at offset 9"):
        stream.plan({place: 2}, {place: 10}, brokers={place: BrokerFacts(None, 20, 9, 2)})
    assert stream.live.seams({place: 2}, {place: 14}) == {place: (10, True)}
    stream.plan({place: 2}, {place: 10}, brokers={place: BrokerFacts(None, 20, 9, 0)})
    assert stream.live.seams({place: 2}, {place: 14}) == {place: (10, False)}
    bucket.segment("next", [message(10, "m10", 0)], lineage={0: 0, 4: 10})
    assert stream.live.seams({place: 2}, {place: 14}) == {place: (11, True)}
    with pytest.raises(ConfigError, match="another cluster"):
        stream.plan({place: 2}, {place: 11}, brokers={place: BrokerFacts("AAAAAAAAAAAAAAAAAAAAAQ")})
