"""A topic's configuration: Kafka's names, limits, precedence and cross rules."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tierlog.arguments import INT64_MAX
from tierlog.config_keys import Key, rows
from tierlog.errors import ConfigError
from tierlog.log.local.log_config import CleanerConfig, LogConfig, LogDirectoryConfig
from tierlog.log.local.producers.producer_entries import ProducerSettings
from tierlog.runtime.machine.randomness import SeededRng

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ({}, {}),
        ({"segment.bytes": " +1048576 "}, {"segment_bytes": 1 << 20}),
        ({"log.segment.bytes": "2000000"}, {"segment_bytes": 2_000_000}),
        ({"segment.bytes": "2000000", "internal.segment.bytes": "100"}, {"segment_bytes": 100}),
        ({"log.roll.hours": "2"}, {"segment_ms": 2 * HOUR_MS}),
        ({"log.roll.hours": "2", "log.roll.ms": "7"}, {"segment_ms": 7}),
        ({"log.roll.hours": "2", "log.roll.ms": "7", "segment.ms": "9"}, {"segment_ms": 9}),
        ({"log.roll.jitter.hours": "1"}, {"segment_jitter_ms": HOUR_MS}),
        ({"log.retention.hours": "3", "log.retention.minutes": "3"}, {"retention_ms": 180_000}),
        ({"log.retention.hours": "3", "log.retention.minutes": "3", "log.retention.ms": "5"}, {"retention_ms": 5}),
        ({"log.retention.hours": "-7"}, {"retention_ms": -1}),
        ({"log.flush.scheduler.interval.ms": "8"}, {"flush_ms": 8}),
        ({"log.flush.scheduler.interval.ms": "8", "log.flush.interval.ms": "9"}, {"flush_ms": 9}),
        ({"cleanup.policy": "delete, compact"}, {"cleanup_policy": frozenset({"compact", "delete"})}),
        ({"cleanup.policy": ""}, {"cleanup_policy": frozenset()}),
        ({"preallocate": " TRUE "}, {"preallocate": True}),
        ({"log.preallocate": "true"}, {"preallocate": True}),
        ({"log.cleanup.policy": "compact"}, {"cleanup_policy": frozenset({"compact"})}),
        ({"log.cleaner.min.cleanable.ratio": "1"}, {"min_cleanable_dirty_ratio": 1.0}),
        ({"min.cleanable.dirty.ratio": ".25"}, {"min_cleanable_dirty_ratio": 0.25}),
        ({"compression.gzip.level": "-1"}, {}),
        (
            {"leader.replication.throttled.replicas": "1:2,3:4"},
            {"leader_replication_throttled_replicas": ("1:2", "3:4")},
        ),
        ({"message.max.bytes": "0"}, {"max_message_bytes": 0}),
        ({"log.retention.check.interval.ms": "5", "num.recovery.threads.per.data.dir": "8"}, {}),
    ],
)
def test_text_is_read_as_kafka_reads_it(given: dict[str, str], changed: dict[str, object]) -> None:
    """Else a log keeps its data for another time than the broker whose file it was given."""
    assert LogConfig.from_kafka(given) == dataclasses.replace(LogConfig(), **changed)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"segment.byte": "5"}, "'segment.byte': the nearest known one is segment.bytes"),
        ({"log.role.hours": "5"}, "nearest known one is log.roll.hours"),
        ({"segment.bytes": "1048575"}, "segment.bytes 1048575: at least 1048576"),
        ({"log.segment.bytes": "14"}, "log.segment.bytes 14: at least 1048576"),
        ({"segment.bytes": "2147483648"}, "segment.bytes 2147483648: at most 2147483647"),
        ({"internal.segment.bytes": "0"}, "internal.segment.bytes 0: at least 1"),
        ({"segment.ms": "0"}, "segment.ms 0: at least 1"),
        ({"log.roll.hours": "0"}, "log.roll.hours 0: at least 1"),
        ({"log.roll.hours": "99999999999999"}, "at most 2^31-1"),
        ({"log.roll.hours": "x", "log.roll.ms": "7"}, "log.roll.hours 'x': a whole number"),
        ({"flush.ms": "1e3"}, "flush.ms '1e3': a whole number"),
        ({"flush.ms": ""}, "flush.ms '': a whole number"),
        ({"retention.bytes": "9223372036854775808"}, "at most 9223372036854775807"),
        ({"retention.ms": "-2"}, "retention.ms -2: at least -1"),
        ({"min.cleanable.dirty.ratio": "NaN"}, "a number expected"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "at most 1"),
        ({"preallocate": "yes"}, "preallocate 'yes': true or false"),
        ({"cleanup.policy": "Delete"}, "cleanup.policy 'Delete': one of compact, delete"),
        ({"cleanup.policy": "delete,"}, "an element is empty"),
        ({"compression.type": "none"}, "compression.type 'none': one of"),
        ({"compression.gzip.level": "0"}, "at least 1 expected, or -1"),
        ({"follower.replication.throttled.replicas": "*,1:2"}, "<partition>:<broker>"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "min.compaction.lag.ms 9 is above"),
        ({"remote.storage.enable": "true", "cleanup.policy": "compact,delete"}, "must be delete, or empty"),
        ({"remote.storage.enable": "true", "local.retention.ms": "-1"}, "local.retention.ms -1: at most the 604800000"),
        (
            {"remote.storage.enable": "true", "local.retention.bytes": "9", "retention.bytes": "8"},
            "local.retention.bytes 9: at most the 8",
        ),
        (
            {"remote.storage.enable": "true", "local.retention.ms": "9", "remote.log.copy.disable": "true"},
            "remote.log.copy.disable is true",
        ),
    ],
)
def test_what_kafka_refuses_names_key_value_and_limit(given: dict[str, str], told: str) -> None:
    """Else a mistyped retention deletes data, or none, and nobody is told."""
    with pytest.raises(ConfigError) as caught:
        LogConfig.from_kafka(given)
    assert told in str(caught.value)


def test_code_is_checked_as_text_is() -> None:
    """Else an embedder's mistake shows as a log that rolls for each batch; tests go below Kafka's segment size."""
    assert LogConfig(segment_bytes=100).segment_bytes == 100
    for wrong in ({"segment_bytes": 0}, {"retention_ms": "5"}, {"preallocate": 1}, {"flush_ms": True}):
        with pytest.raises(ConfigError):
            LogConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(
        ConfigError, match=r"cleanup\.policy 'delete': a frozenset of str, as frozenset\(\{\"delete\"\}\)"
    ):
        LogConfig(cleanup_policy="delete")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"a tuple of str expected"):
        LogConfig(leader_replication_throttled_replicas=(1,))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms 9 is above"):
        LogConfig(min_compaction_lag_ms=9, max_compaction_lag_ms=8)


def test_changes_while_it_runs() -> None:
    """Else a key that is set back keeps its value, or tiering is switched off and the tier is lost or forgotten."""
    broker = LogConfig.from_kafka({"log.retention.hours": "1"})
    topic = LogConfig.from_kafka({"retention.ms": "5", "remote.storage.enable": "true"}, defaults=broker)
    assert (topic.retention_ms, topic.segment_ms) == (5, 7 * 24 * HOUR_MS)
    assert topic.with_changes({"retention.ms": None}, defaults=broker).retention_ms == HOUR_MS
    assert topic.with_changes({"retention.ms": None}).retention_ms == 168 * HOUR_MS
    assert topic.with_changes({"internal.segment.bytes": "50"}).with_changes({"internal.segment.bytes": None}) == topic
    with pytest.raises(ConfigError, match=r"nearest known one is retention\.ms"):
        topic.with_changes({"retention.m": None})
    off = {"remote.storage.enable": "false"}
    with pytest.raises(ConfigError, match=r"remote\.log\.delete\.on\.disable=true"):
        topic.with_changes(off)
    assert not topic.with_changes(off | {"remote.log.delete.on.disable": "true"}).remote_storage_enable
    topic.check_tiering()
    with pytest.raises(ConfigError, match="no tiered storage"):
        topic.check_tiering(remote_log_enabled=False)


def test_what_a_log_derives() -> None:
    """Else a tiered log keeps all of it on the disk, or a compacted one closes no segment in time."""
    both = LogConfig(retention_bytes=10, retention_ms=20)
    assert (both.local_retention_bytes_resolved, both.local_retention_ms_resolved) == (10, 20)
    own = dataclasses.replace(both, local_retention_bytes=3, local_retention_ms=4)
    assert (own.local_retention_bytes_resolved, own.local_retention_ms_resolved) == (3, 4)
    lag = LogConfig(max_compaction_lag_ms=5)
    assert lag.segment_ms_max == lag.segment_ms
    assert dataclasses.replace(lag, cleanup_policy=frozenset({"compact"})).segment_ms_max == 5
    rng = SeededRng(1)
    assert LogConfig().random_segment_jitter_ms(rng) == 0
    drawn = {LogConfig(segment_jitter_ms=INT64_MAX, segment_ms=3).random_segment_jitter_ms(rng) for _ in range(99)}
    assert drawn == {0, 1, 2}


#: Any value that code may set a key to.
FIELDS = {
    field: {
        "bool": st.booleans(),
        "int": st.integers(max(key.minimum, key.minimum_in_code or key.minimum), key.maximum),
        "float": st.floats(0, 1),
        "str": st.sampled_from(key.choices or ("",)),
        "frozenset[str]": st.frozensets(st.sampled_from(key.choices or ("",))),
        "tuple[str, ...]": st.lists(st.sampled_from(["1:2", "30:4"])).map(tuple),
    }[key.kind]
    for field, key in rows(LogConfig).items()
    if field not in ("min_compaction_lag_ms", "remote_storage_enable")
}


@given(st.fixed_dictionaries({}, optional=FIELDS))
def test_text_and_back(fields: dict[str, object]) -> None:
    """Else a configuration that is written down means another thing when it is read."""
    config = LogConfig(**fields)  # type: ignore[arg-type]
    assert LogConfig.from_kafka(config.to_kafka()) == config
    changed = config.to_kafka(changed_only=True)
    assert LogConfig.from_kafka(changed) == config
    assert len(changed) == sum(getattr(config, field) != key.default for field, key in rows(LogConfig).items())
    assert hash(config) == hash(LogConfig(**fields))  # type: ignore[arg-type]


def test_one_file_has_both() -> None:
    """Else an embedder has to take a broker's file apart by hand."""
    given = {"log.retention.hours": "1", "log.retention.check.interval.ms": "7", "producer.id.expiration.ms": "9"}
    config = LogDirectoryConfig.from_kafka(given)
    assert config == LogDirectoryConfig(log_retention_check_interval_ms=7, producer_id_expiration_ms=9)
    assert ProducerSettings.of(config).producer_id_expiration_ms == 9
    assert LogDirectoryConfig.from_kafka(config.to_kafka()) == config
    assert hash(config) == hash(LogDirectoryConfig.from_kafka(given))
    cleaner = {"log.cleaner.threads": "2", "log.cleaner.io.max.bytes.per.second": "1.5E7"}
    found = CleanerConfig.from_kafka(given | cleaner)
    assert found == CleanerConfig(log_cleaner_threads=2, log_cleaner_io_max_bytes_per_second=15_000_000)
    assert CleanerConfig.from_kafka(found.to_kafka()) == found
    assert LogConfig.from_kafka(given | cleaner).retention_ms == 3_600_000


