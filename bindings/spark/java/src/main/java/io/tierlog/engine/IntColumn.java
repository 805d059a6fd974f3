package io.tierlog.engine;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.Platform;

/** A column of 32-bit numbers without nulls. */
final class IntColumn extends NativeColumn {
  private final int field;
  private long data;

  IntColumn(int field) {
    super(DataTypes.IntegerType);
    this.field = field;
  }

  @Override
  void bind(Report report) {
    data = report.get(field);
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, data + 4L * row);
  }
}
