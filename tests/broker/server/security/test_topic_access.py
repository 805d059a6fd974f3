"""Topics of users: the file, and what each API tells a client of topics that it may not read."""

from __future__ import annotations

import datetime
import pathlib
import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support import fetch_client, group_wire
from tests.support.api_calls import call, make_request
from tests.support.batches import Batch
from tests.support.fetch_client import Ask, FetchRig
from tests.support.group_wire import Wire
from tests.support.memory_topics import MemoryCatalog
from tierlog.broker.apis.describe_cluster import ServerIdentity
from tierlog.broker.apis.describe_configs import DescribeConfigsHandler
from tierlog.broker.apis.describe_log_dirs import DescribeLogDirsHandler
from tierlog.broker.apis.describe_topic_partitions import DescribeTopicPartitionsHandler
from tierlog.broker.apis.list_offsets import ListOffsetsHandler
from tierlog.broker.apis.metadata import MetadataHandler
from tierlog.broker.apis.offset_for_leader_epoch import OffsetForLeaderEpochHandler
from tierlog.broker.server.security.topic_access import open_topic_access, parse_topic_access
from tierlog.errors import ConfigError
from tierlog.runtime.machine.posix_files import PosixFiles

MINUTE = datetime.timedelta(minutes=1)
IDENTITY = ServerIdentity("cluster")
DENIED, NONE = ErrorCode.topic_authorization_failed, ErrorCode.none
OPERATIONS = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
#: The client may read one topic of those that are there, and one that is not.
READABLE = {"open", "absent"}


def may_read(topic: str) -> bool:
    return topic in READABLE


@pytest.fixture
def topics() -> MemoryCatalog:
    catalog = MemoryCatalog()
    for name in ("open", "secret"):
        catalog.add(name, batches=[Batch(0, (b"a", b"b"), epoch=1)])
    return catalog


def wire_id(topics: MemoryCatalog, name: str) -> uuid.UUID:
    topic = topics.find(name)
    assert topic is not None
    return uuid.UUID(bytes=topic.topic_id.raw)


# ---- the file


def test_a_user_reads_the_topics_that_are_named() -> None:
    """Otherwise a right is more, or less, than what the operator wrote down."""
    access = parse_topic_access("# rights\n\nalice:orders\nalice:pay-*\r\nbob:*\nal:open\n", "file")
    rights = {
        (user, topic): access.may_read(f"User:{user}", topic)
        for user in ("alice", "bob", "al", "carol", "ANONYMOUS")
        for topic in ("orders", "orders2", "pay-", "pay-a", "pay", "open", "")
    }
    assert {user for (user, _), is_allowed in rights.items() if is_allowed} == {"alice", "bob", "al"}
    assert [topic for (user, topic), is_allowed in rights.items() if user == "alice" and is_allowed] == [
        "orders",
        "pay-",
        "pay-a",
    ]
    assert all(is_allowed for (user, _), is_allowed in rights.items() if user == "bob")
    assert [topic for (user, topic), is_allowed in rights.items() if user == "al" and is_allowed] == ["open"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("alice", "file:1: "),
        ("alice:\n", "file:1: "),
        (":orders\n", "file:1: "),
        ("alice:orders\nalice: pay\n", "file:2: "),
        ("alice:a*b\n", "file:1: "),
        ("# nothing\n", "names no topic"),
        ("", "names no topic"),
    ],
)
def test_a_line_that_says_nothing_is_an_error(text: str, told: str) -> None:
    """A misspelled line would take a right away, or give one, in silence."""
    with pytest.raises(ConfigError, match=told):
        parse_topic_access(text, "file")


def test_a_changed_file_counts_at_once_unless_it_is_malformed(tmp_path: pathlib.Path) -> None:
    """A right that was withdrawn would last until the server starts anew; half a file would withdraw all."""
    path = tmp_path / "topics"
    path.write_text("alice:orders\n")
    access = open_topic_access(str(path), PosixFiles())
    path.write_text("alice:orders\nalice\n")
    assert not access.reload()
    assert access.value.may_read("User:alice", "orders")
    path.write_text("alice:payments\n")
    assert access.reload()
    assert not access.value.may_read("User:alice", "orders")
    path.write_bytes(b"\xff")
    assert not access.reload()


# ---- the APIs


