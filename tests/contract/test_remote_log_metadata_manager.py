"""The contract of metadata managers over ours, on a topic in memory, and over a third party's."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.contract.dict_metadata_manager import DictMetadataManager
from tests.contract.loop_metadata_manager import LoopMetadataManager
from tests.contract.metadata_manager_suite import MetadataManagerContract
from tierlog.remote.api import RemoteLogMetadataManager
from tierlog.remote.metadata.topic_backed.topic_based_manager import TopicBasedRemoteLogMetadataManager
from tierlog.testing.memory_metadata_topic import MemoryMetadataTopic


class TestTopicBased(MetadataManagerContract):
    """A topic in memory, read as values and as record batches, with few partitions so that some share one."""

    @pytest.fixture(params=["values", "batches"])
    def manager(self, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[RemoteLogMetadataManager]:
        topic = MemoryMetadataTopic(3, as_batches=request.param == "batches")
        with TopicBasedRemoteLogMetadataManager(open_logs=lambda config, *, machine: topic) as manager:
            manager.configure(
                {
                    "log.dir": str(tmp_path),
                    "remote.log.metadata.topic.num.partitions": 3,
                    "remote.log.metadata.kafka.semantics": self.as_kafka,
                }
            )
            yield manager


class TestTopicBasedAsKafka(TestTopicBased):
    """The same with Kafka's answers where segments overlap."""

    as_kafka = True


class TestTopicInADirectory(MetadataManagerContract):
    """The topic as local logs of this process, by the configuration alone."""

    @pytest.fixture
    def manager(self, tmp_path: pathlib.Path) -> Iterator[RemoteLogMetadataManager]:
        with TopicBasedRemoteLogMetadataManager() as manager:
            manager.configure(
                {
                    "log.dir": str(tmp_path),
                    "remote.log.metadata.topic.local.dir": str(tmp_path / "metadata"),
                    "remote.log.metadata.topic.num.partitions": 3,
                }
            )
            yield manager


class TestThirdParty(MetadataManagerContract):
    """Another's: the suite judges the interface, not our classes."""

    @pytest.fixture
    def manager(self) -> Iterator[RemoteLogMetadataManager]:
        with DictMetadataManager() as manager:
            manager.configure({})
            yield manager


class TestAwaited(MetadataManagerContract):
    """Awaited, on asyncio's loop and on uvloop's: ours, and a third party's."""

    @pytest.fixture(params=[("asyncio", "third party's"), ("uvloop", "ours")])
    def manager(self, request: pytest.FixtureRequest, tmp_path: pathlib.Path) -> Iterator[RemoteLogMetadataManager]:
        loop, whose = request.param
        topic = MemoryMetadataTopic(3)
        ours = TopicBasedRemoteLogMetadataManager(open_logs=lambda config, *, machine: topic)
        with LoopMetadataManager(ours if whose == "ours" else DictMetadataManager(), loop) as manager:
            manager.configure({"log.dir": str(tmp_path), "remote.log.metadata.topic.num.partitions": 3})
            yield manager
