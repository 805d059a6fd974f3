package io.tierlog.spark;

import io.tierlog.engine.TaskCounters;
import io.tierlog.engine.TaskReader;
import java.io.IOException;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The engine's reader, with its counters as Spark metrics. */
final class MeteredReader implements PartitionReader<ColumnarBatch> {
  private final TaskReader reader;

  MeteredReader(TaskReader reader) {
    this.reader = reader;
  }

  @Override
  public boolean next() throws IOException {
    return reader.next();
  }

  @Override
  public ColumnarBatch get() {
    return reader.get();
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    TaskCounters counters = reader.counters();
    return new CustomTaskMetric[] {
      new ScanMetric.Value(BytesFetchedMetric.NAME, counters.storedBytes()),
      new ScanMetric.Value(BytesDecodedMetric.NAME, counters.logBytes()),
      new ScanMetric.Value(RequestsMetric.NAME, counters.requests()),
      new ScanMetric.Value(BatchesSkippedMetric.NAME, counters.batchesSkipped()),
      new ScanMetric.Value(CrcTimeMetric.NAME, counters.crcNs())
    };
  }

  @Override
  public void close() throws IOException {
    reader.close();
  }
}
