"""The manager's keys: Kafka 4.3's names, defaults and limits, and those that change at run time."""

from __future__ import annotations

import dataclasses

import pytest

from tierlog.config_keys import rows
from tierlog.errors import ConfigError
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig

LONG_MAX = 2**63 - 1
#: Kafka 4.3's defaults.
KAFKAS: dict[str, object] = {
    "remote.log.manager.copier.thread.pool.size": 10,
    "remote.log.manager.expiration.thread.pool.size": 10,
    "remote.log.manager.follower.thread.pool.size": 2,
    "remote.log.manager.task.interval.ms": 30_000,
    "remote.log.manager.task.retry.backoff.ms": 500,
    "remote.log.manager.task.retry.backoff.max.ms": 30_000,
    "remote.log.manager.task.retry.jitter": 0.2,
    "remote.log.manager.copy.max.bytes.per.second": LONG_MAX,
    "remote.log.manager.copy.quota.window.num": 11,
    "remote.log.manager.copy.quota.window.size.seconds": 1,
    "remote.log.manager.fetch.max.bytes.per.second": LONG_MAX,
    "remote.log.manager.fetch.quota.window.num": 11,
    "remote.log.manager.fetch.quota.window.size.seconds": 1,
    "remote.log.reader.threads": 10,
    "remote.log.reader.max.pending.tasks": 100,
    "remote.fetch.max.wait.ms": 500,
    "remote.list.offsets.request.timeout.ms": 30_000,
    "remote.log.metadata.custom.metadata.max.bytes": 128,
    "follower.fetch.last.tiered.offset.enable": False,
    "remote.log.index.file.cache.total.size.bytes": None,  # Kafka: 1 GiB, of a cache of its own
}
FIELDS = rows(RemoteLogManagerConfig)
NAMED = {name: field for field, row in FIELDS.items() for name in row.names}


def read(**keys: object) -> RemoteLogManagerConfig:
    return RemoteLogManagerConfig.read({name: str(value) for name, value in keys.items()})


def test_defaults_are_kafkas() -> None:
    """If this fails, a broker's file that leaves a key out means something else here."""
    config = RemoteLogManagerConfig.read({})
    assert config == RemoteLogManagerConfig()
    assert {name: getattr(config, NAMED[name]) for name in KAFKAS} == KAFKAS
    own = {row.name for row in FIELDS.values() if row.own}
    others = {"metrics.recording.level"}
    assert {row.name for row in FIELDS.values()} == KAFKAS.keys() | own | others


def test_the_old_name_of_the_followers_threads() -> None:
    assert read(**{"remote.log.manager.thread.pool.size": 7}).follower_thread_pool_size == 7


def test_a_brokers_file_has_other_keys() -> None:
    given = {"num.io.threads": "8", "rsm.config.chunk.size": "1", "remote.log.manager.task.interval.ms": "7"}
    assert RemoteLogManagerConfig.read(given) == RemoteLogManagerConfig(task_interval_ms=7)


@pytest.mark.parametrize("field", [each for each, row in FIELDS.items() if row.minimum > -1])
def test_limits(field: str) -> None:
    """If this fails, a value that Kafka refuses at the start makes a manager that copies nothing, or spins."""
    row = FIELDS[field]
    assert getattr(RemoteLogManagerConfig.read({row.name: str(row.minimum)}), field) == row.minimum
    for value in (row.minimum - 1, "", "many", "1e400"):
        with pytest.raises(ConfigError, match=row.name.replace(".", r"\.")):
            RemoteLogManagerConfig.read({row.name: str(value)})


def test_an_unknown_key_of_the_manager() -> None:
    with pytest.raises(ConfigError, match=r"nearest known one is remote\.log\.manager\.task\.interval\.ms"):
        read(**{"remote.log.manager.task.intervall.ms": 1})


class TestChanges:
    def test_live_keys(self) -> None:
        config = RemoteLogManagerConfig()
        changed = config.changed({"remote.fetch.max.wait.ms": "7", "remote.log.manager.copy.max.bytes.per.second": "9"})
        assert changed == dataclasses.replace(config, fetch_max_wait_ms=7, copy_max_bytes_per_second=9)

    @pytest.mark.parametrize("name", ["remote.log.manager.task.interval.ms", "num.io.threads"])
    def test_others_are_refused(self, name: str) -> None:
        with pytest.raises(ConfigError, match="cannot be changed"):
            RemoteLogManagerConfig().changed({name: "7"})

    @pytest.mark.parametrize(("threads", "allowed"), [(4, False), (5, True), (20, True), (21, False)])
    @pytest.mark.parametrize(
        "name",
        [
            "remote.log.manager.copier.thread.pool.size",
            "remote.log.manager.expiration.thread.pool.size",
            "remote.log.reader.threads",
        ],
    )
    def test_threads_are_halved_or_doubled_at_most(self, name: str, threads: int, allowed: bool) -> None:
        """DynamicBrokerConfigTest, testUpdateRemoteLogManagerDynamicThreadPool."""
        if allowed:
            changed = RemoteLogManagerConfig().changed({name: str(threads)})
            assert getattr(changed, NAMED[name]) == threads
        else:
            with pytest.raises(ConfigError, match="half"):
                RemoteLogManagerConfig().changed({name: str(threads)})
