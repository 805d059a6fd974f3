"""What a seed draws must be valid, the same every time, and survive JSON: or a failing seed cannot be replayed."""

from __future__ import annotations

import pytest

from tests.simulation.settings import ALWAYS, FAULTS, Settings
from tierlog.log.local.log_config import CleanerConfig, LogConfig, LogDirectoryConfig
from tierlog.remote.manager.manager_config import RemoteLogManagerConfig

SEEDS = range(1, 301)


@pytest.mark.parametrize("seed", [1, 10, 77])
def test_settings_survive_json(seed: int) -> None:
    drawn = Settings.draw(seed)
    assert Settings.from_json(drawn.to_json()) == drawn == Settings.draw(seed)


def test_every_seed_is_valid() -> None:
    for seed in SEEDS:
        drawn = Settings.draw(seed)
        for topic in drawn.topics:
            config = LogConfig.from_kafka(dict(topic.config))
            assert config.min_insync_replicas <= topic.replication <= drawn.brokers
        for given in (dict(drawn.broker_config), dict(drawn.changed_config)):
            own = {name: text for name, text in given.items() if name.startswith("log.cleaner")}
            CleanerConfig.from_kafka(own)
            RemoteLogManagerConfig.read(given)
        assert len(drawn.clock_skews_ms) == drawn.brokers


def test_faults_are_drawn() -> None:
    """One in ten seeds has none; the others have those that the least numbers need; each kind is drawn by some."""
    drawn = [Settings.draw(seed) for seed in SEEDS]
    assert sum(not each.faults for each in drawn) == len(drawn) // 10
    assert all(set(ALWAYS) <= set(each.faults) for each in drawn if each.faults)
    assert {kind for each in drawn for kind in each.faults} == set(FAULTS)


def test_parts_have_their_own_chance() -> None:
    drawn = Settings.draw(5)
    one, again, other = (drawn.rng(part).integer_below(1 << 60) for part in ("client-1", "client-1", "client-2"))
    assert one == again != other
    assert LogDirectoryConfig.from_kafka(
        {name: text for name, text in drawn.broker_config if not name.startswith(("remote.", "follower."))}
    ).transaction_partition_verification_enable
