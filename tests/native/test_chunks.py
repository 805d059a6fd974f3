"""Chunk indexes: the plugin's vectors, and views that put together are the range."""

from __future__ import annotations

import base64
import pickle
import tracemalloc

import numpy as np
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tierlog._native.chunks import CHUNK_VIEW_DTYPE, ChunkIndex, decode_chunk_sizes
from tierlog.errors import CorruptObjectError

VECTORS = [
    ([10, 20, 30], "KLUv/SAPeQAAAAAAAwAAAAoBAAoAAAAe"),
    ([213], "KLUv/SAIQQAAAAAAAQAAANU="),
    ([5, 5, 5, 5], "KLUv/SAQgQAAAAAABAAAAAUBAAAAAAAABQ=="),
    ([0, 1000, 2, 44002, 369], "KLUv/SAVqQAAAAAABQAAAAACAAAD6AACq+IAAAFx"),
    ([1, 265, 275, 285, 2147483647], "KLUv/SAVqQAAAAAABQAAAAECAAABCAESARx/////"),
    ([2147483647, 0, 7], "KLUv/SAVqQAAAAAAAwAAAAAEf////wAAAAAAAAAH"),
    ([30021, 30248, 30108, 30246, 17563], "KLUv/SARiQAAAAAABQAAdUUBAONX4QAARJs="),
]


@pytest.mark.parametrize(("sizes", "text"), VECTORS)
def test_packed_sizes(sizes: list[int], text: str) -> None:
    """Else no compressed segment can be read: nobody knows where its chunks begin."""
    packed = zstandard.decompress(base64.b64decode(text))
    assert decode_chunk_sizes(packed).tolist() == sizes
    for cut in range(len(packed)):
        with pytest.raises(CorruptObjectError):
            decode_chunk_sizes(packed[:cut])
    with pytest.raises(CorruptObjectError):
        decode_chunk_sizes(packed + b"\0")


