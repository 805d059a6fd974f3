"""MBeans behind one workload, of the plugin and of the Aiven plugin: the same names and attributes, the same counts."""

from __future__ import annotations

import pathlib

import pytest

from tests.support.metadata_cluster import needs_a_broker
from tests.support.peers import plugin, plugin_peer
from tests.support.segments import Aborted, make_segment, sound_log
from tests.support.sidecars import storage_keys

pytestmark = pytest.mark.interop

GROUP = "aiven.kafka.server.tieredstorage:type=remote-storage-manager-metrics"
#: Depend on when they are looked at, or on how long something took.
TIMED = ("-rate", "-avg", "-max")


def worked(folder: pathlib.Path, manager: str, jar: pathlib.Path, level: str) -> dict[str, dict[str, str]]:
    """The MBeans of a class behind a copy, four fetches, an index and two deletions."""
    folder.mkdir()
    (folder / "bucket").mkdir()
    segments = [
        make_segment(sound_log(batches=60), topic=topic, aborted=[Aborted(7, 3, 5, 3)]).closed_in(
            folder / "logs" / f"{topic}-0"
        )
        for topic in ("orders", "events")
    ]
    keys = storage_keys(folder / "bucket", compression_enabled="true", metrics_recording_level=level)
    if manager == plugin_peer.OURS:
        keys = plugin_peer.child_keys(keys)
    class_path = plugin_peer.compiled_with(jar, folder)
    with plugin_peer.running(folder, class_path, manager=manager, heap="512m") as peer:
        peer.configure(keys)
        before = peer.beans(f"{GROUP},*")
        if manager == plugin_peer.OURS:
            assert GROUP in before, "there from the start"
        for segment in segments:
            metadata = segment.finished(peer.copy(segment))
            for start, end in ((0, None), (5, None), (100, 2000), (3, 1 << 30)):
                peer.fetch_sum(metadata, start, end)
            peer.delete(metadata)
            peer.delete(metadata)
        found = peer.beans(f"{GROUP},*")
        peer.close()
    return {_name(name): values for name, values in found.items()}


def _name(name: str) -> str:
    """An object name with its tags in order."""
    kind, *tags = name.split(",")
    return ",".join([kind, *sorted(tags)])


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_they_are_those_of_the_aiven_plugin(tmp_path: pathlib.Path, level: str) -> None:
    """If this fails, the dashboards and alerts of a cluster that is moved stand still."""
    needs_a_broker()
    if not plugin.jars():
        pytest.skip(plugin.HOW)
    folder = plugin.jars()[0].parent
    theirs = worked(tmp_path / "theirs", plugin.MANAGER, folder / "*", level)
    ours = worked(tmp_path / "ours", plugin_peer.OURS, plugin_peer.our_jar(), level)
    assert ours.keys() == theirs.keys()
    assert {GROUP, f"{GROUP},topic=orders"} <= theirs.keys()
    assert len(theirs) == 20, "of a level that is not recorded they are there, at zero"
    for name, values in theirs.items():
        assert values.keys() <= ours[name].keys(), name
        for attribute, value in values.items():
            if attribute.endswith(TIMED) or "upload-bytes" in attribute:
                assert not float(ours[name][attribute]) < 0
                continue
            assert float(ours[name][attribute]) == float(value), (name, attribute)
        if "object-upload-bytes-total" in values:  # two libraries of zstd, and a manifest's field order
            sizes = float(ours[name]["object-upload-bytes-total"]), float(values["object-upload-bytes-total"])
            assert abs(sizes[0] - sizes[1]) <= 0.05 * sizes[1], (name, sizes)
