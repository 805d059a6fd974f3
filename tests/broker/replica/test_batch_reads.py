"""Where an answer's bytes begin and end, whatever the index says and however the chunks are cut."""

from __future__ import annotations

import json
import pathlib
import random
import struct
from collections.abc import Callable

import pytest

from tests.support.bad_objects import DAMAGED, bucket_of, good_one, key_config
from tests.support.batches import Batch, encode
from tests.support.buckets import Bucket
from tests.support.file_parts import bytes_of
from tests.support.loops import run_on
from tests.support.replica_reads import FarStore, Served, read_on, served
from tests.support.unchecked_bits import END, FIRST, PER_BATCH, UNCHECKED_BITS, Flipped
from tierlog.broker.protocol.api_errors import error_code_of
from tierlog.broker.replica.replica_partition import ReplicaPartition
from tierlog.errors import CorruptDataError, SizeLimitError, TierlogError
from tierlog.records import scan
from tierlog.scan.history import TierHistory

pytestmark = pytest.mark.usefixtures("file_reads")
PLAIN = {"is_first_whole": True, "read_committed": False}
BATCHES = [Batch(10 * n, (b"v" * (7 * n % 90),) * 5, timestamp_ms=1000 * n) for n in range(60)]


async def check_every_offset(partition: ReplicaPartition) -> None:
    """Each offset begins with its batch, or where it was compacted away with the next one."""
    for offset in range(BATCHES[-1].last_offset + 1):
        for max_bytes in (1, 300):
            _, found = await partition.read(offset, max_bytes=max_bytes, is_first_whole=True, read_committed=False)
            wanted = next(batch for batch in BATCHES if batch.last_offset >= offset)
            assert bytes_of(found.records).startswith(encode(wanted)), (offset, max_bytes)


def break_offsets(bucket: Bucket, damage: Callable[[bytearray], None]) -> None:
    """Damage the offset index of the bucket's segment."""
    place = json.loads(bucket.path("u1", "rsm-manifest").read_text())["segmentIndexes"]["offset"]
    path = bucket.path("u1", "indexes")
    whole = bytearray(path.read_bytes())
    index = whole[place["position"] : place["position"] + place["size"]]
    damage(index)
    whole[place["position"] : place["position"] + place["size"]] = index
    path.write_bytes(whole)


def _behind(index: bytearray) -> None:
    """Each entry points at the batch behind its own."""
    entries = [struct.unpack_from(">ii", index, at) for at in range(0, len(index), 8)]
    for number, (offset, _) in enumerate(entries[:-1]):
        struct.pack_into(">ii", index, 8 * number, offset, entries[number + 1][1])


def _inside(index: bytearray) -> None:
    """Each entry points into a batch."""
    for at in range(4, len(index), 8):
        struct.pack_into(">i", index, at, struct.unpack_from(">i", index, at)[0] + 5)


def _noise(index: bytearray) -> None:
    index[:] = random.Random(3).randbytes(len(index))


def _zeros(index: bytearray) -> None:
    index[:] = bytes(len(index))


@pytest.mark.few(3)
@pytest.mark.parametrize("damage", [_behind, _inside, _noise, _zeros], ids=lambda damage: damage.__name__)
def test_a_wrong_offset_index_only_costs_time(tmp_path: pathlib.Path, damage: Callable[[bytearray], None]) -> None:
    """One damaged index would make a consumer skip records, or end its partition."""
    bucket = Bucket(tmp_path)
    bucket.segment("u1", BATCHES, lineage={0: 0})
    break_offsets(bucket, damage)
    with served(str(tmp_path)) as here:
        run_on("uvloop", lambda: check_every_offset(here.partitions["orders", 0]))


@pytest.mark.few(8)
@pytest.mark.parametrize("chunk_size", [1, 7, 61, 100, 1000])
@pytest.mark.parametrize("interval", [0, 500, 10**9])
def test_chunks_and_index_entries_of_any_size(tmp_path: pathlib.Path, chunk_size: int, interval: int) -> None:
    """A header that lies across chunks would be called damaged, or a hostile chunk size would hang the server."""
    bucket = Bucket(tmp_path, chunk_size=chunk_size, index_interval_bytes=interval)
    bucket.segment("u1", BATCHES, lineage={0: 0})
    manifest = bucket.path("u1", "rsm-manifest")
    assert json.loads(manifest.read_text())["chunkIndex"]["originalChunkSize"] == chunk_size

    async def check(partition: ReplicaPartition) -> None:
        await check_every_offset(partition)
        read = await read_on(partition, read_committed=False, max_bytes=lambda: 5000)
        assert scan(bytes_of(read[-1][1].records)).last_offset[-1] == BATCHES[-1].last_offset

    with served(str(tmp_path), wrap_store=FarStore) as here:
        run_on("uvloop", lambda: check(here.partitions["orders", 0]))


