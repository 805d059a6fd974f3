"""File and folder names of a log directory."""

from __future__ import annotations

import pytest

from tierlog.log.formats.segment_files import (
    PartitionFolder,
    SegmentFileKind,
    SegmentFileName,
    find_partition_folder,
    find_segment_file,
    segment_file_name,
)


@pytest.mark.parametrize("kind", SegmentFileKind)
def test_names_survive_the_round_trip(kind: SegmentFileKind) -> None:
    """Else an exported file has a name that a broker does not look for."""
    name = segment_file_name(42, kind)
    assert len(name.split(".")[0]) == 20
    assert find_segment_file(name) == SegmentFileName(42, kind)


def test_files_in_transit_are_told_apart() -> None:
    """Else records of a segment that the cleaner is replacing are read twice."""
    found = find_segment_file("00000000000000000042.log.swap")
    assert found == SegmentFileName(42, SegmentFileKind.LOG, "swap")
    assert str(found) == "00000000000000000042.log.swap"


@pytest.mark.parametrize(
    "name",
    ["leader-epoch-checkpoint", "1.log.tierlog-part", "x.log", "-1.log", ".log", "99999999999999999999.log", "1.log2"],
)
def test_other_names_are_no_segment_files(name: str) -> None:
    """Else a checkpoint, a half-written file or a foreign one is parsed as a segment."""
    assert find_segment_file(name) is None


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("orders-3", PartitionFolder("orders", 3)),
        ("my-dashed.topic-10", PartitionFolder("my-dashed.topic", 10)),
        ("orders-3.0123456789abcdef0123456789abcdef-delete", PartitionFolder("orders", 3, "delete")),
        ("orders-3.0123456789abcdef0123456789abcdef-future", PartitionFolder("orders", 3, "future")),
        ("remote-log-index-cache", None),
        ("orders-", None),
        ("-3", None),
        ("orders-99999999999", None),
    ],
)
def test_partition_folders(name: str, folder: PartitionFolder | None) -> None:
    """Else a partition is missed, or a deleted one comes back."""
    assert find_partition_folder(name) == folder
