package io.tierlog.spark;

/** Bytes of logs that were decoded, after the plugin's decryption and decompression. */
public final class BytesDecodedMetric extends ScanMetric {
  static final String NAME = "tierlogBytesDecoded";

  public BytesDecodedMetric() {
    super(NAME, "bytes decoded");
  }

  @Override
  String text(long total) {
    return bytesText(total);
  }
}
