package io.tierlog.spark;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;
import org.apache.spark.sql.types.StructType;

/** A query's stream over brokers and their tier: Spark's Kafka source, whose history comes from the tier. */
final class SeamedStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final String description;
  private final MicroBatchStream kafka;
  private final StreamCheckpoint checkpoint;
  private final SeamPlanner planner;
  private boolean hasEnd;

  /**
   * @param checkpointLocation the source's own folder
   */
  SeamedStream(SourceOptions options, StructType columns, Scan kafka, String checkpointLocation) {
    this.description = "tierlog engine=jar mode=" + options.mode() + " path=" + options.shownPaths();
    this.kafka = kafka.toMicroBatchStream(checkpointLocation);
    this.checkpoint = new StreamCheckpoint(checkpointLocation);
    this.planner = new SeamPlanner(options, columns, kafka, SparkErrors.told(checkpoint::known));
  }

  @Override
  public Offset initialOffset() {
    return kafka.initialOffset();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return kafka.deserializeOffset(json);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return ((SupportsAdmissionControl) kafka).getDefaultReadLimit();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    ((SupportsTriggerAvailableNow) kafka).prepareForTriggerAvailableNow();
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks with a limit");
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    Offset end = ((SupportsAdmissionControl) kafka).latestOffset(start, limit);
    hasEnd = true;
    return end;
  }

  @Override
  public Offset reportLatestOffset() {
    return ((SupportsAdmissionControl) kafka).reportLatestOffset();
  }

  /** Plans a batch; what is read with it is kept before Spark commits it. */
  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return SparkErrors.told(
        () -> {
          InputPartition[] tasks = planner.plan(kafka, start, end, List.of());
          checkpoint.keep(planner.known());
          return tasks;
        });
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return planner.readers(kafka);
  }

  /** The lag; nothing behind a batch of before, until which Spark 4.1's source cannot tell (SPARK-57438). */
  @Override
  public Map<String, String> metrics(Optional<Offset> latestConsumedOffset) {
    return hasEnd ? ((ReportsSourceMetrics) kafka).metrics(latestConsumedOffset) : Map.of();
  }

  @Override
  public void commit(Offset end) {
    kafka.commit(end);
  }

  @Override
  public void stop() {
    planner.close();
    kafka.stop();
  }

  @Override
  public String toString() {
    return description;
  }
}
