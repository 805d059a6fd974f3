"""The open tier and the topics that PATH, TOPIC and options name: topic names, and patterns as kcat has them."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tierlog.errors import ConfigError, UnknownTopicError
from tierlog.scan.scan_request import TopicName, TopicSelection

if TYPE_CHECKING:
    from tierlog.remote.metadata.metadata_view import MetadataView
    from tierlog.remote.tier.tier import StoredTopic, Tier

#: In front of a pattern, which it is part of.
_PATTERN = "^"


@functools.cache
def config_keys(config: Path | None, others: frozenset[str] = frozenset()) -> Mapping[str, str] | None:
    """Return the keys of ``--config FILE``, where ``-`` is stdin. The file is read once, since a pipe can be read only
    once.

    Args:
        config: The file.
        others: A broker's keys that are allowed besides those of the tier.

    Raises:
        ConfigError: as ``read_property_file`` says.
    """
    from tierlog.remote.config.property_file import read_property_file
    from tierlog.runtime.machine import Machine

    if config is None:
        return None
    return read_property_file("/dev/stdin" if str(config) == "-" else str(config), Machine().files, others=others)


def open_path(
    path: str,
    *,
    layout: str = "auto",
    config: Path | None = None,
    limited: bool = False,
    metadata: Sequence[str] | None = None,
    command_config: Path | None = None,
) -> Tier:
    """Open the tier that PATH names, which the caller closes; with metadata that shows the segments that count, and no
    others.

    Raises:
        ConfigError: the configuration file or PATH's scheme is wrong, or nothing can be concluded from the metadata.
        CorruptDataError: the metadata is damaged.
        StoreError and its kinds: the path does not exist, or access is refused.
    """
    from tierlog import opening

    check_command_config(metadata, command_config)
    return opening.open_path(
        path,
        layout=layout,
        config=config_keys(config),
        metadata=metadata or None,
        metadata_client=command_keys(command_config),
        limited=limited,
    )


def read_metadata(
    sources: Sequence[str], command_config: Path | None = None, *, remember_departed: bool = False
) -> MetadataView:
    """Read the metadata of ``--metadata``, read to its end. Raises: as ``open_metadata``; ConfigError also for the
    file.
    """
    from tierlog import opening

    return opening.read_metadata(sources, command_keys(command_config), remember_departed=remember_departed)


def check_command_config(metadata: Sequence[str] | None, command_config: Path | None) -> None:
    """Raise ConfigError if --command-config is given without --metadata, and would have no effect."""
    if command_config is not None and not metadata:
        raise ConfigError("--command-config says how the Kafka of --metadata is reached, which is not given")


def command_keys(command_config: Path | None) -> dict[str, str]:
    """Return the keys of ``--command-config``; none without it. Raises ConfigError: the file is malformed.
    StoreError.
    """
    from tierlog.runtime.machine import Machine
    from tierlog.runtime.machine.properties import parse_properties

    if command_config is None:
        return {}
    data = Machine().files.read_stream(str(command_config), limit_bytes=1 << 20)
    try:
        return dict(parse_properties(data.decode("utf-8")))
    except ValueError as error:
        raise ConfigError(f"{command_config}: {error}") from None


def is_file(path: str) -> bool:
    """Whether PATH is one file of this machine."""
    from tierlog import opening
    from tierlog.runtime.machine import Machine

    return opening.names_file(path, Machine())


def check_topic(path: str, topic: str) -> None:
    """Raise ConfigError if the argument in place of a topic is another path."""
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
        """Return the choice of a command line. Raises ConfigError: a pattern is malformed, or a path is given in place
        of a topic.
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
        """Return the selection for a scan. Topics given by name must have each of ``partitions``; other topics are only
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
        """Return the patterns that match none of the topics found.

        Raises:
            UnknownTopicError: a named topic is not among them.
        """
        there = set(found)
        missing = [name for name in self.names if TopicName.parse(name).name not in there]
        if missing:
            raise UnknownTopicError(f"{tier.describe()}: no topic {missing[0]}")
        return [each for each in self.patterns if not any(map(re.compile(each).match, there))]

    def of_tier(self, topics: Iterable[StoredTopic]) -> list[StoredTopic]:
        """Return the chosen topics of a listing."""
        return [topic for topic in topics if self.accepts(topic.name)]
