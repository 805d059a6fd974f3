"""``cat --follow``: the records that a tier gains, listing after listing, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pyarrow as pa

from tierlog.errors import ObjectNotFoundError, TierlogError, UnknownTopicError
from tierlog.remote.api import Uuid
from tierlog.remote.metadata.lineage import Gap
from tierlog.remote.tier.tier import Tier
from tierlog.scan.following.followed_tier import FollowedTier
from tierlog.scan.history import PartitionHistory
from tierlog.scan.planning.plan import ScanPlan, plan_scan
from tierlog.scan.scan_request import LATEST, ScanRequest

Partition = tuple[str, int]


class FollowedRecords:
    """The plans of the records that a tier has gained since the last listing, and the offset up to which each partition
    was printed.

    An offset is given once, also where a log was cut and went on with other records. A partition waits in front of
    offsets that no segment holds; where data loss is allowed, for as long as one may still come that does. A topic that
    was made anew begins at its first offset.

    Args:
        tier: The caller's.
        request: The records to follow; its ending offset is LATEST.
        tell: Called with one line for each missing thing; not again while it stays missing.

    Memory: the descriptions of the segments, as one listing has them.
    """

    #: What ``printed`` needs of the records.
    COLUMNS = ("topic", "partition", "offset")

    def __init__(self, tier: Tier, request: ScanRequest, tell: Callable[[str], None]) -> None:
        self._tier = tier
        self._request = request
        self._tell = tell
        self._followed = FollowedTier(tier, request.topics, log_start_offsets=request.log_start_offsets)
        self._next: dict[Partition, int] = {}
        self._starts: dict[Partition, int] = {}
        self._topic_ids: dict[Partition, Uuid] = {}
        self._told: set[str] = set()
        self._telling: set[str] = set()
        self._failed_at: dict[Partition, int] | None = None

    def first_plan(
        self, narrow: Callable[[ScanRequest, Sequence[PartitionHistory]], ScanRequest]
    ) -> tuple[ScanPlan, list[PartitionHistory]]:
        """Plan the records that are there already; return the plan and its partitions. Raises: as ``plan_scan``."""
        histories = self._listed()
        return self._plan(narrow(self._request, histories), histories), histories

    def next_plan(self) -> ScanPlan:
        """Return the plan of what came since. Raises: as ``plan_scan``, but a topic that has gone has nothing."""
        try:
            histories = self._listed()
        except UnknownTopicError as error:
            self._say(str(error))
            histories = []
        return self._plan(self._request, histories)

    def printed(self, rows: pa.RecordBatch) -> None:
        """Note printed records of one partition, ascending: an error behind them does not print them again."""
        place = rows.column("topic")[0].as_py(), rows.column("partition")[0].as_py()
        if place in self._topic_ids:  # not of one file that was given a topic's name
            self._next[place] = rows.column("offset")[rows.num_rows - 1].as_py() + 1

    def finish(self, plan: ScanPlan) -> None:
        """Note that all records of the plan were printed."""
        for each in plan.bounds:
            place = each.topic, each.partition
            self._next[place] = max(self._next.get(place, self._starts[place]), each.end_offset_exclusive)
        self._failed_at = None
        self._told, self._telling = self._telling, set()

    def fail(self, error: TierlogError) -> None:
        """Report an error that the next listing may cure: of a store, or of an object that retention deleted.

        Raises:
            The error, if it is another one, or the second one at the same offsets that trying again does not cure.
        """
        again = self._failed_at == self._next
        if not (error.retriable or (isinstance(error, ObjectNotFoundError) and not again)):
            raise error
        self._failed_at = dict(self._next)
        self._say(f"{error}; tried again at the next listing")

    def _listed(self) -> list[PartitionHistory]:
        found = self._followed.look()
        for fault in found.faults.values():
            if self._request.fail_on_data_loss:
                raise fault
            self._say(f"left out: {fault}")
        histories = []
        for each, resolution in found.partitions.items():
            assert resolution.history is not None
            histories.append(resolution.history)
            place = each.topic, each.partition
            if self._topic_ids.setdefault(place, each.topic_id) != each.topic_id:
                self._topic_ids[place] = each.topic_id
                self._next.pop(place, None)
            if resolution.held is not None:
                self._say(_waits(resolution.history, resolution.held.gap))
        return histories

    def _plan(self, request: ScanRequest, histories: Sequence[PartitionHistory]) -> ScanPlan:
        starts: dict[str, dict[int, int]] = {}
        ends: dict[str, dict[int, int]] = {}
        news = []
        for each in histories:
            place = each.topic, each.partition
            start = self._next.get(place, _start(request, each))
            if start >= each.end_offset_exclusive and place in self._next:
                continue
            if place in self._next and start < each.earliest_offset:
                self._say(f"{_name(each)}: offsets {start} to {each.earliest_offset - 1} were deleted before they came")
            news.append(each)
            starts.setdefault(each.topic, {})[each.partition] = self._starts[place] = start
            gap = next((gap for gap in each.gaps if gap.end_offset_exclusive > start), None)
            if gap is not None and request.fail_on_data_loss:
                self._say(_waits(each, gap))
                ends.setdefault(each.topic, {})[each.partition] = gap.first_offset
        plan = plan_scan(
            self._tier,
            replace(request, starting_offsets=starts, ending_offsets=ends or LATEST, clamp_offsets=True),
            histories=news,
        )
        for warning in plan.warnings:
            self._say(warning)
        return plan

    def _say(self, text: str) -> None:
        if text not in self._told and text not in self._telling:
            self._tell(f"warning: {text}")
        self._telling.add(text)


def _start(request: ScanRequest, history: PartitionHistory) -> int:
    """Return the offset at which a partition begins that was not printed yet."""
    given = request.starting_offsets
    if not isinstance(given, int):
        given = given.get(history.topic, {}).get(history.partition, 0)
    return max(given, 0)


def _waits(history: PartitionHistory, gap: Gap) -> str:
    offsets = f"offsets {gap.first_offset} to {gap.end_offset_exclusive - 1}"
    return f"{_name(history)} waits: {offsets} are in no segment of the tier"


def _name(history: PartitionHistory) -> str:
    return f"{history.topic}-{history.partition}"
