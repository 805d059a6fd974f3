"""``storage.aws.checksum.check.enabled`` over a real S3 server: what is read is what the store keeps a checksum of."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.support.fault_proxy import FaultProxy
from tests.support.servers import StoreServer
from tierlog.errors import ObjectNotFoundError, StoreUnavailableError
from tierlog.remote.config import read_storage_config
from tierlog.remote.tier.configured_store import open_configured_store
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.protocol.object_store import ObjectStore

pytestmark = pytest.mark.server

KEY = "storage.aws.checksum.check.enabled"
BODY = bytes(range(256)) * 400
PART = 5 << 20


@pytest.fixture
def proxy(s3: StoreServer) -> Iterator[FaultProxy]:
    with FaultProxy.before(s3) as proxy:
        yield proxy


@pytest.fixture
def url(s3: StoreServer) -> str:
    return f"{s3.url}/checked/{uuid.uuid4()}"


def opened(url: str, s3: StoreServer, proxy: FaultProxy, *, check: str = "true", **more: str) -> ObjectStore:
    config = read_storage_config({**s3.options, "store.endpoint": proxy.endpoint, KEY: check, **more})
    return open_configured_store(url, config, machine=Machine())


@pytest.mark.parametrize("checksums", ["crc32c", "md5", "none"])
def test_a_wrong_bit_is_asked_for_again_and_never_given(
    checksums: str, url: str, s3: StoreServer, proxy: FaultProxy
) -> None:
    """If this fails, a manifest with a flipped bit in its offsets is believed: nothing else has a checksum of it."""
    store = opened(url, s3, proxy, **{"store.checksums": checksums})
    store.put("k", BODY)
    proxy.add("wrong", verb="GET")
    assert bytes(store.fetch("k")) == BODY
    proxy.add("wrong", verb="GET", times=None)
    with pytest.raises(StoreUnavailableError, match=r"checked/.*/k: the body has"):
        store.fetch("k")
    assert store.requests["HEAD"] == store.requests["GET"] == 4
    store.close()


def test_off_is_the_plugins_default(url: str, s3: StoreServer, proxy: FaultProxy) -> None:
    """If this fails, everybody pays a request for each manifest."""
    for check in ({}, {KEY: "false"}):
        config = read_storage_config({**s3.options, "store.endpoint": proxy.endpoint, **check})
        store = open_configured_store(url, config, machine=Machine())
        store.put("k", BODY)
        proxy.add("wrong", verb="GET")
        found = bytes(store.fetch("k"))
        assert len(found) == len(BODY)
        assert found != BODY
        assert store.requests["HEAD"] == 0
        store.close()


def test_what_has_no_checksum_is_read_all_the_same(url: str, s3: StoreServer, proxy: FaultProxy) -> None:
    """An object of parts has a checksum of theirs, which does not say what its bytes are."""
    store = opened(url, s3, proxy)
    upload = store.begin_upload("parts", part_bytes=PART)
    upload.put_part(1, [bytes(PART)])
    upload.put_part(2, [BODY])
    upload.complete()
    assert bytes(store.fetch("parts")) == bytes(PART) + BODY
    assert bytes(store.fetch_range("parts", start_position=PART, end_position_exclusive=PART + 10)) == BODY[:10]
    store.put("empty", b"")
    assert bytes(store.fetch("empty")) == b""
    with pytest.raises(ObjectNotFoundError):
        store.fetch("absent")
    store.close()
