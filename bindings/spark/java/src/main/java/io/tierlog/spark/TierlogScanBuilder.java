package io.tierlog.spark;

import io.tierlog.engine.ReaderSettings;
import io.tierlog.planner.PlanRequest;
import io.tierlog.planner.PlannerException;
import io.tierlog.planner.ScanPlan;
import java.util.Arrays;
import java.util.List;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownLimit;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/** Gathers what Spark pushes down into one request to the planner. */
final class TierlogScanBuilder
    implements SupportsPushDownRequiredColumns,
        SupportsPushDownV2Filters,
        SupportsPushDownLimit,
        SupportsPushDownAggregates {
  private final TierlogTable table;
  private final PushedFilters filters = new PushedFilters();
  private StructType columns;
  private Long limit;
  private PushedAggregates aggregates;
  private ScanPlan aggregatePlan;
  private boolean aggregated;

  @SuppressWarnings("deprecation")
  TierlogScanBuilder(TierlogTable table) {
    this.table = table;
    this.columns = table.schema();
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] offered) {
    return filters.push(offered);
  }

  @Override
  public Predicate[] pushedPredicates() {
    return filters.absorbed();
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  /** Takes a limit: tasks behind it need not be planned, and Spark cuts the rows of the others. */
  @Override
  public boolean pushLimit(int records) {
    limit = (long) records;
    return true;
  }

  /** Whether the planner's answer is the whole result. */
  @Override
  public boolean supportCompletePushDown(Aggregation aggregation) {
    ScanPlan plan = planOf(aggregation);
    return plan != null && plan.answer() != null;
  }

  /** Whether the aggregates are answered at all, also by partial rows of tasks. */
  @Override
  public boolean pushAggregation(Aggregation aggregation) {
    aggregated = planOf(aggregation) != null;
    return aggregated;
  }

  @Override
  public Scan build() {
    if (table.isFollowed()) {
      return new TierlogStreamScan(table.options(), columns, description(columns));
    }
    if (aggregated && aggregatePlan.answer() != null) {
      return new AggregateScan(description(aggregates.schema()), aggregates, aggregatePlan.answer());
    }
    if (aggregated) {
      ReaderSettings settings = table.options().readerSettings(new StructType());
      return new HeaderScan(description(aggregates.schema()), aggregates, aggregatePlan, settings);
    }
    return new TierlogScan(table, request(null), columns, description(columns));
  }

  /**
   * The plan that answers the aggregates; null if none does. Spark asks twice with the same functions: the planner is
   * asked once.
   */
  private ScanPlan planOf(Aggregation aggregation) {
    Optional<PushedAggregates> wanted = PushedAggregates.of(aggregation);
    if (wanted.isEmpty()) {
      aggregates = null;
      aggregatePlan = null;
    } else if (!wanted.get().equals(aggregates)) {
      aggregates = wanted.get();
      try {
        ScanPlan plan = table.planner().plan(request(aggregates));
        aggregatePlan = plan.aggregatesTaken() ? plan : null;
      } catch (PlannerException e) {
        throw SparkErrors.failure(e);
      }
    }
    return aggregatePlan;
  }

  private PlanRequest request(PushedAggregates wanted) {
    try {
      return new PlanRequest(
          table.options().given(),
          table.listing(),
          wanted == null ? Arrays.asList(columns.fieldNames()) : List.of(),
          filters.comparisons(),
          limit,
          wanted == null ? null : wanted.words());
    } catch (PlannerException e) {
      throw SparkErrors.failure(e);
    }
  }

  private String description(StructType produced) {
    StringBuilder text = new StringBuilder("tierlog engine=jar path=").append(table.options().shownPaths());
    text.append(" columns=").append(Arrays.toString(produced.fieldNames()));
    text.append(" filters=").append(filters.comparisons());
    if (limit != null) {
      text.append(" limit=").append(limit);
    }
    return text.toString();
  }
}
