"""Each API of groups at each version: through the bytes of a request and of its answer, as kio and Kafka have them."""

from __future__ import annotations

import asyncio
import dataclasses
import uuid
from datetime import timedelta
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from kio.schema.errors import ErrorCode

from tests.support.group_rig import SUBSCRIPTION
from tests.support.group_wire import (
    COMMIT,
    DELETE,
    DELETE_OFFSETS,
    DESCRIBE,
    FETCH,
    FIND,
    HEARTBEAT,
    JOIN,
    LEAVE,
    LIST,
    NONE,
    ORDERS,
    SYNC,
    Wire,
    on_loop,
)
from tests.support.kafka_entities import requests
from tierlog.broker.groups.group_config import GroupConfig
from tierlog.broker.partitions import Topic
from tierlog.remote.api import Uuid


def versions(api_key: int) -> pytest.MarkDecorator:
    [handler] = [handler for handler in Wire().handlers.values() if handler.api_key == api_key]
    return pytest.mark.parametrize("version", handler.versions)


@versions(JOIN)
def test_a_client_of_any_version_joins(version: int) -> None:
    """Otherwise clients of one age cannot consume in groups."""

    async def test(wire: Wire) -> None:
        joined, synced = await wire.stable(version)
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (NONE, 1, "range")
        assert joined.leader == joined.member_id != ""
        [member] = joined.members
        assert (member.member_id, member.metadata) == (joined.member_id, SUBSCRIPTION)
        assert getattr(joined, "protocol_type", "consumer") == "consumer"
        assert not getattr(joined, "skip_assignment", False)
        assert (synced.error_code, synced.assignment) == (NONE, b"mine")
        group = wire.rig.coordinator.find("readers")
        assert group is not None
        [kept] = group.members.values()
        assert (kept.client_id, kept.client_host) == ("client", "/10.0.0.1")
        assert kept.rebalance_timeout_ms == (60_000 if version else 10_000)

    on_loop(test)


@versions(JOIN)
def test_a_refused_join_has_all_fields(version: int) -> None:
    """Otherwise a refusal cannot be encoded, and the client sees a closed connection."""

    async def test(wire: Wire) -> None:
        refused = await wire.join(version, session_timeout=timedelta(milliseconds=1))
        assert refused.error_code is ErrorCode.invalid_session_timeout
        assert refused.generation_id == -1
        assert refused.protocol_name == (None if version >= 7 else "")
        assert (refused.leader, refused.members) == ("", ())

    on_loop(test)


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9])
def test_a_static_member_comes_back(version: int) -> None:
    """Otherwise group.instance.id does not reach the coordinator."""

    async def test(wire: Wire) -> None:
        joined, _ = await wire.stable(version, group_instance_id="one")
        assert joined.members[0].group_instance_id == "one"
        back = await wire.join(version, group_instance_id="one")
        assert (back.error_code, back.generation_id) == (NONE, 1)
        assert getattr(back, "skip_assignment", None) is (True if version >= 9 else None)
        assert (back.leader == back.member_id) is (version >= 9)
        fenced = await wire.ask(
            HEARTBEAT, 4, group_id="readers", generation_id=1, member_id=joined.member_id, group_instance_id="one"
        )
        assert fenced.error_code is ErrorCode.fenced_instance_id

    on_loop(test)


@versions(SYNC)
def test_assignments_are_asked_for_at_any_version(version: int) -> None:
    """Otherwise a member does not learn what it reads, or a version is read wrongly."""

    async def test(wire: Wire) -> None:
        joined, _ = await wire.stable()
        asked = {"group_id": "readers", "generation_id": 1, "member_id": joined.member_id, "assignments": ()}
        bare = await wire.ask(SYNC, version, **asked)
        if version >= 5:
            assert (bare.error_code, bare.assignment) == (ErrorCode.inconsistent_group_protocol, b"")
            asked |= {"protocol_type": "consumer", "protocol_name": "range"}
            again = await wire.ask(SYNC, version, **asked)
            assert (again.assignment, again.protocol_name, again.protocol_type) == (b"mine", "range", "consumer")
        else:
            assert (bare.error_code, bare.assignment) == (NONE, b"mine")

    on_loop(test)


