"""The checksums of what is served: a client gets an error for a bit that rots, never the bit."""

from __future__ import annotations

import os
import pathlib
import struct
from collections.abc import Callable, Iterator

import hypothesis.strategies as st
import obstore
import pytest
from hypothesis import given
from typing_extensions import Buffer

from tests.support.batches import Batch, encode
from tests.support.buckets import Bucket
from tests.support.file_parts import bytes_of
from tests.support.loops import run_on
from tests.support.replica_reads import FarStore, Served, read_on, served
from tests.support.unchecked_bits import END, EPOCH_BITS, FIRST, PER_BATCH, Flipped
from tierlog.broker.protocol.api_errors import error_code_of
from tierlog.errors import CorruptDataError
from tierlog.records import scan
from tierlog.remote.manager import batch_reads
from tierlog.remote.manager.batch_reads import SoundRanges
from tierlog.runtime.stores.wrappers.passing_store import PassingStore

BATCHES = [Batch(10 * n, (b"v" * (7 * n % 90),) * 5, timestamp_ms=1000 * n) for n in range(60)]
BAD = 30
OFF = {"fetch.check.batches.enabled": "false"}


class OfObstore(PassingStore):
    """A store whose bytes are in obstore's memory, as those of S3 are: it takes weak references and has no hash."""

    def fetch_range(self, key: str, *, start_position: int, end_position_exclusive: int) -> Buffer:
        span = {"start_position": start_position, "end_position_exclusive": end_position_exclusive}
        return obstore.Bytes(bytes(self.inner.fetch_range(key, **span)))


@pytest.fixture(params=["parts", "files read", "far", "obstore"])
def reading(request: pytest.FixtureRequest) -> Callable[..., object]:
    """How bytes come: as parts of files, by reads of files, from chunks in memory, Python's or obstore's."""
    if request.param in ("parts", "files read"):
        request.getfixturevalue("parts" if request.param == "parts" else "untold")
        return served
    inner = OfObstore if request.param == "obstore" else PassingStore
    return lambda *args, **more: served(*args, wrap_store=lambda store: FarStore(inner(store)), **more)


def position_of(number: int) -> int:
    return sum(len(encode(batch)) for batch in BATCHES[:number])


