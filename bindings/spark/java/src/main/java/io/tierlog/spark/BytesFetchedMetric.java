package io.tierlog.spark;

/** Bytes of log objects that were read, as they are stored. */
public final class BytesFetchedMetric extends ScanMetric {
  static final String NAME = "tierlogBytesFetched";

  public BytesFetchedMetric() {
    super(NAME, "bytes fetched");
  }

  @Override
  String text(long total) {
    return bytesText(total);
  }
}
