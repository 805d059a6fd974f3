package io.tierlog.engine;

import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;

/** A column with one value for all rows of a range. Text lies on the heap, so that it may outlive the reader. */
final class ConstantColumn {
  private ConstantColumn() {}

  /** A text, set for each range. */
  static final class Text extends NativeColumn {
    private UTF8String text;

    Text() {
      super(DataTypes.StringType);
    }

    void set(String value) {
      text = UTF8String.fromString(value);
    }

    @Override
    void bind(Report report) {}

    @Override
    public UTF8String getUTF8String(int row) {
      return text;
    }
  }

  /** A number, set for each range. */
  static final class Number extends NativeColumn {
    private int number;

    Number() {
      super(DataTypes.IntegerType);
    }

    void set(int value) {
      number = value;
    }

    @Override
    void bind(Report report) {}

    @Override
    public int getInt(int row) {
      return number;
    }
  }
}
