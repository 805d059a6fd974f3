"""Batches of a codec that old clients do not know."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.batches import Batch, encode
from tests.support.fetch_client import Ask, FetchRig
from tests.support.loops import run_on
from tests.support.memory_topics import MemoryBatch
from tierlog.broker.fetching.fetch_handler import FetchLimits
from tierlog.broker.fetching.zstd_batches import before_zstd


def batch(base_offset: int, codec: int) -> bytes:
    """A batch that says of itself that it has a codec; nobody decodes it here."""
    data = bytearray(encode(Batch(base_offset)))
    data[22] |= codec
    return bytes(data)


CODECS = st.lists(st.sampled_from((0, 1, 2, 3, 4)), max_size=6)


@given(CODECS, st.randoms(use_true_random=False), st.integers(0, 90))
def test_all_is_given_up_to_the_first_of_them(codecs: list[int], chance: random.Random, cut: int) -> None:
    """A client would be given bytes that it takes for damaged, or fewer than it may have."""
    batches = [batch(number, codec) for number, codec in enumerate(codecs)]
    data = b"".join(batches)
    data = data[: max(len(data) - cut, 0)]
    expected = b"".join(batches[: codecs.index(4)] if 4 in codecs else batches)[: len(data)]
    if 4 in codecs and codecs.index(4) == len(codecs) - 1 and len(data) - len(expected) < 23:
        expected = data  # its header is cut: no client reads on to it
    places = sorted(chance.sample(range(len(data) + 1), min(len(data), chance.randint(0, 12))))
    views = [memoryview(data)[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
    found, size_bytes = before_zstd(views)
    assert b"".join(found) == expected
    assert size_bytes == len(expected)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_batches_end_it(data: bytes) -> None:
    """A damaged object would hold the server's loop for ever."""
    found, size_bytes = before_zstd([memoryview(data)[:50], memoryview(data)[50:]])
    assert b"".join(found) == data[:size_bytes]


@pytest.mark.parametrize(("version", "is_known"), [(4, False), (9, False), (10, True), (18, True)])
def test_old_clients_are_told(version: int, is_known: bool) -> None:
    """A client of before zstd calls the partition damaged, or ends, and its user looks for the fault in the bucket."""
    batches = [MemoryBatch(number, number, 0, batch(number, codec)) for number, codec in enumerate((1, 4, 0))]

    async def main() -> None:
        rig = FetchRig(FetchLimits())
        (partition,) = rig.catalog.add("orders")
        partition.batches.extend(batches)
        first = await asyncio.wait_for(rig.fetch(version, [Ask("orders", 0, 0)]), 20)
        end = 3 if is_known else 1
        assert first.records["orders", 0] == b"".join(each.data for each in batches[:end])
        second = await asyncio.wait_for(rig.fetch(version, [Ask("orders", 0, 1)]), 20)
        assert second.partitions[0].error == ("none" if is_known else "unsupported_compression_type")
        await rig.handler.close()

    run_on("asyncio", main)
