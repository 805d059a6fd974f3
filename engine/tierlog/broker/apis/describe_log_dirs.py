"""DescribeLogDirs: how many bytes of each partition can be read."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.topic_answers import Question, answer_each
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog, Partition
from tierlog.broker.protocol.entities import MadeElements, entities_of

_SECONDS: Final = 10.0


class DescribeLogDirsHandler:
    """The handler of DescribeLogDirs: one directory, the tier.

    Args:
        catalog: The served topics.
        log_dir: How the directory is called.
    """

    api_key: ClassVar[int] = 35
    versions: ClassVar[range] = range(1, 6)

    def __init__(self, catalog: Catalog, *, log_dir: str = "tier") -> None:
        self._catalog = catalog
        self._log_dir = log_dir

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """Answer the sizes of all partitions, or of the named ones that exist; -1 for a size that is not
        found in time.
        """
        entities = entities_of(self.api_key, context.api_version)
        wanted = self._wanted(request, context.may_read)
        questions = (Question(name, number, _size_bytes) for name, numbers in wanted.items() for number in numbers)
        count = sum(map(len, wanted.values()))
        sizes = iter(await answer_each(self._catalog, questions, context, count=count, seconds=_SECONDS))

        def partition(number: int) -> Any:
            size = next(sizes)
            return entities.make(
                "DescribeLogDirsPartition",
                partition_index=number,
                partition_size=UNKNOWN if isinstance(size, ErrorCode) else size,
                offset_lag=0,
                is_future_key=False,
            )

        topics = MadeElements(
            wanted.items(),
            lambda topic: entities.make(
                "DescribeLogDirsTopic", name=topic[0], partitions=MadeElements(topic[1], partition)
            ),
            nested=count,
        )
        result = entities.make("DescribeLogDirsResult", error_code=ErrorCode.none, log_dir=self._log_dir, topics=topics)
        return entities.response(error_code=ErrorCode.none, results=(result,))

    def _wanted(self, request: Any, may_read: Callable[[str], bool]) -> dict[str, Collection[int]]:
        """Topic -> partitions that are there and that the client may read, each once."""
        if request.topics is None:
            return {topic.name: topic.partitions for topic in self._catalog.topics() if may_read(topic.name)}
        wanted: dict[str, Collection[int]] = {}
        for topic in request.topics:
            found = self._catalog.find(topic.topic)
            if found is not None and may_read(found.name):
                served = frozenset(found.partitions)
                numbers = dict.fromkeys((*wanted.get(found.name, ()), *filter(served.__contains__, topic.partitions)))
                if numbers:
                    wanted[found.name] = tuple(numbers)
        return wanted


async def _size_bytes(partition: Partition) -> int:
    return await partition.size_bytes()
