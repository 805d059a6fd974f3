"""Keys of a replica's own among those of a broker."""

from __future__ import annotations

import pytest

from tierlog.broker.replica.catalog.bucket_catalog import HISTORIES_BYTES
from tierlog.broker.replica.replica_config import read_replica_config
from tierlog.errors import ConfigError

KEY = "fetch.histories.cache.size"


def test_memory_of_histories_is_a_key() -> None:
    """An operator could neither bound it nor allow more of it, or the storage manager would refuse the key."""
    assert read_replica_config("/bucket", {}).histories_bytes_max == HISTORIES_BYTES
    for text, size_bytes in (("-1", -1), ("0", 0), (" 8589934592 ", 8 << 30)):
        found = read_replica_config("/bucket", {KEY: text, "chunk.size": "1024"})
        assert found.histories_bytes_max == size_bytes
        assert found.tier_keys == {"chunk.size": "1024"}
    for text in ("-2", "many", "", "99999999999999999999"):
        with pytest.raises(ConfigError, match=KEY):
            read_replica_config("/bucket", {KEY: text})
