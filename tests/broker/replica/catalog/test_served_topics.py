"""Which topics are served, and under which id."""

from __future__ import annotations

import logging

import pytest

from tests.support.segments import topic_uuid
from tierlog.broker.replica.catalog.served_topics import ServedTopics
from tierlog.errors import ConfigError
from tierlog.remote.api import ZERO_UUID, TopicIdPartition, Uuid

OLD, NEW = Uuid.from_text(topic_uuid("old")), Uuid.from_text(topic_uuid("new"))


def bucket(*entries: tuple[str, Uuid, int, int]) -> dict[TopicIdPartition, int]:
    """(topic, id, partition, ms) as a listing has them."""
    return {TopicIdPartition(topic_id, topic, number): at for topic, topic_id, number, at in entries}


def test_the_newer_of_two_topics_of_one_name_is_served_alone() -> None:
    """A consumer would get records of a topic that was deleted, mixed into those of the one that replaced it."""
    found = ServedTopics().choose(
        bucket(("orders", OLD, 0, 500), ("orders", OLD, 7, 900), ("orders", NEW, 0, 901), ("orders", NEW, 1, 10))
    )
    assert [(topic.name, topic.topic_id, topic.partitions) for topic in found.values()] == [("orders", NEW, (0, 1))]


def test_equally_old_topics_are_decided_the_same_way_each_time() -> None:
    """Two servers over one bucket, or one that restarts, would serve different topics under one name."""
    entries = [("orders", OLD, 0, 5), ("orders", NEW, 0, 5)]
    first = ServedTopics().choose(bucket(*entries))
    assert first == ServedTopics().choose(bucket(*reversed(entries)))
    assert first["orders"].topic_id == max(OLD, NEW)


def test_an_older_topic_is_served_where_its_id_is_asked_for() -> None:
    """The history of a topic that was deleted by mistake could not be read though the bucket has it."""
    found = ServedTopics((f"{OLD}:orders",)).choose(bucket(("orders", OLD, 3, 5), ("orders", NEW, 0, 9)))
    assert [(topic.topic_id, topic.partitions) for topic in found.values()] == [(OLD, (3,))]


def test_an_id_that_is_not_there_is_not_replaced_by_another(caplog: pytest.LogCaptureFixture) -> None:
    """A user who names the id of a topic would get the records of another one."""
    assert ServedTopics((f"{OLD}:orders",)).choose(bucket(("orders", NEW, 0, 9))) == {}
    assert "orders" in caplog.text


def test_names_and_patterns_choose_as_on_the_command_line() -> None:
    """A topic would be served that nobody asked for, or one would be missing."""
    entries = [(name, ZERO_UUID, 0, 1) for name in ("orders", "orders2", "pay.eu", "xpay.eu", "other")]
    assert list(ServedTopics(("orders", "^pay")).choose(bucket(*entries))) == ["orders", "pay.eu"]
    assert list(ServedTopics().choose(bucket(*entries))) == sorted(name for name, *_ in entries)


@pytest.mark.parametrize("wanted", [("^(",), (f"{OLD}:a", f"{NEW}:a")])
def test_what_cannot_be_meant_is_refused(wanted: tuple[str, ...]) -> None:
    """The server would start and serve something else than what was asked for."""
    with pytest.raises(ConfigError):
        ServedTopics(wanted)


def test_names_that_kafka_forbids_are_left_out_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """One foreign folder would make every client fail on the metadata of all topics."""
    names = ["good", "..", ".", "a b", "a/b", "x" * 250, "ünï", "a\nb"]
    served = ServedTopics()
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            assert list(served.choose(bucket(*((name, ZERO_UUID, 0, 1) for name in names)))) == ["good"]
    assert len(caplog.records) == 1