@versions(HEARTBEAT)
def test_heartbeats_of_any_version(version: int) -> None:
    """Otherwise members are thrown out though they show that they live."""

    async def test(wire: Wire) -> None:
        joined, _ = await wire.stable()
        fields = {"group_id": "readers", "generation_id": 1, "member_id": joined.member_id}
        assert (await wire.ask(HEARTBEAT, version, **fields)).error_code is NONE
        wrong = await wire.ask(HEARTBEAT, version, **(fields | {"generation_id": 2}))
        assert wrong.error_code is ErrorCode.illegal_generation

    on_loop(test)


@versions(LEAVE)
def test_members_leave_at_any_version(version: int) -> None:
    """Otherwise a consumer that is closed is waited for until its session ends."""

    async def test(wire: Wire) -> None:
        joined, _ = await wire.stable()
        ids = [joined.member_id, "nobody"]
        answers = []
        if version >= 3:
            members = tuple({"member_id": member_id, "group_instance_id": None} for member_id in ids)
            answer = await wire.ask(LEAVE, version, group_id="readers", members=members)
            assert answer.error_code is NONE
            answers = [member.error_code for member in answer.members]
            assert [member.member_id for member in answer.members] == ids
        else:
            answers = [(await wire.ask(LEAVE, version, group_id="readers", member_id=each)).error_code for each in ids]
        assert answers == [NONE, ErrorCode.unknown_member_id]
        assert wire.rig.state() == "Empty"

    on_loop(test)


def commit_fields(version: int, offset: int = 7, **fields: Any) -> dict[str, Any]:
    """Of a commit of orders-0 and orders-3, of a partition and of a topic that are not served."""

    def named(topic: Topic, number: int) -> dict[str, Any]:
        return ({"topic_id": uuid.UUID(bytes=topic.topic_id.raw)} if version >= 10 else {"name": topic.name}) | {
            "partitions": tuple(committed(each) for each in ((0, 3, 2) if number == 0 else (0,)))
        }

    def committed(partition: int) -> dict[str, Any]:
        return {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_leader_epoch": 4,
            "committed_metadata": "note" if partition == 0 else None,
        }

    unknown = Topic("unknown", Uuid(b"u" * 16), ())
    return {
        "group_id": "readers",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": (named(ORDERS, 0), named(unknown, 1)),
    } | fields


def errors_of(answer: Any) -> list[list[ErrorCode]]:
    return [[partition.error_code for partition in topic.partitions] for topic in answer.topics]


async def fetched(wire: Wire, version: int, *, everything: bool = False, stable: bool = False) -> list[Any]:
    """(topic, partition, offset, epoch, metadata, error) of the group's offsets."""
    topics: Any = None
    if not everything:
        name = {"topic_id": uuid.UUID(bytes=ORDERS.topic_id.raw)} if version >= 10 else {"name": "orders"}
        other = {"topic_id": uuid.UUID(bytes=b"u" * 16)} if version >= 10 else {"name": "unknown"}
        topics = (name | {"partition_indexes": (0, 3, 1)}, other | {"partition_indexes": (0,)})
    fields = {"group_id": "readers", "topics": topics, "require_stable": stable}
    if version >= 8:
        fields = {"groups": (fields, fields | {"group_id": "nobody"}), "require_stable": stable}
    answer = await wire.ask(FETCH, version, **fields)
    if version >= 8:
        assert [group.group_id for group in answer.groups] == ["readers", "nobody"]
        nobody = [partition.committed_offset for topic in answer.groups[1].topics for partition in topic.partitions]
        assert nobody == ([] if everything else [-1] * 4)
        [answer, _] = answer.groups
    return [
        (
            getattr(topic, "name", getattr(topic, "topic_id", None)),
            partition.partition_index,
            partition.committed_offset,
            getattr(partition, "committed_leader_epoch", 4),
            partition.metadata,
            partition.error_code,
        )
        for topic in answer.topics
        for partition in topic.partitions
    ]


