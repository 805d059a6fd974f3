"""What a manager asks its store at its start: recorded, told once, and wrong only where an operator can mend it."""

from __future__ import annotations

import logging
import os
import pathlib
import re
from typing import Any

import pytest
from prometheus_client import generate_latest

from tests.support.closed_segments import ClosedSegment
from tests.support.fault_proxy import FaultProxy, limits_for
from tests.support.manager_configs import BASE, SHAPES, local_keys
from tests.support.segments import make_segment, sound_log
from tests.support.servers import StoreServer
from tests.support.waiting import wait_until
from tierlog.errors import ConfigError
from tierlog.remote.api import RetriableRemoteStorageException
from tierlog.remote.storage import start_probe
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.runtime.stores.store_urls import open_store

INFO = "tierlog_remote_store_info"
ONE_RETRY = limits_for("status", retries=1)


@pytest.fixture
def segment(tmp_path: pathlib.Path) -> ClosedSegment:
    return make_segment(sound_log(base_offset=100)).closed_in(tmp_path / "log")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Any:
    """What the probe has logged."""
    caplog.set_level(logging.INFO)
    return lambda: [r.getMessage() for r in caplog.records if r.name == start_probe.__name__]


def info(manager: TieredStorageManager) -> dict[str, str]:
    """The labels of the one sample."""
    found = [sample for family in manager.metrics.registry.collect() for sample in family.samples]
    (sample,) = [each for each in found if each.name == INFO]
    assert sample.value == 1
    return dict(sample.labels)


def s3_keys(server: StoreServer, endpoint: str | None = None, **more: str) -> dict[str, object]:
    return (
        BASE
        | {
            "storage.backend.class": "s3",
            "storage.s3.bucket.name": server.url.removeprefix("s3://"),
            "storage.s3.region": "us-east-1",
            "storage.s3.endpoint.url": endpoint or server.options["store.endpoint"],
            "storage.s3.path.style.access.enabled": "true",
            "storage.aws.access.key.id": server.options["store.access_key_id"],
            "storage.aws.secret.access.key": server.options["store.secret_access_key"],
            "key.prefix": "probed/tier-",
        }
        | ONE_RETRY
        | more
    )


def test_a_folder_is_asked_once_and_nothing_stays(tmp_path: pathlib.Path, lines: Any) -> None:
    """An operator who looks why a copy behaves as it does must find what the store was found to do, in one place."""
    manager = TieredStorageManager()
    assert info(manager) == {
        "state": "not_asked",
        **dict.fromkeys(
            ("store", "checksums", "checks_bodies", "conditional_put", "batch_delete", "part_bytes_min"), ""
        ),
    }
    with manager:
        manager.configure(local_keys(tmp_path / "store") | {"key.prefix": "p/"})
        assert manager.store_identity == f"user {os.geteuid()}, group {os.getegid()} of this machine"
        assert manager.store_traits is not None
        assert manager.store_traits.conditional_put
        labels = info(manager)
        assert (labels["state"], labels["conditional_put"], labels["part_bytes_min"]) == ("known", "true", "1")
        assert labels["store"] == str(tmp_path / "store")
        (line,) = lines()
        assert f"we are user {os.geteuid()}" in line
        assert "conditional puts" in line
    assert list((tmp_path / "store").rglob("*")) == []
    assert INFO in generate_latest(manager.metrics.registry).decode()


def test_it_can_be_switched_off(tmp_path: pathlib.Path, lines: Any) -> None:
    """Credentials that may only read must be able to serve readers; their owner is logged all the same."""
    with TieredStorageManager() as manager:
        manager.configure(local_keys(tmp_path / "store") | {"store.probe.enabled": "false"})
        assert manager.store_traits is None
        assert info(manager)["state"] == "off"
        assert manager.metrics.value("store_requests_total", verb="PUT") == 0
    (line,) = lines()
    assert f"we are user {os.geteuid()}" in line
    assert "store.probe.enabled" in line


def test_a_third_partys_store_is_asked_too(tmp_path: pathlib.Path) -> None:
    """Its conditional puts matter as much as those of ours."""
    (tmp_path / "store").mkdir()
    keys = {
        "storage.backend.class": "tests.contract.hdfs_store.FolderStore",
        "storage.folder": str(tmp_path / "store"),
    }
    with TieredStorageManager() as manager:
        manager.configure(BASE | keys)
        assert manager.store_traits is not None
        assert manager.store_traits.conditional_put
        assert manager.store_identity == "not known: a store of a third party"
    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


