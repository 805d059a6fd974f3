"""Kafka's text checkpoints."""

from __future__ import annotations

import pathlib

import pytest

from tierlog.errors import CorruptIndexError
from tierlog.log.formats.checkpoints import encode_offset_checkpoint, parse_checkpoint, parse_offset_checkpoint


@pytest.mark.parametrize("data", [b"", b"0\n", b"0", b"0\n0\n"])
def test_nothing_written_yet_means_no_entries(data: bytes) -> None:
    """Else a broker that stopped before its first checkpoint counts as corrupt."""
    assert parse_checkpoint(data) == ()


def test_offsets_both_ways() -> None:
    """Else the log start of a partition is taken for another one's."""
    data = b"0\n2\nmy-topic 0 7\nmy-topic 10 9223372036854775807\n"
    offsets = {("my-topic", 0): 7, ("my-topic", 10): 2**63 - 1}
    assert parse_offset_checkpoint(data) == offsets
    assert encode_offset_checkpoint(offsets) == data
    assert encode_offset_checkpoint({("b", 0): 1, ("a", 0): 2}) == b"0\n2\nb 0 1\na 0 2\n"
    assert parse_offset_checkpoint(b"0\r\n1\r\na \t 0   7\r\n") == {("a", 0): 7}


@pytest.mark.parametrize(
    ("data", "position", "fault"),
    [
        (b"1\n0\n", 0, "BAD_VERSION"),
        (b"x\n0\n", 0, "BAD_ENTRY"),
        (b"0\nmany\n", 2, "BAD_ENTRY"),
        (b"0\n-1\n", 2, "BAD_COUNT"),
        (b"0\n2\na 0 1\n", 2, "BAD_COUNT"),
        (b"0\n1\na 0 1\nb 0 1\n", 2, "BAD_COUNT"),
        (b"0\n1\na 0\n", 4, "BAD_ENTRY"),
        (b"0\n2\na 0 1\n\n", 10, "BAD_ENTRY"),
        (b"0\n1\na 0 -1\n", 4, "BAD_ENTRY"),
        (b"0\n1\na 0 99999999999999999999\n", 4, "BAD_ENTRY"),
        (b"0\n1\na\xff 0 1\n", 5, "BAD_ENTRY"),
    ],
)
def test_malformed_files_name_the_line(data: bytes, position: int, fault: str) -> None:
    """Else an operator has to find the broken line herself."""
    with pytest.raises(CorruptIndexError) as caught:
        parse_offset_checkpoint(data)
    assert (caught.value.position, caught.value.fault) == (position, fault)


def test_what_brokers_wrote(fixtures: pathlib.Path) -> None:
    """Else a checkpoint that nothing has changed is another file after each stop."""
    found = [path for path in sorted(fixtures.rglob("*-offset-checkpoint")) if path.stat().st_size]
    if not found:
        pytest.skip("the full golden data have them")
    for path in found:
        data = path.read_bytes()
        assert encode_offset_checkpoint(parse_offset_checkpoint(data)) == data, path
