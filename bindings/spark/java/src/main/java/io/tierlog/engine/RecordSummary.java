package io.tierlog.engine;

/**
 * The summary of a number of records.
 *
 * @param count number of records
 * @param leastOffset means nothing where there are none, or where it was not wanted; so do the others
 * @param greatestOffset inclusive
 * @param leastTimestampUs since 1970
 * @param greatestTimestampUs inclusive
 */
public record RecordSummary(
    long count, long leastOffset, long greatestOffset, long leastTimestampUs, long greatestTimestampUs) {

  /** The summary of no records. */
  public static final RecordSummary NONE =
      new RecordSummary(0, Long.MAX_VALUE, Long.MIN_VALUE, Long.MAX_VALUE, Long.MIN_VALUE);

  /** The summary of the records of both. */
  public RecordSummary plus(RecordSummary other) {
    return new RecordSummary(
        count + other.count,
        Math.min(leastOffset, other.leastOffset),
        Math.max(greatestOffset, other.greatestOffset),
        Math.min(leastTimestampUs, other.leastTimestampUs),
        Math.max(greatestTimestampUs, other.greatestTimestampUs));
  }
}
