"""The faults of the storage manager in memory; that it is a storage manager is for ``tests/contract`` to say."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.segments import make_segment, sound_log
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException, SegmentFileError
from tierlog.testing import MemoryStorageManager


def test_faults_are_those_that_were_asked_for(tmp_path: pathlib.Path) -> None:
    """Else a broker's retries are tested against calls that worked, or against errors that nothing raises."""
    segment = make_segment(sound_log(2, base_offset=100)).closed_in(tmp_path)
    with MemoryStorageManager() as manager:
        manager.configure({})
        manager.unavailable = True
        with pytest.raises(RetriableRemoteStorageException):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        manager.unavailable = False
        manager.refuses = RemoteStorageException("no such bucket")
        with pytest.raises(RemoteStorageException, match="no such bucket"):
            manager.delete_log_segment_data(segment.metadata)
        manager.refuses = None
        assert not manager.segment_ids
        manager.lose_acknowledgements = 1
        with pytest.raises(RetriableRemoteStorageException, match="lost"):
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert manager.segment_ids == {segment.metadata.remote_log_segment_id}
        manager.copy_log_segment_data(segment.metadata, segment.data)
        manager.delete_log_segment_data(segment.metadata)
        assert not manager.segment_ids
    with pytest.raises(RemoteStorageException, match="closed"):
        manager.delete_log_segment_data(segment.metadata)


def test_a_file_of_another_size_is_refused(tmp_path: pathlib.Path) -> None:
    """Else a broker that hands over the active segment finds out in production."""
    segment = make_segment(sound_log(2, base_offset=100)).closed_in(tmp_path)
    with pathlib.Path(segment.data.log_segment).open("ab") as log:
        log.write(b"\0")
    with MemoryStorageManager() as manager:
        manager.configure({})
        with pytest.raises(SegmentFileError, match="bytes"):
            manager.copy_log_segment_data(segment.metadata, segment.data)
