"""The part of a job that Spark's executors do: a task is some segments of one tier. Executors import this module.

What travels is small: the work's order (the tier's place and the keys that the user gave, never credentials that were
resolved on the driver) and segments as the driver listed them. A function of this module runs the tasks, so that
neither Spark's plans nor its UI show more than its name.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tierlog.errors import TierlogError
from tierlog.runtime.machine import Machine
from tierlog.upkeep.segment_work import Item, Outcome, SegmentWork, ThreadExecutor, WorkOrder

#: Log bytes of a task that has more than one segment.
TASK_BYTES: Final = 128 << 20
#: Pickled segments of a task that has more than one.
TASK_PICKLE_BYTES: Final = 8 << 10
#: The rows that tasks return.
SCHEMA: Final = "outcome binary"


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Neighbouring segments.

    Attributes:
        first: Number of the first segment in the run.
        pickles: The segments.
    """

    first: int
    pickles: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Raised:
    """An error that ends the run, in place of an outcome."""

    error: TierlogError


def cut_tasks(work: SegmentWork[Item, Any], items: Iterable[tuple[int, Item]]) -> Iterator[SegmentTask]:
    """Put neighbouring segments together into tasks, as they come.

    Args:
        work: Knows their sizes.
        items: Each with its number in the run.
    """
    first, pickles, pickle_bytes, log_bytes = 0, list[bytes](), 0, 0
    for number, item in items:
        pickled, size_bytes = pickle.dumps(item), work.cost_bytes(item)
        if pickles and (pickle_bytes + len(pickled) > TASK_PICKLE_BYTES or log_bytes + size_bytes > TASK_BYTES):
            yield SegmentTask(first, tuple(pickles))
            pickles, pickle_bytes, log_bytes = [], 0, 0
        if not pickles:
            first = number
        pickles.append(pickled)
        pickle_bytes += len(pickled)
        log_bytes += size_bytes
    if pickles:
        yield SegmentTask(first, tuple(pickles))


def run_tasks(
    order: WorkOrder[Any, Any], tasks: Sequence[SegmentTask], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Do the tasks of these numbers; yield a row for each segment, of its number and its outcome.

    An error of Tierlog's is a row too, the last one: Spark would try the task again, and lose what the error is.
    """
    chosen = [tasks[number] for batch in numbers for number in batch.column(0).to_pylist()]
    for done in _outcomes(order, chosen):
        yield pa.RecordBatch.from_pydict({"outcome": pa.array([pickle.dumps(done)], pa.binary())})


def _outcomes(order: WorkOrder[Any, Outcome], tasks: Sequence[SegmentTask]) -> Iterator[tuple[int, Outcome | Raised]]:
    under_way: dict[int, tuple[int, object]] = {}

    def items() -> Iterator[Any]:
        for task in tasks:
            for number, pickled in enumerate(task.pickles, task.first):
                item = pickle.loads(pickled)  # noqa: S301 - the driver's own
                under_way[id(item)] = number, item
                yield item

    try:
        with order.opened() as work:
            threads = ThreadExecutor(Machine().scheduler, work.side_by_side, name="tierlog-task")
            with closing(threads.run(work, items())) as done:
                for item, outcome in done:
                    number, _ = under_way.pop(id(item))
                    yield number, outcome
    except TierlogError as error:
        yield -1, Raised(_portable(error))


def _portable(error: TierlogError) -> TierlogError:
    """Return the error, or its text where it cannot travel."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    except (TypeError, AttributeError, pickle.PickleError):
        return TierlogError(str(error))
    return error
