package io.tierlog.spark;

import java.util.Arrays;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsPushDownV2Filters;
import org.apache.spark.sql.types.StructType;

/**
 * Of a scan over brokers and their tier: columns are pruned, and what filters leave out of the tier is not read. Spark
 * applies all of them once more, since brokers know none.
 */
final class SeamedScanBuilder implements SupportsPushDownRequiredColumns, SupportsPushDownV2Filters {
  private final SourceOptions options;
  private final PushedFilters filters = new PushedFilters();
  private StructType columns;

  SeamedScanBuilder(SourceOptions options, StructType columns) {
    this.options = options;
    this.columns = columns;
  }

  @Override
  public Predicate[] pushPredicates(Predicate[] offered) {
    filters.push(offered);
    return offered;
  }

  @Override
  public Predicate[] pushedPredicates() {
    return filters.absorbed();
  }

  @Override
  public void pruneColumns(StructType required) {
    columns = required;
  }

  @Override
  public Scan build() {
    String description =
        "tierlog engine=jar mode=" + options.mode() + " path=" + options.shownPaths() + " columns="
            + Arrays.toString(columns.fieldNames()) + " filters=" + filters.comparisons();
    return new SeamedScan(options, columns, filters.comparisons(), description);
  }
}
