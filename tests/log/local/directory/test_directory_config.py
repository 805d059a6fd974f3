"""A broker's configuration, as far as its logs go by it."""

from __future__ import annotations

import pytest

from tierlog.errors import ConfigError
from tierlog.log.local.directory.directory_config import LogDirectoryConfig


def test_one_file_has_both() -> None:
    """Else an embedder has to take a broker's file apart by hand."""
    given = {"log.retention.hours": "1", "log.retention.check.interval.ms": "7", "producer.id.expiration.ms": "9"}
    config = LogDirectoryConfig.from_kafka(given)
    assert config == LogDirectoryConfig(log_retention_check_interval_ms=7, producer_id_expiration_ms=9)
    assert config.producer_settings.producer_id_expiration_ms == 9
    assert LogDirectoryConfig.from_kafka(config.to_kafka()) == config
    assert hash(config) == hash(LogDirectoryConfig.from_kafka(given))


def test_wrong_ones_are_told() -> None:
    """Else retention never runs, and a disk fills."""
    with pytest.raises(ConfigError, match=r"nearest known one is log\.retention\.check\.interval\.ms"):
        LogDirectoryConfig.from_kafka({"log.retention.check.interval": "7"})
    with pytest.raises(ConfigError, match=r"num\.recovery\.threads\.per\.data\.dir 0: at least 1"):
        LogDirectoryConfig.from_kafka({"num.recovery.threads.per.data.dir": "0"})
    with pytest.raises(ConfigError, match="a whole number expected"):
        LogDirectoryConfig(log_initial_task_delay_ms="1")  # type: ignore[arg-type]
