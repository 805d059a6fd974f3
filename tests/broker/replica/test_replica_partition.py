"""What a consumer gets of a bucket: all that a broker's consumer got, and nothing else."""

from __future__ import annotations

import pathlib
import random

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from tests.conftest import DATA, FIXTURES
from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.file_parts import bytes_of
from tests.support.golden import (
    Case,
    Row,
    answers,
    bucket_root,
    config_of,
    consumed,
    list_offsets,
    log_folders,
    rows_of,
    tiered_topics,
)
from tests.support.kip_scripts import SCRIPTS
from tests.support.loops import run_on
from tests.support.replica_reads import Served, consumed_rows, read_on, served, table_of
from tierlog.broker.partitions import EpochEndOffset, FoundOffset
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.replica_partition import ReplicaPartition
from tierlog.records import decode, scan

pytestmark = pytest.mark.usefixtures("parts")
#: The committed data, and the full golden data, most of which says the same once more.
ROOTS = [root for root in (DATA, FIXTURES) if (root / "README.md").is_file()]
CASES = [
    pytest.param(case, id=f"{root.name}-{case}", marks=() if root is DATA else pytest.mark.slow)
    for root in ROOTS
    for case in tiered_topics(root)
]
LOGS = [
    pytest.param(folder, topic, id=f"{folder}-{topic}", marks=() if root is DATA else pytest.mark.slow)
    for root in ROOTS
    for folder, topic in log_folders(root)
]
MIB = 1 << 20


async def rows_read(here: Served, read_committed: bool, chance: random.Random) -> list[Row]:
    """All rows of a consumer that reads each partition on with answers of any size."""
    got: list[Row] = []
    for (_, number), partition in here.partitions.items():
        read = await read_on(
            partition, read_committed=read_committed, max_bytes=lambda: int(2 ** chance.uniform(6, 22))
        )
        got += rows_of(table_of(consumed_rows(read), number))
    return sorted(got)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("case", CASES)
def test_a_consumer_gets_what_a_brokers_consumer_got(case: Case, isolation: str) -> None:
    """Records would be missing, twice, or of aborted transactions, and nobody would be told."""
    wanted = answers(case, isolation)
    if wanted is None:
        pytest.skip("no answers")
    with served(str(bucket_root(case.run)), config_of(case.run), topics=[case.topic]) as here:
        got = run_on("uvloop", lambda: rows_read(here, isolation == "read_committed", random.Random(str(case))))
    assert got == wanted


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("folder", "topic"), LOGS)
def test_a_log_directory_is_served_up_to_its_last_whole_batch(folder: pathlib.Path, topic: str, isolation: str) -> None:
    """Records of the active segment would be missing, or preallocated zeros would be sent."""
    run = next(parent for parent in folder.parents if (parent / "topics.json").exists())
    here = {int(path.name.rpartition("-")[2]) for path in folder.glob(f"{topic}-*") if path.is_dir()}
    wanted = [row for row in consumed(run, topic, isolation) or [] if row[0] in here]
    with served(str(folder), topics=[topic]) as made:
        got = run_on("asyncio", lambda: rows_read(made, isolation == "read_committed", random.Random(topic)))
    assert got == wanted


@pytest.mark.parametrize("script", SCRIPTS)
def test_no_byte_of_an_abandoned_branch_is_sent(script: str, tmp_path: pathlib.Path) -> None:
    """After a leader change a consumer would get a dead branch, a record twice, or miss one; not even a part of a dead
    batch may come, which a client that asks for more would put together with what follows.
    """
    wanted = SCRIPTS[script](tmp_path)

    async def read_all(max_bytes: int) -> list[tuple[int, str, int]]:
        answers = await read_on(partition, read_committed=False, max_bytes=lambda: max_bytes)
        assert all(b"dead-" not in bytes_of(found.records) for _, found in answers)
        for offset in range(len(wanted)):  # from any offset on the first batch is the one that holds it
            _, found = await partition.read(offset, max_bytes=1, is_first_whole=True, read_committed=True)
            table = scan(bytes_of(found.records))
            assert table.base_offset[0] <= offset <= table.last_offset[0]
        rows = [row for batch in consumed_rows(answers) for row in batch.to_pylist()]
        return [(row["offset"], row["value"].decode(), row["leaderEpoch"]) for row in rows]

    with served(str(tmp_path)) as here:
        partition = here.partitions["orders", 0]
        for max_bytes in (1, 75, 200, MIB):
            assert run_on("uvloop", lambda size=max_bytes: read_all(size)) == wanted  # type: ignore[misc]


