"""The metadata that a listing takes out of a manifest: what the whole parser finds in it, or nothing."""

from __future__ import annotations

import itertools
import pathlib
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA, FIXTURES
from tierlog.errors import CorruptDataError
from tierlog.remote.tier.layouts.aiven import describe_aiven
from tierlog.remote.tier.layouts.plain_segments import plain_numbers, plain_segment
from tierlog.remote.tier.objects.listed_manifest import ListedManifest, find_listed
from tierlog.remote.tier.objects.manifest import Manifest, parse_manifest
from tierlog.remote.tier.objects.object_keys import aiven_segment_path

MANIFESTS = [path for root in (DATA, FIXTURES) if root.is_dir() for path in sorted(root.rglob("*.rsm-manifest"))]
SOUND = [path for path in MANIFESTS if "bad" not in path.parts]


def check(data: bytes) -> bool:
    """Whether there is an answer: then it is the parser's, unless what it does not look at is damaged."""
    found = find_listed(data)
    if found is None:
        return False
    try:
        manifest = parse_manifest(data, where="the manifest")
    except CorruptDataError:
        assert found.plain is None  # reported when the segment is described
        return True
    metadata = manifest.metadata
    assert metadata is not None
    assert found.segment_path == aiven_segment_path(metadata)
    assert found.segment_id == str(metadata.remote_log_segment_id.id)
    assert found.leader_epochs == tuple(sorted(metadata.segment_leader_epochs.items()))
    assert found[2:8] == (
        metadata.start_offset,
        metadata.end_offset,
        metadata.max_timestamp_ms,
        metadata.event_timestamp_ms,
        metadata.segment_size_in_bytes,
        metadata.broker_id,
    )
    assert found.txn_idx_empty == metadata.txn_idx_empty
    check_plain(found, manifest)
    return True


def check_plain(found: ListedManifest, manifest: Manifest) -> None:
    """Numbers in place of a description have to make the description that the parser finds."""
    if found.plain is None:
        positions = [position for _, position, _ in manifest.indexes]
        ends = [0, *itertools.accumulate(size for _, _, size in manifest.indexes)]
        follow = positions == ends[:-1] and ends[-1] < 1 << 31
        is_fixed = b"fixed" in pickle.dumps(manifest.chunk_index)
        assert manifest.compression or manifest.encryption or not follow or not found.size_bytes or not is_fixed
        return
    assert (manifest.compression, manifest.encryption) == (False, None)
    metadata = manifest.metadata
    assert metadata is not None
    described = describe_aiven(
        manifest, base=f"a/{found.segment_path}", metadata=metadata, name=lambda key, _: key, prefix="a/"
    )
    made = plain_segment(metadata, found.plain, prefix="a/", shown="a/", last_modified_ms=0)
    assert made == described
    assert pickle.dumps(made.chunk_index) == pickle.dumps(described.chunk_index)
    assert plain_numbers(described) == found.plain


@pytest.mark.few(60)
@pytest.mark.parametrize("path", SOUND, ids=lambda path: "/".join(path.parts[-4:])[-60:])
def test_what_the_plugin_wrote(path: pathlib.Path) -> None:
    """If the plugin's own manifests went the slow way, a listing of a million segments would take minutes."""
    assert check(path.read_bytes())


def test_some_are_plain() -> None:
    """If no manifest were, nothing would be compared, and each plan would read all of them again."""
    found = [find_listed(path.read_bytes()) for path in SOUND]
    assert any(each is not None and each.plain is not None for each in found)


@given(st.data())
def test_a_changed_manifest(data: st.DataObject) -> None:
    """A listing that believes in a damaged number plans offsets that no segment has."""
    content = bytearray(data.draw(st.sampled_from(SOUND[:40])).read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.one_of(st.binary(max_size=2), st.sampled_from([b"0", b"9", b"-", b'"', b",", b" ", b"\\", b"e", b"."]))
        )
    check(bytes(content))
