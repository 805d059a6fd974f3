"""What the plugin stored, and what we store of the same files: object by object."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.contract.storage_manager_suite import index_bytes
from tests.support.closed_segments import ClosedSegment, golden_segments
from tests.support.golden import config_of
from tierlog.remote.api import IndexType
from tierlog.remote.config import read_storage_config
from tierlog.remote.storage.tiered_storage_manager import TieredStorageManager
from tierlog.remote.tier.chunks.key_ring import read_key_ring
from tierlog.remote.tier.chunks.stored_segment import StoredSegment, fetch_part
from tierlog.remote.tier.tier_paths import open_tier
from tierlog.runtime.machine import Machine
from tierlog.runtime.stores.local.store import LocalStore

SUFFIXES = ("log", "indexes", "rsm-manifest")
RUNS = ["main-plain", "plain-4m", "zstd", "heuristic", "aes", "zstd-aes", "custom-meta"]


def stored_segments(run: pathlib.Path) -> Iterator[StoredSegment]:
    with open_tier(str(run / "objects"), layout="aiven", config=config_of(run)) as tier:
        yield from tier.iter_segments()


def matching(run: pathlib.Path) -> list[tuple[StoredSegment, ClosedSegment]]:
    """Each segment of the plugin's with the files that it was made of, under the plugin's own description of it.

    Of a partition with two replicas it was the leader's: the one whose indexes are the stored ones.
    """
    closed = list(golden_segments(run))
    store = LocalStore(str(run / "objects"))
    ring = read_key_ring(read_storage_config(config_of(run)), Machine())
    pairs = []
    for stored in stored_segments(run):
        for each in closed:
            same = each.metadata.topic_id_partition == stored.topic_id_partition
            if not same or each.metadata.start_offset != stored.start_offset:
                continue
            parts = {kind: bytes(fetch_part(store, ring, stored, part) or b"") for kind, part in stored.parts}
            # The checkpoint depends on when the broker asked for it: the plugin's is taken.
            data = replace(each.data, leader_epoch_index=parts[IndexType.LEADER_EPOCH])
            if index_bytes(replace(each, data=data)) == parts:
                metadata = replace(stored.metadata, custom_metadata=None)
                pairs.append((stored, ClosedSegment(metadata, data)))
                break
    return pairs


def without_keys(manifest: bytes) -> dict[str, object]:
    root: dict[str, object] = json.loads(manifest)
    encryption = root.get("encryption")
    if isinstance(encryption, dict):
        assert encryption.keys() == {"dataKey", "aad"}
        encryption["dataKey"] = str(encryption["dataKey"]).partition(":")[0]
        del encryption["aad"]
    return root


@pytest.mark.parametrize("run_name", RUNS)
def test_our_objects_are_the_plugins(run_name: str, fixtures: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """A bucket that two writers share must not show which of them wrote a segment."""
    run = fixtures / run_name
    pairs = matching(run)
    assert len(pairs) > 5
    rsm = json.loads((run / "config.json").read_text())["rsm"]
    keys = {k: v for k, v in rsm.items() if k.startswith("rsm.config.") and ".storage." not in k} | config_of(run)
    keys |= {"storage.backend.class": "filesystem", "storage.root": str(tmp_path)}
    theirs = LocalStore(str(run / "objects"))
    stored_bytes = plugin_bytes = 0
    managers: dict[str, TieredStorageManager] = {}
    config = read_storage_config(keys)
    try:
        for segment, closed in pairs:
            key_id = segment.encryption.key_id if segment.encryption else ""
            if key_id not in managers:
                managers[key_id] = TieredStorageManager()
                managers[key_id].configure(keys | ({"rsm.config.encryption.key.pair.id": key_id} if key_id else {}))
            custom = managers[key_id].copy_log_segment_data(closed.metadata, closed.data)
            assert (custom is None) == (not config.custom_metadata_fields_include)
            base = segment.log.key.removesuffix("log")
            compare(
                segment,
                *((tmp_path / f"{base}{suffix}").read_bytes() for suffix in SUFFIXES),
                *(bytes(theirs.fetch(base + suffix)) for suffix in SUFFIXES),
            )
            stored_bytes += len((tmp_path / segment.log.key).read_bytes())
            plugin_bytes += len(theirs.fetch(segment.log.key))
            assert_equal_when_read(managers[key_id], closed, custom)
        assert stored_bytes <= 1.005 * plugin_bytes
    finally:
        for manager in managers.values():
            manager.close()


def compare(segment: StoredSegment, log: bytes, indexes: bytes, manifest: bytes, *theirs: bytes) -> None:
    """Ours with the plugin's. zstd's bytes differ between versions of the library, keys between any two copies."""
    their_log, their_indexes, their_manifest = theirs
    ours, plugins = without_keys(manifest), without_keys(their_manifest)
    if segment.compression:
        assert ours.pop("chunkIndex").keys() == plugins.pop("chunkIndex").keys()  # type: ignore[attr-defined]
    elif segment.encryption is None:
        assert log == their_log
        assert manifest == their_manifest, "in order and form too"
    else:
        assert len(log) == len(their_log)
        assert log != their_log, "each copy has a data key of its own"
    assert ours == plugins
    if segment.encryption is None:
        assert indexes == their_indexes
    else:
        assert len(indexes) == len(their_indexes)


def assert_equal_when_read(manager: TieredStorageManager, closed: ClosedSegment, custom: bytes | None) -> None:
    with manager.fetch_log_segment(closed.finished(custom), 0) as stream:
        assert stream.read() == closed.log
    with manager.fetch_index(closed.finished(custom), IndexType.OFFSET) as stream:
        assert stream.read() == pathlib.Path(closed.data.offset_index).read_bytes()
