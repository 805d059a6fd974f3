"""A living log on real files under several threads: who reads gets whole batches, and waits for nobody."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.living_logs import batch_of, ended
from tests.support.open_files import count_open_files
from tests.support.waiting import LIMIT_SECONDS
from tierlog._native.batches import scan_batches
from tierlog._native.files import GrowingFile
from tierlog.log.local.log_config import LogConfig
from tierlog.log.local.log_errors import LogTruncatedError, OffsetOutOfRangeError
from tierlog.log.local.log_reads import FetchIsolation
from tierlog.log.local.unified_log import UnifiedLog
from tierlog.runtime.machine import Machine
from tierlog.runtime.machine.clock import SystemClock
from tierlog.runtime.machine.files import UpdatableFile, store_error
from tierlog.runtime.machine.posix_files import PosixFiles

CLOCK = SystemClock()
CONFIG = LogConfig(segment_bytes=40_000, index_interval_bytes=1_000, retention_bytes=200_000, flush_messages=200)


class Beside:
    """Threads that run until the block ends; what one of them raises fails the test."""

    def __init__(self, *bodies: Callable[[], None]) -> None:
        self._over = threading.Event()
        self._errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(body,)) for body in bodies]

    def _run(self, body: Callable[[], None]) -> None:
        try:
            while not self._over.is_set():
                body()
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            self._errors.append(error)
            self._over.set()

    def run_for(self, seconds: float, *, until: Callable[[], bool] = lambda: True) -> None:
        """So long, and on until the condition holds; a minute more at most, for a machine with other work."""
        for thread in self._threads:
            thread.start()
        self._over.wait(seconds)
        deadline = CLOCK.monotonic_seconds() + 60
        while not until() and not self._over.wait(0.02):
            if CLOCK.monotonic_seconds() > deadline:
                break
        self._over.set()
        for thread in self._threads:
            thread.join(LIMIT_SECONDS)
        assert not any(thread.is_alive() for thread in self._threads), "a thread waits for ever"
        if self._errors:
            raise self._errors[0]


class Reader:
    """Reads from the log's start to its end, again and again."""

    def __init__(self, log: UnifiedLog, isolation: FetchIsolation) -> None:
        self.log, self.isolation = log, isolation
        self.at = self.batches = self.refused = self.cut = 0

    def __call__(self) -> None:
        log, at = self.log, self.at
        try:
            found = log.read(at, max_bytes=10_000, isolation=self.isolation)
            if not found.records:
                self.at = log.log_start_offset
                return
            data = bytes(found.records[0].read())
        except OffsetOutOfRangeError:
            self.at, self.refused = log.log_start_offset, self.refused + 1
            return
        except LogTruncatedError:
            self.cut += 1
            return
        columns, end, _, _ = scan_batches(data, verify_crc=True)
        assert end, f"no whole batch at {at}"
        assert columns["crc_ok"].all(), f"a torn batch at {at}"
        offsets, last = columns["base_offset"].tolist(), columns["last_offset"].tolist()
        assert last[0] >= at
        assert all(left < right for left, right in zip(last, offsets[1:], strict=False)), "batches out of order"
        self.batches += len(offsets)
        self.at = last[-1] + 1


class Writer:
    """Appends plain batches and transactions of three producers; every second transaction is aborted."""

    def __init__(self, log: UnifiedLog) -> None:
        self.log, self.turn = log, 0
        self.producer = 1_000

    def __call__(self) -> None:
        turn = self.turn = self.turn + 1
        self.log.append_as_leader(
            batch_of(os.urandom(turn % 900), b"x" * 50, timestamp_ms=CLOCK.time_ms()), leader_epoch=1
        )
        if turn % 5 == 0:
            self.producer += 1
            batch = batch_of(
                b"t",
                timestamp_ms=CLOCK.time_ms(),
                producer_id=self.producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=1,
            )
            self.log.append_as_leader(batch, leader_epoch=1)
            if turn % 35:
                ended(self.log, self.producer, commits=turn % 10 == 0, leader_epoch=1)