def flip(path: pathlib.Path, position: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bit
    path.write_bytes(data)


async def consume(here: Served, offset: int, end: int, max_bytes: int) -> tuple[list[int], CorruptDataError | None]:
    """The offsets that a consumer without checks gets, and what ended it."""
    got: list[int] = []
    try:
        while offset < end:
            _, found = await here.partitions["orders", 0].read(
                offset, max_bytes=max_bytes, is_first_whole=True, read_committed=False
            )
            table = scan(bytes_of(found.records), on_fault="return", verify_crc=False)
            assert len(table), "no progress"
            for base, last in zip(table.base_offset.tolist(), table.last_offset.tolist(), strict=True):
                got += [each for each in range(base, last + 1) if each >= offset]
            offset = int(table.last_offset[-1]) + 1
    except CorruptDataError as error:
        return got, error
    return got, None


@pytest.mark.few(20)
@pytest.mark.parametrize("where", [100, 61, 22, 26, 60], ids=["value", "record", "control", "last offset", "count"])
@pytest.mark.parametrize("max_bytes", [1, 4000, 1 << 20])
def test_a_flipped_bit_is_an_error_at_its_offset(
    tmp_path: pathlib.Path, reading: Callable[..., object], where: int, max_bytes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A client that compares no checksums (librdkafka by default) would take a changed record for a true one."""
    bucket = Bucket(tmp_path, chunk_size=1000, index_interval_bytes=500)
    bucket.segment("s", BATCHES, lineage={0: 0})
    flip(bucket.path("s", "log"), position_of(BAD) + where, 0x20 if where == 22 else 1)
    truth = [base + each for base in range(0, 10 * BAD, 10) for each in range(5)]
    for keys in (None, OFF):
        with reading(str(tmp_path), keys) as here:  # type: ignore[attr-defined]
            got, error = run_on("uvloop", lambda here=here: consume(here, 0, 595, max_bytes))  # type: ignore[misc]
            if keys is OFF:
                assert len(got) > len(truth)
                continue
            assert got == truth
            assert error is not None
            assert error_code_of(error).name == "corrupt_message"
            assert (error.position, error.base_offset) == (position_of(BAD), 10 * BAD)
            assert error.where.endswith(".log")
            behind, none = run_on("uvloop", lambda here=here: consume(here, 10 * BAD + 10, 595, max_bytes))  # type: ignore[misc]
            assert (behind[0], none) == (10 * BAD + 10, None)


@pytest.mark.few(3)
@pytest.mark.parametrize("max_bytes", [1, pytest.param(300, marks=pytest.mark.more)])
@pytest.mark.parametrize("batch", [0, 3, 7])
def test_no_flipped_bit_changes_what_is_read(
    tmp_path: pathlib.Path, reading: Callable[..., object], batch: int, max_bytes: int
) -> None:
    """A bit of any header would hide records or give them other offsets, or hang the client."""
    flipped = Flipped(tmp_path)
    outcomes = set()
    for bit in flipped.each(batch, range(max_bytes % 7, 8 * 61, 7)):
        with reading(str(tmp_path)) as here:  # type: ignore[attr-defined]
            got, error = run_on("uvloop", lambda here=here: consume(here, FIRST, END + 40, max_bytes))  # type: ignore[misc]
        outcomes.add(error is None)
        assert got == list(range(FIRST, FIRST + len(got))), bit
        assert (error is None) == (bit in EPOCH_BITS), bit
        assert len(got) == 80 if error is None else len(got) in (PER_BATCH * batch, PER_BATCH * max(batch - 1, 0)), bit
    assert outcomes == {True, False}


@pytest.mark.parametrize("field", [26, 8], ids=["last offset", "length"])
def test_a_batch_that_hides_another_is_found(
    tmp_path: pathlib.Path, reading: Callable[..., object], field: int
) -> None:
    """A consumer that begins in the midst of a log would go on behind records that a damaged batch hides."""
    bucket = Bucket(tmp_path, index_interval_bytes=10**9)
    batches = [Batch(5 * n, (b"value",) * 5) for n in range(20)]
    bucket.segment("s", batches, lineage={0: 0})
    size = len(encode(batches[0]))
    data = bytearray(bucket.path("s", "log").read_bytes())
    at = 10 * size + (8 if field == 8 else 23)
    struct.pack_into(">i", data, at, 2 * size - 12 if field == 8 else 1)  # the next one's bytes, too; or two records
    bucket.path("s", "log").write_bytes(data)
    with reading(str(tmp_path)) as here:  # type: ignore[attr-defined]
        for wanted in (52, 53, 57):
            got, error = run_on("uvloop", lambda here=here, wanted=wanted: consume(here, wanted, 100, 1000))  # type: ignore[misc]
            if wanted == 57 and field == 26:
                assert got == list(range(57, 100))
            else:
                assert (got, error is None) == ([], False), wanted


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The positions at which checks began."""
    begun: list[int] = []
    kind = batch_reads.RangeCheck

    def noting(**given: object) -> object:
        begun.append(given["position"])  # type: ignore[arg-type]
        return kind(**given)  # type: ignore[arg-type]

    monkeypatch.setattr(batch_reads, "RangeCheck", noting)
    return iter([begun])  # type: ignore[arg-type,return-value]


def test_what_is_sound_is_checked_once(
    tmp_path: pathlib.Path, reading: Callable[..., object], checked: Iterator[list[int]], request: pytest.FixtureRequest
) -> None:
    """Each reader of a warm range would cost its checksum again."""
    begun = next(checked)
    bucket = Bucket(tmp_path, chunk_size=1000, index_interval_bytes=500)
    bucket.segment("s", BATCHES, lineage={0: 0})

    async def check(here: Served) -> None:
        partition = here.partitions["orders", 0]
        for _ in range(3):  # a piece of a file comes into memory when it is read again
            await read_on(partition, read_committed=False, max_bytes=lambda: 700)
        sizes = iter((500, 900, 1, 4000) * 100)
        before = len(begun)
        assert before
        await read_on(partition, read_committed=False, max_bytes=lambda: next(sizes))
        assert len(begun) == before

    with reading(str(tmp_path)) as here:  # type: ignore[attr-defined]
        run_on("uvloop", lambda: check(here))


def test_a_file_that_changes_underneath_is_checked_again(tmp_path: pathlib.Path, parts: None) -> None:
    """What was found sound would be handed out for good, whatever lies there now."""
    bucket = Bucket(tmp_path)
    bucket.segment("s", BATCHES, lineage={0: 0})
    path = bucket.path("s", "log")

    async def check(here: Served) -> None:
        assert (await consume(here, 0, 595, 1 << 20))[1] is None
        before = path.stat()
        with path.open("r+b") as file:
            file.seek(position_of(BAD) + 100)
            file.write(b"X")
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        got, error = await consume(here, 0, 595, 1 << 20)
        assert error is not None
        assert len(got) == 5 * BAD

    with served(str(tmp_path)) as here:
        run_on("uvloop", lambda: check(here))


@pytest.mark.few(2)
def test_what_is_large_is_checked_by_a_thread(tmp_path: pathlib.Path, reading: Callable[..., object]) -> None:
    """A client that asks for much would hold the loop up for all others."""
    bucket = Bucket(tmp_path, chunk_size=1 << 20)
    large = [Batch(n, (bytes([n]) * (1 << 20),)) for n in range(8)]
    bucket.segment("s", large, lineage={0: 0})
    for bad in (None, 5):
        if bad is not None:
            flip(bucket.path("s", "log"), sum(len(encode(batch)) for batch in large[:bad]) + 500_000)
        with reading(str(tmp_path)) as here:  # type: ignore[attr-defined]
            got, error = run_on("uvloop", lambda here=here: consume(here, 0, 8, 16 << 20))  # type: ignore[misc]
        assert got == list(range(8 if bad is None else bad))
        assert (error is None) == (bad is None)


ranges = st.tuples(st.integers(0, 60), st.integers(1, 20)).map(lambda each: (each[0], each[0] + each[1]))


@given(st.lists(ranges, max_size=8), st.lists(ranges, min_size=5))
def test_ranges_are_a_set_of_positions(added: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    """A range that was never checked would count as sound."""
    sound, model = SoundRanges(), set[int]()
    for start, end in added:
        sound.add(start, end)
        model.update(range(start, end))
        assert sound.covers(start, end)
    for start, end in asked:
        assert sound.covers(start, end) == model.issuperset(range(start, end))


def test_ranges_have_a_bound() -> None:
    """A client that reads every second batch would fill the memory."""
    sound = SoundRanges()
    for number in range(1000):
        sound.add(2 * number, 2 * number + 1)
        assert len(sound._borders) <= 2 * batch_reads._RANGES_MAX
    assert sound.covers(1998, 1999)
