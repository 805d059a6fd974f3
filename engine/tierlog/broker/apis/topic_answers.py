"""Questions about partitions, side by side and within a time, and the parts of answers about topics and their
partitions.

An error of one partition is never the others'. One node leads all partitions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from tierlog.broker.handling import RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog, OffsetSnapshot, Partition, ToldErrors, Topic
from tierlog.broker.protocol.api_errors import ApiError, error_code_of
from tierlog.broker.protocol.entities import Entities, MadeElements, wire_id_of
from tierlog.remote.api import Uuid
from tierlog.runtime.waiting.side_by_side import run_each

LOGGER = logging.getLogger(__name__)
_TOLD: Final = ToldErrors(LOGGER)

#: Partitions of one request that are searched at once: as many as the threads behind them can use.
CONCURRENCY: Final = 32

_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def error_of_missing(name: str) -> ErrorCode:
    """Return the error code that answers a request for a topic that is not there: another one where Kafka's
    ``Topic.validate`` allows no topic of that name.
    """
    is_legal = name not in (".", "..") and _LEGAL.fullmatch(name) is not None
    return ErrorCode.unknown_topic_or_partition if is_legal else ErrorCode.invalid_topic_exception


class TopicAnswers(NamedTuple):
    """The maker of Metadata's and DescribeTopicPartitions' topics. All but ``epochs`` reads the arguments alone, so
    that a thread may call it.

    Args:
        entities: Of the response.
        prefix: Of the names of its entities.
        catalog: The served topics.
        node_id: The leader of all partitions.
        operations: The operations that a client may call on a topic.
    """

    entities: Entities
    prefix: str
    catalog: Catalog
    node_id: int
    operations: int

    def epochs(self, topic: Topic, partitions: Sequence[int]) -> list[tuple[int, int]]:
        """Return (number, leader epoch) of a topic's partitions, UNKNOWN where none is cached. Does not wait."""
        found = []
        for number in partitions:
            partition = self.catalog.partition(topic.name, number)
            offsets = None if partition is None else partition.offsets
            found.append((number, UNKNOWN if offsets is None else offsets.leader_epoch))
        return found

    def all(
        self, found: Iterable[Topic], missing: Sequence[str | Uuid] = (), denied: Sequence[str | Uuid] = ()
    ) -> MadeElements[Any]:
        """Return the answers for topics with all their partitions, for topics that are not there, and for those that
        the client may not read, in this order.
        """
        with_epochs = [(topic, self.epochs(topic, topic.partitions)) for topic in found]
        left = iter(denied)

        def make(each: Any) -> Any:
            if each is None:
                return self.denied(next(left))
            return self.found(*each) if isinstance(each, tuple) else self.missing(each)

        items = [*with_epochs, *missing, *(None for _ in denied)]
        return MadeElements(items, make, nested=sum(len(epochs) for _, epochs in with_epochs))

    def found(self, topic: Topic, epochs: Sequence[tuple[int, int]]) -> Any:
        """Return the answer for a topic with some of its partitions."""
        return self._topic(
            ErrorCode.none,
            name=topic.name,
            topic_id=wire_id_of(topic.topic_id),
            is_internal=topic.name in _INTERNAL,
            partitions=MadeElements(epochs, self._partition),
            topic_authorized_operations=self.operations,
        )

    def _partition(self, epoch: tuple[int, int]) -> Any:
        number, leader_epoch = epoch
        replicas = (self.node_id,)
        return self.entities.make(
            f"{self.prefix}Partition",
            error_code=ErrorCode.none,
            partition_index=number,
            leader_id=self.node_id,
            leader_epoch=leader_epoch,
            replica_nodes=replicas,
            isr_nodes=replicas,
            offline_replicas=(),
            eligible_leader_replicas=(),
            last_known_elr=(),
        )

    def missing(self, asked: str | Uuid) -> Any:
        """Make the answer for an unknown topic; for a name it contains the operations that a client might call."""
        if isinstance(asked, Uuid):
            return self.failed(ErrorCode.unknown_topic_id, topic_id=wire_id_of(asked))
        return self.failed(
            error_of_missing(asked),
            name=asked,
            is_internal=asked in _INTERNAL,
            topic_authorized_operations=self.operations,
        )

    def denied(self, asked: str | Uuid) -> Any:
        """Make the answer for a topic that the client may not read, existing or not: it contains the request's fields
        alone.
        """
        named = {"topic_id": wire_id_of(asked)} if isinstance(asked, Uuid) else {"name": asked}
        return self.failed(ErrorCode.topic_authorization_failed, **named)

    def failed(self, error: ErrorCode, **values: Any) -> Any:
        """Return the answer for a topic that is an error."""
        return self._topic(error, **{"name": None, "topic_id": None, "is_internal": False, "partitions": ()} | values)

    def _topic(self, error: ErrorCode, **values: Any) -> Any:
        return self.entities.make(f"{self.prefix}Topic", error_code=error, **values)


@dataclass(frozen=True, slots=True)
class Question:
    """A question about one partition.

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
    """Ask many partitions, and return their answers, in the order of the questions: the result, or an ErrorCode.

    Args:
        catalog: Where the partitions are.
        questions: One a partition; best made as they are asked, as a hundred thousand take long to make.
        context: Of the request: which topics its client may read.
        count: Of the questions.
        seconds: For all of them. REQUEST_TIMED_OUT for those without an answer by then.
    """
    calls = (_asked(catalog, question, context.may_read) for question in questions)
    answers = await run_each(calls, count=count, limit=CONCURRENCY, seconds=seconds)
    return [ErrorCode.request_timed_out if answer is None else answer for answer in answers]


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
    """Make a call that looks up a partition's offsets, for ``run_each``. An error is only logged: a later question to
    this partition raises it.
    """

    async def call() -> None:
        try:
            await partition.load()
        except Exception as error:  # noqa: BLE001 - it is logged
            _TOLD.tell(topic, number, error)

    return call


async def current_offsets(partition: Partition, current_leader_epoch: int = UNKNOWN) -> OffsetSnapshot:
    """Return the offsets of a partition for a client that believes it is in an epoch.

    Args:
        partition: Searched if its offsets are not cached.
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