@versions(COMMIT)
def test_offsets_are_committed_at_any_version(version: int) -> None:
    """Otherwise a consumer's place is lost, or that of a topic that is not served is stored."""

    async def test(wire: Wire) -> None:
        answer = await wire.ask(COMMIT, version, **commit_fields(version))
        unknown = ErrorCode.unknown_topic_or_partition
        no_topic = ErrorCode.unknown_topic_id if version >= 10 else unknown
        assert errors_of(answer) == [[NONE, NONE, unknown], [no_topic]]
        kept = wire.rig.coordinator.offsets.of("readers")
        assert sorted(kept) == [("orders", 0), ("orders", 3)]
        first = kept["orders", 0]
        assert (first.committed_offset, first.metadata, first.topic_id) == (7, "note", ORDERS.topic_id)
        assert first.leader_epoch == (4 if version >= 6 else -1)
        long = commit_fields(version)
        long["topics"][0]["partitions"][0]["committed_metadata"] = "ü" * 4097
        answer = await wire.ask(COMMIT, version, **long)
        assert errors_of(answer)[0] == [ErrorCode.offset_metadata_too_large, NONE, unknown]
        wrong = commit_fields(version, generation_id_or_member_epoch=5, member_id="nobody")
        answer = await wire.ask(COMMIT, version, **wrong)
        assert errors_of(answer) == [[ErrorCode.unknown_member_id] * 2 + [unknown], [no_topic]]

    on_loop(test)


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_client_sets_how_long_its_offsets_stay(version: int) -> None:
    """Otherwise offsets of old clients stay for a week though they asked for an hour."""

    async def test(wire: Wire) -> None:
        await wire.ask(COMMIT, version, **commit_fields(version, retention_time=timedelta(hours=1)))
        wire.rig.advance(50 * 60)
        assert wire.rig.committed() == 7
        wire.rig.advance(20 * 60)
        assert wire.rig.committed() is None

    on_loop(test)


@versions(FETCH)
def test_offsets_are_fetched_at_any_version(version: int) -> None:
    """Otherwise a consumer begins somewhere else than it was."""

    async def test(wire: Wire) -> None:
        await wire.ask(COMMIT, 9, **commit_fields(9))
        orders = uuid.UUID(bytes=ORDERS.topic_id.raw) if version >= 10 else "orders"
        other = uuid.UUID(bytes=b"u" * 16) if version >= 10 else "unknown"
        mine = [(orders, 0, 7, 4, "note", NONE), (orders, 3, 7, 4, "", NONE)]
        nothing = -1 if version >= 5 else 4
        no_topic = ErrorCode.unknown_topic_id if version >= 10 else NONE
        absent = [(orders, 1, -1, nothing, "", NONE), (other, 0, -1, nothing, "", no_topic)]
        assert await fetched(wire, version) == mine + absent
        if version >= 2:
            assert await fetched(wire, version, everything=True) == mine
        assert await fetched(wire, version, stable=True) == mine + absent

    on_loop(test)


def test_a_group_is_asked_for_once() -> None:
    """A request of a few KB, which names a group again and again, would be answered with all its offsets each time."""

    async def test(wire: Wire) -> None:
        await wire.ask(COMMIT, 9, **commit_fields(9))
        fields = {"group_id": "readers", "topics": None}
        answer = await wire.ask(FETCH, 8, groups=(fields,) * 3 + (fields | {"group_id": "nobody"},))
        told = [(group.group_id, group.error_code, len(group.topics)) for group in answer.groups]
        assert told == [("readers", ErrorCode.invalid_request, 0), ("nobody", NONE, 0)]

    on_loop(test)


async def written(wire: Wire, count: int) -> None:
    """Wait until so many writes wait for the store."""
    for _ in range(100):
        await asyncio.sleep(0)
        if wire.rig.store.waiting == count:
            return
    raise AssertionError(f"{wire.rig.store.waiting} writes wait")


def test_a_stable_fetch_waits_for_the_commits_before_it() -> None:
    """Otherwise a member that takes over a partition begins before the last commit of the one that had it."""

    async def test(wire: Wire) -> None:
        wire.rig.is_prompt = False
        committing = asyncio.ensure_future(wire.ask(COMMIT, 9, **commit_fields(9)))
        await written(wire, 1)
        fetching = asyncio.ensure_future(fetched(wire, 9, stable=True))
        await written(wire, 2)
        now = await fetched(wire, 9)
        assert {offset for _, _, offset, *_ in now} == {-1}
        assert not committing.done()
        assert not fetching.done()
        wire.rig.store.flush()
        assert [offset for _, _, offset, *_ in await fetching][:2] == [7, 7]
        await committing

    on_loop(test)


