"""Topics of requests about offsets: by their name, or from version 10 on by their id."""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from tierlog.broker.groups.stored_state import CommittedOffset
from tierlog.broker.partitions import Catalog, Topic
from tierlog.broker.protocol.entities import topic_id_of
from tierlog.remote.api import ZERO_UUID


def asked_topic(catalog: Catalog, asked: Any) -> tuple[Topic | None, str]:
    """The topic that an entity of a request means, None if it is not served; and the name that it is known by, "" for
    an id that nobody knows.
    """
    if hasattr(asked, "name"):
        return catalog.find(asked.name), asked.name
    topic = catalog.find_by_id(topic_id_of(asked.topic_id))
    return topic, topic.name if topic is not None else ""


def not_served(asked: Any) -> ErrorCode:
    """The error code that answers a request for a topic that is not served."""
    return ErrorCode.unknown_topic_or_partition if hasattr(asked, "name") else ErrorCode.unknown_topic_id


def echoed(asked: Any) -> dict[str, Any]:
    """The fields that name a topic in the answer as the request did."""
    return {"name": asked.name} if hasattr(asked, "name") else {"topic_id": asked.topic_id}


def committed_for(topic: Topic | None, offset: CommittedOffset) -> bool:
    """Whether an offset is one of the topic that is served, not of an older one that had its name."""
    if topic is None or ZERO_UUID in (offset.topic_id, topic.topic_id):
        return True
    return offset.topic_id == topic.topic_id