def test_any_offset_begins_with_the_batch_that_holds_it(data: pathlib.Path) -> None:
    """A seek would skip records, or send a consumer bytes that it throws away; an offset outside would hang it."""
    run = data / "zstd-aes"
    chance = random.Random(7)

    async def check(partition: ReplicaPartition) -> None:
        offsets = await partition.load()
        start, end = offsets.log_start_offset, offsets.high_watermark
        for offset in [start, end - 1, *(chance.randrange(start, end) for _ in range(100))]:
            max_bytes = int(2 ** chance.uniform(0, 18))
            _, found = await partition.read(offset, max_bytes=max_bytes, is_first_whole=True, read_committed=False)
            table = scan(bytes_of(found.records))
            assert table.last_offset[0] >= offset
            assert table.base_offset[0] <= offset
            assert found.size_bytes <= max(max_bytes, int(table.size_bytes[0]))
            _, least = await partition.read(offset, max_bytes=max_bytes, is_first_whole=False, read_committed=False)
            assert least.size_bytes == (found.size_bytes if table.size_bytes[0] <= max_bytes else 0)
        for offset in (start - 1, end + 1):
            with pytest.raises(ApiError) as told:
                await partition.read(offset, max_bytes=1, is_first_whole=True, read_committed=False)
            assert told.value.code is ErrorCode.offset_out_of_range
        for offset, size in ((end, MIB), (start, 0)):
            at_end, nothing = await partition.read(offset, max_bytes=size, is_first_whole=True, read_committed=True)
            assert (nothing.size_bytes, list(nothing.records), nothing.aborted_transactions) == (0, [], ())
            assert at_end == offsets

    with served(str(bucket_root(run)), config_of(run)) as here:
        for partition in here.partitions.values():
            run_on("uvloop", lambda partition=partition: check(partition))  # type: ignore[misc]


@pytest.mark.parametrize("case", CASES)
def test_times_are_looked_up_as_the_broker_did(case: Case) -> None:
    """``offsetsForTimes`` would seek a consumer to another record than on the broker."""
    if not (case.run / "expected" / f"{case.topic}.listoffsets.json").exists():
        pytest.skip(f"no answers for {case}")

    async def check(here: Served) -> int:
        asked = 0
        for (_, number), partition in here.partitions.items():
            offsets = await partition.load()
            first, end = offsets.log_start_offset, offsets.high_watermark
            for question, answer in list_offsets(case)[number].items():
                if not question.startswith("ts:") or "error" in answer or 0 <= answer["offset"] < first:
                    continue
                asked += 1
                found = await partition.find_offset(int(question[3:]), read_committed=False)
                wanted = FoundOffset(answer["offset"], answer["timestamp"], answer["leaderEpoch"])
                assert found == (wanted if first <= answer["offset"] < end else None), question
                stable = await partition.find_offset(int(question[3:]), read_committed=True)
                assert stable == (found if found is not None and found.offset < offsets.last_stable_offset else None)
        return asked

    with served(str(bucket_root(case.run)), config_of(case.run), topics=[case.topic]) as here:
        assert run_on("uvloop", lambda: check(here)), "the answers hold no question by time"


@pytest.mark.parametrize("case", CASES)
def test_the_first_record_with_the_largest_timestamp(case: Case) -> None:
    """``maxTimestamp`` would name another record than a broker that has all of the log."""

    async def check(here: Served) -> None:
        for (topic, number), partition in here.partitions.items():
            history = here.histories[topic, number].current
            assert history is not None
            largest = (-1, -1, -1)
            for span in history.spans:
                log = b"".join(window for _, window in here.tier.iter_log_windows(span.segment))
                rows = decode(log, columns=["offset", "timestamp", "leaderEpoch"], control_records=True)
                for row in rows_with_ms(rows):
                    if span.first_offset <= row[1] < span.end_offset_exclusive and row[0] > largest[0]:
                        largest = row
            assert await partition.find_max_timestamp() == FoundOffset(largest[1], largest[0], largest[2])

    with served(str(bucket_root(case.run)), config_of(case.run), topics=[case.topic]) as here:
        run_on("uvloop", lambda: check(here))


