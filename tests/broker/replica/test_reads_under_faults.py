"""Many readers over a store that fails, a history that changes, and clients that go away."""

from __future__ import annotations

import asyncio
import pathlib
import random
import time

import pytest

from tests.support.batches import Batch
from tests.support.buckets import Bucket
from tests.support.file_parts import bytes_of
from tests.support.golden import ROW_COLUMNS, bucket_root, config_of, rows_of
from tests.support.loops import run_on
from tests.support.replica_reads import Served, consumed_rows, read_on, served, table_of
from tests.support.segments import Aborted
from tests.support.waiting import until
from tierlog import read
from tierlog.errors import CorruptDataError, StoreError
from tierlog.records import scan
from tierlog.runtime.machine.clock import SystemClock
from tierlog.runtime.stores.protocol.object_store import ObjectStore
from tierlog.scan.history import TierHistory
from tierlog.testing.failing_store import FailingStore

FAULTS = {"error": 0.08, "reset": 0.05, "short": 0.05, "wrong": 0.05, "stall": 0.02}


class FarFailing(FailingStore):
    """As if behind a network, which breaks a share of the reads once it is told to."""

    is_local = False  # type: ignore[assignment]

    def __init__(self, store: ObjectStore, seed: int) -> None:
        super().__init__(store, {}, rng=random.Random(seed), clock=SystemClock(), stall_seconds=0.3)

    def fail(self, rates: dict[str, float]) -> None:
        self._rates = rates


@pytest.mark.parametrize("seed", range(3))
def test_what_is_given_is_right_whatever_fails(seed: int, data: pathlib.Path) -> None:
    """Under faults a consumer would get bytes that nobody wrote, or memory and places would be lost for good."""
    run = data / "zstd-aes"
    chance = random.Random(seed)
    failed: list[Exception] = []

    async def consume(here: Served, key: tuple[str, int], wanted: bytes, start: int) -> int:
        partition, offset = here.partitions[key], start
        given = 0
        for _ in range(40):
            try:
                call = partition.read(
                    offset,
                    max_bytes=int(2 ** chance.uniform(4, 18)),
                    is_first_whole=True,
                    read_committed=chance.random() < 0.5,
                )
                offsets, found = await asyncio.wait_for(call, 0.001 if chance.random() < 0.1 else 60)
            except TimeoutError:
                continue
            except (StoreError, CorruptDataError) as error:
                failed.append(error)
                continue
            joined = bytes_of(found.records)
            assert joined in wanted, "bytes that are not in the log"
            given += len(joined)
            table = scan(joined)
            if chance.random() < 0.2 or not len(table):
                offset = chance.randrange(offsets.log_start_offset, offsets.last_stable_offset)
            else:
                offset = min(int(table.last_offset[-1]) + 1, offsets.last_stable_offset - 1)
        return given

    async def main(here: Served) -> None:
        store = here.tier.store
        assert isinstance(store, FarFailing)
        logs: dict[tuple[str, int], bytes] = {}
        for key, histories in here.histories.items():
            assert histories.current is not None
            spans = histories.current.spans
            logs[key] = b"".join(w for span in spans for _, w in here.tier.iter_log_windows(span.segment))
            await here.partitions[key].load()
        store.fail(FAULTS)
        readers = [consume(here, key, log, 0) for key, log in logs.items() for _ in range(4)]

        async def relist() -> None:
            for _ in range(5):
                await asyncio.sleep(0.05)
                for histories in here.histories.values():
                    assert histories.current is not None
                    histories.current = type(histories.current)(
                        histories.current.topic_id_partition, histories.current.lineage
                    )

        given = await asyncio.gather(*readers, relist())
        assert sum(given[:-1]) > 100_000  # type: ignore[arg-type]
        store.fail({})
        # Loads that faults have hit go on for whoever asks next.
        await until(lambda: here.reads._fetcher._budget.held_bytes == 0)
        for key, partition in here.partitions.items():
            whole = await read_on(partition, read_committed=False, max_bytes=lambda: 50_000)
            assert b"".join(bytes_of(found.records) for _, found in whole)[:1000] == logs[key][:1000]

    config = config_of(run) | {"fetch.chunk.cache.size": "300000", "fetch.chunk.cache.get.timeout.ms": "2000"}
    with served(str(bucket_root(run)), config, wrap_store=lambda store: FarFailing(store, seed)) as here:
        run_on("uvloop", lambda: main(here))
        budget = here.reads._fetcher._budget
        deadline = time.monotonic() + 60
        while budget.held_bytes and time.monotonic() < deadline:
            time.sleep(0.01)
        assert budget.held_bytes == 0
    assert failed, "nothing failed"