def test_a_count_is_not_trusted_with_an_allocation() -> None:
    """Else a manifest of 20 bytes takes 8 GiB."""
    tracemalloc.start()
    try:
        for count in ("7fffffff", "80000000", "ffffffff"):
            with pytest.raises(CorruptObjectError):
                decode_chunk_sizes(bytes.fromhex(count + "0000000a01000a0000001e"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@st.composite
def chunk_indexes(draw: st.DrawFn) -> ChunkIndex:
    chunk_size = draw(st.integers(1, 50))
    file_size = draw(st.integers(1, 400))
    count = -(-file_size // chunk_size)
    sizes = st.integers(1, 100)
    if draw(st.booleans()):
        listed = np.array(draw(st.lists(sizes, min_size=count, max_size=count)), np.int32)
        return ChunkIndex(original_chunk_size=chunk_size, original_file_size=file_size, transformed_sizes=listed)
    return ChunkIndex(
        original_chunk_size=chunk_size,
        original_file_size=file_size,
        transformed_chunk_size=draw(sizes),
        final_transformed_chunk_size=draw(sizes),
    )


@given(chunk_indexes(), st.data())
def test_views_put_together_are_the_range(index: ChunkIndex, data: st.DataObject) -> None:
    """Else a range read hands out bytes of the wrong place."""
    start = data.draw(st.integers(0, index.original_file_size - 1))
    end = data.draw(st.integers(start + 1, index.original_file_size))
    views = index.views(start, end)
    assert views.dtype == CHUNK_VIEW_DTYPE
    at = start
    for view in views:
        assert view["chunk"] * index.original_chunk_size + view["from"] == at
        assert 0 <= view["from"] < view["to"] <= view["original_size"]
        at += view["to"] - view["from"]
    assert at == end
    ends = views["transformed_position"] + views["transformed_size"]
    assert (ends[:-1] == views["transformed_position"][1:]).all()
    assert index.list_views(start, end) == views.tolist()
    everything = index.views(0, index.original_file_size)
    assert len(everything) == index.chunk_count
    assert everything["transformed_size"].sum() == index.object_size_bytes
    again = pickle.loads(pickle.dumps(index))
    assert (again.views(start, end) == views).all()


@given(chunk_indexes(), st.data())
def test_a_part_knows_its_chunks_as_the_whole_does(index: ChunkIndex, data: st.DataObject) -> None:
    """Else a task that was sent a part of the index reads bytes of another place."""
    start = data.draw(st.integers(0, index.original_file_size - 1))
    end = data.draw(st.integers(start + 1, index.original_file_size))
    part = pickle.loads(pickle.dumps(index.part(start, end)))
    inner_start = data.draw(st.integers(start, end - 1))
    inner_end = data.draw(st.integers(inner_start + 1, end))
    smaller = part.part(inner_start, inner_end)
    for each in (part, smaller):
        assert (each.views(inner_start, inner_end) == index.views(inner_start, inner_end)).all()
    assert part.original_chunk_size == index.original_chunk_size
    if part.chunk_count == index.chunk_count:
        assert (part.original_file_size, part.object_size_bytes) == (index.original_file_size, index.object_size_bytes)
        return
    last = index.views(start, end)[-1]
    assert part.chunk_count == len(index.views(start, end))
    assert part.object_size_bytes == last["transformed_position"] + last["transformed_size"]
    covered = (start // index.original_chunk_size * index.original_chunk_size, part.original_file_size)
    assert covered[0] <= start < end <= covered[1]
    for outside in ((covered[0] - 1, end), (start, covered[1] + 1), (covered[0] - 1, covered[0]), (start, -(2**63))):
        for ask in (part.views, part.part):
            with pytest.raises(ValueError, match="no range"):
                ask(*outside)


@pytest.mark.parametrize(
    "fields",
    [
        {"first_chunk": -1},
        {"first_chunk": 5},
        {"first_chunk": 2**62},
        {"first_position": -1},
        {"first_chunk": 1, "original_chunk_size": 0},
        {"first_chunk": 1, "transformed_sizes": None, "transformed_chunk_size": 1, "final_transformed_chunk_size": 1},
    ],
)
def test_a_part_that_lies_nowhere_is_refused(fields: dict[str, int]) -> None:
    """Else a multiplication overflows, and a read asks for bytes before the object."""
    sound = {"original_chunk_size": 10, "original_file_size": 35, "transformed_sizes": np.array([4, 5], np.int32)}
    assert ChunkIndex(**{**sound, "first_chunk": 2, "first_position": 9}).views(30, 35)["transformed_position"] == 13
    with pytest.raises(ValueError, match="begins a list"):
        ChunkIndex(**{**sound, **fields})


def test_segments_beyond_32_bits() -> None:
    """Else offsets in objects above 2 GiB come out negative."""
    index = ChunkIndex(
        original_chunk_size=4 << 20,
        original_file_size=1 << 45,
        transformed_chunk_size=(4 << 20) + 28,
        final_transformed_chunk_size=(4 << 20) + 28,
    )
    view = index.views((1 << 45) - 1, 1 << 45)[0]
    assert view["transformed_position"] == (index.chunk_count - 1) * ((4 << 20) + 28)


@pytest.mark.parametrize(
    ("fault", "fields"),
    [
        ("BAD_SIZE", {"original_chunk_size": 0}),
        ("BAD_SIZE", {"original_chunk_size": -1}),
        ("BAD_SIZE", {"original_file_size": -1}),
        ("BAD_SIZE", {"transformed_chunk_size": 0}),
        ("BAD_SIZE", {"final_transformed_chunk_size": -5}),
        ("BAD_SIZE", {"transformed_chunk_size": 2**62}),
    ],
)
def test_contradictions_are_refused(fault: str, fields: dict[str, int]) -> None:
    """Else a broken manifest becomes a division by zero, or a read of the wrong bytes."""
    sound = {
        "original_chunk_size": 10,
        "original_file_size": 35,
        "transformed_chunk_size": 12,
        "final_transformed_chunk_size": 7,
    }
    with pytest.raises(CorruptObjectError) as caught:
        ChunkIndex(**{**sound, **fields})
    assert caught.value.fault == fault


def test_a_list_of_another_length_is_refused() -> None:
    """Else the end of a segment is missing, or made of another one's bytes."""
    for sizes in ([1, 2, 3], [1, 2, 3, 4, 5], []):
        with pytest.raises(CorruptObjectError) as caught:
            ChunkIndex(original_chunk_size=10, original_file_size=35, transformed_sizes=np.array(sizes, np.int32))
        assert (caught.value.fault, caught.value.expected, caught.value.found) == ("BAD_COUNT", 4, len(sizes))


def test_misuse_is_told_from_corruption() -> None:
    """Else our own mistakes are blamed on the bucket."""
    with pytest.raises(ValueError, match="transformed_sizes"):
        ChunkIndex(original_chunk_size=10, original_file_size=35)
    index = ChunkIndex(
        original_chunk_size=10, original_file_size=35, transformed_chunk_size=10, final_transformed_chunk_size=5
    )
    for start, end in ((0, 0), (-1, 5), (3, 36), (5, 3)):
        with pytest.raises(ValueError, match="no range") as caught:
            index.views(start, end)
        assert not isinstance(caught.value, CorruptObjectError)


def test_chunks_of_one_byte_do_not_take_the_host() -> None:
    """A manifest may say INT_MAX bytes in chunks of one: a list of so many views would be 96 GiB."""
    index = ChunkIndex(
        original_chunk_size=1, original_file_size=2**31 - 1, transformed_chunk_size=1, final_transformed_chunk_size=1
    )
    assert len(index.views(0, 1000)) == 1000
    with pytest.raises(CorruptObjectError):
        index.views(0, 2**31 - 1)
