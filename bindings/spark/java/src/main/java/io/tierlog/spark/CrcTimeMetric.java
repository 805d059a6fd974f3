package io.tierlog.spark;

/** Time that tasks spent on the checksums of batches. */
public final class CrcTimeMetric extends ScanMetric {
  static final String NAME = "tierlogCrcTime";

  public CrcTimeMetric() {
    super(NAME, "CRC time");
  }

  @Override
  String text(long total) {
    return total / 1_000_000 + " ms";
  }
}
