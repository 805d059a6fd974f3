"""The metadata that a listing takes out of a manifest: what the whole parser finds in it, or nothing."""

from __future__ import annotations

import pathlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import DATA, FIXTURES
from tierlog.errors import CorruptDataError
from tierlog.remote.tier.objects.listed_manifest import find_listed
from tierlog.remote.tier.objects.manifest import parse_manifest
from tierlog.remote.tier.objects.object_keys import aiven_segment_path

MANIFESTS = [path for root in (DATA, FIXTURES) if root.is_dir() for path in sorted(root.rglob("*.rsm-manifest"))]
SOUND = [path for path in MANIFESTS if "bad" not in path.parts]


def check(data: bytes) -> bool:
    """Whether there is an answer: then it is the parser's, unless what it does not look at is damaged."""
    found = find_listed(data)
    if found is None:
        return False
    try:
        metadata = parse_manifest(data, where="the manifest").metadata
    except CorruptDataError:
        return True  # reported when the segment is described
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
    return True


@pytest.mark.few(60)
@pytest.mark.parametrize("path", SOUND, ids=lambda path: "/".join(path.parts[-4:])[-60:])
def test_what_the_plugin_wrote(path: pathlib.Path) -> None:
    """If the plugin's own manifests went the slow way, a listing of a million segments would take minutes."""
    assert check(path.read_bytes())


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
