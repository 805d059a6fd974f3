package io.tierlog.spark;

import java.util.Arrays;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;

/** Of a scan over brokers and their tier: columns are pruned; filters stay with Spark, since brokers know none. */
final class SeamedScanBuilder implements SupportsPushDownRequiredColumns {
  private final SourceOptions options;
  private StructType columns;

  SeamedScanBuilder(SourceOptions options, StructType columns) {
    this.options = options;
    this.columns = columns;
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  @Override
  public Scan build() {
    String description =
        "tierlog engine=jar mode=" + options.mode() + " path=" + options.shownPaths() + " columns="
            + Arrays.toString(columns.fieldNames());
    return new SeamedScan(options, columns, description);
  }
}
