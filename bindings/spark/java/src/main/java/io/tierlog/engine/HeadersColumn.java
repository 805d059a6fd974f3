package io.tierlog.engine;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.unsafe.Platform;

/** The column of headers: lists of (key, value); null for a record without headers. */
final class HeadersColumn extends NativeColumn {
  private static final StructType HEADER =
      new StructType().add("key", DataTypes.StringType, true).add("value", DataTypes.BinaryType, true);

  private final Entries entries = new Entries();
  private long offsets;

  HeadersColumn() {
    super(DataTypes.createArrayType(HEADER, true));
  }

  @Override
  void bind(Report report) {
    offsets = report.get(Report.HEADER_OFFSETS);
    bindNulls(report.get(Report.HEADER_VALIDITY), report.getInt(Report.HEADER_NULLS));
    entries.bind(report);
  }

  @Override
  void keep(Object anchor) {
    super.keep(anchor);
    entries.keep(anchor);
  }

  @Override
  public ColumnarArray getArray(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int from = Platform.getInt(null, offsets + 4L * row);
    return new ColumnarArray(entries, from, Platform.getInt(null, offsets + 4L * row + 4) - from);
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    return entries;
  }

  private static final class Entries extends NativeColumn {
    private final BytesColumn key = new BytesColumn(DataTypes.StringType, Report.HEADER_KEY, false);
    private final BytesColumn value = new BytesColumn(DataTypes.BinaryType, Report.HEADER_VALUE, true);

    Entries() {
      super(HEADER);
    }

    @Override
    void bind(Report report) {
      key.bind(report);
      value.bind(report);
    }

    @Override
    void keep(Object anchor) {
      super.keep(anchor);
      key.keep(anchor);
      value.keep(anchor);
    }

    @Override
    public ColumnVector getChild(int ordinal) {
      return ordinal == 0 ? key : value;
    }
  }
}
