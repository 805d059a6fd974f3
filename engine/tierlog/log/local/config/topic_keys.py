"""The keys of a topic that its log goes by, and a broker's names for them, as Kafka 4.3 has them.

Source: Kafka LogConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

from typing import Final

from tierlog.log.local.config.config_key import INT32_MAX, INT64_MAX, BrokerName, LogKey

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
