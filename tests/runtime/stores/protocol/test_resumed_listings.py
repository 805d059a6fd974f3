"""Which stores begin listings behind a key, and what they list."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.support.servers import StoreServer
from tierlog.runtime.stores.local.store import LocalStore
from tierlog.runtime.stores.protocol.object_store import ObjectInfo
from tierlog.runtime.stores.protocol.optional_reads import find_resumed_listings
from tierlog.runtime.stores.store_urls import open_store
from tierlog.runtime.stores.wrappers.passing_store import CountingStore, MaskedStore, PassingStore

S3 = {"store.region": "us-east-1", "store.access_key_id": "a", "store.secret_access_key": "b"}


class Changed(PassingStore):
    """A wrapper as a user writes one."""

    def iter_objects(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return super().iter_objects(prefix)


def test_a_wrapper_is_not_gone_around(tmp_path: pathlib.Path) -> None:
    """If this fails, a store that somebody wrapped to change its listings is listed past the wrapper."""
    bucket = open_store("s3://bucket/folder", S3)
    assert find_resumed_listings(bucket) is bucket
    for wrapper in (PassingStore(bucket), CountingStore(bucket), MaskedStore(PassingStore(bucket), "x/")):
        assert find_resumed_listings(wrapper) is wrapper
    assert find_resumed_listings(Changed(bucket)) is None
    assert find_resumed_listings(MaskedStore(Changed(bucket), "x/")) is None
    for other in (LocalStore(str(tmp_path)), open_store("memory://"), open_store("gs://bucket/", {})):
        assert find_resumed_listings(other) is None
    assert find_resumed_listings(open_store("s3://bucket--use1-az4--x-s3", S3 | {"store.s3_express": "true"})) is None


@pytest.mark.server
def test_the_rest_of_a_listing_comes_in_order(s3: StoreServer) -> None:
    """If this fails, a server over a bucket misses new segments, or lists all old ones each time."""
    keys = [f"resumed/{folder}/{number:03d}" for folder in ("a", "b") for number in range(40)]
    for key in keys:
        s3.put(key, b"x")
    with_prefix = open_store(f"{s3.url}/resumed", s3.options)
    try:
        resumed = find_resumed_listings(with_prefix)
        assert resumed is not None
        names = [key.removeprefix("resumed/") for key in keys]
        for behind, prefix in (("a/017", ""), ("a/0175", ""), ("a/039", ""), ("b/010", "b/"), ("z", "")):
            expected = [name for name in names if name > behind and name.startswith(prefix)]
            assert [info.key for info in resumed.iter_objects_behind(behind, prefix)] == expected, (behind, prefix)
    finally:
        with_prefix.close()
