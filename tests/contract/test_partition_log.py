"""The contract of a partition's log over ours, and over a third party's."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.contract.list_partition_log import ListLog
from tests.contract.partition_log_suite import LogRig, MakeRig, PartitionLogContract
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.log.partition_log import PartitionLog
from tierlog.records.builder import RecordBatchBuilder


def append(log: PartitionLog, count: int, *, leader_epoch: int, timestamp_ms: int) -> None:
    """A batch of a producer's."""
    builder = RecordBatchBuilder(0)
    for number in range(count):
        builder.append(None, b"value %d" % number, timestamp_ms=timestamp_ms + number)
    log.append_as_leader(bytearray(builder.build()), leader_epoch=leader_epoch)


class UnifiedLogRig:
    """A UnifiedLog, appended to as a leader does."""

    def __init__(self, log: UnifiedLog) -> None:
        self._log = log

    @property
    def log(self) -> PartitionLog:
        return self._log

    def append(self, count: int, *, leader_epoch: int, timestamp_ms: int) -> None:
        append(self._log, count, leader_epoch=leader_epoch, timestamp_ms=timestamp_ms)

    def roll(self) -> None:
        self._log.roll()

    def replicate(self) -> None:
        self._log.update_high_watermark(self._log.log_end_offset)


class TestUnifiedLog(PartitionLogContract):
    """Ours, in a folder of this machine."""

    @pytest.fixture
    def make_rig(self, tmp_path: pathlib.Path) -> Iterator[MakeRig]:
        opened: list[UnifiedLog] = []

        def make(tiered: bool) -> LogRig:
            log = UnifiedLog.open(
                str(tmp_path / f"orders-{len(opened)}"),
                config=LogConfig(remote_storage_enable=tiered),
                remote_log_enabled=True,
            )
            opened.append(log)
            return UnifiedLogRig(log)

        yield make
        for log in opened:
            log.close()


class ListLogRig:
    """A ListLog, appended to by its own calls."""

    def __init__(self, log: ListLog) -> None:
        self._log = log

    @property
    def log(self) -> PartitionLog:
        return self._log

    def append(self, count: int, *, leader_epoch: int, timestamp_ms: int) -> None:
        append(self._log, count, leader_epoch=leader_epoch, timestamp_ms=timestamp_ms)

    def roll(self) -> None:
        self._log.roll()

    def replicate(self) -> None:
        self._log.high_watermark = self._log.log_end_offset


class TestThirdParty(PartitionLogContract):
    """Another's: the suite judges the protocol, not our classes."""

    @pytest.fixture
    def make_rig(self, tmp_path: pathlib.Path) -> MakeRig:
        return lambda tiered: ListLogRig(ListLog(tmp_path / f"orders-{int(tiered)}", tiered=tiered))
