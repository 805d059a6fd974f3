"""The topics of a bucket that are served, and the choice between two of one name."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tierlog.broker.partitions import Topic
from tierlog.errors import ConfigError, first_of
from tierlog.remote.api import TopicIdPartition, Uuid
from tierlog.scan.scan_request import TopicName

_log = logging.getLogger(__name__)

#: In front of a pattern, which it is part of.
_PATTERN: Final = "^"
#: Kafka's Topic.validate: these characters, at most 249, and neither of two names that a folder cannot have.
_LEGAL: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}", re.ASCII)
#: Names in one log line.
_NAMES_MAX: Final = 10


class ServedTopics:
    """The topics that a server was asked to serve: all if none is named.

    One topic is served under each name. Of several topics that had a name one after the other, that is the topic named
    as ``ID:TOPIC``, else the one whose youngest object was written last (of equals the larger id); objects of the
    others are never mixed into it.

    Args:
        wanted: Names, ``ID:TOPIC``, or regular expressions from the name's beginning on, which begin with ``^``.

    Raises:
        ConfigError: a pattern is malformed, or two ids are asked for under one name.

    Thread safety: one thread at a time.
    """

    def __init__(self, wanted: Sequence[str] = ()) -> None:
        self._ids: dict[str, str | None] = {}
        self._patterns: list[re.Pattern[str]] = []
        self._logged: set[str] = set()
        for text in wanted:
            if text.startswith(_PATTERN):
                try:
                    self._patterns.append(re.compile(text))
                except re.error as error:
                    raise ConfigError(f"the topic pattern {text!r} is malformed: {error}") from error
                continue
            topic_id, name = TopicName.parse(text)
            if self._ids.get(name) not in (None, topic_id):
                raise ConfigError(f"topic {name} is asked for with two ids; one topic is served under a name")
            self._ids[name] = topic_id or self._ids.get(name)

    def accepts(self, name: str) -> bool:
        """Whether topics of a name are served."""
        if not self._ids and not self._patterns:
            return True
        return name in self._ids or any(pattern.match(name) for pattern in self._patterns)

    def choose(self, newest_ms: Mapping[TopicIdPartition, int]) -> dict[str, Topic]:
        """Return the topics that are served, by name, ascending. Topics that are left out are logged, once.

        Args:
            newest_ms: The partitions of a bucket, and when the youngest object of each was written.
        """
        found: dict[tuple[str, Uuid], list[int]] = {}
        times: dict[tuple[str, Uuid], int] = {}
        for partition, written_ms in newest_ms.items():
            topic = (partition.topic, partition.topic_id)
            found.setdefault(topic, []).append(partition.partition)
            times[topic] = max(times.get(topic, -1), written_ms)
        chosen: dict[str, tuple[str, Uuid]] = {}
        for topic in self._servable(found):
            rival = chosen.get(topic[0])
            if rival is None or (times[topic], topic[1]) > (times[rival], rival[1]):
                chosen[topic[0]] = topic
        self._log_once(
            "topics that had the name of another, which is newer or was asked for",
            (f"{topic_id}:{name}" for name, topic_id in found if name in chosen and chosen[name][1] != topic_id),
        )
        self._log_once(
            "topics that were asked for and are not there", (name for name in self._ids if name not in chosen)
        )
        return {name: Topic(name, chosen[name][1], tuple(sorted(found[chosen[name]]))) for name in sorted(chosen)}

    def _servable(self, found: Iterable[tuple[str, Uuid]]) -> list[tuple[str, Uuid]]:
        wanted = [topic for topic in found if self.accepts(topic[0])]
        self._log_once(
            "topics with names that Kafka does not allow",
            (repr(name) for name, _ in wanted if _LEGAL.fullmatch(name) is None),
        )
        return [
            (name, topic_id)
            for name, topic_id in wanted
            if _LEGAL.fullmatch(name) is not None and self._ids.get(name) in (None, str(topic_id))
        ]

    def _log_once(self, what: str, names: Iterable[str]) -> None:
        news = sorted(set(names) - self._logged)
        self._logged.update(news)
        if news:
            _log.warning("not served: %s: %s", what, first_of(news, _NAMES_MAX))
