"""One answer a partition: side by side, within a time, an error of one never the others'."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from tierlog.broker.handling import RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog, OffsetSnapshot, Partition
from tierlog.broker.protocol.api_errors import ApiError, error_code_of
from tierlog.broker.told_errors import ToldErrors
from tierlog.runtime.waiting.side_by_side import run_each

LOGGER = logging.getLogger(__name__)
_TOLD: Final = ToldErrors(LOGGER)

#: Partitions of one request that are searched at once: as many as the threads behind them can use.
CONCURRENCY: Final = 32

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of one partition.

    Args:
        topic, partition: Of which one.
        ask: The question. It may raise.
    """

    topic: str
    partition: int
    ask: Callable[[Partition], Coroutine[Any, Any, Any]]


async def answer_each(
    catalog: Catalog, questions: Iterable[Question], context: RequestContext, *, count: int, seconds: float
) -> list[Any]:
    """Ask many partitions, and give what they answered, in the order of the questions: the result, or an ErrorCode.

    Args:
        catalog: Where the partitions are.
        questions: One a partition; best made as they are asked, as a hundred thousand take long to make, and to forget.
        context: Of the request: whose share of the loop it is, and which topics its client may read.
        count: Of the questions.
        seconds: For all of them. REQUEST_TIMED_OUT for those without an answer by then.
    """
    calls = (_asked(catalog, question, context.may_read) for question in questions)
    answers = await run_each(calls, count=count, limit=CONCURRENCY, seconds=seconds)
    for number, answer in enumerate(answers):
        if answer is None:
            answers[number] = ErrorCode.request_timed_out
        await context.share.take()
    return answers


def _asked(
    catalog: Catalog, question: Question, may_read: Callable[[str], bool]
) -> Callable[[], Coroutine[Any, Any, Any]]:
    async def call() -> Any:
        if not may_read(question.topic):
            return ErrorCode.topic_authorization_failed
        partition = catalog.partition(question.topic, question.partition)
        if partition is None:
            return ErrorCode.unknown_topic_or_partition
        try:
            return await question.ask(partition)
        except ApiError as error:
            return error.code
        except Exception as error:  # noqa: BLE001 - it is logged, and the others are answered
            _TOLD.tell(question.topic, question.partition, error)
            return error_code_of(error)

    return call


def load_quietly(topic: str, number: int, partition: Partition) -> Callable[[], Coroutine[Any, Any, None]]:
    """A call that finds out a partition's offsets, for ``run_each``. What goes wrong is logged and nothing else: who
    asks this partition for more is told.
    """

    async def call() -> None:
        try:
            await partition.load()
        except Exception as error:  # noqa: BLE001 - it is logged
            _TOLD.tell(topic, number, error)

    return call


async def current_offsets(partition: Partition, current_leader_epoch: int = UNKNOWN) -> OffsetSnapshot:
    """The offsets of a partition for a client that believes it is in an epoch.

    Args:
        partition: Searched if its offsets are not at hand.
        current_leader_epoch: As the client says; UNKNOWN if it does not.

    Raises:
        ApiError: FENCED_LEADER_EPOCH of an older epoch, UNKNOWN_LEADER_EPOCH of a newer one.
    """
    offsets = partition.offsets
    if offsets is None:
        offsets = await partition.load()
    check_leader_epoch(offsets, current_leader_epoch)
    return offsets


def check_leader_epoch(offsets: OffsetSnapshot, current_leader_epoch: int) -> None:
    """Compare a client's leader epoch with a partition's. Raises ApiError, as ``current_offsets``."""
    if UNKNOWN in (current_leader_epoch, offsets.leader_epoch):
        return
    if current_leader_epoch < offsets.leader_epoch:
        raise ApiError(ErrorCode.fenced_leader_epoch)
    if current_leader_epoch > offsets.leader_epoch:
        raise ApiError(ErrorCode.unknown_leader_epoch)
