package io.tierlog.spark;

import io.tierlog.plan.RangePlan;
import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.TaskPlan;
import io.tierlog.planner.PlanRequest;
import io.tierlog.planner.PlanRequest.Comparison;
import io.tierlog.planner.PlannerException;
import io.tierlog.planner.ScanPlan;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;
import java.util.OptionalLong;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsReportPartitioning;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.connector.read.SupportsRuntimeV2Filtering;
import org.apache.spark.sql.connector.read.partitioning.KeyGroupedPartitioning;
import org.apache.spark.sql.connector.read.partitioning.Partitioning;
import org.apache.spark.sql.connector.read.partitioning.UnknownPartitioning;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** One query's scan: planned once, when Spark first asks for its size or its tasks. */
final class TierlogScan extends RecordScan
    implements Batch, SupportsReportStatistics, SupportsRuntimeV2Filtering, SupportsReportPartitioning {
  private static final List<String> KEYS = List.of("topic", "partition");
  private static final List<String> LARGE = List.of("key", "value", "headers");
  private static final int ROW_BYTES = 8;

  private final TierlogTable table;
  private final PlanRequest request;
  private final StructType columns;
  private ScanPlan plan;
  private List<Comparison> runtimeFilters = List.of();

  TierlogScan(TierlogTable table, PlanRequest request, StructType columns, String description) {
    super(columns, description);
    this.table = table;
    this.request = request;
    this.columns = columns;
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  /** A stream over a table of Spark's catalog, of which Spark does not say beforehand that it is one. */
  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return new TierlogMicroBatchStream(table.options(), columns, checkpointLocation);
  }

  @Override
  public InputPartition[] planInputPartitions() {
    Stream<TaskPlan> tasks = plan().tasks().stream();
    List<Comparison> filters = runtimeFilters;
    if (!filters.isEmpty()) {
      tasks = tasks.map(task -> narrowed(task, filters)).filter(task -> !task.ranges().isEmpty());
    }
    if (isKeyed()) {
      return tasks.flatMap(task -> byPartition(task).stream()).map(KeyedPartition::new).toArray(InputPartition[]::new);
    }
    return tasks.map(TaskPartition::new).toArray(InputPartition[]::new);
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new TierlogReaderFactory(
        List.copyOf(plan().stores()), columns.fieldNames(), table.options().readerSettings(columns));
  }

  @Override
  public Statistics estimateStatistics() {
    ScanPlan planned = plan();
    OptionalLong rows = planned.rows();
    boolean large = Arrays.stream(columns.fieldNames()).anyMatch(LARGE::contains);
    long rowBytes = ROW_BYTES + Arrays.stream(columns.fields()).mapToLong(TierlogScan::defaultBytes).sum();
    boolean byRows = !large && rows.isPresent() && rows.getAsLong() < Long.MAX_VALUE / rowBytes;
    OptionalLong bytes = OptionalLong.of(byRows ? rows.getAsLong() * rowBytes : planned.bytes());
    return new Statistics() {
      @Override
      public OptionalLong sizeInBytes() {
        return bytes;
      }

      @Override
      public OptionalLong numRows() {
        return rows;
      }
    };
  }

  /** The columns of the output that a join may filter by. */
  @Override
  public NamedReference[] filterAttributes() {
    return KEYS.stream().filter(this::reads).map(Expressions::column).toArray(NamedReference[]::new);
  }

  /**
   * Takes the topics and partitions that a join leaves. Predicates that it does not understand are left to the join.
   */
  @Override
  public void filter(Predicate[] predicates) {
    runtimeFilters =
        Arrays.stream(predicates)
            .flatMap(predicate -> PushedFilters.comparison(predicate).stream())
            .filter(comparison -> KEYS.contains(comparison.column()))
            .filter(comparison -> List.of("=", "in").contains(comparison.operation()))
            .toList();
  }

  @Override
  public Partitioning outputPartitioning() {
    if (!isKeyed()) {
      return new UnknownPartitioning(0); // Spark does not look at the number
    }
    long keys =
        plan().tasks().stream().flatMap(task -> task.ranges().stream()).map(range -> key(range)).distinct().count();
    Expression[] identities = KEYS.stream().map(Expressions::identity).toArray(Expression[]::new);
    return new KeyGroupedPartitioning(identities, Math.toIntExact(keys));
  }

  /** Equal if the same request goes to the same table, so that Spark exchanges its rows once. */
  @Override
  public boolean equals(Object other) {
    return other instanceof TierlogScan scan
        && scan.table == table
        && scan.request.equals(request)
        && scan.columns.equals(columns)
        && scan.runtimeFilters.equals(runtimeFilters);
  }

  @Override
  public int hashCode() {
    return Objects.hash(System.identityHashCode(table), request.columns(), request.filters(), request.limit());
  }

  private synchronized ScanPlan plan() {
    if (plan == null) {
      try {
        plan = table.planner().plan(request);
      } catch (PlannerException e) {
        throw SparkErrors.failure(e);
      }
    }
    return plan;
  }

  private boolean isKeyed() {
    return table.options().reportPartitioning() && KEYS.stream().allMatch(this::reads);
  }

  private boolean reads(String column) {
    return Arrays.asList(columns.fieldNames()).contains(column);
  }

  private static long defaultBytes(StructField field) {
    return field.dataType().defaultSize();
  }

  private static TaskPlan narrowed(TaskPlan task, List<Comparison> filters) {
    List<RangePlan> left =
        task.ranges().stream()
            .filter(range -> filters.stream().allMatch(filter -> passes(range.segment(), filter)))
            .toList();
    return task.over(left);
  }

  private static boolean passes(SegmentPlan segment, Comparison filter) {
    Object value = filter.column().equals("topic") ? segment.topic() : (Object) (long) segment.partition();
    return filter.value() instanceof List<?> values ? values.contains(value) : filter.value().equals(value);
  }

  private static List<TaskPlan> byPartition(TaskPlan task) {
    List<TaskPlan> tasks = new ArrayList<>();
    List<RangePlan> ranges = new ArrayList<>();
    for (RangePlan range : task.ranges()) {
      if (!ranges.isEmpty() && !key(ranges.get(0)).equals(key(range))) {
        tasks.add(task.over(ranges));
        ranges.clear();
      }
      ranges.add(range);
    }
    if (!ranges.isEmpty()) {
      tasks.add(task.over(ranges));
    }
    return tasks;
  }

  private static List<Object> key(RangePlan range) {
    return List.of(range.segment().topic(), range.segment().partition());
  }
}
