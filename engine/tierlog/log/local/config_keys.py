"""The keys of topics and brokers that logs go by, as tables: name, default, limits, and how a value is read from text.

Source: Kafka 4.3 LogConfig, ServerTopicConfigSynonyms, ServerLogConfigs, ReplicationConfigs, TransactionLogConfig.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tierlog.errors import ConfigError

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

Value = bool | int | float | str | frozenset[str] | tuple[str, ...]

_WHOLE_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,30}")
_DECIMAL_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?")
#: A type in words, for errors.
_WANTED: Final = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a str",
    frozenset: 'a frozenset of str, as frozenset({"delete"}),',
    tuple: "a tuple of str",
}
_REPLICAS: Final = re.compile(r"[0-9]+:[0-9]+")


@dataclass(frozen=True, slots=True)
class BrokerName:
    """A broker's name for a topic's key.

    Args:
        name: As a broker's file has it.
        unit_ms: By how much its value is multiplied (3,600,000 for hours).
        negative_means: What a negative value stands for; None: it is taken as it is.
    """

    name: str
    unit_ms: int = 1
    negative_means: int | None = None


@dataclass(frozen=True, slots=True)
class LogKey:
    """One key.

    Args:
        name: Kafka's; a field of a configuration value is called so, with "_" for each ".".
        default: Kafka's; its type is the value's.
        minimum, maximum: Of a number, inclusive.
        also: A number below the minimum that is allowed too.
        choices: The only values (of a set: of each element).
        broker_names: Where a broker's file has the value, the first that is given counts.
        own: Kafka does not know the key.
        minimum_in_code: Of a value that is not read from text; None: ``minimum``.
    """

    name: str
    default: Value
    meaning: str
    minimum: int = -(2**63)
    maximum: int = INT64_MAX
    also: int | None = None
    choices: tuple[str, ...] = ()
    broker_names: tuple[BrokerName, ...] = ()
    own: bool = False
    minimum_in_code: int | None = None

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")

    def parse(self, text: str, name: str | None = None) -> Value:
        """The value of a text, in range.

        Args:
            text: As a configuration has it; white space around it does not count.
            name: Under which it was given, for the message; None: this key's own.

        Raises:
            ConfigError: malformed, or out of range.
        """
        name, text = name or self.name, text.strip()
        if isinstance(self.default, bool):
            if text.lower() not in ("true", "false"):
                raise wrong_value(name, text, "true or false expected")
            return text.lower() == "true"
        if isinstance(self.default, int):
            if _WHOLE_NUMBER.fullmatch(text) is None:
                raise wrong_value(name, text, "a whole number expected")
            return self.checked(int(text), name)
        if isinstance(self.default, float):
            if _DECIMAL_NUMBER.fullmatch(text) is None:
                raise wrong_value(name, text, "a number expected")
            return self.checked(float(text), name)
        if isinstance(self.default, str):
            return self.checked(text, name)
        items = [item.strip() for item in text.split(",")] if text else []
        if "" in items:
            raise wrong_value(name, text, "an element is empty")
        return self.checked(frozenset(items) if isinstance(self.default, frozenset) else tuple(items), name)

    def parse_scaled(self, text: str, name: str, *, unit_ms: int, negative_means: int | None) -> int:
        """The value of a text in another unit, in range. Raises ConfigError, in that unit."""
        if _WHOLE_NUMBER.fullmatch(text.strip()) is None:
            raise wrong_value(name, text, "a whole number expected")
        number = int(text)
        if negative_means is not None and number < 0:
            return negative_means
        least = -(-self.minimum // unit_ms)
        if not least <= number <= min(INT32_MAX if unit_ms > 1 else INT64_MAX, self.maximum // unit_ms):
            raise wrong_value(name, number, f"at least {least} expected, and at most 2^31-1")
        return number * unit_ms

    def checked(self, value: Value, name: str | None = None, *, minimum: int | None = None) -> Value:
        """The value itself.

        Raises:
            ConfigError: of another type, or out of range.
        """
        name = name or self.name
        kind = type(self.default)
        if type(value) is int and kind is float:
            value = float(value)
        if type(value) is not kind or not all(type(item) is str for item in _items(value)):
            raise wrong_value(name, value, f"{_WANTED[kind]} expected")
        if kind is int or kind is float:
            self._check_number(value, name, self.minimum if minimum is None else minimum)  # type: ignore[arg-type]
        elif isinstance(value, str):
            self._check_choices(name, (value,))
        elif isinstance(value, frozenset):
            self._check_choices(name, value)
        elif isinstance(value, tuple) and value != ("*",):
            for item in value:
                if _REPLICAS.fullmatch(item) is None:
                    raise wrong_value(name, item, "* or <partition>:<broker> expected")
        return value

    def checked_in_code(self, value: Value) -> Value:
        """The value itself, if code may set it so. Raises ConfigError."""
        return self.checked(value, minimum=self.minimum_in_code)

    def shown(self, value: Value) -> str:
        """A value as Kafka writes it."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, frozenset | tuple):
            return ",".join(sorted(value) if isinstance(value, frozenset) else value)
        return str(value)

    def _check_number(self, value: float, name: str, minimum: int) -> None:
        if value == self.also:
            return
        if not minimum <= value or math.isnan(value):
            also = "" if self.also is None else f", or {self.also}"
            raise wrong_value(name, value, f"at least {minimum} expected{also}")
        if value > self.maximum:
            raise wrong_value(name, value, f"at most {self.maximum} expected")

    def _check_choices(self, name: str, values: Iterable[str]) -> None:
        for value in values:
            if self.choices and value not in self.choices:
                raise wrong_value(name, value, f"one of {', '.join(self.choices)} expected")


