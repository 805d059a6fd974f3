package io.tierlog.summary;

/** Of some records; all but the count means nothing where there are none, or where it was not wanted. */
public final class RecordSummary {
  private long count;
  private long leastOffset = Long.MAX_VALUE;
  private long greatestOffset = Long.MIN_VALUE;
  private long leastTimestampUs = Long.MAX_VALUE;
  private long greatestTimestampUs = Long.MIN_VALUE;

  void addCount(long records) {
    count += records;
  }

  void addOffset(long offset) {
    leastOffset = Math.min(leastOffset, offset);
    greatestOffset = Math.max(greatestOffset, offset);
  }

  void addTimestamp(long timestampUs) {
    leastTimestampUs = Math.min(leastTimestampUs, timestampUs);
    greatestTimestampUs = Math.max(greatestTimestampUs, timestampUs);
  }

  void add(RecordSummary other) {
    count += other.count;
    leastOffset = Math.min(leastOffset, other.leastOffset);
    greatestOffset = Math.max(greatestOffset, other.greatestOffset);
    leastTimestampUs = Math.min(leastTimestampUs, other.leastTimestampUs);
    greatestTimestampUs = Math.max(greatestTimestampUs, other.greatestTimestampUs);
  }

  public long count() {
    return count;
  }

  public long leastOffset() {
    return leastOffset;
  }

  public long greatestOffset() {
    return greatestOffset;
  }

  public long leastTimestampUs() {
    return leastTimestampUs;
  }

  public long greatestTimestampUs() {
    return greatestTimestampUs;
  }
}
