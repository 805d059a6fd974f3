"""Cleanings of random logs beside an oracle: transactions of several producers, tombstones, markers, codecs, gaps."""

from __future__ import annotations

import random

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.cleaned_batches import EPOCH, CleanedBatches
from tests.support.cleaned_logs import CleanedLog, cleaner_of
from tests.support.oracle.cleaning import CleaningOracle, batches_of
from tests.support.oracle.records import Aborted
from tierlog.log.local.log_config import LogConfig

RETENTION_MS = 4000


def clean_and_compare(log: CleanedLog, rng: random.Random, first_dirty_offset: int) -> int:
    """Clean up to a random segment; the next dirty offset."""
    config: LogConfig = log.log.config
    bases = [segment.base_offset for segment in log.log.log_segments() if segment.base_offset > first_dirty_offset]
    end = rng.choice(bases[-3:])
    before = log.data()
    oracle = CleaningOracle(
        batches=[batch for batch in batches_of(before) if batch.base_offset < end],
        aborted=[Aborted(*entry) for entry in log.log.collect_aborted_transactions(0, end)],
        last_records={i: tuple(last) for i, last in log.log.last_records_of_producers().items()},
        first_dirty_offset=first_dirty_offset,
        end_offset=end,
        keys_max=rng.choice([2, 6, 100]),
        now_ms=log.now_ms,
        delete_retention_ms=config.delete_retention_ms,
        bases=[segment.base_offset for segment in log.log.log_segments()],
    )
    next_dirty = oracle.known_keys()[1]
    # Only whole segments are written anew: what is behind the last one stays as it is.
    behind = next((base for base in [*bases, end] if base >= next_dirty), end)
    result = cleaner_of(log.machine, keys=oracle.keys_max, io_buffer_bytes=rng.choice([64, 500, 5000])).clean(
        log.log, first_dirty_offset=first_dirty_offset, first_uncleanable_offset=end, now_ms=log.now_ms
    )
    assert result.next_dirty_offset == next_dirty
    expected = [batch for batch in oracle.cleaned() if batch.base_offset < behind]
    expected += [batch for batch in batches_of(before) if batch.base_offset >= behind]
    assert batches_of(log.data()) == expected
    return result.next_dirty_offset


@settings(max_examples=10)
@example(seed=4756, codecs=("none", "gzip", "snappy", "lz4", "zstd"))  # a gap in front of a segment, and a full map
@given(seed=st.integers(0, 1 << 30), codecs=st.sampled_from([("none",), ("none", "gzip", "snappy", "lz4", "zstd")]))
def test_a_cleaning_leaves_what_the_oracle_says(seed: int, codecs: tuple[str, ...]) -> None:
    """If this fails, a consumer of a compacted topic misses a record, or gets one that was deleted or aborted."""
    rng = random.Random(seed)
    batches = CleanedBatches(rng, codecs=codecs)
    with CleanedLog(segment_bytes=1200, index_interval_bytes=200, delete_retention_ms=RETENTION_MS) as log:
        dirty = 0
        for _ in range(3):
            for _ in range(25):
                log.log.append_as_follower(batches.turn(log.now_ms), leader_epoch=EPOCH)
            for marker in batches.end_all(log.now_ms):
                log.log.append_as_follower(marker, leader_epoch=EPOCH)
            log.roll()
            dirty = clean_and_compare(log, rng, dirty)
            log.pass_ms(rng.choice([1, RETENTION_MS + 1]))
