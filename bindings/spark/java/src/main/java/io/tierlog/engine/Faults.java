package io.tierlog.engine;

import java.util.Locale;

/** The exceptions for statuses of the core, in the words of {@code cext/tl_errors.pxd}. */
final class Faults {
  private static final int BAD_CRC = 19;
  private static final int OVER_LIMIT = 64;
  private static final int NO_MEMORY = 65;
  private static final int BAD_ARGUMENT = 66;

  private Faults() {}

  /** The error of a fault in a log. Not located. */
  static TierlogException ofRecords(
      int status, long position, long baseOffset, long record, long expected, long found) {
    if (status == NO_MEMORY || status == BAD_ARGUMENT) {
      return new TierlogException("TierlogError", Native.statusText(status));
    }
    String kind = status == OVER_LIMIT ? "SizeLimitError" : "CorruptRecordError";
    String text = text(status, expected, found);
    if (record >= 0) {
      text = "record " + record + ": " + text;
    }
    return new CorruptDataException(kind, Native.statusName(status), text, "", position, baseOffset, null);
  }

  static boolean isOverLimit(int status) {
    return status == OVER_LIMIT;
  }

  /** The text of a status, without a place. */
  static String text(int status, long expected, long found) {
    String text = Native.statusText(status);
    if (status == OVER_LIMIT) {
      return text + " of " + expected + " bytes";
    }
    if (status == BAD_CRC) {
      long low = 0xffffffffL;
      return String.format(Locale.ROOT, "%s: computed 0x%08x, stored 0x%08x", text, found & low, expected & low);
    }
    return expected != 0 || found != 0 ? text + ": expected " + expected + ", found " + found : text;
  }
}