class Changer:
    """What a broker's other threads do: rolls, retention, deleted records, the high watermark, now and then a cut."""

    def __init__(self, log: UnifiedLog, *, cuts: bool) -> None:
        self.log, self.turn, self.cuts = log, 0, cuts

    def __call__(self) -> None:
        log, turn = self.log, self.turn
        self.turn += 1
        threading.Event().wait(0.002)
        log.update_high_watermark(log.log_end_offset)
        if turn % 7 == 0:
            log.roll()
        elif turn % 7 == 1:
            log.delete_old_segments()
        elif turn % 7 == 2:
            log.flush()
        elif turn % 21 == 3 and self.cuts:
            log.truncate_to(max(log.log_start_offset, log.log_end_offset - 1 - turn % 40))
        elif turn % 7 == 4:
            log.maybe_increment_log_start_offset(min(log.high_watermark, log.log_start_offset + 3), "a test")
        elif turn % 70 == 5 and self.cuts:
            log.truncate_fully_and_start_at(log.log_end_offset + 10)
        elif turn % 7 == 6:
            log.fetch_offset_by_timestamp(CLOCK.time_ms() - 100)


@pytest.mark.parametrize("cuts", [False, True])
def test_readers_beside_a_writer_see_whole_batches(tmp_path: Path, cuts: bool) -> None:
    """Else a consumer gets a torn batch, or bytes of another one, while the log rolls, deletes and is cut."""
    with UnifiedLog.open(str(tmp_path / "orders-0"), config=CONFIG) as log:
        readers = [Reader(log, isolation) for isolation in FetchIsolation]
        writer, changer = Writer(log), Changer(log, cuts=cuts)

        def all_came_far() -> bool:
            return writer.turn > 20 and changer.turn > 21 and all(reader.batches > 20 for reader in readers)

        Beside(writer, changer, *readers).run_for(1.2, until=all_came_far)
        assert all_came_far(), "a reader was kept waiting"
    gc.collect()
    assert count_open_files(tmp_path) == 0, "files of segments that went are still open"
    with UnifiedLog.open(str(tmp_path / "orders-0"), config=CONFIG) as again:
        whole = Reader(again, FetchIsolation.LOG_END)
        whole.at = again.log_start_offset
        while whole.at < again.log_end_offset:
            before = whole.at
            whole()
            assert whole.at > before


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [False, True])
def test_readers_beside_a_writer_for_longer(tmp_path: Path, cuts: bool) -> None:
    """The same, for half a minute."""
    with UnifiedLog.open(str(tmp_path / "orders-0"), config=CONFIG) as log:
        Beside(Writer(log), Changer(log, cuts=cuts), *(Reader(log, each) for each in FetchIsolation)).run_for(30)


# ---- a disk that takes its time


class _HeldFile:
    def __init__(self, inner: UpdatableFile, files: HeldFiles) -> None:
        self._inner, self._files = inner, files
        self.growing = GrowingFile(self, size_bytes=inner.size_bytes, to_error=partial(store_error, path=""))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._inner.close()

    def fsync(self) -> None:
        self._files.wait("fsync")
        self._inner.fsync()

    def read_into(self, buffer: Any, position: int) -> int:
        return self._inner.read_into(buffer, position=position)

    def write(self, data: bytes, position: int) -> None:
        self._files.wait("append")
        self._inner.write_at(data, position=position)

    def truncate(self, size_bytes: int) -> None:
        self._inner.truncate(size_bytes)
        self.growing.size_bytes = size_bytes


