package io.tierlog.summary;

import java.nio.ByteBuffer;

/**
 * What the first bytes of a batch say.
 *
 * @param sizeBytes of the whole batch
 * @param magic 0, 1 or 2; of the old formats only size and {@code lastOffset} mean anything
 * @param attributes bits of Kafka's header
 * @param baseOffset first offset of the batch, whether it still has a record there or not
 * @param lastOffset inclusive
 * @param maxTimestampMs of its records
 * @param producerId of transactional batches
 * @param recordCount that the batch has
 */
record BatchHeader(
    int sizeBytes,
    int magic,
    int attributes,
    long baseOffset,
    long lastOffset,
    long maxTimestampMs,
    long producerId,
    int recordCount) {

  /** Of magic 2; a batch of the old formats is shorter, and its header ends before. */
  static final int BYTES = 61;

  private static final int LOG_OVERHEAD_BYTES = 12;
  private static final int OLD_BYTES = 26;
  private static final int LOG_APPEND = 0x08;
  private static final int TRANSACTIONAL = 0x10;
  private static final int CONTROL = 0x20;

  /**
   * @param bytes at its position: a batch's first ones, big-endian
   * @return null where they are no header that can be trusted: who decodes tells why
   */
  static BatchHeader parse(ByteBuffer bytes) {
    int at = bytes.position();
    if (bytes.remaining() < OLD_BYTES) {
      return null;
    }
    long offset = bytes.getLong(at);
    long size = (long) bytes.getInt(at + 8) + LOG_OVERHEAD_BYTES;
    int magic = bytes.get(at + 16);
    if (magic < 0 || magic > 2 || size > Integer.MAX_VALUE || size < (magic == 2 ? BYTES : OLD_BYTES)) {
      return null;
    }
    if (magic < 2) {
      return new BatchHeader((int) size, magic, 0, offset, offset, 0, 0, 0);
    }
    if (bytes.remaining() < BYTES) {
      return null;
    }
    long last = offset + bytes.getInt(at + 23);
    int attributes = bytes.getShort(at + 21);
    return new BatchHeader(
        (int) size,
        magic,
        attributes,
        offset,
        last,
        bytes.getLong(at + 35),
        bytes.getLong(at + 43),
        bytes.getInt(at + 57));
  }

  boolean isOld() {
    return magic < 2;
  }

  boolean isControl() {
    return (attributes & CONTROL) != 0;
  }

  boolean isTransactional() {
    return (attributes & TRANSACTIONAL) != 0;
  }

  /** Every record has the batch's timestamp. */
  boolean isLogAppend() {
    return (attributes & LOG_APPEND) != 0;
  }

  /** Offsets from first to last. */
  long span() {
    return lastOffset - baseOffset + 1;
  }

  /** A record at each of them. */
  boolean isDense() {
    return recordCount == span();
  }
}