@pytest.mark.parametrize("version", MetadataHandler.versions)
def test_metadata(topics: MemoryCatalog, version: int) -> None:
    """The list of topics tells names that are secrets, and an error for a name says whether it is there."""
    every = make_request(3, version, topics=() if version == 0 else None, **OPERATIONS)
    answer = call(MetadataHandler(topics, IDENTITY), version, every, may_read=may_read)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("open", NONE)]
    names = [{"name": name, "topic_id": None} for name in ("secret", "open", "absent", "hidden")]
    answer = call(
        MetadataHandler(topics, IDENTITY),
        version,
        make_request(3, version, topics=names, **OPERATIONS),
        may_read=may_read,
    )
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("open", NONE),
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("secret", DENIED),
        ("hidden", DENIED),
    ]
    denied = answer.topics[2]
    assert denied.partitions == ()
    assert getattr(denied, "topic_id", None) is None
    if version >= 8:
        assert denied.topic_authorized_operations == -(2**31)
    if version >= 12:
        ids = [{"name": None, "topic_id": wire_id(topics, name)} for name in ("secret", "open")]
        request = make_request(3, version, topics=ids, **OPERATIONS)
        answer = call(MetadataHandler(topics, IDENTITY), version, request, may_read=may_read)
        assert [(topic.name, topic.topic_id, topic.error_code) for topic in answer.topics] == [
            ("open", wire_id(topics, "open"), NONE),
            (None, wire_id(topics, "secret"), DENIED),
        ]


def test_what_all_may_see_is_not_shown_to_those_who_may_not(topics: MemoryCatalog) -> None:
    """The answer that is cached for users with all rights must reach nobody else, nor the other way round."""
    handler = MetadataHandler(topics, IDENTITY)
    request = make_request(3, 9, topics=None, **OPERATIONS)
    for _ in range(2):
        assert len(call(handler, 9, request).topics) == 2
        assert len(call(handler, 9, request, may_read=may_read).topics) == 1


def test_describe_topic_partitions(topics: MemoryCatalog) -> None:
    """kafka-topics --describe asks this way."""
    handler = DescribeTopicPartitionsHandler(topics, IDENTITY)
    answer = call(handler, 0, make_request(75, 0, topics=[], cursor=None), may_read=may_read)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("open", NONE)]
    names = [{"name": name} for name in ("secret", "open", "absent", "hidden")]
    answer = call(handler, 0, make_request(75, 0, topics=names, cursor=None), may_read=may_read)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [
        ("absent", ErrorCode.unknown_topic_or_partition),
        ("open", NONE),
        ("hidden", DENIED),
        ("secret", DENIED),
    ]
    assert [topic.topic_id for topic in answer.topics[2:]] == [None, None]


@pytest.mark.parametrize("version", ListOffsetsHandler.versions)
def test_list_offsets(topics: MemoryCatalog, version: int) -> None:
    """Offsets tell how much is written to a topic."""
    asked = [
        {
            "name": name,
            "partitions": [{"partition_index": n, "timestamp": -1, "current_leader_epoch": -1} for n in (0, 9)],
        }
        for name in ("open", "secret", "hidden")
    ]
    request = make_request(2, version, replica_id=-1, isolation_level=0, topics=asked, timeout=MINUTE)
    answer = call(ListOffsetsHandler(topics), version, request, may_read=may_read)
    told = [(topic.name, [(one.error_code, one.offset) for one in topic.partitions]) for topic in answer.topics]
    assert told == [
        ("open", [(NONE, 2), (ErrorCode.unknown_topic_or_partition, -1)]),
        ("secret", [(DENIED, -1)] * 2),
        ("hidden", [(DENIED, -1)] * 2),
    ]


@pytest.mark.parametrize("version", OffsetForLeaderEpochHandler.versions)
def test_offset_for_leader_epoch(topics: MemoryCatalog, version: int) -> None:
    """Ends of epochs are offsets too."""
    question = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 1}
    asked = [{"topic": name, "partitions": [question]} for name in ("open", "secret", "hidden")]
    request = make_request(23, version, replica_id=-1, topics=asked)
    answer = call(OffsetForLeaderEpochHandler(topics), version, request, may_read=may_read)
    told = [(one.error_code, one.end_offset) for topic in answer.topics for one in topic.partitions]
    assert told == [(NONE, 2), (DENIED, -1), (DENIED, -1)]