def test_a_cleaner_changes_as_a_brokers_does() -> None:
    """Else a change that Kafka refuses leaves no thread, or a thread without memory for one key."""
    two = CleanerConfig(log_cleaner_threads=2)
    for threads in (1, 2, 3, 4):
        CleanerConfig(log_cleaner_threads=threads).check_change(two)
    with pytest.raises(ConfigError, match=r"log\.cleaner\.threads 5: at most double the current value 2"):
        CleanerConfig(log_cleaner_threads=5).check_change(two)
    with pytest.raises(ConfigError, match=r"log\.cleaner\.threads 1: at least half of the current value 4"):
        CleanerConfig(log_cleaner_threads=1).check_change(CleanerConfig(log_cleaner_threads=4))
    with pytest.raises(ConfigError, match=r"log\.cleaner\.enable: cannot be changed at run time"):
        CleanerConfig(log_cleaner_enable=False).check_change(CleanerConfig())
    with pytest.raises(ConfigError, match="more than 1048576 expected for each of 2 threads"):
        CleanerConfig(log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=2 << 20)
    for factor in (0, 1e-9):
        with pytest.raises(ConfigError, match="the offset map would hold no key"):
            CleanerConfig(log_cleaner_io_buffer_load_factor=factor)
    with pytest.raises(ConfigError, match="at most 1 expected"):
        CleanerConfig(log_cleaner_io_buffer_load_factor=1.5)


