package io.tierlog.spark;

import io.tierlog.plan.StoreLocation;
import io.tierlog.planner.ScanPlan;
import io.tierlog.planner.StreamPlanner;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.LongSummaryStatistics;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** A query's stream over a tier. Which offsets a batch has, and what its tasks read, says the planner. */
final class TierlogMicroBatchStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final SourceOptions options;
  private final StructType columns;
  private final StreamCheckpoint checkpoint;
  private final StreamPlanner planner;
  private StreamPlanner.Limits limits;
  private TierlogOffset last;
  private TierlogOffset ends;
  private List<StoreLocation> stores;

  /**
   * @param checkpointLocation the source's own folder
   */
  TierlogMicroBatchStream(SourceOptions options, StructType columns, String checkpointLocation) {
    this.options = options;
    this.columns = columns;
    this.checkpoint = new StreamCheckpoint(checkpointLocation);
    this.planner =
        new StreamPlanner(
            DriverPlanner.of(options),
            options.given(),
            Arrays.asList(columns.fieldNames()),
            SparkErrors.told(checkpoint::known));
  }

  @Override
  public Offset initialOffset() {
    TierlogOffset known = SparkErrors.told(checkpoint::initialOffset);
    if (known != null) {
      return known;
    }
    TierlogOffset begun = answer(() -> planner.begin());
    checkpoint.begin(begun);
    return begun;
  }

  @Override
  public Offset deserializeOffset(String json) {
    return SparkErrors.told(() -> TierlogOffset.parse(json));
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    if (limits == null) {
      ends = answer(() -> planner.ends(false));
    }
    List<ReadLimit> given = new ArrayList<>();
    if (limits.minOffsets() != null) {
      given.add(ReadLimit.minRows(limits.minOffsets(), limits.maxDelayMillis()));
    }
    if (limits.maxOffsets() != null) {
      given.add(ReadLimit.maxRows(limits.maxOffsets()));
    }
    return switch (given.size()) {
      case 0 -> ReadLimit.allAvailable();
      case 1 -> given.get(0);
      default -> ReadLimit.compositeLimit(given.toArray(ReadLimit[]::new));
    };
  }

  /** Fixes the end of the query: what the tier has now. */
  @Override
  public void prepareForTriggerAvailableNow() {
    last = answer(() -> planner.ends(true));
    ends = last;
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with a limit");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    TierlogOffset begun = (TierlogOffset) start;
    if (last == null) {
      ends = answer(() -> planner.ends(false));
    }
    boolean limited = !(limit instanceof ReadAllAvailable);
    return answer(() -> planner.next(begun.offsets(), last == null ? null : last.offsets(), limited));
  }

  @Override
  public Offset reportLatestOffset() {
    return ends;
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    ScanPlan plan = SparkErrors.told(() -> planned((TierlogOffset) start, (TierlogOffset) end));
    stores = List.copyOf(plan.stores());
    return plan.tasks().stream().map(TaskPartition::new).toArray(InputPartition[]::new);
  }

  /** A plan; what is read with it is kept before Spark commits it. */
  private ScanPlan planned(TierlogOffset start, TierlogOffset end) {
    ScanPlan plan = planner.plan(start.offsets(), end.offsets(), List.of(), List.of());
    planner.noteRead();
    checkpoint.keep(planner.known());
    return plan;
  }

  /** The factory for the tasks that were planned last. */
  @Override
  public PartitionReaderFactory createReaderFactory() {
    if (stores == null) {
      throw new IllegalStateException("Spark asks for readers of tasks that were not planned");
    }
    return new TierlogReaderFactory(stores, columns.fieldNames(), options.readerSettings(columns));
  }

  /** How far the query is behind the tier, by the names of Spark's Kafka source. */
  @Override
  public Map<String, String> metrics(Optional<Offset> latestConsumedOffset) {
    if (ends == null || latestConsumedOffset.isEmpty() || !(latestConsumedOffset.get() instanceof TierlogOffset at)) {
      return Map.of();
    }
    LongSummaryStatistics behind = new LongSummaryStatistics();
    ends.offsets()
        .forEach(
            (topic, partitions) ->
                partitions.forEach(
                    (partition, end) -> {
                      Long consumed = at.offsets().getOrDefault(topic, partitions.headMap(0)).get(partition);
                      behind.accept(Math.max(0, end - (consumed == null ? end : consumed)));
                    }));
    return behind.getCount() == 0
        ? Map.of()
        : Map.of(
            "minOffsetsBehindLatest", Long.toString(behind.getMin()),
            "maxOffsetsBehindLatest", Long.toString(behind.getMax()),
            "avgOffsetsBehindLatest", Double.toString(behind.getAverage()));
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {
    planner.close();
  }

  @Override
  public String toString() {
    return "tierlog engine=jar path=" + options.shownPaths();
  }

  /**
   * An answer of the planner; ids of topics that are new are kept before Spark knows an offset of theirs. An error ends
   * the query, and is the end here: Spark stops no source of a query whose start failed.
   */
  private TierlogOffset answer(Supplier<StreamPlanner.Offsets> asked) {
    try {
      return SparkErrors.told(
          () -> {
            StreamPlanner.Offsets found = asked.get();
            limits = found.limits();
            checkpoint.keep(planner.known());
            return new TierlogOffset(found.offsets());
          });
    } catch (Throwable e) {
      planner.close();
      throw e;
    }
  }
}
