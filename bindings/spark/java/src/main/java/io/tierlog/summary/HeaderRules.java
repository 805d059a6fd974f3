package io.tierlog.summary;

import io.tierlog.plan.RangePlan;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.HashSet;
import java.util.Set;

/** What a batch's header says of the records of a range that count. */
final class HeaderRules {
  /** What to do with a batch. */
  enum Verdict {
    NOTHING,
    HEADER,
    RECORDS
  }

  private static final long US_PER_MS = 1000;
  private static final int ABORTED_BYTES = 3 * Long.BYTES;

  private final RangePlan range;
  private final Wanted wanted;
  private final boolean boundInTime;
  private final Set<Long> abortedProducers = new HashSet<>();

  HeaderRules(RangePlan range, Wanted wanted) {
    this.range = range;
    this.wanted = wanted;
    boundInTime = range.fromTimestampMs() > Long.MIN_VALUE || range.toTimestampExclusiveMs() < Long.MAX_VALUE;
    if (range.aborted() != null) {
      ByteBuffer rows = ByteBuffer.wrap(range.aborted()).order(ByteOrder.nativeOrder());
      for (int at = 0; at + ABORTED_BYTES <= rows.capacity(); at += ABORTED_BYTES) {
        abortedProducers.add(rows.getLong(at));
      }
    }
  }

  Verdict verdict(BatchHeader batch) {
    if (batch.lastOffset() < range.fromOffset()) {
      return Verdict.NOTHING;
    }
    if (batch.isOld()) {
      return Verdict.RECORDS;
    }
    boolean beyond = batch.baseOffset() >= range.toOffsetExclusive();
    if (beyond || batch.isControl() || batch.recordCount() == 0 || isOutsideOfTime(batch)) {
      return Verdict.NOTHING;
    }
    return says(batch) ? Verdict.HEADER : Verdict.RECORDS;
  }

  /** Whether no later batch of the range counts. */
  boolean isLast(BatchHeader batch) {
    return !batch.isOld() && batch.lastOffset() >= range.toOffsetExclusive() - 1;
  }

  /** Adds a batch of verdict HEADER. */
  void add(BatchHeader batch, RecordSummary summary) {
    long first = Math.max(batch.baseOffset(), range.fromOffset());
    long last = Math.min(batch.lastOffset(), range.toOffsetExclusive() - 1);
    boolean cut = first > batch.baseOffset() || last < batch.lastOffset();
    summary.addCount(cut ? last - first + 1 : batch.recordCount());
    summary.addOffset(first);
    summary.addOffset(last);
    if (wanted.timestamps()) {
      summary.addTimestamp(batch.maxTimestampMs() * US_PER_MS);
    }
  }

  private boolean isOutsideOfTime(BatchHeader batch) {
    return boundInTime
        && (batch.maxTimestampMs() < range.fromTimestampMs()
            || batch.isLogAppend() && batch.maxTimestampMs() >= range.toTimestampExclusiveMs());
  }

  private boolean says(BatchHeader batch) {
    boolean inside = batch.baseOffset() >= range.fromOffset() && batch.lastOffset() < range.toOffsetExclusive();
    boolean sound = batch.recordCount() > 0 && batch.recordCount() <= batch.span();
    boolean aborted = batch.isTransactional() && abortedProducers.contains(batch.producerId());
    return sound
        && !aborted
        && (batch.isDense() || inside && !wanted.offsets())
        && (batch.isLogAppend() || !boundInTime && !wanted.leastTimestamp())
        && (batch.isLogAppend() || inside || !wanted.greatestTimestamp())
        && (!wanted.timestamps() || isWithinMicroseconds(batch.maxTimestampMs()));
  }

  /** Beyond, decoding tells what is wrong. */
  private static boolean isWithinMicroseconds(long timestampMs) {
    return timestampMs <= Long.MAX_VALUE / US_PER_MS && timestampMs >= Long.MIN_VALUE / US_PER_MS;
  }
}