class HeldFiles(PosixFiles):
    """Files of which one kind of access waits for ``let_go``, once it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = ""
        self.is_held, self.let_go = threading.Event(), threading.Event()

    def wait(self, kind: str) -> None:
        if kind == self.kind:
            self.is_held.set()
            assert self.let_go.wait(LIMIT_SECONDS)

    def open_update(self, path: str, *, private: bool = False) -> Any:
        return _HeldFile(super().open_update(path, private=private), self)

    def write_whole(self, path: str, data: Any) -> None:
        self.wait("write_whole")
        super().write_whole(path, data)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("fsync", lambda log: log.flush()),
        ("fsync", lambda log: log.truncate_to(5)),
        ("write_whole", lambda log: log.assign_epoch_start_offset(7, log.log_end_offset)),
        ("append", lambda log: log.append_as_leader(batch_of(b"z", timestamp_ms=CLOCK.time_ms()), leader_epoch=1)),
    ],
)
def test_no_reader_waits_for_a_slow_disk(tmp_path: Path, kind: str, change: Callable[[UnifiedLog], object]) -> None:
    """Else one slow fsync stops every consumer of the partition."""
    files = HeldFiles()
    with UnifiedLog.open(str(tmp_path / "orders-0"), machine=Machine(files=files), is_sole_replica=True) as log:
        for _ in range(10):
            log.append_as_leader(batch_of(b"v", timestamp_ms=CLOCK.time_ms()), leader_epoch=1)
        files.kind = kind
        blocked = threading.Thread(target=change, args=(log,))
        blocked.start()
        try:
            assert files.is_held.wait(LIMIT_SECONDS), "the change never came to the disk"
            answers: list[int] = []

            def read() -> None:
                for isolation in FetchIsolation:
                    found = log.read(0, max_bytes=100, isolation=isolation)
                    assert found.records
                    answers.append(len(found.records[0].read()))
                answers.append(log.offsets.log_start_offset)
                answers.append(log.end_offset_for_epoch(1)[0])
                log.fetch_offset_by_timestamp(0)
                log.collect_aborted_transactions(0, 5)
                answers.append(log.size())

            reader = threading.Thread(target=read)
            reader.start()
            reader.join(LIMIT_SECONDS)
            assert not reader.is_alive(), "a reader waits for the writer"
            assert len(answers) == 6
        finally:
            files.let_go.set()
            blocked.join(LIMIT_SECONDS)
        assert not blocked.is_alive()


def test_slices_outlive_their_segment(tmp_path: Path) -> None:
    """Else a server that sends a slice sends another file's bytes, or fails, when retention comes along."""
    log = UnifiedLog.open(str(tmp_path / "orders-0"), config=LogConfig(segment_bytes=2_000), is_sole_replica=True)
    for at in range(40):
        log.append_as_leader(batch_of(bytes([at]) * 200, timestamp_ms=CLOCK.time_ms()), leader_epoch=1)
    slices = []
    for at in range(0, 40, 3):
        (found,) = log.read(at, max_bytes=900, isolation=FetchIsolation.LOG_END).records
        slices.append((found, bytes(found.read())))
    log.maybe_increment_log_start_offset(20, "a test")
    log.delete_old_segments()
    assert len(list((tmp_path / "orders-0").glob("*.log"))) < 6
    assert all(bytes(each.read()) == data for each, data in slices)
    log.truncate_fully_and_start_at(100)
    assert all(bytes(each.read()) == data for each, data in slices)
    log.close()
    assert all(bytes(each.read()) == data for each, data in slices)
    descriptor = slices[0][0].file.descriptor
    assert descriptor is not None
    assert os.pread(descriptor, slices[0][0].size_bytes, slices[0][0].position) == slices[0][1]
    slices.clear()
    del found
    gc.collect()
    assert count_open_files(tmp_path) == 0


def test_a_slice_of_a_log_that_was_cut_is_no_other_bytes(tmp_path: Path) -> None:
    """Else a consumer that was slow gets the middle of a batch that another leader wrote over what it asked for."""
    with UnifiedLog.open(str(tmp_path / "orders-0"), is_sole_replica=True) as log:
        for at in range(10):
            log.append_as_leader(batch_of(bytes([at]) * 100, timestamp_ms=CLOCK.time_ms()), leader_epoch=1)
        (kept,) = log.read(0, max_bytes=300, isolation=FetchIsolation.LOG_END).records
        (over,) = log.read(2, max_bytes=900, isolation=FetchIsolation.LOG_END).records
        (cut,) = log.read(6, max_bytes=900, isolation=FetchIsolation.LOG_END).records
        before = bytes(kept.read())
        log.truncate_to(4)
        for each in (over, cut):
            with pytest.raises(LogTruncatedError):
                each.read()
        for _ in range(9):
            log.append_as_leader(batch_of(bytes(77), timestamp_ms=CLOCK.time_ms()), leader_epoch=2)
        assert bytes(kept.read()) == before
        for each in (over, cut):
            with pytest.raises(LogTruncatedError):
                each.read()
        (again,) = log.read(2, max_bytes=900, isolation=FetchIsolation.LOG_END).records
        assert scan_batches(bytes(again.read()), verify_crc=True)[0]["crc_ok"].all()
