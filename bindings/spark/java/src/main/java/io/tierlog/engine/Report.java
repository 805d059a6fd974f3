package io.tierlog.engine;

import org.apache.spark.unsafe.Platform;

/** The report that a step of a decoder left in native memory: {@code tlj_report} of report.h, in its order. */
final class Report {
  static final int ROWS = 0;
  // A binary column: offsets, data, validity (0: no nulls), nulls.
  static final int KEY = 1;
  static final int VALUE = 5;
  static final int OFFSET = 9;
  static final int TIMESTAMP = 10;
  static final int TIMESTAMP_TYPE = 11;
  static final int LEADER_EPOCH = 12;
  static final int HEADER_OFFSETS = 13;
  static final int HEADER_VALIDITY = 14;
  static final int HEADER_NULLS = 15;
  static final int HEADER_COUNT = 16;
  static final int HEADER_KEY = 17; // offsets and data only
  static final int HEADER_VALUE = 19;
  static final int STATUS = 23;
  static final int FAULT_POSITION = 24;
  static final int FAULT_BASE_OFFSET = 25;
  static final int FAULT_RECORD = 26;
  static final int FAULT_EXPECTED = 27;
  static final int FAULT_FOUND = 28;
  static final int POSITION = 29;
  static final int BATCHES = 30;
  static final int BATCHES_SKIPPED = 31;
  static final int RECORDS = 32;
  static final int DECOMPRESSED_BYTES = 33;
  static final int CRC_NS = 34;
  // Of the range under way, where the decoder sums up.
  static final int SUMMARY_RECORDS = 35;
  static final int LEAST_OFFSET = 36;
  static final int GREATEST_OFFSET = 37;
  static final int LEAST_TIMESTAMP = 38;
  static final int GREATEST_TIMESTAMP = 39;

  private final long address;

  Report(long address) {
    this.address = address;
  }

  long get(int field) {
    return Platform.getLong(null, address + 8L * field);
  }

  int getInt(int field) {
    return (int) get(field);
  }
}
