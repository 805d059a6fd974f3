"""The effects of a topic's configuration on its tier: Kafka's RemoteTopicCrudTest, rule by rule."""

from __future__ import annotations

import itertools

import pytest

from tierlog.errors import ConfigError
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_folder import NEVER_TIERED
from tierlog.remote.manager.topic_changes import TierChange, judge_topic

TIERED = {"remote.storage.enable": "true"}


def config(**keys: str) -> LogConfig:
    """A topic's, without any check of the whole."""
    fields = {
        "remote_storage_enable": keys.get("remote", "false") == "true",
        "remote_log_copy_disable": keys.get("copy_disable", "false") == "true",
        "remote_log_delete_on_disable": keys.get("delete_on_disable", "false") == "true",
        "cleanup_policy": frozenset(each for each in keys.get("policy", "delete").split(",") if each),
        "retention_ms": int(keys.get("ms", "1000")),
        "local_retention_ms": int(keys.get("local_ms", "-2")),
        "retention_bytes": int(keys.get("bytes", "-1")),
        "local_retention_bytes": int(keys.get("local_bytes", "-2")),
    }
    return LogConfig(**fields)  # type: ignore[arg-type]


def refused(topic_config: LogConfig, *, before: LogConfig | None = None, system_enabled: bool = True) -> bool:
    try:
        judge_topic("orders", topic_config, before=before, system_enabled=system_enabled)
    except ConfigError:
        return True
    return False


@pytest.mark.parametrize("name", ["ms", "bytes"])
@pytest.mark.parametrize("copy_disable", ["true", "false"])
def test_local_retention(name: str, copy_disable: str) -> None:
    """More local than in all is a limit that never counts; a local one that differs while nothing is copied loses
    records before their time, or keeps them for ever. testCreateRemoteTopicWithInvalidRetention…,
    testCreateTopicRetention…ValidationWithRemoteCopyDisabled.
    """
    for whole, local in itertools.product((-1, 0, 500, 1000), (-2, -1, 0, 500, 1000, 1001)):
        of_one = {name: str(whole), f"local_{name}": str(local)}
        found = refused(config(remote="true", copy_disable=copy_disable, **of_one))
        too_much = local != -2 and whole >= 0 and (local == -1 or local > whole)
        differs = copy_disable == "true" and local not in (-2, whole)
        assert found == (too_much or differs), of_one
        assert not refused(config(copy_disable=copy_disable, **of_one)), "not tiered, so nothing is asked"


@pytest.mark.parametrize(
    ("policy", "wrong"), [("delete", False), ("", False), ("compact", True), ("compact,delete", True)]
)
def test_compaction(policy: str, wrong: bool) -> None:
    """The tier has closed segments as they were; compaction rewrites them. testCreateCompactedRemoteStorage."""
    assert refused(config(remote="true", policy=policy)) == wrong
    assert refused(config(remote="true", policy=policy), before=config(remote="true")) == wrong
    assert not refused(config(policy=policy))


def test_a_broker_without_tiered_storage() -> None:
    """It would keep for ever what it takes for the tier's. testEnableRemoteLogWhenSystemRemoteStorageIsDisabled,
    testClusterWideDisablementOfTieredStorageWithEnabledTieredTopic.
    """
    assert refused(config(remote="true"), system_enabled=False)
    assert refused(config(remote="true"), before=config(), system_enabled=False)
    assert not refused(config(), system_enabled=False)


def test_leaving_the_tier() -> None:
    """Its segments in the tier go, so that it is asked for. testUpdateTopicConfigWithDisablingRemoteStorage."""
    assert refused(config(), before=config(remote="true"))
    assert refused(config(copy_disable="true"), before=config(remote="true", delete_on_disable="true"))
    left = judge_topic("orders", config(delete_on_disable="true"), before=config(remote="true"))
    assert left is TierChange.LEAVES


def test_what_is_to_be_done() -> None:
    """A broker that takes one change for another deletes a tier, or copies none."""
    plain, tiered, stopped = config(), config(remote="true"), config(remote="true", copy_disable="true")
    found = {
        (name, of): judge_topic("orders", to, before=at)
        for (name, to), (of, at) in itertools.product(
            {"tiered": tiered, "stopped": stopped}.items(),
            {"none": None, "plain": plain, "tiered": tiered, "stopped": stopped}.items(),
        )
    }
    assert found == {
        ("tiered", "none"): TierChange.ENTERS,
        ("tiered", "plain"): TierChange.ENTERS,
        ("tiered", "tiered"): TierChange.NONE,
        ("tiered", "stopped"): TierChange.RESUMES_COPYING,
        ("stopped", "none"): TierChange.ENTERS,
        ("stopped", "plain"): TierChange.ENTERS,
        ("stopped", "tiered"): TierChange.STOPS_COPYING,
        ("stopped", "stopped"): TierChange.NONE,
    }
    assert judge_topic("orders", plain) is TierChange.NONE
    assert judge_topic("orders", config(copy_disable="true"), before=plain) is TierChange.NONE


@pytest.mark.parametrize("topic", sorted(NEVER_TIERED))
def test_internal_topics_never_tier(topic: str) -> None:
    """The metadata topic in the tier that it describes could not be read without itself."""
    assert judge_topic(topic, config(remote="true")) is TierChange.NONE


def test_arguments() -> None:
    """A mapping of keys is no configuration: nothing of it would be checked."""
    for call in (
        lambda: judge_topic(b"orders", config()),  # type: ignore[arg-type]
        lambda: judge_topic("orders", TIERED),  # type: ignore[arg-type]
        lambda: judge_topic("orders", config(), before=TIERED),  # type: ignore[arg-type]
    ):
        with pytest.raises(TypeError):
            call()
