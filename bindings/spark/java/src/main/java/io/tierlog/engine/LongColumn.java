package io.tierlog.engine;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.Platform;

/** A column of 64-bit numbers without nulls. */
final class LongColumn extends NativeColumn {
  private final int field;
  private long data;

  LongColumn(DataType type, int field) {
    super(type);
    this.field = field;
  }

  @Override
  void bind(Report report) {
    data = report.get(field);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, data + 8L * row);
  }
}
