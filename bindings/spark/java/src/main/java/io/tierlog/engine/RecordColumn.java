package io.tierlog.engine;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** A column of records: it has values of its own type, and none of the others. */
public abstract class RecordColumn extends ColumnVector {
  protected RecordColumn(DataType type) {
    super(type);
  }

  private UnsupportedOperationException notThis() {
    return new UnsupportedOperationException("a column of " + dataType().simpleString());
  }

  @Override
  public boolean getBoolean(int row) {
    throw notThis();
  }

  @Override
  public byte getByte(int row) {
    throw notThis();
  }

  @Override
  public short getShort(int row) {
    throw notThis();
  }

  @Override
  public int getInt(int row) {
    throw notThis();
  }

  @Override
  public long getLong(int row) {
    throw notThis();
  }

  @Override
  public float getFloat(int row) {
    throw notThis();
  }

  @Override
  public double getDouble(int row) {
    throw notThis();
  }

  @Override
  public ColumnarArray getArray(int row) {
    throw notThis();
  }

  @Override
  public ColumnarMap getMap(int row) {
    throw notThis();
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    throw notThis();
  }

  @Override
  public UTF8String getUTF8String(int row) {
    throw notThis();
  }

  @Override
  public byte[] getBinary(int row) {
    throw notThis();
  }

  @Override
  public ColumnVector getChild(int ordinal) {
    throw notThis();
  }
}
