"""What every RemoteStorageManager owes to a broker: inherit ``StorageManagerContract`` and give it a manager.

    class TestMine(StorageManagerContract):
        @pytest.fixture
        def manager(self, tmp_path): ...

The segments come from the file system; nothing of a manager but the KIP's six methods is used.
"""

from __future__ import annotations

import concurrent.futures
import pathlib
import shutil
from dataclasses import replace

import pytest

from tests.support.closed_segments import ClosedSegment, folder_segments
from tests.support.segments import make_segment, sound_log
from tierlog.remote.api import (
    IndexType,
    InvalidRangeError,
    RemoteResourceNotFoundException,
    RemoteStorageException,
    RemoteStorageManager,
    SegmentFileError,
)

TXN_FOLDER = pathlib.Path("main-plain", "local-before", "broker1", "fx-txn-0")


def read(manager: RemoteStorageManager, segment: ClosedSegment, start: int, end: int | None, custom: object) -> bytes:
    with manager.fetch_log_segment(segment.finished(custom), start, end) as stream:  # type: ignore[arg-type]
        return stream.read()


def index_bytes(segment: ClosedSegment) -> dict[IndexType, bytes]:
    data = segment.data
    paths = {
        IndexType.OFFSET: data.offset_index,
        IndexType.TIMESTAMP: data.time_index,
        IndexType.PRODUCER_SNAPSHOT: data.producer_snapshot,
    }
    if data.transaction_index is not None:
        paths[IndexType.TRANSACTION] = data.transaction_index
    found = {kind: pathlib.Path(path).read_bytes() for kind, path in paths.items()}
    return found | {IndexType.LEADER_EPOCH: data.leader_epoch_index}


