"""The names that an embedder imports: each in one public place, listed, and with a docstring."""

from __future__ import annotations

import importlib
import inspect
from collections import defaultdict

import pytest

ROOMS = (
    "tierlog",
    "tierlog.records",
    "tierlog.log",
    "tierlog.log.formats",
    "tierlog.log.local",
    "tierlog.replication",
    "tierlog.remote",
    "tierlog.upkeep",
    "tierlog.aio",
    "tierlog.testing",
)
#: What a broker of its own is written with, beside logs and machines of replication.
FOR_BROKERS = {
    "tierlog": "Machine",
    "tierlog.records": "RecordBatchBuilder build_end_transaction_marker ControlRecordType EndTransactionMarker "
    "LeaderChange encode_control_key parse_control_key parse_control_value",
    "tierlog.log": "PartitionLog PartitionConfig PartitionEpochs PartitionSegment RecordsPart",
    "tierlog.log.formats": "OffsetIndex TimeIndex TransactionIndex EpochEntry LeaderEpochs parse_leader_epochs "
    "encode_leader_epochs ProducerSnapshot parse_producer_snapshot encode_producer_snapshot",
    "tierlog.log.local": "UnifiedLog LogDirectory LogConfig FetchDataInfo FetchIsolation AppendOrigin",
    "tierlog.replication": "Leader Follower FetchRecords FetchedRecords BuildAuxState ReplicationError",
    "tierlog.remote": "TopicBasedRemoteLogMetadataManager RemoteLogSegmentMetadata LogSegmentData RemoteLogManager "
    "RemoteLogManagerConfig StopPartition LeaderEndpoint judge_topic",
    "tierlog.testing": "MemoryStorageManager MemoryMetadataTopic",
}
#: Named where their users look for them, in more than one room.
SHARED = {"EpochEntry", "TierlogError", "Uuid"}


@pytest.mark.parametrize("room", ROOMS)
def test_what_a_package_shows_is_documented(room: str) -> None:
    """``dir`` and ``help`` are where an embedder looks first."""
    package = importlib.import_module(room)
    assert {name for name in dir(package) if not name.startswith("_")} == set(package.__all__) - {"__version__"}
    for name in package.__all__:
        value = getattr(package, name)
        is_defined = (inspect.isclass(value) or inspect.isroutine(value)) and value.__name__ == name
        if is_defined and not value.__module__.startswith("tierlog._native."):  # that has its docstrings in stubs
            assert value.__doc__, f"{room}.{name} has no docstring"
            assert not value.__doc__.startswith(f"{name}("), f"{room}.{name} has its fields for a docstring"


@pytest.mark.parametrize("room", FOR_BROKERS)
def test_what_a_broker_is_written_with_is_public(room: str) -> None:
    """If this fails, whoever embeds Tierlog imports from modules that may go with any version."""
    assert set(FOR_BROKERS[room].split()) <= set(importlib.import_module(room).__all__)


def test_each_name_has_one_place() -> None:
    """Two places for one thing are two shapes of one program."""
    places: dict[int, set[str]] = defaultdict(set)
    for room in ROOMS:
        package = importlib.import_module(room)
        for name in package.__all__:
            value = getattr(package, name)
            if inspect.isclass(value) or inspect.isroutine(value):
                places[id(value)].add(f"{room}.{name}")
    twice = {each.rpartition(".")[2] for found in places.values() if len(found) > 1 for each in found}
    assert twice == SHARED
