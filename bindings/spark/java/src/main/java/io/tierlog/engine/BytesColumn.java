package io.tierlog.engine;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of bytes or text with 32-bit offsets. */
final class BytesColumn extends NativeColumn {
  private final int field;
  private final boolean nullable;
  private long offsets;
  private long data;

  /**
   * @param field of the report where its addresses begin
   * @param nullable whether the report has its validity
   */
  BytesColumn(DataType type, int field, boolean nullable) {
    super(type);
    this.field = field;
    this.nullable = nullable;
  }

  @Override
  void bind(Report report) {
    offsets = report.get(field);
    data = report.get(field + 1);
    if (nullable) {
      bindNulls(report.get(field + 2), report.getInt(field + 3));
    }
  }

  @Override
  public byte[] getBinary(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int from = Platform.getInt(null, offsets + 4L * row);
    byte[] out = new byte[Platform.getInt(null, offsets + 4L * row + 4) - from];
    Platform.copyMemory(null, data + from, out, Platform.BYTE_ARRAY_OFFSET, out.length);
    return out;
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int from = Platform.getInt(null, offsets + 4L * row);
    return UTF8String.fromAddress(null, data + from, Platform.getInt(null, offsets + 4L * row + 4) - from);
  }
}
