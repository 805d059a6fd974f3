package io.tierlog.spark;

/** Record batches whose header alone showed that none of their records count. */
public final class BatchesSkippedMetric extends ScanMetric {
  static final String NAME = "tierlogBatchesSkipped";

  public BatchesSkippedMetric() {
    super(NAME, "batches skipped");
  }

  @Override
  String text(long total) {
    return String.format(java.util.Locale.ROOT, "%,d", total);
  }
}
