"""How a log is cut for its copy: within what the store takes, what memory there is, and what the format says."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
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
    assert sizes.bundles == 0 if not (compressed or encrypted) else 1 <= sizes.bundles <= cores
    assert all(size > 0 for size in sizes.borrowed())
    if chunk_size <= 4 * MIB and not store.is_local and chunks <= 10_000:
        assert sum(sizes.borrowed()) <= max(part_bytes, 5 * MIB) + sizes.bundles * 2 * (4 * MIB + 65536)


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