def rows_with_ms(rows: pa.RecordBatch) -> list[tuple[int, int, int]]:
    """(timestamp ms, offset, leader epoch) of each row."""
    milliseconds = rows["timestamp"].cast("int64").to_pylist()
    return list(zip(milliseconds, rows["offset"].to_pylist(), rows["leaderEpoch"].to_pylist(), strict=True))


def test_the_largest_timestamp_of_what_counts(tmp_path: pathlib.Path) -> None:
    """A record of an abandoned branch, or one that was deleted, would be the answer."""
    bucket = Bucket(tmp_path)
    bucket.segment(
        "u1", [Batch(0, timestamp_ms=70), Batch(1, timestamp_ms=10), Batch(2, timestamp_ms=99)], lineage={0: 0}
    )
    batches = [Batch(2, (b"v",) * 3, timestamp_ms=48, epoch=1), Batch(5, timestamp_ms=50, epoch=1)]
    bucket.segment("u2", batches, lineage={0: 0, 1: 2})

    async def check(here: Served) -> FoundOffset | None:
        return await here.partitions["orders", 0].find_max_timestamp()

    for log_start, wanted in ((0, FoundOffset(0, 70, 0)), (1, FoundOffset(4, 50, 1)), (5, FoundOffset(5, 50, 1))):
        with served(str(tmp_path), log_start_offsets={"orders": {0: log_start}}) as here:
            assert run_on("uvloop", lambda: check(here)) == wanted


def test_epochs_end_where_a_brokers_do(tmp_path: pathlib.Path) -> None:
    """A consumer that checks for truncation would be told of one that never was, or miss one."""
    wanted = SCRIPTS["2"](tmp_path)
    sizes = [len(path.read_bytes()) for path in tmp_path.rglob("*.log")]

    async def check(here: Served) -> None:
        partition = here.partitions["orders", 0]
        assert (await partition.load()).leader_epoch == 3
        ends = {epoch: await partition.end_offset_for_epoch(epoch) for epoch in range(-1, 6)}
        assert ends == {
            -1: EpochEndOffset(-1, -1),
            0: EpochEndOffset(0, 3),
            1: EpochEndOffset(1, 5),
            2: EpochEndOffset(2, 7),
            3: EpochEndOffset(3, 9),
            4: EpochEndOffset(-1, -1),
            5: EpochEndOffset(-1, -1),
        }
        for offset, _, epoch in wanted:
            assert await partition.epoch_of(offset) == epoch
        assert await partition.epoch_of(-1) == -1
        assert await partition.size_bytes() == sum(sizes)

    with served(str(tmp_path)) as here:
        run_on("asyncio", lambda: check(here))


def test_a_read_says_whether_more_is_there(tmp_path: pathlib.Path) -> None:
    """A consumer would wait at the end of each segment for records that are there, or ask in circles at the last."""
    bucket = Bucket(tmp_path)
    for first in (0, 4, 8):
        bucket.segment(f"s{first}", [Batch(first + each, (b"v" * 200,)) for each in range(4)], lineage={0: 0})

    async def check(here: Served) -> None:
        for read_committed in (True, False):
            for max_bytes in (1, 600, MIB):
                read = await read_on(
                    here.partitions["orders", 0],
                    read_committed=read_committed,
                    max_bytes=lambda most=max_bytes: most,  # type: ignore[misc]
                )
                ends = [found.last_offset + 1 for _, found in read]
                assert ends == [*(offset for offset, _ in read[1:]), 12]

    with served(str(tmp_path)) as here:
        run_on("uvloop", lambda: check(here))


def test_what_was_deleted_is_not_read(data: pathlib.Path) -> None:
    """Records that DeleteRecords removed would come back from the bucket."""
    run = data / "main-plain"

    async def check(here: Served) -> None:
        partition = here.partitions["fx-lso", 0]
        offsets = await partition.load()
        assert offsets.log_start_offset == 500
        with pytest.raises(ApiError):
            await partition.read(499, max_bytes=MIB, is_first_whole=True, read_committed=False)
        (first, *_) = await read_on(partition, read_committed=True, max_bytes=lambda: 1)
        assert scan(bytes_of(first[1].records)).last_offset[0] >= 500

    with served(str(bucket_root(run)), log_start_offsets={"fx-lso": {0: 500}}, topics=["fx-lso"]) as here:
        run_on("uvloop", lambda: check(here))
