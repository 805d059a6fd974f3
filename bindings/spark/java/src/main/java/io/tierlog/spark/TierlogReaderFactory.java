package io.tierlog.spark;

import io.tierlog.engine.ReaderSettings;
import io.tierlog.engine.TaskReader;
import io.tierlog.plan.StoreLocation;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The state that all tasks of a scan share, which travels to the executors once. */
final class TierlogReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final List<StoreLocation> stores;
  private final String[] columns;
  private final ReaderSettings settings;

  TierlogReaderFactory(List<StoreLocation> stores, String[] columns, ReaderSettings settings) {
    this.stores = stores;
    this.columns = columns;
    this.settings = settings;
  }

  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    return new MeteredReader(new TaskReader(((TaskPartition) partition).task(), stores, columns, settings));
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("tierlog reads columns");
  }
}
