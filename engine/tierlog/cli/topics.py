"""The topics that a verb is asked for: names, and patterns as kcat has them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from tierlog.cli.tiers import is_file
from tierlog.errors import ConfigError, UnknownTopicError
from tierlog.remote.tier.tier import StoredTopic, Tier
from tierlog.scan.scan_request import TopicName, TopicSelection

#: In front of a pattern, which it is part of.
_PATTERN = "^"


def check_topic(path: str, topic: str) -> None:
    """Raises ConfigError if the argument in the place of a topic is another path."""
    if "/" in topic:
        raise ConfigError(f"{topic!r} is no topic: give one PATH, and the topics in it behind it")
    if is_file(path) and is_file(topic):
        raise ConfigError(f"{topic!r} is a file, not a topic: give one PATH, a file or the folder that holds them all")


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """The topics of a command line: all if none is given.

    Args:
        names: Topic names, some as ``ID:TOPIC``.
        patterns: Regular expressions from the name's beginning on.
    """

    names: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()

    @classmethod
    def of(cls, path: str, given: Sequence[str] | None) -> TopicChoice:
        """The choice of a command line. Raises ConfigError: a pattern is malformed, or a path stands in the place of a
        topic.
        """
        names, patterns = [], []
        for topic in given or ():
            if not topic.startswith(_PATTERN):
                check_topic(path, topic)
                names.append(topic)
                continue
            try:
                re.compile(topic)
            except re.error as error:
                raise ConfigError(f"the topic pattern {topic!r} is malformed: {error}") from error
            patterns.append(topic)
        if patterns and any(TopicName.parse(name).topic_id for name in names):
            raise ConfigError("ID:TOPIC cannot be given together with a pattern")
        return cls(tuple(names), tuple(patterns))

    def selection(self, partitions: Collection[int] | None = None) -> TopicSelection:
        """The selection for a scan. Topics given by name must have each of ``partitions``; other topics are only
        filtered.
        """
        if not self.names or self.patterns:
            return TopicSelection.matching(self.pattern or ".*")
        if partitions:
            return TopicSelection.assign(dict.fromkeys(self.names, tuple(partitions)))
        return TopicSelection.of_names(self.names)

    @property
    def pattern(self) -> str | None:
        """A regular expression for whole names; None for all topics."""
        patterns = [f"(?:{pattern})(?s:.*)" for pattern in self.patterns]
        return "|".join([*patterns, *(re.escape(TopicName.parse(name).name) for name in self.names)]) or None

    def accepts(self, name: str) -> bool:
        pattern = self.pattern
        return pattern is None or re.fullmatch(pattern, name) is not None

    def unmatched_patterns(self, tier: Tier, found: Iterable[str]) -> list[str]:
        """The patterns that match none of the topics found.

        Raises:
            UnknownTopicError: a named topic is not among them.
        """
        there = set(found)
        missing = [name for name in self.names if TopicName.parse(name).name not in there]
        if missing:
            raise UnknownTopicError(f"{tier.describe()}: no topic {missing[0]}")
        return [each for each in self.patterns if not any(map(re.compile(each).match, there))]

    def of_tier(self, topics: Iterable[StoredTopic]) -> list[StoredTopic]:
        """The chosen topics of a listing."""
        return [topic for topic in topics if self.accepts(topic.name)]
