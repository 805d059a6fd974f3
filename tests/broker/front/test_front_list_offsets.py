"""ListOffsets and DeleteRecords in front of a broker, both in memory."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader

from tests.support.front_rig import WRITE, FrontRig, LocalFrontRig, on_front
from tests.support.memory_topics import MemoryPartition
from tierlog.broker.handling import UpstreamError
from tierlog.broker.protocol.entities import entities_of, request_entities_of
from tierlog.broker.protocol.responses import encode_body
from tierlog.errors import StoreError
from tierlog.remote.api import Uuid

LIST_OFFSETS: Final = 2
VERSIONS: Final = range(1, 12)


def timed(rig: FrontRig, name: str = "orders", *, tiered: int = 4) -> tuple[MemoryPartition, MemoryPartition]:
    """A topic of six batches of ten records, one record a second."""
    tier, live, _ = rig.add(name, batches=6, tiered=tiered)
    live.batches = [
        dataclasses.replace(
            batch, timestamps_ms=[offset * 1000 for offset in range(batch.base_offset, batch.last_offset + 1)]
        )
        for batch in live.batches
    ]
    tier.batches = live.batches[:tiered]
    return tier, live


async def listed(
    rig: FrontRig, version: int, asks: Sequence[tuple[str, int, int]], *, isolation: int = 0
) -> Mapping[tuple[str, int], tuple[str, int, int]]:
    """(error, offset, timestamp) by partition."""
    entities = request_entities_of(LIST_OFFSETS, version)
    topics: dict[str, list[Any]] = {}
    for topic, partition, timestamp in asks:
        topics.setdefault(topic, []).append(
            entities.make("ListOffsetsPartition", partition_index=partition, timestamp=timestamp)
        )
    request = entities.request(
        replica_id=-1,
        isolation_level=isolation,
        timeout=datetime.timedelta(seconds=5),
        topics=tuple(
            entities.make("ListOffsetsTopic", name=name, partitions=tuple(partitions))
            for name, partitions in topics.items()
        ),
    )
    answer: Any = await rig.list_offsets.handle(request, rig.context(version))
    if hasattr(answer, "buffers"):
        data = b"".join(answer.buffers)
        answer.release()
    else:
        data = encode_body(answer)
    answer, size = entity_reader(load_response_schema(LIST_OFFSETS, version))(data, 0)
    assert size == len(data)
    return {
        (topic.name, one.partition_index): (one.error_code.name, one.offset, round(_ms(one.timestamp)))
        for topic in answer.topics
        for one in topic.partitions
    }


def _ms(timestamp: Any) -> float:
    return timestamp if isinstance(timestamp, int) else timestamp.timestamp() * 1000


@pytest.mark.parametrize("version", VERSIONS)
def test_a_time_in_the_tier_is_found_there(version: int) -> None:
    """Otherwise a search by time reads the bucket through the brokers; or its answer is another one."""

    async def test(rig: FrontRig) -> None:
        timed(rig)
        timed(rig, "payments", tiered=0)
        asks = [("orders", 0, 15_000), ("payments", 0, 15_500), ("orders", 1, 3_000)]
        assert await listed(rig, version, asks) == {
            ("orders", 0): ("none", 15, 15_000),
            ("orders", 1): ("unknown_topic_or_partition", -1, -1),
            ("payments", 0): ("none", 16, 16_000),
        }
        assert rig.counts.tier_lookups == 1
        (request,) = rig.upstream.asked_of(LIST_OFFSETS)
        assert [(topic.name, len(topic.partitions)) for topic in request.topics] == [("orders", 1), ("payments", 1)]
        assert await listed(rig, version, [("orders", 0, 39_000)]) == {("orders", 0): ("none", 39, 39_000)}
        assert len(rig.upstream.asked_of(LIST_OFFSETS)) == 1
        for timestamp in (39_001, 70_000, -1, -2):
            await listed(rig, version, [("orders", 0, timestamp)])
        assert len(rig.upstream.asked_of(LIST_OFFSETS)) == 5, "all else is the broker's"
        assert (await listed(rig, version, [("orders", 0, 39_001)]))["orders", 0] == ("none", 40, 40_000)
        assert rig.counts.tier_lookups == 2

    on_front(test)


@pytest.mark.parametrize("case", ["log start", "later tier", "lineage", "rights", "failure", "twice", "follower"])
def test_what_the_tier_cannot_say_for_sure_is_the_brokers(case: str) -> None:
    """Otherwise a consumer begins behind records that it asked for, or learns times of a topic that it may not read."""

    async def test(rig: FrontRig) -> None:
        tier, live = timed(rig)
        expected = ("none", 15, 15_000)
        asks = [("orders", 0, 15_000)]
        if case == "log start":
            rig.brokers.partitions["orders", 0].log_start_offset = live.log_start_offset = 17
            expected = ("none", 17, 17_000)
        elif case == "later tier":
            tier.log_start_offset = 5
        elif case == "lineage":
            rig.brokers.ids["orders"] = Uuid(b"another topic...")
        elif case == "rights":
            rig.upstream.operations["orders"] = WRITE
        elif case == "failure":
            tier.error = StoreError("the store is away")
        elif case == "twice":
            asks *= 2
            expected = ("invalid_request", -1, -1)
        elif case == "follower":
            rig.states.move_log_start(("orders", 0), 5)
            tier.last_stable_offset = 10
        isolation = int(case == "follower")
        assert await listed(rig, 7, asks, isolation=isolation) == {("orders", 0): expected}
        assert rig.counts.tier_lookups == 0

    on_front(test)


def test_local_preference_does_not_matter_for_times() -> None:
    """Otherwise a search begins at the broker although the tier has the whole beginning of the log."""

    async def test(rig: FrontRig) -> None:
        timed(rig)
        assert await listed(rig, 7, [("orders", 0, 15_000)]) == {("orders", 0): ("none", 15, 15_000)}
        assert rig.upstream.asked_of(LIST_OFFSETS) == []

    on_front(test, LocalFrontRig)


@pytest.mark.parametrize("version", range(3))
def test_deleted_records_are_gone_at_once(version: int) -> None:
    """Otherwise a client that has deleted records through the front reads them again."""

    async def test(rig: FrontRig) -> None:
        _, live, _ = rig.add("orders", batches=6, tiered=4)
        assert (await rig.fetch_of("orders", 0)).records
        entities = request_entities_of(21, version)

        def answered(request: Any, api_version: int) -> Any:
            made = entities_of(21, api_version)
            told = [(one.partition_index, one.offset) for topic in request.topics for one in topic.partitions]
            return made.response(
                topics=(
                    made.make(
                        "DeleteRecordsTopicResult",
                        name="orders",
                        partitions=tuple(
                            made.make(
                                "DeleteRecordsPartitionResult",
                                partition_index=number,
                                low_watermark=offset,
                                error_code=ErrorCode.none if number == 0 else ErrorCode.unknown_topic_or_partition,
                            )
                            for number, offset in told
                        ),
                    ),
                )
            )

        rig.upstream.answers[21] = answered
        request = entities.request(
            timeout=datetime.timedelta(seconds=5),
            topics=(
                entities.make(
                    "DeleteRecordsTopic",
                    name="orders",
                    partitions=tuple(
                        entities.make("DeleteRecordsPartition", partition_index=number, offset=20) for number in (0, 1)
                    ),
                ),
            ),
        )
        answer: Any = await rig.delete_records.handle(request, rig.context(version))
        told, _ = entity_reader(load_response_schema(21, version))(b"".join(answer.buffers), 0)
        assert told.topics[0].partitions[0].low_watermark == 20
        answer.release()
        live.log_start_offset = 20
        assert (await rig.fetch_of("orders", 0)).errors == {("orders", 0): "offset_out_of_range"}
        assert (await rig.fetch_of("orders", 20)).records
        rig.upstream.error = UpstreamError("gone")
        with pytest.raises(UpstreamError):
            await rig.delete_records.handle(request, rig.context(version))

    on_front(test)
