"""The work of one Spark task: small, picklable, free of secrets. Executors import this module, and not the planning."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition

from tierlog.scan.history import PartitionHistory
from tierlog.scan.scan_range import ScanRange


@dataclass(frozen=True)
class RangesTask(InputPartition):
    """Neighbouring ranges of the reader's tier number ``tier``, in order: records or batches."""

    tier: int
    ranges: tuple[ScanRange, ...]


@dataclass(frozen=True)
class StreamTask(InputPartition):
    """Neighbouring ranges of a tier of a layout, in order."""

    layout: str
    ranges: tuple[ScanRange, ...]


@dataclass(frozen=True)
class BrokerTask(InputPartition):
    """Offsets [first, end) of a partition, which brokers give."""

    topic: str
    partition: int
    first: int
    end: int


@dataclass(frozen=True)
class HistoriesTask(InputPartition):
    """Partitions of the reader's tier number ``tier``: segments or transactions."""

    tier: int
    histories: tuple[PartitionHistory, ...]
