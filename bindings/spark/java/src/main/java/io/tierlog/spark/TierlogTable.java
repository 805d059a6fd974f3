package io.tierlog.spark;

import io.tierlog.planner.Listing;
import io.tierlog.planner.PlannerClient;
import io.tierlog.planner.PlannerException;
import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Records as they were listed at {@code load()}, or at one that listed the same within {@code refreshInterval}: every
 * query over the DataFrame plans from that listing. Or those of a stream.
 *
 * <p>A listing that failed is an error of the query, not of {@code load()}, as on the Python path; options that are
 * wrong are one of {@code load()}.
 */
final class TierlogTable implements Table, SupportsRead {
  private final StructType schema;
  private final SourceOptions options;
  private final PlannerClient planner;
  private final Listing listing;
  private final PlannerException failure;

  private TierlogTable(
      StructType schema,
      SourceOptions options,
      PlannerClient planner,
      Listing listing,
      PlannerException failure) {
    this.schema = schema;
    this.options = options;
    this.planner = planner;
    this.listing = listing;
    this.failure = failure;
  }

  /**
   * Lists the bucket, unless a listing of it serves, and makes the table.
   *
   * @throws PlannerException the options are wrong, or nobody plans
   */
  static TierlogTable pinned(StructType schema, SourceOptions options) {
    PlannerClient planner = DriverPlanner.of(options);
    try {
      Listing listing = planner.list(options.given(), options.ofListing(), options.refreshNanos());
      return new TierlogTable(schema, options, planner, listing, null);
    } catch (PlannerException e) {
      if (e.blamesOptions() || e.blamesPlanner()) {
        throw e;
      }
      return new TierlogTable(schema, options, planner, null, e);
    }
  }

  /** Makes the table of a stream, or of a read that brokers answer too: both are planned when their query starts. */
  static TierlogTable followed(StructType schema, SourceOptions options) {
    return new TierlogTable(schema, options, null, null, null);
  }

  @Override
  public String name() {
    return TierlogSource.NAME;
  }

  @Override
  @SuppressWarnings("deprecation")
  public StructType schema() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return Set.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
  }

  /** Options of the query ({@code SELECT … WITH (…)}) that differ from those of the load have it listed again. */
  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap given) {
    Map<String, String> merged = new HashMap<>(new CaseInsensitiveStringMap(options.given()));
    merged.putAll(given);
    if (!merged.equals(new CaseInsensitiveStringMap(options.given()))) {
      try {
        SourceOptions changed = new SourceOptions(merged);
        boolean isPinned = !isFollowed() && !changed.asksBrokers();
        return (isPinned ? pinned(schema, changed) : followed(schema, changed)).scanBuilder();
      } catch (PlannerException e) {
        throw SparkErrors.failure(e);
      }
    }
    return scanBuilder();
  }

  private ScanBuilder scanBuilder() {
    return options.asksBrokers() ? new SeamedScanBuilder(options, schema) : new TierlogScanBuilder(this);
  }

  /** Whether it has no listing. */
  boolean isFollowed() {
    return planner == null;
  }

  SourceOptions options() {
    return options;
  }

  PlannerClient planner() {
    return planner;
  }

  /**
   * The listing.
   *
   * @throws PlannerException why nothing was
   */
  Listing listing() {
    if (failure != null) {
      throw failure;
    }
    return listing;
  }
}
