"""The topic-backed metadata manager under arguments that no caller should give."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.contract.metadata_events import FINISHED, PARTITION, bring, found, segment, to
from tests.support.hostile_arguments import HOSTILE, check_calls, error_of
from tests.support.metadata_rig import LOG_DIR, rig
from tierlog.config_keys import rows
from tierlog.remote.api import RemotePartitionDeleteMetadata, RemotePartitionDeleteState
from tierlog.remote.metadata.topic_backed.topic_based_config import TopicBasedConfig
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic


def test_every_call_raises_what_it_says() -> None:
    """A broker's task that catches the KIP's errors, and those alone, ends without a line in its log."""
    with rig() as made:
        manager = made.leader()
        bring(manager, segment(1, 0, 9), FINISHED)
        removal = RemotePartitionDeleteMetadata(
            PARTITION, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, event_timestamp_ms=1, broker_id=1
        )
        asked: dict[str, Any] = {"topic_id_partition": PARTITION, "epoch": 0}
        calls: dict[Any, dict[str, Any]] = {
            manager.add_remote_log_segment_metadata: {"metadata": segment(2, 10, 19)},
            manager.update_remote_log_segment_metadata: {"update": to(segment(1, 0, 9), FINISHED)},
            manager.put_remote_partition_delete_metadata: {"metadata": removal},
            manager.remote_log_segment_metadata: asked | {"offset": 5},
            manager.next_segment_with_txn_index: asked | {"offset": 5},
            manager.highest_offset_for_epoch: asked,
            manager.list_remote_log_segments: asked,
            manager.remote_log_size: asked,
            manager.is_ready: {"topic_id_partition": PARTITION},
            manager.on_partition_leadership_changes: {
                "leader_partitions": frozenset(),
                "follower_partitions": frozenset(),
            },
            manager.on_stop_partitions: {"partitions": frozenset()},
        }
        for call, sound in calls.items():
            assert check_calls(call, sound) > 10, call
        assert found(manager, 0, 5) == 1, "it goes on"


def test_every_configuration_raises_what_it_says() -> None:
    """A broker that starts with a wrong value must be told the key, not shown a trace of ours."""
    names = [row.name for row in rows(TopicBasedConfig).values()]
    names += ["remote.log.metadata.common.client.bootstrap.servers", "remote.log.metadata.no.such.key", "", "\udcff"]
    with rig() as made:
        made.machine.files.make_directories(LOG_DIR)
        topic = MemoryMetadataTopic(50, machine=made.machine)

        def configure(configs: Any) -> None:
            with TopicBasedRemoteLogMetadataManager(machine=made.machine, open_logs=lambda *_, **__: topic) as manager:
                manager.configure(configs)

        configure.__doc__ = f"{TopicBasedRemoteLogMetadataManager.configure.__doc__} ConfigError TypeError"
        assert check_calls(configure, {"configs": {"log.dir": LOG_DIR}}) > 10
        for name in names:
            for value in HOSTILE:
                attempt = partial(configure, {"log.dir": LOG_DIR} | {name: value})
                error_of(attempt, configure, ["configs", name], f"{name}={value!r}")
