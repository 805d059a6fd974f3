"""What goes wrong in the middle of a copy to a real S3 server: files, credentials, answers that get lost."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.broken_copies import PART, Broken, require_copied
from tests.support.broken_copies import broken as broken  # noqa: PLC0414 - a fixture
from tests.support.closed_segments import ClosedSegment
from tests.support.leftovers import search_of
from tests.support.segments import make_segment, sound_log
from tests.support.servers import OTHER_KEYS
from tierlog.remote.api import RemoteStorageException, RetriableRemoteStorageException
from tierlog.runtime.stores.credentials import aws as aws_credentials

pytestmark = pytest.mark.server

KEYS = ("store.access_key_id", "store.secret_access_key")


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    """Three parts and a bit; its files are the test's to change."""
    made = make_segment(sound_log(32, base_offset=100, batch_bytes=520_100)).closed_in(tmp_path / "log")
    assert 3 * PART < made.metadata.segment_size_in_bytes < 4 * PART
    return made


@pytest.mark.few(3)
@pytest.mark.parametrize("what", ["log vanishes", "log grows", "log shrinks", "log is replaced", "index vanishes"])
def test_files_that_change_while_they_are_copied(
    what: str, broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A broker truncates, compacts and deletes under a copy: what was stored of it must be nobody's segment."""
    index, log = pathlib.Path(segment.data.offset_index), pathlib.Path(segment.data.log_segment)
    content = {path: path.read_bytes() for path in (index, log)}

    def change() -> None:
        if what == "log grows":
            with log.open("ab") as file:
                file.write(b"more")
        elif what == "log shrinks":
            with log.open("r+b") as file:
                file.truncate(PART)
        else:
            (index if what == "index vanishes" else log).unlink()
            if what == "log is replaced":
                log.write_bytes(content[log])

    with broken.manager(tmp_path) as manager:
        rule = broken.proxy.add("status", verb="PUT", path="partNumber=2", status=503, then=change)
        with pytest.raises(RemoteStorageException) as caught:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert rule.struck == 1
        assert not getattr(caught.value, "__notes__", ())
        broken.require_nothing()
        for path, data in content.items():
            path.write_bytes(data)
        require_copied(broken, manager, segment.with_id(2))


def test_credentials_that_expire_halfway_and_are_renewed(
    broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of a role live for an hour: the next ones come from the same source, and no copy is lost over them."""
    monkeypatch.setattr(aws_credentials, "_FILE_SECONDS", 0.0)
    file = tmp_path / "aws.properties"

    def give(key_id: str, secret: str) -> None:
        file.write_text(f"aws.access.key.id={key_id}\naws.secret.access.key={secret}\n")

    give(*(broken.options.pop(name) for name in KEYS))
    with broken.manager(tmp_path, "aiven-zstd-aes", **{"storage.aws.credentials.file": str(file)}) as manager:
        expired = {"status": 400, "code": "ExpiredToken", "then": lambda: give(*OTHER_KEYS)}
        rule = broken.proxy.add("status", verb="PUT", path="partNumber=2", **expired)  # type: ignore[arg-type]
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        assert rule.struck == 1
        with manager.fetch_log_segment(segment.finished(custom), 0) as stream:
            assert stream.read() == segment.log


@pytest.mark.parametrize("step", ["partNumber=3", ".indexes", "rsm-manifest"])
def test_credentials_that_expire_halfway_and_are_not(
    step: str, broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A manager without rights cannot clean up either: the log says so, and ``orphans --delete`` does it later."""
    with broken.manager(tmp_path) as manager:
        whole = segment.with_id(2)
        require_copied(broken, manager, whole)
        before = {info.key for info in broken.sound.iter_objects()}
        broken.proxy.add("status", verb="PUT", path=step, status=400, code="ExpiredToken", times=None)
        broken.proxy.add("status", verb="DELETE", status=400, code="ExpiredToken", times=None)
        broken.proxy.add("status", verb="POST", path="delete", status=400, code="ExpiredToken", times=None)
        with pytest.raises(RemoteStorageException, match="ExpiredToken") as caught:
            manager.copy_log_segment_data(segment.metadata, segment.data)
        assert not isinstance(caught.value, RetriableRemoteStorageException)
        assert "could not be removed" in " ".join(caught.value.__notes__)
        assert manager.metrics.value("errors_total", operation="copy", kind="refused") == 1
        assert manager.metrics.value("leftover_objects_total") >= 1
        broken.proxy.clear()
    search = search_of(broken.sound, "aiven")
    found = search.run().orphans
    assert found
    assert list(search.delete(found)) == found
    assert {info.key for info in broken.sound.iter_objects()} == before
    assert list(broken.sound.iter_uploads()) == []


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", ["lost", "truncate"])
@pytest.mark.parametrize(("path", "left"), [("uploads=", 1), ("uploadId", 0)])
def test_answers_that_get_lost(
    path: str, left: int, kind: str, broken: Broken, segment: ClosedSegment, tmp_path: pathlib.Path
) -> None:
    """A second try begins another upload: the first holds no bytes, and must not stay for ever all the same. What was
    completed cannot be completed again: the copy must know its own object.
    """
    with broken.manager(tmp_path) as manager:
        rule = broken.proxy.add(kind, verb="POST", path=path, after_bytes=20)
        custom = manager.copy_log_segment_data(segment.metadata, segment.data)
        with manager.fetch_log_segment(segment.finished(custom), 0) as stream:
            assert stream.read() == segment.log
    assert rule.struck == 1
    before = {info.key for info in broken.sound.iter_objects()}
    search = search_of(broken.sound, "aiven")
    found = search.run().orphans
    assert len(found) == len(list(broken.sound.iter_uploads())) == left
    assert list(search.delete(found)) == found
    assert list(broken.sound.iter_uploads()) == []
    assert {info.key for info in broken.sound.iter_objects()} == before
