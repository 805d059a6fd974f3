"""DescribeLogDirs: how many bytes of each partition can be read."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from kio.schema.errors import ErrorCode

from tierlog.broker.apis.partition_answers import Question, answer_each
from tierlog.broker.handling import Answer, RequestContext
from tierlog.broker.partitions import UNKNOWN, Catalog, Partition
from tierlog.broker.protocol.encoding import MadeElements
from tierlog.broker.protocol.entities import entities_of
from tierlog.runtime.waiting.side_by_side import taken

_SECONDS: Final = 10.0


class DescribeLogDirsHandler:
    """Answers DescribeLogDirs: one directory, the tier.

    Args:
        catalog: What is served.
        log_dir: How the directory is called.
    """

    api_key: ClassVar[int] = 35
    versions: ClassVar[range] = range(1, 6)

    def __init__(self, catalog: Catalog, *, log_dir: str = "tier") -> None:
        self._catalog = catalog
        self._log_dir = log_dir

    async def handle(self, request: Any, context: RequestContext) -> Answer:
        """The sizes of all partitions, or of those that are named and there; -1 of one that cannot be told in time."""
        entities = entities_of(self.api_key, context.api_version)
        wanted = await self._wanted(request, context)
        questions = (Question(name, number, _size_bytes) for name, numbers in wanted.items() for number in numbers)
        count = sum(map(len, wanted.values()))
        sizes = taken(await answer_each(self._catalog, questions, context, count=count, seconds=_SECONDS))

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
        )
        result = entities.make("DescribeLogDirsResult", error_code=ErrorCode.none, log_dir=self._log_dir, topics=topics)
        return entities.response(
            error_code=ErrorCode.none,
            results=(result,),
        )

    async def _wanted(self, request: Any, context: RequestContext) -> dict[str, list[int]]:
        """Topic -> partitions that are there and that the client may read, each once."""
        may_read = context.may_read
        if request.topics is None:
            topics = self._catalog.topics()
            return {topic.name: list(topic.partitions) for topic in topics if may_read(topic.name)}
        wanted: dict[str, dict[int, None]] = {}
        for topic in request.topics:
            is_readable = may_read(topic.topic)
            for number in topic.partitions:
                if is_readable and self._catalog.partition(topic.topic, number) is not None:
                    wanted.setdefault(topic.topic, {})[number] = None
                await context.share.take()
        return {name: list(numbers) for name, numbers in wanted.items()}


async def _size_bytes(partition: Partition) -> int:
    return await partition.size_bytes()
