"""Spark tasks from a pinned listing: on the driver only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark_tierlog.tasks import HistoriesTask, RangesTask
from tierlog.opening import TierLocation
from tierlog.scan.planning.plan import plan_scan

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

    from pyspark_tierlog.options.source_options import ReadOptions
    from tierlog.scan.history import PartitionHistory
    from tierlog.scan.scan_request import ScanRequest

SEGMENTS_PER_TASK = 2_000
"""Segments that one task of a table made of descriptions reads: each costs at most one small request."""


def plan_tasks(
    options: ReadOptions,
    location: TierLocation,
    number: int,
    histories: Sequence[PartitionHistory],
    request: ScanRequest,
) -> tuple[list[InputPartition], tuple[str, ...]]:
    """Plan the tasks that read one tier as it was listed.

    Args:
        options: Options of the load.
        location: The tier.
        number: Index of the tier among the reader's tiers.
        histories: The histories that were pinned at the load.
        request: The scan request, with the filters that Spark pushed down.

    Returns:
        The tasks, by topic, partition and offset, and warnings about missing data.

    Raises:
        DataLossError, CorruptDataError, StoreError and their kinds: those of ``plan_scan``.
    """
    if options.table in ("segments", "transactions"):
        wanted = request.record_filter
        chosen = [history for history in histories if wanted.admits(history.topic, history.partition)]
        warnings = tuple(warning for history in chosen for warning in history.warnings)
        return [HistoriesTask(number, group) for group in _grouped(chosen)], warnings
    with location.opened() as tier:
        plan = plan_scan(tier, request, histories=histories)
    return [RangesTask(number, ranges) for ranges in plan.tasks()], plan.warnings


def _grouped(histories: Sequence[PartitionHistory]) -> list[tuple[PartitionHistory, ...]]:
    groups: list[tuple[PartitionHistory, ...]] = []
    group: list[PartitionHistory] = []
    segments = 0
    for history in histories:
        group.append(history)
        segments += len(history.spans) + len(history.unreferenced)
        if segments >= SEGMENTS_PER_TASK:
            groups.append(tuple(group))
            group, segments = [], 0
    return [*groups, tuple(group)] if group else groups