def _items(value: Value) -> Iterable[object]:
    return value if isinstance(value, frozenset | tuple) else ()


def wrong_value(name: str, value: object, wanted: str) -> ConfigError:
    """The error for a value, to be raised."""
    return ConfigError(f"{name} {value!r:.80}: {wanted}")


def unknown_key(name: str, known: Iterable[str]) -> ConfigError:
    """The error for a key, to be raised: it names the nearest known one."""
    nearest = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.0)[0]
    return ConfigError(f"unknown key {name!r:.80}: the nearest known one is {nearest}")


_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS


def _log(*names: str, negative_means: int | None = None) -> tuple[BrokerName, ...]:
    """Broker names behind ``log.``, with the unit that each ends in."""
    units = {"minutes": _MINUTE_MS, "hours": _HOUR_MS}
    return tuple(BrokerName(f"log.{name}", units.get(name.rpartition(".")[2], 1), negative_means) for name in names)


_COPY_DISABLE: Final = "Nothing more is copied to the tier; what is there stays readable."

TOPIC_KEYS: Final = tuple(
    sorted(
        (
            LogKey(
                "segment.bytes",
                1 << 30,
                "When the active segment is closed, by size. Tests go below the minimum by `internal.segment.bytes`.",
                minimum=1 << 20,
                maximum=INT32_MAX,
                minimum_in_code=1,
                broker_names=_log("segment.bytes"),
            ),
            LogKey(
                "segment.ms",
                7 * _DAY_MS,
                "When the active segment is closed, by age.",
                minimum=1,
                broker_names=_log("roll.ms", "roll.hours"),
            ),
            LogKey(
                "segment.jitter.ms",
                0,
                "By how much less, at most: chance decides for each segment.",
                minimum=0,
                broker_names=_log("roll.jitter.ms", "roll.jitter.hours"),
            ),
            LogKey(
                "segment.index.bytes",
                10 << 20,
                "The largest offset index and time index; a full one closes the segment.",
                minimum=4,
                maximum=INT32_MAX,
                broker_names=_log("index.size.max.bytes"),
            ),
            LogKey(
                "index.interval.bytes",
                4096,
                "After how many bytes of a log its indexes get another entry.",
                minimum=0,
                maximum=INT32_MAX,
                broker_names=_log("index.interval.bytes"),
            ),
            LogKey(
                "retention.bytes",
                -1,
                "Size of the log from which its oldest segments are deleted; -1: never.",
                broker_names=_log("retention.bytes"),
            ),
            LogKey(
                "retention.ms",
                7 * _DAY_MS,
                "Age from which segments are deleted; -1: never.",
                minimum=-1,
                broker_names=_log("retention.ms", "retention.minutes", "retention.hours", negative_means=-1),
            ),
            LogKey(
                "local.retention.bytes",
                -2,
                "With tiering, the size to which the local log is cut down; -2: as `retention.bytes`.",
                minimum=-2,
                broker_names=_log("local.retention.bytes"),
            ),
            LogKey(
                "local.retention.ms",
                -2,
                "With tiering, the age from which local segments are deleted; -2: as `retention.ms`.",
                minimum=-2,
                broker_names=_log("local.retention.ms"),
            ),
            LogKey(
                "remote.storage.enable", default=False, meaning="The topic is tiered, if the broker has tiered storage."
            ),
            LogKey("remote.log.copy.disable", default=False, meaning=_COPY_DISABLE),
            LogKey(
                "remote.log.delete.on.disable",
                default=False,
                meaning="Tiering may be switched off, and what is in the tier goes.",
            ),
            LogKey(
                "cleanup.policy",
                frozenset(("delete",)),
                "What becomes of old segments; empty: only what lies before the log start is deleted.",
                choices=("compact", "delete"),
                broker_names=_log("cleanup.policy"),
            ),
            LogKey(
                "max.message.bytes",
                1_048_588,
                "The largest batch that a leader takes.",
                minimum=0,
                maximum=INT32_MAX,
                broker_names=(BrokerName("message.max.bytes"),),
            ),
            LogKey(
                "max.decompressed.message.bytes",
                256 << 20,
                "To how many bytes a batch may decompress.",
                minimum=1,
                own=True,
            ),
            LogKey(
                "flush.messages",
                INT64_MAX,
                "After how many records the log is fsynced.",
                minimum=1,
                broker_names=_log("flush.interval.messages"),
            ),
            LogKey(
                "flush.ms",
                INT64_MAX,
                "After what time the log is fsynced.",
                minimum=0,
                broker_names=_log("flush.interval.ms", "flush.scheduler.interval.ms"),
            ),
            LogKey(
                "file.delete.delay.ms",
                _MINUTE_MS,
                "How long deleted files stay, renamed, for those who read them.",
                minimum=0,
                broker_names=_log("segment.delete.delay.ms"),
            ),
            LogKey(
                "delete.retention.ms",
                _DAY_MS,
                "How long compaction keeps tombstones.",
                minimum=0,
                broker_names=_log("cleaner.delete.retention.ms"),
            ),
            LogKey(
                "min.compaction.lag.ms",
                0,
                "How long compaction leaves a record alone.",
                minimum=0,
                broker_names=_log("cleaner.min.compaction.lag.ms"),
            ),
            LogKey(
                "max.compaction.lag.ms",
                INT64_MAX,
                "After what time a record is compacted; a compacted topic's segments are closed by it too.",
                minimum=1,
                broker_names=_log("cleaner.max.compaction.lag.ms"),
            ),
            LogKey(
                "min.cleanable.dirty.ratio",
                0.5,
                "Which part of a log must be new before it is compacted.",
                minimum=0,
                maximum=1,
                broker_names=_log("cleaner.min.cleanable.ratio"),
            ),
            LogKey(
                "message.timestamp.type",
                "CreateTime",
                "Whose clock the records' timestamps are: the producer's or the leader's.",
                choices=("CreateTime", "LogAppendTime"),
                broker_names=_log("message.timestamp.type"),
            ),
            LogKey(
                "message.timestamp.before.max.ms",
                INT64_MAX,
                "By how much a record may be older than the leader's clock.",
                minimum=0,
                broker_names=_log("message.timestamp.before.max.ms"),
            ),
            LogKey(
                "message.timestamp.after.max.ms",
                _HOUR_MS,
                "By how much a record may be ahead of the leader's clock.",
                minimum=0,
                broker_names=_log("message.timestamp.after.max.ms"),
            ),
            LogKey(
                "compression.type",
                "producer",
                "How batches are stored; `producer`: as they come.",
                choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
                broker_names=(BrokerName("compression.type"),),
            ),
            LogKey(
                "compression.gzip.level",
                -1,
                "Level where the log compresses.",
                minimum=1,
                maximum=9,
                also=-1,
                broker_names=(BrokerName("compression.gzip.level"),),
            ),
            LogKey(
                "compression.lz4.level",
                9,
                "Level where the log compresses.",
                minimum=1,
                maximum=17,
                broker_names=(BrokerName("compression.lz4.level"),),
            ),
            LogKey(
                "compression.zstd.level",
                3,
                "Level where the log compresses.",
                minimum=-131_072,
                maximum=22,
                broker_names=(BrokerName("compression.zstd.level"),),
            ),
            LogKey(
                "preallocate",
                default=False,
                meaning="Kafka reserves a segment's space at once; taken, without effect here.",
                broker_names=_log("preallocate"),
            ),
            LogKey(
                "min.insync.replicas",
                1,
                "For whoever replicates the log; it does not look at it.",
                minimum=1,
                maximum=INT32_MAX,
                broker_names=(BrokerName("min.insync.replicas"),),
            ),
            LogKey(
                "unclean.leader.election.enable",
                default=False,
                meaning="For whoever elects leaders; the log does not look at it.",
                broker_names=(BrokerName("unclean.leader.election.enable"),),
            ),
            LogKey(
                "leader.replication.throttled.replicas",
                (),
                "For whoever replicates the log; it does not look at it.",
            ),
            LogKey(
                "follower.replication.throttled.replicas",
                (),
                "For whoever replicates the log; it does not look at it.",
            ),
        ),
        key=lambda key: key.name,
    )
)

