package io.tierlog.spark;

import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.StructType;

/** A scan whose rows are records, in columns. */
abstract class RecordScan implements Scan {
  private final StructType columns;
  private final String description;

  RecordScan(StructType columns, String description) {
    this.columns = columns;
    this.description = description;
  }

  @Override
  public final StructType readSchema() {
    return columns;
  }

  @Override
  public final String description() {
    return description;
  }

  /** Known without a plan: one is made only if tasks are run or sizes compared. */
  @Override
  public final ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return ScanMetric.all();
  }
}
