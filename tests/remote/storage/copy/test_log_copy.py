"""How a log is cut for its copy: within what the store takes, what memory there is, and what the format says."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tierlog.remote.storage.copy.log_copy import plan_sizes
from tierlog.runtime.stores.protocol.object_store import UploadLimits

MIB = 1 << 20


@dataclass
class Limits:
    """A store, as far as a plan looks at it."""

    upload_limits: UploadLimits
    is_local: bool = False


S3 = Limits(UploadLimits(5 * MIB, 5 << 30, 10_000, 5 << 30))
FOLDER = Limits(UploadLimits(1, 1 << 40, 1 << 31, 1 << 40), is_local=True)


@given(
    store=st.sampled_from([S3, FOLDER]),
    log_bytes=st.integers(0, 2**31 - 1),
    chunk_size=st.integers(1, 2**30 - 1),
    part_bytes=st.integers(5 * MIB, 100 * MIB),
    cores=st.integers(1, 16),
    compressed=st.booleans(),
    encrypted=st.booleans(),
)
@example(store=S3, log_bytes=0, chunk_size=4 * MIB, part_bytes=5 * MIB, cores=4, compressed=True, encrypted=True)
def test_a_plan_fits_store_and_memory(
    store: Limits,
    log_bytes: int,
    chunk_size: int,
    part_bytes: int,
    cores: int,
    compressed: bool,
    encrypted: bool,
) -> None:
    """A part too many or too small fails the last request of an upload that took minutes."""
    sizes = plan_sizes(
        store,  # type: ignore[arg-type]
        log_bytes=log_bytes,
        chunk_size=chunk_size,
        part_bytes=part_bytes,
        cores=cores,
        compressed=compressed,
        encrypted=encrypted,
    )
    limits = store.upload_limits
    assert limits.part_bytes_min <= sizes.part_bytes <= limits.part_bytes_max
    chunks = -(-log_bytes // sizes.chunk_bytes)
    bound = chunks * sizes.stored_chunk_bytes
    assert bound <= sizes.part_bytes * limits.parts_max
    assert sizes.first_part_bytes == max(1, min(bound, sizes.part_bytes))
    assert sizes.bundle_chunks <= max(1, chunks)
    assert sizes.bundle_bytes <= max(MIB, sizes.chunk_bytes)
    wanted_bundles = max(1, min(cores, -(-chunks // sizes.bundle_chunks))) if compressed or encrypted else 0
    assert sizes.bundles == wanted_bundles
    assert all(size > 0 for size in sizes.borrowed())
    if chunk_size <= 4 * MIB and not store.is_local and chunks <= 10_000:
        assert sum(sizes.borrowed()) <= max(part_bytes, 5 * MIB) + sizes.bundles * 2 * (4 * MIB + 65536)


@pytest.mark.parametrize("log_bytes", [0, 1, 100 * MIB])
@pytest.mark.parametrize("chunk_size", [16_384, 4 * MIB, 32 * MIB])
@pytest.mark.parametrize(("compressed", "encrypted"), [(False, False), (False, True), (True, False), (True, True)])
def test_a_folders_parts_are_small_and_hold_whole_bundles(
    log_bytes: int, chunk_size: int, compressed: bool, encrypted: bool
) -> None:
    """Encrypted bytes are made in the part itself where a bundle fits: a straddling one would be copied once more."""
    sizes = plan_sizes(
        FOLDER,  # type: ignore[arg-type]
        log_bytes=log_bytes,
        chunk_size=chunk_size,
        part_bytes=25 * MIB,
        cores=4,
        compressed=compressed,
        encrypted=encrypted,
    )
    bundle = sizes.bundle_chunks * sizes.stored_chunk_bytes
    if encrypted and not compressed and bundle <= 16 * MIB:
        assert sizes.part_bytes % bundle == 0
        assert sizes.part_bytes + bundle > 4 * MIB
        assert sizes.part_bytes <= max(4 * MIB, bundle)
    else:
        assert sizes.part_bytes == 4 * MIB


def test_the_defaults_leave_room_for_several_copies() -> None:
    """Ten copies at once share 128 MiB: each must be able to go on with a part of that."""
    sizes = plan_sizes(
        S3,  # type: ignore[arg-type]
        log_bytes=256 * MIB,
        chunk_size=4 * MIB,
        part_bytes=25 * MIB,
        cores=2,
        compressed=True,
        encrypted=True,
    )
    assert sum(sizes.borrowed()) <= 128 * MIB // 3
