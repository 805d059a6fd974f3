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
 * @param leastOffset no batch of the range begins below: one that does is damaged
 * @param greatestOffset no batch of the range ends above; {@link Long#MAX_VALUE}: not known
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
    long leastOffset,
    long greatestOffset,
    long fromTimestampMs,
    long toTimestampExclusiveMs,
    byte[] aborted,
    ChunkSlice chunks)
    implements Serializable {

  private static final int BASE_OFFSET_BYTES = 8;

  /**
   * Where a reader ends that looks at the base offset of the batch behind the range: no checksum covers a base offset;
   * where each is looked at beside the next one, none can be wrong unseen. Left out where that would take one more chunk.
   */
  public long readEnd() {
    long end = endPosition + BASE_OFFSET_BYTES;
    long most = segment.sizeBytes();
    if (segment.transformed()) {
      long chunk = segment.originalChunkSize();
      most = Math.min(most, (endPosition + chunk - 1) / chunk * chunk);
    }
    return startPosition < endPosition && end <= most ? end : endPosition;
  }

  /** The part of this range between two batch borders. */
  public RangePlan between(long start, long end) {
    return new RangePlan(
        segment,
        start,
        end,
        fromOffset,
        toOffsetExclusive,
        leastOffset,
        greatestOffset,
        fromTimestampMs,
        toTimestampExclusiveMs,
        aborted,
        chunks);
  }
}
