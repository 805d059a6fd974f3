package io.tierlog.engine;

/** The bytes are wrong; reading them again cannot help. The exception tells where they are. */
public final class CorruptDataException extends TierlogException {
  private static final long serialVersionUID = 1;

  private final String fault;
  private final String text;
  private final String where;
  private final long position;
  private final long baseOffset;

  /**
   * @param kind {@code "CorruptRecordError"}, {@code "CorruptObjectError"} or {@code "SizeLimitError"}
   * @param fault name of the core's status, as {@code "BAD_CRC"}
   * @param text without the place
   * @param where object, with topic-partition where known; empty: not known yet
   * @param position of the batch in the log, or of the chunk in its object, bytes; -1: does not apply
   * @param baseOffset Kafka offset; -1: unknown
   */
  CorruptDataException(
      String kind, String fault, String text, String where, long position, long baseOffset, Throwable cause) {
    super(kind, describe(text, where, position, baseOffset), cause);
    this.fault = fault;
    this.text = text;
    this.where = where;
    this.position = position;
    this.baseOffset = baseOffset;
  }

  /** The same error with the place in front; itself if it names one already. */
  CorruptDataException located(String place) {
    if (!where.isEmpty()) {
      return this;
    }
    return new CorruptDataException(kind(), fault, text, place, position, baseOffset, getCause());
  }

  /** Name of the core's status, as {@code "BAD_CRC"}. */
  public String fault() {
    return fault;
  }

  /** Byte position of the batch in the log, or of the chunk in its object; -1: does not apply. */
  public long position() {
    return position;
  }

  /** Kafka offset of the batch; -1: unknown. */
  public long baseOffset() {
    return baseOffset;
  }

  private static String describe(String text, String where, long position, long baseOffset) {
    String place = where;
    if (position >= 0) {
      place += place.isEmpty() ? "@ " + position : " @ " + position;
    }
    if (baseOffset >= 0) {
      place += " (offset " + baseOffset + ")";
    }
    return place.isEmpty() ? text : place.strip() + ": " + text;
  }
}
