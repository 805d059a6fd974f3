"""What a consumer gets of a bucket: all that a broker's consumer got, and nothing else."""

from __future__ import annotations

import pathlib
import random

import pytest
from kio.schema.errors import ErrorCode

from tests.conftest import DATA, FIXTURES
from tests.support.golden import (
    Case,
    Row,
    answers,
    bucket_root,
    config_of,
    consumed,
    log_folders,
    rows_of,
    tiered_topics,
)
from tests.support.kip_scripts import SCRIPTS
from tests.support.loops import run_on
from tests.support.replica_reads import Served, consumed_rows, read_on, served, table_of
from tierlog.broker.protocol.api_errors import ApiError
from tierlog.broker.replica.replica_partition import ReplicaPartition
from tierlog.records import scan

CASES = {str(case): case for root in (DATA, FIXTURES) if (root / "README.md").is_file() for case in tiered_topics(root)}
LOGS = [(f, t) for root in (DATA, FIXTURES) if (root / "README.md").is_file() for f, t in log_folders(root)]
MIB = 1 << 20


async def rows_read(here: Served, read_committed: bool, chance: random.Random) -> list[Row]:
    """All rows of a consumer who reads each partition on with answers of any size."""
    got: list[Row] = []
    for (_, number), partition in here.partitions.items():
        read = await read_on(
            partition, read_committed=read_committed, max_bytes=lambda: int(2 ** chance.uniform(0, 22))
        )
        got += rows_of(table_of(consumed_rows(read), number))
    return sorted(got)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("case", CASES.values(), ids=str)
def test_a_consumer_gets_what_a_brokers_consumer_got(case: Case, isolation: str) -> None:
    """Records would be missing, twice, or of aborted transactions, and nobody would be told."""
    wanted = answers(case, isolation)
    if wanted is None:
        pytest.skip("no answers")
    with served(str(bucket_root(case.run)), config_of(case.run), topics=[case.topic]) as here:
        got = run_on("uvloop", lambda: rows_read(here, isolation == "read_committed", random.Random(str(case))))
    assert got == wanted


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(("folder", "topic"), LOGS, ids=lambda value: str(value).removeprefix(str(DATA.parent)))
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
        assert all(b"dead-" not in b"".join(found.records) for _, found in answers)
        for offset in range(len(wanted)):  # from any offset on the first batch is the one that holds it
            found = await partition.read(offset, max_bytes=1, is_first_whole=True, read_committed=True)
            table = scan(b"".join(found.records))
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
            found = await partition.read(offset, max_bytes=max_bytes, is_first_whole=True, read_committed=False)
            table = scan(b"".join(found.records))
            assert table.last_offset[0] >= offset
            assert table.base_offset[0] <= offset
            assert found.size_bytes <= max(max_bytes, int(table.size_bytes[0]))
            least = await partition.read(offset, max_bytes=max_bytes, is_first_whole=False, read_committed=False)
            assert least.size_bytes == (found.size_bytes if table.size_bytes[0] <= max_bytes else 0)
        for offset in (start - 1, end + 1):
            with pytest.raises(ApiError) as told:
                await partition.read(offset, max_bytes=1, is_first_whole=True, read_committed=False)
            assert told.value.code is ErrorCode.offset_out_of_range
        for offset, size in ((end, MIB), (start, 0)):
            nothing = await partition.read(offset, max_bytes=size, is_first_whole=True, read_committed=True)
            assert (nothing.size_bytes, list(nothing.records), nothing.aborted_transactions) == (0, [], ())
            assert nothing.offsets == offsets

    with served(str(bucket_root(run)), config_of(run)) as here:
        for partition in here.partitions.values():
            run_on("uvloop", lambda partition=partition: check(partition))  # type: ignore[misc]