def test_wrong_ones_are_told() -> None:
    """Else retention never runs, and a disk fills."""
    with pytest.raises(ConfigError, match=r"nearest known one is log\.retention\.check\.interval\.ms"):
        LogDirectoryConfig.from_kafka({"log.retention.check.interval": "7"})
    with pytest.raises(ConfigError, match=r"num\.recovery\.threads\.per\.data\.dir 0: at least 1"):
        LogDirectoryConfig.from_kafka({"num.recovery.threads.per.data.dir": "0"})
    with pytest.raises(ConfigError, match="a whole number expected"):
        LogDirectoryConfig(log_initial_task_delay_ms="1")  # type: ignore[arg-type]


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
#: Kafka's definition allows 0 threads, with which no broker starts, and any load factor, of which its threads die.
CLEANER = """
log.cleaner.backoff.ms|15000|0..|
log.cleaner.dedupe.buffer.size|134217728||
log.cleaner.enable|true||
log.cleaner.io.buffer.load.factor|0.9|0..1|
log.cleaner.io.buffer.size|524288|0..2147483647|
log.cleaner.io.max.bytes.per.second|1.7976931348623157E308||
log.cleaner.threads|1|1..2147483647|
message.max.bytes|1048588|0..2147483647|
"""


def shown(key: Key) -> str:
    limits = ",".join(key.choices)
    if key.kind in ("int", "float") and key.minimum > -(2**63):
        limits = f"{key.minimum}..{'' if key.maximum == 2**63 - 1 else key.maximum}"
        limits += "" if key.also is None else f",{key.also}"
    assert key.default is not None
    return "|".join((key.name, key.shown(key.default), limits, ",".join(key.other_names)))


def test_keys_are_kafkas() -> None:
    """Else a configuration that a broker takes is refused, or the other way round, or means something else."""
    assert [shown(key) for key in rows(LogConfig).values() if not key.own] == TOPIC.split()
    assert sorted(shown(key) for key in rows(LogDirectoryConfig).values()) == BROKER.split()
    assert sorted(shown(key) for key in rows(CleanerConfig).values()) == CLEANER.split()
    assert all(field == key.name.replace(".", "_") for field, key in rows(LogConfig).items())
