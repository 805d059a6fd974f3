"""A consumer leaves out what the answer's list says: it must be Kafka's list."""

from __future__ import annotations

import itertools
import pathlib
import random
import shutil
import struct
from functools import partial
from types import SimpleNamespace

import pytest
from kio.schema.errors import ErrorCode

from tests.conftest import DATA, FIXTURES
from tests.support.batches import Batch, encode
from tests.support.buckets import Bucket
from tests.support.file_parts import bytes_of
from tests.support.golden import Case, bucket_root, config_of, tiered_topics
from tests.support.loops import run_on
from tests.support.replica_reads import consumed_rows, read_on, served
from tests.support.segments import Aborted
from tierlog.broker.fetching.fetch_session import FetchPartition
from tierlog.broker.fetching.partition_reads import LateReads, PartitionReads, ReadOptions
from tierlog.broker.handling import may_read_all
from tierlog.broker.replica.replica_partition import ReplicaPartition
from tierlog.records import scan
from tierlog.remote.api import IndexType
from tierlog.remote.manager.batch_reads import FoundBatches
from tierlog.remote.metadata.lineage import Span
from tierlog.remote.tier.tier import Tier
from tierlog.runtime.machine.clock import LOOP_TIMERS

CASES = [
    pytest.param(case, id=f"{root.name}-{case}", marks=() if root is DATA else pytest.mark.slow)
    for root in (DATA, FIXTURES)
    if (root / "README.md").is_file()
    for case in tiered_topics(root)
    if "txn" in case.topic
]


class KafkasList:
    """The list of RemoteLogManager#addAbortedTransactions, out of the index files by ``struct``."""

    def __init__(self, tier: Tier, spans: tuple[Span, ...]) -> None:
        self._ends = [span.segment.end_offset for span in spans]
        self._positions = []
        self._aborted = []
        for span in spans:
            index = bytes(tier.fetch_index(span.segment, IndexType.OFFSET) or b"")
            entries = [struct.unpack_from(">ii", index, at) for at in range(0, len(index), 8)]
            self._positions.append([(span.segment.start_offset + offset, at) for offset, at in entries])
            found = bytes(tier.fetch_index(span.segment, IndexType.TRANSACTION) or b"")
            self._aborted.append([struct.unpack_from(">hqqqq", found, at)[1:] for at in range(0, len(found), 34)])

    def of(self, base_offset: int, position: int, size_bytes: int) -> set[tuple[int, int]]:
        number = next(n for n, end in enumerate(self._ends) if end >= base_offset)
        behind = (offset for offset, at in self._positions[number] if at >= position + size_bytes)
        upper = next(behind, self._ends[number] + 1)
        listed = set()
        for producer, first, last, stable in itertools.chain(*self._aborted[number:]):
            if last >= base_offset and first < upper:
                listed.add((producer, first))
            if stable >= upper:
                break
        return listed


@pytest.mark.parametrize("case", CASES)
def test_the_list_is_kafkas(case: Case) -> None:
    """Records of aborted transactions would be read, or a list would be longer than a broker's."""
    chance = random.Random(str(case))

    async def check(partition: ReplicaPartition, kafkas: KafkasList, spans: tuple[Span, ...]) -> int:
        offsets = await partition.load()
        logs = [b"".join(w for _, w in here.tier.iter_log_windows(span.segment)) for span in spans]
        tables = [scan(log) for log in logs]
        listed = 0
        for _ in range(60):
            offset = chance.randrange(offsets.log_start_offset, offsets.last_stable_offset)
            _, found = await partition.read(
                offset, max_bytes=int(2 ** chance.uniform(5, 16)), is_first_whole=True, read_committed=True
            )
            table = scan(bytes_of(found.records))
            base = int(table.base_offset[0])
            number = next(n for n, span in enumerate(spans) if span.end_offset_exclusive > base)
            place = tables[number].base_offset.tolist().index(base)
            wanted = kafkas.of(base, int(tables[number].position[place]), found.size_bytes)
            assert found.aborted_transactions == sorted(wanted, key=lambda entry: entry[1])
            listed += len(wanted)
        return listed

    with served(str(bucket_root(case.run)), config_of(case.run), topics=[case.topic]) as here:
        for (topic, number), partition in here.partitions.items():
            history = here.histories[topic, number].current
            assert history is not None
            kafkas = KafkasList(here.tier, history.spans)
            assert run_on("uvloop", partial(check, partition, kafkas, history.spans)), "no transaction was listed"