def test_configs_and_sizes(topics: MemoryCatalog) -> None:
    """Both say whether a topic is there, and the second how large it is."""
    resources = [{"resource_type": 2, "resource_name": name, "configuration_keys": None} for name in ("open", "secret")]
    answer = call(
        DescribeConfigsHandler(topics, IDENTITY), 4, make_request(32, 4, resources=resources), may_read=may_read
    )
    assert [(one.error_code, bool(one.configs)) for one in answer.results] == [(NONE, True), (DENIED, False)]
    assert answer.results[1].error_message == "Topic authorization failed."
    for asked in (None, [{"topic": name, "partitions": [0]} for name in ("open", "secret")]):
        answer = call(DescribeLogDirsHandler(topics), 4, make_request(35, 4, topics=asked), may_read=may_read)
        assert [topic.name for topic in answer.results[0].topics] == ["open"]


@pytest.mark.parametrize("version", [4, 11, 13, 18])
def test_fetch(version: int) -> None:
    """Records of a topic go to a user without the right to read it; also from a session that began with the right."""

    async def test(rig: FetchRig) -> None:
        for name in ("open", "secret"):
            rig.catalog.add(name)[0].append(100)
        asks = [Ask(name, 0, 0) for name in ("secret", "open", "hidden")]
        unknown_id = {("hidden", 0): "unknown_topic_id"} if version >= 13 else {("hidden", 0): DENIED.name}
        rig.may_read = may_read
        answer = await rig.fetch(version, asks)
        assert list(answer.records) == [("open", 0)]
        assert answer.errors == {("secret", 0): DENIED.name} | unknown_id
        assert {told.high_watermark for told in answer.partitions if told.error != "none"} == {-1}
        if version < 7:
            return
        rig.may_read = lambda _: True
        answer = await rig.fetch(version, asks[:2], session_epoch=0)
        assert set(answer.records) == {("open", 0), ("secret", 0)}
        rig.may_read = may_read
        answer = await rig.fetch(version, session_id=answer.session_id, session_epoch=1)
        assert list(answer.records) == [("open", 0)]
        assert answer.errors == {("secret", 0): DENIED.name}

    fetch_client.on_loop(test)


def test_offsets_of_groups() -> None:
    """What a group has read of a topic tells how far that is; a user without the right to read it may not move others
    either.
    """

    async def test(wire: Wire) -> None:
        def asked(name: str) -> dict[str, Any]:
            one = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
            return {"name": name, "topic_id": None, "partitions": (one,), "partition_indexes": (0,)}

        group = {"group_id": "g", "member_id": "", "generation_id_or_member_epoch": -1}

        async def commit() -> list[ErrorCode]:
            told = await wire.ask(8, 8, **group, group_instance_id=None, topics=tuple(map(asked, ("orders", "no-id"))))
            return [one.error_code for topic in told.topics for one in topic.partitions]

        async def fetch(version: int, *names: str) -> list[tuple[str, int, ErrorCode]]:
            topics = tuple(map(asked, names)) or None
            fields = {"group_id": "g", "topics": topics, "require_stable": False}
            if version >= 8:
                fields = {"groups": ({"group_id": "g", "topics": topics, "member_epoch": -1},), "require_stable": False}
            told = await wire.ask(9, version, **fields)
            found = told.groups[0].topics if version >= 8 else told.topics
            return [(topic.name, one.committed_offset, one.error_code) for topic in found for one in topic.partitions]

        assert await commit() == [NONE, NONE]
        wire.may_read = lambda topic: topic == "orders"
        assert await commit() == [NONE, DENIED]
        for version in (7, 9):
            assert await fetch(version) == [("orders", 7, NONE)]
            assert await fetch(version, "no-id", "orders", "gone") == [
                ("no-id", -1, DENIED),
                ("orders", 7, NONE),
                ("gone", -1, DENIED),
            ]
        told = await wire.ask(47, 0, group_id="g", topics=tuple(map(asked, ("no-id", "orders"))))
        assert [one.error_code for topic in told.topics for one in topic.partitions] == [DENIED, NONE]
        wire.may_read = lambda _: True
        assert await fetch(9) == [("no-id", 7, NONE)]

    group_wire.on_loop(test)
