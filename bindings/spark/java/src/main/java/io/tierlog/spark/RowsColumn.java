package io.tierlog.spark;

import io.tierlog.engine.RecordColumn;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.unsafe.types.UTF8String;

/** One field of rows as a column, of the types that records have. Nothing is copied. */
final class RowsColumn extends RecordColumn {
  /** The rows themselves, as structs. */
  private static final int ITSELF = -1;

  private final InternalRow[] rows;
  private final int ordinal;

  /**
   * @param rows whose field it is, whatever they are when they are asked; null: there is none
   */
  RowsColumn(DataType type, InternalRow[] rows, int ordinal) {
    super(type);
    this.rows = rows;
    this.ordinal = ordinal;
  }

  @Override
  public boolean isNullAt(int row) {
    return rows[row] == null || (ordinal != ITSELF && rows[row].isNullAt(ordinal));
  }

  @Override
  public boolean hasNull() {
    return true; // some of them may be
  }

  @Override
  public int numNulls() {
    int count = 0;
    for (int row = 0; row < rows.length; row++) {
      count += rows[row] != null && isNullAt(row) ? 1 : 0;
    }
    return count;
  }

  @Override
  public int getInt(int row) {
    return rows[row].getInt(ordinal);
  }

  @Override
  public long getLong(int row) {
    return rows[row].getLong(ordinal);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    return isNullAt(row) ? null : rows[row].getUTF8String(ordinal);
  }

  @Override
  public byte[] getBinary(int row) {
    return isNullAt(row) ? null : rows[row].getBinary(ordinal);
  }

  /** The structs of an array. */
  @Override
  public ColumnarArray getArray(int row) {
    if (isNullAt(row)) {
      return null;
    }
    StructType type = (StructType) ((ArrayType) dataType()).elementType();
    ArrayData array = rows[row].getArray(ordinal);
    InternalRow[] structs = new InternalRow[array.numElements()];
    for (int i = 0; i < structs.length; i++) {
      structs[i] = array.isNullAt(i) ? null : array.getStruct(i, type.length());
    }
    return new ColumnarArray(new RowsColumn(type, structs, ITSELF), 0, structs.length);
  }

  /** A field of structs. */
  @Override
  public ColumnVector getChild(int child) {
    return new RowsColumn(((StructType) dataType()).fields()[child].dataType(), rows, child);
  }

  @Override
  public void close() {}
}
