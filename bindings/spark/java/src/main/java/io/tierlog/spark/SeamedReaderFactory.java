package io.tierlog.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads the tier's tasks as the engine does, and those of the brokers as Spark's Kafka source does: all as columns. */
final class SeamedReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final TierlogReaderFactory tier;
  private final PartitionReaderFactory brokers;
  private final StructType columns;
  private final int[] ordinals;

  /**
   * @param columns that are wanted
   * @param ordinals where the rows of the brokers have them
   */
  SeamedReaderFactory(
      TierlogReaderFactory tier, PartitionReaderFactory brokers, StructType columns, int[] ordinals) {
    this.tier = tier;
    this.brokers = brokers;
    this.columns = columns;
    this.ordinals = ordinals;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    if (partition instanceof BrokerPartition known) {
      return new RowsAsColumns(brokers.createReader(known.planned()), columns, ordinals);
    }
    return tier.createColumnarReader(partition);
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("tierlog reads columns");
  }
}