def test_a_place_that_was_remembered_is_checked(tmp_path: pathlib.Path) -> None:
    """After its file was replaced a reader that goes on would get the middle of a batch, or an error for ever."""
    Bucket(tmp_path).segment("u1", BATCHES, lineage={0: 0})

    async def check(here: Served) -> None:
        partition = here.partitions["orders", 0]
        await partition.load()
        for version, offset in [(v, o) for (v, o) in here.reads.batches.hints._positions]:
            here.reads.batches.hints.drop(version, offset)
        await read_on(partition, read_committed=False, max_bytes=lambda: 400)
        known = dict(here.reads.batches.hints._positions)
        assert len(known) > 10
        for (version, offset), position in known.items():
            here.reads.batches.hints.put(version, offset, position + 3)
        await check_every_offset(partition)

    with served(str(tmp_path)) as here:
        run_on("uvloop", lambda: check(here))


@pytest.mark.few(2)
@pytest.mark.parametrize("batch", [0, 3, 7])
def test_a_damaged_header_ends_its_partition_alone(tmp_path: pathlib.Path, batch: int) -> None:
    """A flipped bit would make the server skip records, loop, or fall over; or end what lies beside it."""
    flipped = Flipped(tmp_path)
    Bucket(tmp_path, topic="good").segment("u1", BATCHES, lineage={0: 0})
    outcomes = set()

    async def check(here: Served, bit: int) -> None:
        got: list[int] = []
        offset = 0
        try:
            while offset < END + 40:
                _, found = await here.partitions["orders", 0].read(
                    offset, max_bytes=300, is_first_whole=True, read_committed=False
                )
                table = scan(bytes_of(found.records), on_fault="return")
                assert len(table), "no progress"
                got += table.base_offset.tolist()
                offset = int(table.last_offset[-1]) + 1
        except CorruptDataError as error:
            outcomes.add(error_code_of(error).name)
            assert all(base < FIRST + PER_BATCH * (batch + 1) for base in got), (bit, got)
        else:
            outcomes.add("read")
            assert got[-1] == END + 35, (bit, got)
        assert got == sorted(set(got)), (bit, got)
        assert await read_on(here.partitions["good", 0], read_committed=False, max_bytes=lambda: 4000)

    for bit in flipped.each(batch, UNCHECKED_BITS[::3]):
        with served(str(tmp_path)) as here:
            run_on("uvloop", lambda bit=bit: check(here, bit))  # type: ignore[misc]
    assert outcomes == {"corrupt_message", "read"}


@pytest.mark.few(30)
@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_objects_give_errors_and_no_wrong_bytes(name: str, tmp_path: pathlib.Path, data: pathlib.Path) -> None:
    """A damaged bucket would crash the server, hang a client or hand out bytes that nobody wrote."""
    topic = bucket_of(name, tmp_path / "bad")
    assert topic == bucket_of(good_one(name), tmp_path / "good")
    faults: list[TierlogError] = []

    async def read(here: Served) -> bytes:
        got = []
        for partition in here.partitions.values():
            offset = (await partition.load()).log_start_offset
            end = partition.offsets.high_watermark if partition.offsets is not None else 0
            while offset < end:
                _, found = await partition.read(offset, max_bytes=20_000, is_first_whole=True, read_committed=True)
                data = bytes_of(found.records)
                table = scan(data, on_fault="return")
                got.append(data[: table.end_position])
                offset = int(table.last_offset[-1]) + 1
        return b"".join(got)

    def read_to_the_fault(path: str) -> bytes:
        with served(path, key_config(data)) as here:
            try:
                return run_on("uvloop", lambda: read(here))
            except TierlogError as error:
                faults.append(error)
                return b""

    sound = read_to_the_fault(str(tmp_path / "good"))
    assert sound
    assert not faults
    try:
        got = read_to_the_fault(str(tmp_path / "bad"))
    except TierlogError as error:  # the bucket's listing says so already
        faults.append(error)
        got = b""
    assert got in (b"", sound)
    assert faults or got == sound
    for error in faults:
        assert not isinstance(error, AssertionError)