@pytest.mark.server
class TestS3:
    """A real server, sound and broken."""

    @pytest.fixture(autouse=True)
    def warm(self, s3: StoreServer) -> None:
        """The server's first write takes it seconds."""
        store = open_store(s3.url, s3.options)
        store.put("warm", b"one byte at least needs a volume")
        store.delete(["warm"])
        store.close()

    def test_what_it_does_is_known(self, s3: StoreServer, lines: Any) -> None:
        """If this fails, the first copy finds out by its own requests, and an old clone of S3 is never told of."""
        with TieredStorageManager() as manager:
            manager.configure(s3_keys(s3))
            traits = manager.store_traits
            assert traits is not None
            assert (traits.checksums, traits.checks_bodies) == ("crc32c", True)
            assert traits.conditional_put
            assert traits.batch_delete
            assert traits.part_bytes_min == 5 << 20
            assert "in the path" in traits.addressing
            assert info(manager)["checksums"] == "crc32c"
            (line,) = lines()
            assert "access key tierlog" in line
            assert s3.options["store.secret_access_key"] not in line

    @pytest.mark.parametrize(
        ("status", "code", "keys"),
        [
            (403, "AccessDenied", {}),
            (400, "ExpiredToken", {}),
            (404, "NoSuchBucket", {}),
            (403, "AccessDenied", {"key.prefix.mask": "true"}),
        ],
    )
    def test_what_only_an_operator_can_mend_ends_the_start(
        self, status: int, code: str, keys: dict[str, str], s3: StoreServer, lines: Any
    ) -> None:
        """A broker that starts with these is found out by its full disk."""
        with FaultProxy.before(s3) as proxy, TieredStorageManager() as manager:
            proxy.add("status", status=status, code=code, times=None)
            with pytest.raises(ConfigError, match=code) as caught:
                manager.configure(s3_keys(s3, proxy.endpoint, **keys))
            assert ("probed/tier-" in str(caught.value)) is not bool(keys)
            assert lines() == []
            proxy.clear()
            manager.configure(s3_keys(s3, proxy.endpoint, **keys))
            assert manager.store_traits is not None

    def test_a_wrong_secret_ends_the_start(self, s3: StoreServer) -> None:
        """No other credentials are tried in silence."""
        with TieredStorageManager() as manager, pytest.raises(ConfigError, match="SignatureDoesNotMatch"):
            manager.configure(s3_keys(s3) | {"storage.aws.secret.access.key": "s3cret"})

    def test_a_right_to_remove_that_is_missing_is_found(self, s3: StoreServer) -> None:
        """Without it no failed copy can be cleaned up, and no segment expires."""
        with FaultProxy.before(s3) as proxy, TieredStorageManager() as manager:
            proxy.add("status", path="delete", status=403, times=None)
            proxy.add("status", verb="DELETE", status=403, times=None)
            with pytest.raises(ConfigError, match="could not be removed"):
                manager.configure(s3_keys(s3, proxy.endpoint))

    @pytest.mark.parametrize("mask", ["false", "true"])
    def test_a_store_that_is_down_does_not_keep_a_broker_from_starting(
        self, mask: str, s3: StoreServer, segment: ClosedSegment, lines: Any
    ) -> None:
        """Brokers are restarted while stores are down; they serve what they have, and copy later."""
        with FaultProxy.before(s3) as proxy, TieredStorageManager() as manager:
            proxy.add("status", status=503, times=None)
            manager.configure(s3_keys(s3, proxy.endpoint) | SHAPES["aiven-plain"] | {"key.prefix.mask": mask})
            assert manager.store_traits is None
            assert info(manager)["state"] == "unanswered"
            (line,) = lines()
            assert "did not answer" in line
            assert ("probed/tier-" in line) is (mask == "false")
            proxy.clear()
            custom = manager.copy_log_segment_data(segment.metadata, segment.data)
            wait_until(lambda: info(manager)["state"] == "known")
            assert manager.store_traits is not None
            manager.copy_log_segment_data(segment.metadata, segment.data)
            wait_until(lambda: len(lines()) == 2)
            manager.delete_log_segment_data(segment.finished(custom))

    def test_a_probe_that_fails_again_does_not_fail_the_copy(
        self, s3: StoreServer, segment: ClosedSegment, lines: Any
    ) -> None:
        """What was copied is copied."""
        with FaultProxy.before(s3) as proxy, TieredStorageManager() as manager:
            proxy.add("status", path=".tierlog-probe-", status=503, times=None)
            manager.configure(s3_keys(s3, proxy.endpoint))
            custom = manager.copy_log_segment_data(segment.metadata, segment.data)
            wait_until(lambda: "not known yet" in lines()[-1])
            assert manager.store_traits is None
            manager.delete_log_segment_data(segment.finished(custom))

    def test_what_it_may_have_left_is_named_for_who_removes_it(
        self, s3: StoreServer, segment: ClosedSegment, caplog: pytest.LogCaptureFixture
    ) -> None:
        """`tierlog orphans` was advised, which touches nothing but what is named like a segment's."""
        with FaultProxy.before(s3) as proxy:
            proxy.add("status", status=503, times=None)
            with TieredStorageManager() as manager:
                manager.configure(s3_keys(s3, proxy.endpoint))
            (told,) = [text for text in caplog.messages if "could not remove" in text]
            assert re.search(r"tier-\S*\.tierlog-probe-[0-9a-f]{16} .*\.tierlog-probe-[0-9a-f]{16}-parts ", told), told
            assert told.endswith("; remove the start probe's objects by hand")
            assert "orphans" not in told
            caplog.clear()
            with TieredStorageManager() as manager:
                manager.configure(s3_keys(s3, proxy.endpoint))
                with pytest.raises(RetriableRemoteStorageException):
                    manager.copy_log_segment_data(segment.metadata, segment.data)
        assert next(text for text in caplog.messages if "could not remove" in text).endswith(
            "; `tierlog orphans` finds it where it is a segment's; remove the start probe's objects by hand"
        )
