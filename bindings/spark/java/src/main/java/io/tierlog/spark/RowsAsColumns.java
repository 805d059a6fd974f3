package io.tierlog.spark;

import io.tierlog.engine.TierlogException;
import java.io.IOException;
import java.util.Arrays;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * A reader of rows that gives columns, since Spark takes either from the tasks of a scan. A batch has up to 1,024 rows, or
 * the first row that brings it above 4 MiB: they are copied, since a reader gives the same row again and again.
 */
final class RowsAsColumns implements PartitionReader<ColumnarBatch> {
  private static final int ROWS_MAX = 1024;
  private static final long BYTES_MAX = 4L << 20;

  private final PartitionReader<InternalRow> reader;
  private final StructType columns;
  private final int[] ordinals;
  private final InternalRow[] rows = new InternalRow[ROWS_MAX];
  private final ColumnarBatch batch;

  /**
   * @param columns that are wanted; what they say holds no nulls is checked
   * @param ordinals where the rows have them
   */
  RowsAsColumns(PartitionReader<InternalRow> reader, StructType columns, int[] ordinals) {
    this.reader = reader;
    this.columns = columns;
    this.ordinals = ordinals;
    ColumnVector[] vectors = new ColumnVector[ordinals.length];
    for (int i = 0; i < ordinals.length; i++) {
      vectors[i] = new RowsColumn(columns.fields()[i].dataType(), rows, ordinals[i]);
    }
    this.batch = new ColumnarBatch(vectors);
  }

  @Override
  public boolean next() throws IOException {
    int count = 0;
    for (long bytes = 0; count < ROWS_MAX && bytes < BYTES_MAX && reader.next(); count++) {
      InternalRow row = reader.get();
      requireNoNulls(row);
      bytes += row instanceof UnsafeRow known ? known.getSizeInBytes() : BYTES_MAX / ROWS_MAX;
      rows[count] = row.copy();
    }
    Arrays.fill(rows, count, ROWS_MAX, null);
    batch.setNumRows(count);
    return count > 0;
  }

  private void requireNoNulls(InternalRow row) {
    for (int i = 0; i < ordinals.length; i++) {
      if (!columns.fields()[i].nullable() && row.isNullAt(ordinals[i])) {
        String text = "column " + columns.fields()[i].name() + " is NOT NULL in the given schema, and holds nulls";
        throw new TierlogException("ConfigError", text);
      }
    }
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return reader.currentMetricsValues();
  }

  @Override
  public void close() throws IOException {
    reader.close();
  }
}
