package io.tierlog.engine;

import org.apache.spark.sql.types.DataType;
import org.apache.spark.unsafe.Platform;

/**
 * A column over native memory of the reader; the same vector is used for each batch.
 *
 * <p>Closing does nothing: Spark closes the vectors of each batch behind its last row, and the memory is used again. It
 * is the reader's, and goes with it. Rows are not checked against the batch: that is Spark's part, as for its own
 * vectors.
 */
abstract class NativeColumn extends RecordColumn {
  private long validity;
  private int nulls;
  /** See {@link #keep}. */
  private Object anchor;

  NativeColumn(DataType type) {
    super(type);
  }

  /** Takes the addresses of the next batch's rows from a report. */
  abstract void bind(Report report);

  /** Keeps {@code anchor} reachable as long as this column is: the memory under the column is freed after that. */
  void keep(Object anchor) {
    this.anchor = anchor;
  }

  /**
   * Sets the bits of the rows that are not null.
   *
   * @param validity address; 0: no row is null
   */
  final void bindNulls(long validity, int nulls) {
    this.validity = validity;
    this.nulls = nulls;
  }

  @Override
  public final void close() {}

  @Override
  public final void closeIfFreeable() {}

  @Override
  public final boolean hasNull() {
    return nulls > 0;
  }

  @Override
  public final int numNulls() {
    return nulls;
  }

  @Override
  public final boolean isNullAt(int row) {
    return validity != 0 && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0;
  }
}
