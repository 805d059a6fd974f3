"""Names of topics: which Kafka allows, and which are its own."""

from __future__ import annotations

import re
from typing import Final

from kio.schema.errors import ErrorCode

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def is_internal(name: str) -> bool:
    """Whether Kafka keeps state of its own in a topic of that name."""
    return name in _INTERNAL


def is_legal(name: str) -> bool:
    """Whether a topic may have that name (Kafka's ``Topic.validate``)."""
    return name not in (".", "..") and _LEGAL.fullmatch(name) is not None


def error_of_missing(name: str) -> ErrorCode:
    """The error code that answers a request for a topic that is not there."""
    return ErrorCode.unknown_topic_or_partition if is_legal(name) else ErrorCode.invalid_topic_exception
