"""``_rlmm_committed_offsets`` in both forms. A wrong offset here is events that a broker never sees."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.committed_offsets import (
    CommittedOffsetsForm,
    encode_committed_offsets,
    parse_committed_offsets,
    positions_of,
)
from tierlog.errors import CorruptIndexError

OFFSETS = st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1), max_size=20)


@given(OFFSETS, st.sampled_from(CommittedOffsetsForm))
def test_what_is_written_is_read(offsets: dict[int, int], form: CommittedOffsetsForm) -> None:
    """Both forms, whichever a file has."""
    assert parse_committed_offsets(encode_committed_offsets(offsets, form=form)) == offsets


def test_bytes_of_both_forms() -> None:
    """Kafka 3.x reads the one, a reader of the KIP's text the other."""
    offsets = {7: 42, 0: 9}
    assert encode_committed_offsets(offsets) == b"0\n2\n0 9\n7 42\n"
    assert encode_committed_offsets(offsets, form=CommittedOffsetsForm.LINES) == b"0 9\n7 42\n"
    assert positions_of(offsets) == {7: 43, 0: 10}


@pytest.mark.parametrize("data", [b"", b"0\n", b"0\n0\n"])
def test_a_file_without_offsets(data: bytes) -> None:
    """What a crash before the first write leaves: the topic is read from its beginning."""
    assert parse_committed_offsets(data) == {}


@pytest.mark.parametrize(
    ("data", "fault", "position"),
    [
        (b"0 9\n7 42", "TRUNCATED", 4),
        (b"0 9\n0 10\n", "BAD_ENTRY", 4),
        (b"0\n2\n0 9\n0 10\n", "BAD_ENTRY", 8),
        (b"0\n3\n0 9\n7 42\n", "BAD_COUNT", 2),
        (b"1\n1\n0 9\n", "BAD_VERSION", 0),
        (b"0 9\n7\n", "BAD_ENTRY", 4),
        (b"0 9 1\n", "BAD_ENTRY", 0),
        (b"0 -1\n", "BAD_ENTRY", 0),
        (b"-1 1\n", "BAD_ENTRY", 0),
        (b"0 9\n2147483648 1\n", "BAD_ENTRY", 4),
        (b"0 9223372036854775808\n", "BAD_ENTRY", 0),
        (b"0 9\n\xff 1\n", "BAD_ENTRY", 4),
        (b"0 9\n\n", "BAD_ENTRY", 4),
        (b"x y\n", "BAD_ENTRY", 0),
        (b"\xd9\xa3 1\n", "BAD_ENTRY", 0),
    ],
)
def test_damage_is_told(data: bytes, fault: str, position: int) -> None:
    """An offset that is guessed would skip events for good."""
    with pytest.raises(CorruptIndexError) as error:
        parse_committed_offsets(data)
    assert (error.value.fault, error.value.position) == (fault, position)


def test_a_checkpoint_that_is_cut_short_has_no_offsets() -> None:
    """A truncated number is another offset."""
    whole = encode_committed_offsets({1: 1234, 2: 5678})
    for size in range(len(whole)):
        try:
            assert parse_committed_offsets(whole[:size]) == {}
        except CorruptIndexError:
            assert size > 0


@pytest.mark.parametrize("offsets", [{-1: 1}, {2**31: 1}, {1: -1}, {1: 2**63}])
def test_what_no_line_can_say_is_refused(offsets: dict[int, int]) -> None:
    """Rather than a file that nobody reads."""
    with pytest.raises(ValueError, match="no line can say so"):
        encode_committed_offsets(offsets)