def random_bucket(root: pathlib.Path, chance: random.Random) -> None:
    """A partition of a few leaders: segments that overlap, branches that died, transactions that were aborted."""
    bucket = Bucket(root, chunk_size=chance.choice([50, 700, 1 << 16]), index_interval_bytes=chance.choice([0, 300]))
    lineage: dict[int, int] = {0: 0}
    log: list[Batch] = []  # the branch that lives
    aborted: dict[int, Aborted] = {}
    offset, name, since = 0, 0, 0
    for epoch in range(chance.randrange(1, 5)):
        lineage[epoch] = offset
        for _ in range(chance.randrange(2, 6)):
            first = len(log)
            for _ in range(chance.randrange(1, 6)):
                if chance.random() < 0.25:
                    records = tuple(b"aborted" for _ in range(chance.randrange(1, 4)))
                    log.append(Batch(offset, records, epoch, producer_id=9, producer_epoch=0, transactional=True))
                    end = log[-1].last_offset + 1
                    log.append(Batch(end, epoch=epoch, producer_id=9, producer_epoch=0, marker="abort"))
                    aborted[end] = Aborted(9, offset, end, end + 1)
                else:
                    values = tuple(b"%d/%d" % (epoch, offset + n) for n in range(chance.randrange(1, 5)))
                    log.append(Batch(offset, values, epoch, timestamp_ms=1000 * chance.randrange(50)))
                offset = log[-1].last_offset + 1
            begin = first if chance.random() < 0.7 else chance.randrange(since, first + 1)
            while log[begin].marker:  # a segment begins with what it holds all of
                begin += 1
            held = log[begin:]
            name += 1
            bucket.segment(
                f"u{name}",
                held,
                lineage=dict(lineage),
                aborted=[aborted[batch.base_offset] for batch in held if batch.base_offset in aborted],
                event_timestamp_ms=name,
            )
            since = begin
        if chance.random() < 0.6 and len(log) - since > 1:  # the leader was lost with its last batches
            cut = chance.randrange(since + 1, len(log))
            while cut > since + 1 and log[cut].marker:
                cut -= 1
            offset = log[cut].base_offset
            for batch in log[cut:]:
                aborted.pop(batch.base_offset, None)
            del log[cut:]


@pytest.mark.few(20)
@pytest.mark.parametrize("seed", range(40))
def test_a_random_history_is_served_as_it_is_read(seed: int, tmp_path: pathlib.Path) -> None:
    """Consumers would get other records of a bucket than every other reader of it."""
    chance = random.Random(seed)
    random_bucket(tmp_path, chance)

    async def check(here: Served, isolation: str) -> list[object]:
        partition = here.partitions["orders", 0]
        answers = await read_on(
            partition, read_committed=isolation == "read_committed", max_bytes=lambda: chance.randrange(1, 900)
        )
        return list(rows_of(table_of(consumed_rows(answers), 0)))

    for isolation in ("read_uncommitted", "read_committed"):
        wanted = rows_of(read(tmp_path, "orders", columns=ROW_COLUMNS, isolation_level=isolation).read_all())
        with served(str(tmp_path)) as here:
            assert run_on("uvloop", lambda: check(here, isolation)) == wanted  # noqa: B023 - run at once


def test_histories_of_the_golden_data_are_found_again(data: pathlib.Path) -> None:
    """A partition would answer by the history of another moment than the one that it was asked at."""

    async def check(here: Served) -> None:
        for key, partition in here.partitions.items():
            first = await asyncio.gather(*(partition.load() for _ in range(10)))
            assert all(offsets is first[0] for offsets in first)
            assert partition.offsets is first[0]
            (again,) = TierHistory(here.tier).partitions([key[0]])
            here.histories[key].current = again
            assert partition.offsets is None
            assert await partition.load() == first[0]

    with served(str(bucket_root(data / "custom-meta")), config_of(data / "custom-meta")) as here:
        run_on("uvloop", lambda: check(here))
