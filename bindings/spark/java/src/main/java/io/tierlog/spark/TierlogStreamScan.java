package io.tierlog.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** The scan of a streaming query: nothing is listed before the query starts. */
final class TierlogStreamScan implements Scan {
  private final SourceOptions options;
  private final StructType columns;
  private final String description;

  TierlogStreamScan(SourceOptions options, StructType columns, String description) {
    this.options = options;
    this.columns = columns;
    this.description = description;
  }

  @Override
  public StructType readSchema() {
    return columns;
  }

  @Override
  public String description() {
    return description;
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return new TierlogMicroBatchStream(options, columns, checkpointLocation);
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return ScanMetric.all();
  }
}
