package io.tierlog.spark;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.LocalScan;
import org.apache.spark.sql.types.StructType;

/** A scan whose rows the planner knows without reading records: Spark starts no task. */
final class AggregateScan implements LocalScan {
  private final String description;
  private final PushedAggregates aggregates;
  private final List<List<Object>> answer;

  AggregateScan(String description, PushedAggregates aggregates, List<List<Object>> answer) {
    this.description = description;
    this.aggregates = aggregates;
    this.answer = answer;
  }

  @Override
  public StructType readSchema() {
    return aggregates.schema();
  }

  @Override
  public InternalRow[] rows() {
    return aggregates.rows(answer);
  }

  @Override
  public String description() {
    return description;
  }
}
