"""Tierlog: Kafka tiered storage (KIP-405) without a broker.

What belongs here: the names a user imports first, each loaded when it is first used, so that ``import tierlog`` is
cheap and cannot fail for want of an extra. What does not: anything else.

>>> import tierlog
>>> reader = tierlog.read("s3://bucket/prefix", "orders")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tierlog._lazy import lazy_names
from tierlog._version import __version__
from tierlog.errors import TierlogError

if TYPE_CHECKING:
    from tierlog import aio, broker, errors, log, records, remote, replication, scan, testing, upkeep
    from tierlog.consuming import consume
    from tierlog.reading import read, topics
    from tierlog.record_dataset import RecordDataset, dataset
    from tierlog.record_reader import RecordReader
    from tierlog.remote.tier import open_tier
    from tierlog.runtime.machine import Machine
    from tierlog.scan.topic_info import PartitionInfo, TopicInfo
    from tierlog.tier_consumer import TierConsumer, TopicPartitionOffset
else:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "tierlog.consuming": ("consume",),
            "tierlog.reading": ("read", "topics"),
            "tierlog.record_dataset": ("RecordDataset", "dataset"),
            "tierlog.record_reader": ("RecordReader",),
            "tierlog.remote.tier": ("open_tier",),
            "tierlog.runtime.machine": ("Machine",),
            "tierlog.scan.topic_info": ("PartitionInfo", "TopicInfo"),
            "tierlog.tier_consumer": ("TierConsumer", "TopicPartitionOffset"),
        },
        modules=("aio", "broker", "errors", "log", "records", "remote", "replication", "scan", "testing", "upkeep"),
    )

__all__ = [
    "Machine",
    "PartitionInfo",
    "RecordDataset",
    "RecordReader",
    "TierConsumer",
    "TierlogError",
    "TopicInfo",
    "TopicPartitionOffset",
    "__version__",
    "aio",
    "broker",
    "consume",
    "dataset",
    "errors",
    "log",
    "open_tier",
    "read",
    "records",
    "remote",
    "replication",
    "scan",
    "testing",
    "topics",
    "upkeep",
]
