"""The topics that each user may read.

A text file, a user and a topic on each line, ``alice:orders``. ``alice:payments-*`` is all topics whose names begin so,
and ``alice:*`` all topics: Kafka's literal and prefixed patterns. A user without a line reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tierlog.errors import ConfigError
from tierlog.runtime.machine.files import Files
from tierlog.serving.reloaded_files import ReloadedFiles

_FILE_BYTES_MAX: Final = 16 << 20
_ANY: Final = "*"


class TopicAccess:
    """The topics of users. Immutable.

    Args:
        lines: (user, topic or prefix with an asterisk) each.
    """

    def __init__(self, lines: Iterable[tuple[str, str]]) -> None:
        self._topics: dict[str, set[str]] = {}
        self._prefixes: dict[str, tuple[str, ...]] = {}
        for user, topic in lines:
            principal = f"User:{user}"
            if topic.endswith(_ANY):
                self._prefixes[principal] = (*self._prefixes.get(principal, ()), topic.removesuffix(_ANY))
            else:
                self._topics.setdefault(principal, set()).add(topic)

    def may_read(self, principal: str, topic: str) -> bool:
        """Whether a principal, ``User:name``, may read the topic of a name."""
        return topic in self._topics.get(principal, ()) or topic.startswith(self._prefixes.get(principal, ()))


def open_topic_access(path: str, files: Files) -> ReloadedFiles[TopicAccess]:
    """Open the file of users' topics.

    Raises:
        ConfigError: a line is malformed, or there is none. StoreError and its kinds: the file cannot be read.
    """

    def load() -> TopicAccess:
        data = files.read_whole(path, limit_bytes=_FILE_BYTES_MAX)
        try:
            return parse_topic_access(data.decode("utf-8"), path)
        except UnicodeDecodeError:
            raise ConfigError(f"{path} is not UTF-8") from None

    return ReloadedFiles("user_topics", (path,), load, files)


def parse_topic_access(text: str, where: str) -> TopicAccess:
    """Parse the topics of a file's text. Raises ConfigError, with ``where`` and the line's number in it."""
    lines = []
    for number, line in enumerate(text.split("\n"), start=1):
        content = line.removesuffix("\r")
        if not content.strip() or content.startswith("#"):
            continue
        user, separator, topic = content.partition(":")
        if not separator or not user or not topic or _ANY in topic[:-1] or topic != topic.strip():
            raise ConfigError(f"{where}:{number}: user:topic is expected, or user:prefix*, or user:*")
        lines.append((user, topic))
    if not lines:
        raise ConfigError(f"{where} names no topic of any user")
    return TopicAccess(lines)