def test_a_batch_that_claims_more_than_any_is_refused(tmp_path: pathlib.Path) -> None:
    """A segment that says that it is one batch of a gibibyte would take a gibibyte of memory."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    batch = bytearray(encode(Batch(0)))
    struct.pack_into(">i", batch, 8, (300 << 20) - 12)
    path = folder / f"{0:020d}.log"
    path.write_bytes(batch)
    with path.open("r+b") as file:
        file.truncate(300 << 20)
    (folder / f"{1:020d}.log").write_bytes(encode(Batch(1)))

    async def check(partition: ReplicaPartition) -> None:
        for read_committed in (True, False):  # of what is damaged nobody knows what is committed
            with pytest.raises(SizeLimitError):
                await partition.read(0, max_bytes=100, is_first_whole=True, read_committed=read_committed)
        assert scan(bytes_of((await partition.read(1, max_bytes=100, **PLAIN))[1].records)).base_offset[0] == 1
        _, found = await partition.read(0, max_bytes=100, is_first_whole=False, read_committed=False)
        assert not found.size_bytes

    with served(str(tmp_path)) as here:
        run_on("uvloop", lambda: check(here.partitions["orders", 0]))


def test_old_formats_pass_as_they_are(data: pathlib.Path) -> None:
    """A topic from before Kafka 0.11 could not be read, or its bytes would be others."""
    checked = 0
    for log in sorted((data / "record-v0-v1").glob("*.log")):
        whole = log.read_bytes()
        table = scan(whole)

        async def check(partition: ReplicaPartition, whole: bytes = whole, table: object = table) -> None:
            joined = b""
            for offset, found in await read_on(partition, read_committed=True, max_bytes=lambda: 3000):
                part = bytes_of(found.records)
                assert whole[len(joined) :].startswith(part[: scan(part).end_position]), offset
                joined += part[: scan(part).end_position]
                assert found.aborted_transactions == []
            assert joined == whole

        with served(str(log)) as here:
            (partition,) = here.partitions.values()
            run_on("uvloop", lambda partition=partition, check=check: check(partition))  # type: ignore[misc]
        checked += len(table)
    assert checked > 20


def test_an_active_segment_that_grows_is_read_on(tmp_path: pathlib.Path) -> None:
    """Of a log that is being written new records would not come, or transactions that were aborted since would."""
    folder = tmp_path / "orders-0"
    folder.mkdir()
    open_one = [Batch(n, (b"p7",), producer_id=7, producer_epoch=0, transactional=True) for n in range(3)]
    log = b"".join(encode(batch) for batch in open_one)
    paths = {suffix: folder / f"{0:020d}.{suffix}" for suffix in ("log", "index", "timeindex", "txnindex")}
    paths["log"].write_bytes(log + b"\0" * 20)
    paths["index"].write_bytes(bytes(1600))
    paths["timeindex"].write_bytes(bytes(1200))
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")

    async def check(here: Served) -> None:
        partition, histories = here.partitions["orders", 0], here.histories["orders", 0]
        offsets = await partition.load()
        assert (offsets.high_watermark, offsets.last_stable_offset) == (3, 0)
        _, found = await partition.read(0, max_bytes=10_000, is_first_whole=True, read_committed=False)
        assert bytes_of(found.records) == log, "up to the last whole batch"
        marker = encode(Batch(3, producer_id=7, producer_epoch=0, marker="abort"))
        paths["log"].write_bytes(log + marker)
        paths["txnindex"].write_bytes(struct.pack(">hqqqq", 0, 7, 0, 3, 4))
        assert partition.offsets == offsets
        (histories.current,) = TierHistory(here.tier).partitions(["orders"])
        assert partition.offsets is None
        offsets, found = await partition.read(1, max_bytes=10_000, is_first_whole=True, read_committed=True)
        assert partition.offsets == offsets
        assert (offsets.high_watermark, offsets.last_stable_offset) == (4, 4)
        assert bytes_of(found.records) == (log + marker)[len(log) // 3 :]
        assert found.aborted_transactions == [(7, 0)]

    with served(str(tmp_path)) as here:
        run_on("uvloop", lambda: check(here))