def test_a_topic_that_was_made_anew_has_no_offsets() -> None:
    """Otherwise a consumer of the new topic begins behind all its records."""

    async def test(wire: Wire) -> None:
        await wire.ask(COMMIT, 9, **commit_fields(9))
        wire.catalog.served["orders"] = Topic("orders", Uuid(b"n" * 16), (0, 1, 3))
        assert {offset for _, _, offset, *_ in await fetched(wire, 9)} == {-1}
        assert await fetched(wire, 9, everything=True) == []
        await wire.ask(COMMIT, 9, **commit_fields(9, offset=1))
        assert [offset for _, _, offset, *_ in await fetched(wire, 9, everything=True)] == [1, 1]
        del wire.catalog.served["orders"]
        assert len(await fetched(wire, 9, everything=True)) == 2, "what is not served now may be served again"
        assert await fetched(wire, 10, everything=True) == []

    on_loop(test)


def test_offsets_are_deleted() -> None:
    """Otherwise an administrator cannot take a group's place in a topic away."""

    async def test(wire: Wire) -> None:
        topics = (
            {"name": "orders", "partitions": ({"partition_index": 0}, {"partition_index": 2})},
            {"name": "no-id", "partitions": ({"partition_index": 0},)},
        )
        asked = {"group_id": "readers", "topics": topics}
        assert (await wire.ask(DELETE_OFFSETS, 0, **asked)).error_code is ErrorCode.group_id_not_found
        joined, _ = await wire.stable()
        fields = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
        await wire.ask(COMMIT, 9, **commit_fields(9, **fields))
        unknown, subscribed = ErrorCode.unknown_topic_or_partition, ErrorCode.group_subscribed_to_topic
        answer = await wire.ask(DELETE_OFFSETS, 0, **asked)
        assert errors_of(answer) == [[subscribed, unknown], [NONE]]
        await wire.ask(
            LEAVE, 5, group_id="readers", members=({"member_id": joined.member_id, "group_instance_id": None},)
        )
        answer = await wire.ask(DELETE_OFFSETS, 0, **asked)
        assert (answer.error_code, errors_of(answer)) == (NONE, [[NONE, unknown], [NONE]])
        assert sorted(wire.rig.coordinator.offsets.of("readers")) == [("orders", 3)]
        assert (await wire.ask(DELETE_OFFSETS, 0, group_id="", topics=())).error_code is ErrorCode.invalid_group_id
        wire.rig.join(group_id="workers", protocol_type="connect", must_know_member_id=False)
        answer = await wire.ask(DELETE_OFFSETS, 0, group_id="workers", topics=topics)
        assert (answer.error_code, answer.topics) == (ErrorCode.non_empty_group, ())

    on_loop(test)


@versions(LIST)
def test_groups_are_listed_at_any_version(version: int) -> None:
    """Otherwise an administrator does not see a group."""

    async def test(wire: Wire) -> None:
        await wire.stable()
        await wire.ask(COMMIT, 9, **commit_fields(9, group_id="simple"))
        listed = await wire.ask(LIST, version)
        assert listed.error_code is NONE
        assert [(group.group_id, group.protocol_type) for group in listed.groups] == [
            ("readers", "consumer"),
            ("simple", ""),
        ]
        if version >= 4:
            assert [group.group_state for group in listed.groups] == ["Stable", "Empty"]
            some = await wire.ask(LIST, version, states_filter=(" EMPTY ", "dead"))
            assert [group.group_id for group in some.groups] == ["simple"]
        if version >= 5:
            assert {group.group_type for group in listed.groups} == {"classic"}
            assert len((await wire.ask(LIST, version, types_filter=("Classic",))).groups) == 2
            assert (await wire.ask(LIST, version, types_filter=("consumer", "share"))).groups == ()

    on_loop(test)


@versions(DESCRIBE)
def test_groups_are_described_at_any_version(version: int) -> None:
    """Otherwise lag and members cannot be seen."""

    async def test(wire: Wire) -> None:
        joined, _ = await wire.stable(group_instance_id="one")
        names = ("readers", "nowhere", "readers")  # each time as long as all its members: a few names would fill memory
        answer = await wire.ask(DESCRIBE, version, groups=names, include_authorized_operations=True)
        found, missing = answer.groups
        assert (found.group_state, found.protocol_type, found.protocol_data) == ("Stable", "consumer", "range")
        [member] = found.members
        assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "client", "/10.0.0.1")
        assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"mine")
        assert getattr(member, "group_instance_id", "one") == "one"
        assert missing.group_state == "Dead"
        assert missing.error_code is (ErrorCode.group_id_not_found if version >= 6 else NONE)
        if version >= 3:
            assert found.authorized_operations == 0b1101_0100_1000
            [found] = (
                await wire.ask(DESCRIBE, version, groups=("readers",), include_authorized_operations=False)
            ).groups
            assert found.authorized_operations == -(2**31)
        if version >= 6:
            assert missing.error_message == "Group nowhere not found."

    on_loop(test)