class StorageManagerContract:
    """What KIP-405 demands of a RemoteStorageManager, and the plugin's own integration tests of it."""

    @pytest.fixture
    def manager(self) -> RemoteStorageManager:
        """A configured manager over an empty place; closed by the fixture."""
        raise NotImplementedError

    @pytest.fixture
    def segment(self, tmp_path: pathlib.Path) -> ClosedSegment:
        """About 160 kB: several chunks of the sizes that the suites configure."""
        return make_segment(sound_log(80, base_offset=100)).closed_in(tmp_path / "made")

    def test_a_copy_can_be_read_back_whole(self, manager: RemoteStorageManager, segment: ClosedSegment) -> None:
        """Else the records are gone: the broker deletes its own after the copy."""
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        assert custom is None or isinstance(custom, bytes)
        assert read(manager, segment, 0, None, custom) == segment.log

    def test_files_may_vanish_after_the_copy(
        self, manager: RemoteStorageManager, segment: ClosedSegment, tmp_path: pathlib.Path
    ) -> None:
        """Kafka deletes them soon after; a manager that keeps their paths reads nothing."""
        log = segment.log
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        shutil.rmtree(tmp_path / "made")
        assert read(manager, segment, 0, None, custom) == log

    def test_ranges_are_exact_and_their_end_is_inclusive(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """A byte too few or too many breaks the first or the last batch of a consumer's fetch."""
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        log, size = segment.log, len(segment.log)
        chunk = 16384
        starts = (0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk, size - 1)
        for start in starts:
            for end in (start, start + 1, start + chunk, size - 2, size - 1, size, size + chunk, None):
                if end is None or end >= start:
                    expected = log[start:] if end is None else log[start : end + 1]
                    assert read(manager, segment, start, end, custom) == expected, (start, end)

    @pytest.mark.parametrize("copied", [True, False])
    def test_a_range_that_is_none_is_the_callers_error(
        self, manager: RemoteStorageManager, segment: ClosedSegment, copied: bool
    ) -> None:
        """An empty answer would be taken for the end of the log; a failure of the store would be tried again, or alarm
        who looks after the bucket, while the broker's own arithmetic is wrong.
        """
        custom = manager.copy_log_segment_data(segment.metadata, segment.data) if copied else None
        size = len(segment.log)
        for start, end in ((size, None), (size + 1000, None), (2**63, 2**64), (-1, None), (-(2**63), -1), (10, 9)):
            with pytest.raises(InvalidRangeError) as caught:
                read(manager, segment, start, end, custom)
            assert isinstance(caught.value, RemoteStorageException)
            assert isinstance(caught.value, ValueError)
            assert not caught.value.retriable

    def test_streams_give_the_same_however_they_are_read(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """Callers mix pieces, buffers and views."""
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        log = segment.log
        with manager.fetch_log_segment(segment.finished(custom), 100) as stream:
            first = stream.read(50)
            buffer = bytearray(1000)
            count = stream.readinto(buffer)
            views = [bytes(view) for view in stream.buffers(5000)]
            rest = stream.read()
            assert stream.read() == b""
        assert first + bytes(buffer[:count]) + b"".join(views) + rest == log[100:]
        assert sum(map(len, views)) == 5000
        stream.close()
        with pytest.raises(ValueError):
            stream.read(1)

    def test_every_index_comes_back_as_it_was(
        self, manager: RemoteStorageManager, segment: ClosedSegment, data: pathlib.Path
    ) -> None:
        """A broker that seeks through another index than its own reads the wrong records."""
        transactional = [
            found for found in folder_segments(data / TXN_FOLDER) if found.data.transaction_index is not None
        ]
        assert transactional
        for each in (segment, transactional[0]):
            custom = manager.copy_log_segment_data(each.metadata, each.data)
            for kind, expected in index_bytes(each).items():
                with manager.fetch_index(each.finished(custom), kind) as stream:
                    assert stream.read() == expected, kind

    def test_a_missing_transaction_index_is_told_and_not_an_empty_stream(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """Kafka goes by that error; an empty index file of its own would stay for ever."""
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        with pytest.raises(RemoteResourceNotFoundException):
            manager.fetch_index(segment.finished(custom), IndexType.TRANSACTION)

    def test_an_empty_transaction_index_is_one(
        self, manager: RemoteStorageManager, segment: ClosedSegment, tmp_path: pathlib.Path
    ) -> None:
        """Empty and missing are two things for the reader."""
        empty = tmp_path / "empty.txnindex"
        empty.touch()
        given = replace(segment, data=replace(segment.data, transaction_index=str(empty)))
        custom = manager.copy_log_segment_data(given.metadata, given.data)
        with manager.fetch_index(given.finished(custom), IndexType.TRANSACTION) as stream:
            assert stream.read() == b""

    def test_the_same_id_again_gives_the_same_segment(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """A broker that did not see the answer asks again; that must neither fail nor harm what is there."""
        first = manager.copy_log_segment_data(segment.metadata, segment.data)
        again = manager.copy_log_segment_data(segment.metadata, segment.data)
        assert again == first
        assert read(manager, segment, 0, None, again) == segment.log

    def test_delete_takes_the_segment_and_can_be_repeated(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """Kafka repeats a deletion whose answer it did not see, and one of a copy that never was."""
        other = segment.with_id(77)
        manager.delete_log_segment_data(other.finished())
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        manager.delete_log_segment_data(segment.finished(custom))
        manager.delete_log_segment_data(segment.finished(custom))
        for start in (0, 10):
            with pytest.raises(RemoteResourceNotFoundException):
                read(manager, segment, start, None, custom)
        for kind in IndexType:
            with pytest.raises(RemoteResourceNotFoundException):
                manager.fetch_index(segment.finished(custom), kind)

    def test_delete_leaves_other_segments_alone(self, manager: RemoteStorageManager, segment: ClosedSegment) -> None:
        """Two attempts of one segment have the same offsets; only the id tells them apart."""
        other = segment.with_id(78)
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        other_custom = manager.copy_log_segment_data(other.metadata, other.data)
        manager.delete_log_segment_data(segment.finished(custom))
        assert read(manager, other, 0, None, other_custom) == segment.log

    def test_a_segment_after_its_deletion_can_be_copied_again(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """Nothing of the first life may be served from a cache in the second."""
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        assert read(manager, segment, 0, None, custom) == segment.log
        manager.delete_log_segment_data(segment.finished(custom))
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        assert read(manager, segment, 0, None, custom) == segment.log

    def test_a_file_that_is_not_there_is_an_error_and_leaves_nothing(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """A broker may roll, compact or delete while it copies."""
        pathlib.Path(segment.data.time_index).unlink()
        with pytest.raises(SegmentFileError):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        with pytest.raises(RemoteResourceNotFoundException):
            read(manager, segment, 0, None, None)

    @pytest.mark.parametrize("fault", ["missing", "a folder", "a surrogate", "a zero byte"])
    def test_a_local_files_fault_is_not_the_stores(
        self, manager: RemoteStorageManager, segment: ClosedSegment, tmp_path: pathlib.Path, fault: str
    ) -> None:
        """The broker's disk must be looked at; an operator who takes it for the store's failure looks at the bucket,
        and the broker tries again for ever.
        """
        paths = {"missing": str(tmp_path / "missing"), "a folder": str(tmp_path)}
        path = paths.get(fault, str(tmp_path / ("\udcff" if fault == "a surrogate" else "\0")))
        for name in ("log_segment", "offset_index", "time_index", "producer_snapshot"):
            with pytest.raises(SegmentFileError) as caught:
                manager.copy_log_segment_data(segment.metadata, replace(segment.data, **{name: path}))
            assert isinstance(caught.value, RemoteStorageException), name
            assert not isinstance(caught.value, RemoteResourceNotFoundException), name
            assert not caught.value.retriable, name

    def test_a_segment_that_is_gone_is_neither_a_range_nor_a_file(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """What the store has lost must not be taken for a mistake of the broker, or for a fault of the disk."""
        for fetch in (
            lambda: read(manager, segment, 0, None, None),
            lambda: manager.fetch_index(segment.finished(), IndexType.OFFSET),
        ):
            with pytest.raises(RemoteStorageException) as caught:
                fetch()
            assert not isinstance(caught.value, InvalidRangeError | SegmentFileError)

    def test_many_threads_copy_fetch_and_delete_at_once(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """A broker's copy, fetch and expiration tasks do not wait for each other."""

        def life(number: int) -> None:
            own = segment.with_id(1000 + number)
            custom = manager.copy_log_segment_data(own.metadata, own.data)
            for start in (0, 5000, 50_000):
                assert read(manager, own, start, start + 30_000, custom) == segment.log[start : start + 30_001]
            with manager.fetch_index(own.finished(custom), IndexType.OFFSET) as stream:
                assert stream.read() == index_bytes(own)[IndexType.OFFSET]
            manager.delete_log_segment_data(own.finished(custom))

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            list(pool.map(life, range(16)))

    def test_optional_calls(self, manager: RemoteStorageManager, segment: ClosedSegment) -> None:
        """A broker makes them of every manager: they raise nothing, and a copy that does not run is none to end."""
        manager.set_next_segment(lambda _: None)
        assert manager.resize_index_cache(1000) in (True, False)
        assert not manager.call_off_copy(segment.metadata.remote_log_segment_id)
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        assert not manager.call_off_copy(segment.metadata.remote_log_segment_id)
        assert len(read(manager, segment, 0, None, custom)) == len(segment.log)

    def test_an_empty_segment_can_be_copied(self, manager: RemoteStorageManager, tmp_path: pathlib.Path) -> None:
        """Compaction can leave one; the plugin fails on it with transforms."""
        made = make_segment(sound_log(1, base_offset=100), indexes={IndexType.TIMESTAMP: b""}).closed_in(
            tmp_path / "empty"
        )
        pathlib.Path(made.data.log_segment).write_bytes(b"")
        empty = replace(made, metadata=replace(made.metadata, segment_size_in_bytes=0))
        custom = manager.copy_log_segment_data(empty.metadata, empty.data)
        with manager.fetch_index(empty.finished(custom), IndexType.PRODUCER_SNAPSHOT) as stream:
            assert stream.read() == index_bytes(empty)[IndexType.PRODUCER_SNAPSHOT]
        manager.delete_log_segment_data(empty.finished(custom))

    def test_close_can_be_repeated_and_ends_the_service(
        self, manager: RemoteStorageManager, segment: ClosedSegment
    ) -> None:
        """A broker's shutdown path calls it more than once; a call after it must not hang."""
        manager.close()
        manager.close()
        with pytest.raises(RemoteStorageException):
            manager.copy_log_segment_data(segment.metadata, segment.data)