#: In a test's configuration: ``segment.bytes`` without its lower limit; it wins over that.
INTERNAL_SEGMENT_BYTES: Final = LogKey(
    "internal.segment.bytes", 1 << 30, "`segment.bytes` without its minimum.", minimum=1, maximum=INT32_MAX
)


BROKER_KEYS: Final = (
    LogKey(
        "log.retention.check.interval.ms",
        300_000,
        "How often retention looks for segments to delete.",
        minimum=1,
    ),
    LogKey(
        "log.flush.scheduler.interval.ms",
        INT64_MAX,
        "How often logs are looked at whose `flush.ms` is over. Kafka's default is never: a `flush.ms` alone has no "
        "effect.",
        minimum=1,
    ),
    LogKey(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often the recovery points are written.",
        minimum=0,
        maximum=INT32_MAX,
    ),
    LogKey(
        "log.flush.start.offset.checkpoint.interval.ms",
        60_000,
        "How often the log starts are written.",
        minimum=0,
        maximum=INT32_MAX,
    ),
    LogKey(
        "replica.high.watermark.checkpoint.interval.ms",
        5_000,
        "How often the high watermarks are written.",
        minimum=1,
    ),
    LogKey(
        "num.recovery.threads.per.data.dir",
        2,
        "How many logs are loaded, or closed, at a time.",
        minimum=1,
        maximum=INT32_MAX,
    ),
    LogKey(
        "log.initial.task.delay.ms",
        30_000,
        "How long after opening the first of these tasks runs.",
        minimum=0,
    ),
    LogKey(
        "producer.id.expiration.ms",
        86_400_000,
        "After what silence a producer's sequence numbers are forgotten.",
        minimum=1,
        maximum=INT32_MAX,
    ),
    LogKey(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "How often such producers are looked for.",
        minimum=1,
        maximum=INT32_MAX,
    ),
    LogKey(
        "transaction.max.timeout.ms",
        900_000,
        "The longest transaction; a late one is told by it.",
        minimum=1,
        maximum=INT32_MAX,
    ),
    LogKey(
        "transaction.partition.verification.enable",
        default=False,
        meaning="Whether a transaction's first append must have been verified with its coordinator. Kafka: true. "
        "Here nobody speaks for a coordinator unless whoever embeds the log does.",
    ),
)

#: Every name under which a log's configuration can be given.
KNOWN_NAMES: Final = frozenset(
    [key.name for key in (*TOPIC_KEYS, INTERNAL_SEGMENT_BYTES, *BROKER_KEYS)]
    + [each.name for key in TOPIC_KEYS for each in key.broker_names]
)
