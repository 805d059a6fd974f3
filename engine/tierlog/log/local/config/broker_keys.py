"""The keys of a broker that its log directories go by, as Kafka 4.3 has them.

Source: Kafka ServerLogConfigs, ReplicationConfigs, TransactionLogConfig.
"""

from __future__ import annotations

from typing import Final

from tierlog.log.local.config.config_key import INT32_MAX, INT64_MAX, LogKey
from tierlog.log.local.config.topic_keys import INTERNAL_SEGMENT_BYTES, TOPIC_KEYS

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
