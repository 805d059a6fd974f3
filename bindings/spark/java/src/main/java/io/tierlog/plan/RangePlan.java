package io.tierlog.plan;

import java.io.Serializable;

/**
 * Bytes of one segment between two batch borders, and which of their records count.
 *
 * @param segment shared by its ranges
 * @param startPosition first byte, in the original log
 * @param endPosition behind the last byte
 * @param fromOffset records below do not count
 * @param toOffsetExclusive records at or above do not count
 * @param fromTimestampMs records before do not count
 * @param toTimestampExclusiveMs records at or after do not count; {@link Long#MAX_VALUE}: no bound
 * @param aborted rows of {@code tl_aborted} as they lie in memory, sorted; null: read_uncommitted
 * @param chunks null where the log is stored as it is
 */
public record RangePlan(
    SegmentPlan segment,
    long startPosition,
    long endPosition,
    long fromOffset,
    long toOffsetExclusive,
    long fromTimestampMs,
    long toTimestampExclusiveMs,
    byte[] aborted,
    ChunkSlice chunks)
    implements Serializable {

  /** The same between two batch borders of it. */
  public RangePlan between(long start, long end) {
    return new RangePlan(
        segment,
        start,
        end,
        fromOffset,
        toOffsetExclusive,
        fromTimestampMs,
        toTimestampExclusiveMs,
        aborted,
        chunks);
  }
}
