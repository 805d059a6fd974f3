package io.tierlog.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.tierlog.engine.TierlogException;
import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;

/** Rows of brokers as columns. */
class RowsAsColumnsTest {
  private static final int[] ORDINALS = {1, 0};

  /** Keys "k" and null, offsets 7 and 8. */
  private static RowsAsColumns rows(boolean keyIsNullable) {
    StructType columns =
        new StructType().add("offset", DataTypes.LongType, false).add("key", DataTypes.BinaryType, keyIsNullable);
    PartitionReader<InternalRow> reader =
        new PartitionReader<>() {
          private int read;

          @Override
          public boolean next() {
            return read++ < 2;
          }

          @Override
          public InternalRow get() {
            return new GenericInternalRow(new Object[] {read == 1 ? new byte[] {'k'} : null, 6L + read});
          }

          @Override
          public void close() {}
        };
    return new RowsAsColumns(reader, columns, ORDINALS);
  }

  @Test
  void columnsAreWhereTheRowsHaveThem() throws IOException {
    RowsAsColumns rows = rows(true);
    assertTrue(rows.next());
    assertEquals(2, rows.get().numRows());
    assertEquals(8, rows.get().column(0).getLong(1));
    assertNull(rows.get().column(1).getBinary(1));
    assertFalse(rows.next());
  }

  /** Spark believes what a schema says, and would count a null as a key: the tier's part of the same read refuses it. */
  @Test
  void aNullWhereTheSchemaHasNoneIsRefused() {
    TierlogException refused = assertThrows(TierlogException.class, () -> rows(false).next());
    assertEquals("ConfigError", refused.kind());
    assertEquals("column key is NOT NULL in the given schema, and holds nulls", refused.getMessage());
  }
}