def test_a_log_without_indexes_is_replayed_once(data: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """Of one ``.log`` alone aborted records would be read as committed; or each read would read all of it again."""
    whole = next((data / "main-plain" / "local-before").rglob("fx-txn-0"))
    bare = tmp_path / "fx-txn-0"
    bare.mkdir()
    for log in whole.glob("*.log"):
        shutil.copy(log, bare)

    async def rows(partition: ReplicaPartition) -> list[object]:
        read = await read_on(partition, read_committed=True, max_bytes=lambda: 20_000)
        return [row for batch in consumed_rows(read) for row in batch.to_pylist()]

    found = []
    for folder in (whole.parent, tmp_path):
        with served(str(folder), topics=["fx-txn"]) as here:
            found.append(run_on("uvloop", lambda: rows(here.partitions["fx-txn", 0])))
    assert found[0]
    assert found[0] == found[1]


def transactions(root: pathlib.Path) -> Bucket:
    """Producer 7 aborts 0-1 (marker 4, second segment) and 10 (marker 11, third); 8 commits 2."""
    bucket = Bucket(root)

    def data(offset: int, producer: int) -> Batch:
        return Batch(offset, (b"p%d" % producer,), producer_id=producer, producer_epoch=0, transactional=True)

    def marker(offset: int, producer: int, kind: str) -> Batch:
        return Batch(offset, producer_id=producer, producer_epoch=0, marker=kind)

    bucket.segment("u1", [data(0, 7), data(1, 7), data(2, 8)], lineage={0: 0}, open_transactions={7: 0, 8: 2})
    second = [Batch(3, (b"plain",)), marker(4, 7, "abort"), marker(5, 8, "commit")]
    bucket.segment("u2", second, lineage={0: 0}, aborted=[Aborted(7, 0, 4, 2)])
    third = [data(10, 7), marker(11, 7, "abort"), data(12, 8), Batch(13)]
    bucket.segment("u3", third, lineage={0: 0}, aborted=[Aborted(7, 10, 11, 12)], open_transactions={8: 12})
    return bucket


def test_markers_of_later_segments_count(tmp_path: pathlib.Path) -> None:
    """What was aborted after the roll of a segment would be read as committed."""
    transactions(tmp_path)

    async def check(partition: ReplicaPartition) -> None:
        async def read(offset: int, *, read_committed: bool = True) -> FoundBatches:
            reading = partition.read(offset, max_bytes=1000, is_first_whole=True, read_committed=read_committed)
            return (await reading)[1]

        assert (await partition.load()).last_stable_offset == 12
        assert (await read(0)).aborted_transactions == [(7, 0)]
        assert (await read(3)).aborted_transactions == [(7, 0)]
        assert (await read(10)).aborted_transactions == [(7, 10)]
        assert (await read(10, read_committed=False)).aborted_transactions is None
        assert scan(b"".join((await read(10)).records)).last_offset.tolist() == [10, 11], "no byte of what is open"
        assert ((await read(12)).size_bytes, (await read(12)).aborted_transactions) == (0, ())
        assert (await read(12, read_committed=False)).size_bytes

    with served(str(tmp_path)) as here:
        run_on("asyncio", lambda: check(here.partitions["orders", 0]))


def test_a_log_whose_transactions_are_not_known_is_an_error_of_committed_readers(tmp_path: pathlib.Path) -> None:
    """A client of librdkafka reads committed records by default: it would see an empty topic, without an error."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batches = [bytearray(encode(Batch(offset))) for offset in range(6)]
    struct.pack_into(">i", batches[3], 8, 5)
    (folder / f"{0:020d}.log").write_bytes(b"".join(batches[:5]))
    (folder / f"{5:020d}.log").write_bytes(batches[5])

    async def told(partition: ReplicaPartition, offset: int, *, is_committed: bool) -> tuple[int, int]:
        wanted = FetchPartition(("orders", 0), "orders", bytes(16), offset, 1 << 20)
        options = ReadOptions(12, is_committed, 0, may_read_all)
        catalog = SimpleNamespace(partition=lambda *_: partition)
        reads = PartitionReads([wanted], options, catalog, timers=LOOP_TIMERS, late=LateReads())  # type: ignore[arg-type]
        await reads.look()
        await reads.read(1 << 20)
        ((_, answer),) = reads.answers()
        return answer.error_code, answer.size_bytes

    async def check(partition: ReplicaPartition) -> None:
        corrupt = ErrorCode.corrupt_message.value
        offsets = await partition.load()
        for offset in range(6):
            assert await told(partition, offset, is_committed=True) == (corrupt, 0)
        assert await told(partition, 6, is_committed=True) == (0, 0)
        assert await told(partition, 0, is_committed=False) == (0, sum(map(len, batches[:3])))
        assert await told(partition, 3, is_committed=False) == (corrupt, 0)
        assert offsets.end_offset(read_committed=True) == offsets.high_watermark == 6

    with served(str(tmp_path)) as here:
        run_on("uvloop", lambda: check(here.partitions["orders", 0]))
