package io.tierlog.spark;

/** Reads of an object store; of local files, reads of a window. */
public final class RequestsMetric extends ScanMetric {
  static final String NAME = "tierlogRequests";

  public RequestsMetric() {
    super(NAME, "GETs");
  }

  @Override
  String text(long total) {
    return String.format(java.util.Locale.ROOT, "%,d", total);
  }
}
