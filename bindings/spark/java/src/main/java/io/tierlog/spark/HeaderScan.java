package io.tierlog.spark;

import io.tierlog.engine.ReaderSettings;
import io.tierlog.plan.StoreLocation;
import io.tierlog.planner.ScanPlan;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Stream;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.types.StructType;

/**
 * Tasks that answer aggregates with partial rows out of batch headers, and partial rows that the planner knows from
 * footers; Spark puts them together.
 */
final class HeaderScan implements Scan, Batch {
  private final String description;
  private final PushedAggregates aggregates;
  private final ScanPlan plan;
  private final ReaderSettings settings;

  HeaderScan(String description, PushedAggregates aggregates, ScanPlan plan, ReaderSettings settings) {
    this.description = description;
    this.aggregates = aggregates;
    this.plan = plan;
    this.settings = settings;
  }

  @Override
  public StructType readSchema() {
    return aggregates.schema();
  }

  @Override
  public String description() {
    return description + (plan.trustHeaders() ? " from headers of unchecked batches" : " from headers of checked batches");
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.UNSUPPORTED;
  }

  @Override
  public CustomMetric[] supportedCustomMetrics() {
    return ScanMetric.all();
  }

  @Override
  public InputPartition[] planInputPartitions() {
    Stream<InputPartition> known =
        plan.known().isEmpty() ? Stream.empty() : Stream.of(new KnownRows(new ArrayList<>(plan.known())));
    return Stream.concat(known, plan.tasks().stream().map(TaskPartition::new)).toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new Factory(plan.stores(), aggregates, settings);
  }

  /** Partial rows as the planner told them, which travel to a task that reads nothing. */
  private record KnownRows(ArrayList<List<Object>> rows) implements InputPartition {
    private static final long serialVersionUID = 1L;
  }

  /** The reader of partial rows that are there. */
  private static final class KnownRowsReader implements PartitionReader<InternalRow> {
    private final InternalRow[] rows;
    private int next;

    KnownRowsReader(InternalRow[] rows) {
      this.rows = rows;
    }

    @Override
    public boolean next() {
      return next < rows.length && ++next > 0;
    }

    @Override
    public InternalRow get() {
      return rows[next - 1];
    }

    @Override
    public void close() {}
  }

  /** The state that all tasks share. */
  private record Factory(List<StoreLocation> stores, PushedAggregates aggregates, ReaderSettings settings)
      implements PartitionReaderFactory, Serializable {

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      if (partition instanceof KnownRows known) {
        return new KnownRowsReader(aggregates.rows(known.rows()));
      }
      return new HeaderReader(((TaskPartition) partition).task(), stores, aggregates, settings);
    }
  }
}
