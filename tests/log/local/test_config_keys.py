"""The keys of a log, beside Kafka's own tables."""

from __future__ import annotations

import dataclasses

from tierlog.log.local.config_keys import BROKER_KEYS, TOPIC_KEYS, LogKey
from tierlog.log.local.log_config import LogConfig, LogDirectoryConfig

#: name|default|limits|broker's names, as Kafka 4.3.1 has them (tests/interop/test_log_config.py asks it again).
TOPIC = """
cleanup.policy|delete|compact,delete|log.cleanup.policy
compression.gzip.level|-1|1..9,-1|compression.gzip.level
compression.lz4.level|9|1..17|compression.lz4.level
compression.type|producer|uncompressed,zstd,lz4,snappy,gzip,producer|compression.type
compression.zstd.level|3|-131072..22|compression.zstd.level
delete.retention.ms|86400000|0..|log.cleaner.delete.retention.ms
file.delete.delay.ms|60000|0..|log.segment.delete.delay.ms
flush.messages|9223372036854775807|1..|log.flush.interval.messages
flush.ms|9223372036854775807|0..|log.flush.interval.ms,log.flush.scheduler.interval.ms
follower.replication.throttled.replicas|||
index.interval.bytes|4096|0..2147483647|log.index.interval.bytes
leader.replication.throttled.replicas|||
local.retention.bytes|-2|-2..|log.local.retention.bytes
local.retention.ms|-2|-2..|log.local.retention.ms
max.compaction.lag.ms|9223372036854775807|1..|log.cleaner.max.compaction.lag.ms
max.message.bytes|1048588|0..2147483647|message.max.bytes
message.timestamp.after.max.ms|3600000|0..|log.message.timestamp.after.max.ms
message.timestamp.before.max.ms|9223372036854775807|0..|log.message.timestamp.before.max.ms
message.timestamp.type|CreateTime|CreateTime,LogAppendTime|log.message.timestamp.type
min.cleanable.dirty.ratio|0.5|0..1|log.cleaner.min.cleanable.ratio
min.compaction.lag.ms|0|0..|log.cleaner.min.compaction.lag.ms
min.insync.replicas|1|1..2147483647|min.insync.replicas
preallocate|false||log.preallocate
remote.log.copy.disable|false||
remote.log.delete.on.disable|false||
remote.storage.enable|false||
retention.bytes|-1||log.retention.bytes
retention.ms|604800000|-1..|log.retention.ms,log.retention.minutes,log.retention.hours
segment.bytes|1073741824|1048576..2147483647|log.segment.bytes
segment.index.bytes|10485760|4..2147483647|log.index.size.max.bytes
segment.jitter.ms|0|0..|log.roll.jitter.ms,log.roll.jitter.hours
segment.ms|604800000|1..|log.roll.ms,log.roll.hours
unclean.leader.election.enable|false||unclean.leader.election.enable
"""
BROKER = """
log.flush.offset.checkpoint.interval.ms|60000|0..2147483647|
log.flush.scheduler.interval.ms|9223372036854775807|1..|
log.flush.start.offset.checkpoint.interval.ms|60000|0..2147483647|
log.initial.task.delay.ms|30000|0..|
log.retention.check.interval.ms|300000|1..|
num.recovery.threads.per.data.dir|2|1..2147483647|
producer.id.expiration.check.interval.ms|600000|1..2147483647|
producer.id.expiration.ms|86400000|1..2147483647|
replica.high.watermark.checkpoint.interval.ms|5000|1..|
transaction.max.timeout.ms|900000|1..2147483647|
transaction.partition.verification.enable|false||
"""


def shown(key: LogKey) -> str:
    limits = ",".join(key.choices)
    if isinstance(key.default, int | float) and not isinstance(key.default, bool) and key.minimum > -(2**63):
        limits = f"{key.minimum}..{'' if key.maximum == 2**63 - 1 else key.maximum}"
        limits += "" if key.also is None else f",{key.also}"
    names = ",".join(each.name for each in key.broker_names)
    return "|".join((key.name, key.shown(key.default), limits, names))


def test_keys_are_kafkas() -> None:
    """Else a configuration that a broker takes is refused, or the other way round, or means something else."""
    assert [shown(key) for key in TOPIC_KEYS if not key.own] == TOPIC.split()
    assert sorted(shown(key) for key in BROKER_KEYS) == BROKER.split()


def test_fields_are_the_keys() -> None:
    """Else a value made in code begins with other defaults than one that is read."""
    for kind, keys in ((LogConfig, TOPIC_KEYS), (LogDirectoryConfig, BROKER_KEYS)):
        assert {each.name for each in dataclasses.fields(kind)} == {key.field for key in keys}
        assert all(getattr(kind(), key.field) == key.default for key in keys)