@versions(DELETE)
def test_groups_are_deleted_at_any_version(version: int) -> None:
    """Otherwise groups that nobody needs stay for ever."""

    async def test(wire: Wire) -> None:
        await wire.stable()
        await wire.ask(COMMIT, 9, **commit_fields(9, group_id="simple"))
        answer = await wire.ask(DELETE, version, groups_names=("simple", "readers", "nowhere", "simple"))
        assert {result.group_id: result.error_code for result in answer.results} == {
            "simple": NONE,
            "readers": ErrorCode.non_empty_group,
            "nowhere": ErrorCode.group_id_not_found,
        }
        assert len(answer.results) == 3

    on_loop(test)


@versions(FIND)
def test_the_coordinator_is_found_at_any_version(version: int) -> None:
    """Otherwise no client of that version finds its group; or a producer asks for ever for what is not there."""

    async def test(wire: Wire) -> None:
        if version < 4:
            answers = [await wire.ask(FIND, version, key="readers", key_type=0)]
        else:
            answers = (await wire.ask(FIND, version, coordinator_keys=("readers", "b"), key_type=0)).coordinators
            assert [answer.key for answer in answers] == ["readers", "b"]
        assert {(answer.error_code, answer.node_id, answer.host, answer.port) for answer in answers} == {
            (NONE, 3, "replica.example", 9092)
        }
        for key_type, error in (
            (1, ErrorCode.transactional_id_authorization_failed),
            (2, ErrorCode.invalid_request),
            (9, ErrorCode.invalid_request),
        ):
            if version < 4:
                refused = await wire.ask(FIND, version, key="t", key_type=key_type)
            else:
                [refused] = (await wire.ask(FIND, version, coordinator_keys=("t",), key_type=key_type)).coordinators
            assert refused.error_code is (error if version else NONE)
            assert refused.node_id == (-1 if version else 3)

    on_loop(test)


def test_what_nobody_waits_for_any_more_is_done_all_the_same() -> None:
    """Otherwise a client that goes away in the midst of a commit leaves memory and disk in disagreement."""

    async def test(wire: Wire) -> None:
        wire.rig.is_prompt = False
        committing = asyncio.ensure_future(wire.ask(COMMIT, 9, **commit_fields(9)))
        await written(wire, 1)
        joining = asyncio.ensure_future(wire.join(3))
        for _ in range(10):
            await asyncio.sleep(0)
        assert wire.rig.state() == "PreparingRebalance"
        committing.cancel()
        joining.cancel()
        await asyncio.gather(committing, joining, return_exceptions=True)
        wire.rig.is_prompt = True
        wire.rig.advance(4)
        assert wire.rig.committed() == 7
        assert wire.rig.state() == "CompletingRebalance"

    on_loop(test, GroupConfig())


def test_every_api_of_groups_is_answered() -> None:
    """Otherwise a handler is written and never served."""
    keys = {JOIN, HEARTBEAT, LEAVE, SYNC, FIND, COMMIT, FETCH, DELETE_OFFSETS, LIST, DESCRIBE, DELETE}
    assert Wire().handlers.keys() == keys


@pytest.mark.parametrize("api_key", sorted(Wire().handlers))
@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_any_request_is_answered(api_key: int, data: st.DataObject) -> None:
    """Otherwise a client with odd fields has its connection closed, or stops the server's loop."""
    version = data.draw(st.sampled_from(Wire().handlers[api_key].versions))
    asked = data.draw(st.lists(requests(api_key, version), min_size=1, max_size=4))

    async def test(wire: Wire) -> None:
        await wire.stable()
        await wire.ask(COMMIT, 9, **commit_fields(9, group_id=""))
        for request in asked:
            if hasattr(request, "session_timeout") and data.draw(st.booleans()):
                request = dataclasses.replace(request, session_timeout=timedelta(seconds=10))
            if hasattr(request, "group_id") and data.draw(st.booleans()):
                request = dataclasses.replace(request, group_id="readers")
            await wire.answer(api_key, version, request)

    on_loop(test)
