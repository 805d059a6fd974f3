package io.tierlog.spark;

import io.tierlog.planner.PlanRequest.Comparison;
import io.tierlog.planner.ReadTopics;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.types.StructType;

/**
 * A scan over brokers and their tier, once or as a stream. What the offsets of a batch read stand for, the brokers say when
 * it is planned: as the first offsets of two streams, since Spark's Kafka source tells those of streams alone.
 */
final class SeamedScan extends RecordScan implements Batch {
  private static final Map<String, String> ENDS =
      Map.of(
          "endingOffsets", "startingOffsets",
          "endingTimestamp", "startingTimestamp",
          "endingOffsetsByTimestamp", "startingOffsetsByTimestamp");
  private static final String STARTING_OFFSETS = "startingOffsets";

  private final SourceOptions options;
  private final StructType columns;
  private final List<Comparison> filters;
  private InputPartition[] tasks;
  private PartitionReaderFactory readers;

  /**
   * @param filters that records of a batch read pass; Spark applies them once more
   */
  SeamedScan(SourceOptions options, StructType columns, List<Comparison> filters, String description) {
    super(columns, description);
    this.options = options;
    this.columns = columns;
    this.filters = filters;
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return SparkErrors.told(() -> new SeamedStream(options, columns, kafka(options), checkpointLocation));
  }

  @Override
  public Batch toBatch() {
    return this;
  }

  /** Plans, once: what is behind the ends then is no part of the query. */
  @Override
  public synchronized InputPartition[] planInputPartitions() {
    if (tasks == null) {
      SparkErrors.told(() -> plan());
    }
    return tasks.clone();
  }

  @Override
  public synchronized PartitionReaderFactory createReaderFactory() {
    planInputPartitions();
    return readers;
  }

  /** Those of both readers. */
  @Override
  public CustomMetric[] supportedCustomMetrics() {
    List<CustomMetric> all = new ArrayList<>(Arrays.asList(ScanMetric.all()));
    all.addAll(Arrays.asList(SparkErrors.told(() -> kafka(options)).supportedCustomMetrics()));
    return all.toArray(CustomMetric[]::new);
  }

  private Void plan() {
    kafka(options).toBatch(); // fails where the options are not those of a batch read
    Scan kafka = kafka(beginning());
    Path folder = temporary();
    MicroBatchStream starts = kafka.toMicroBatchStream(place(folder, "starts"));
    try (SeamPlanner planner = new SeamPlanner(options, columns, kafka, ReadTopics.NONE)) {
      MicroBatchStream ends = kafka(ending()).toMicroBatchStream(place(folder, "ends"));
      try {
        Offset start = starts.initialOffset(); // first: what comes between the two answers is in front of the end
        tasks = planner.plan(starts, start, ends.initialOffset(), filters);
      } finally {
        ends.stop();
      }
      readers = planner.readers(starts);
    } finally {
      starts.stop();
      delete(folder);
    }
    return null;
  }

  /** The options of a stream that begins where the read does. */
  private SourceOptions beginning() {
    Map<String, String> changes = new HashMap<>();
    ENDS.keySet().forEach(each -> changes.put(each, null));
    boolean isTold = ENDS.values().stream().anyMatch(options.given()::containsKey);
    if (!isTold) {
      changes.put(STARTING_OFFSETS, "earliest");
    }
    return options.with(changes);
  }

  /** The options of a stream that begins where the read ends. A time behind all records is the end, as for Kafka's. */
  private SourceOptions ending() {
    Map<String, String> changes = new HashMap<>();
    ENDS.values().forEach(each -> changes.put(each, null));
    ENDS.forEach(
        (end, start) -> {
          changes.put(end, null);
          String told = options.given().get(end);
          if (told != null) {
            changes.put(start, told);
          }
        });
    if (changes.values().stream().allMatch(each -> each == null)) {
      changes.put(STARTING_OFFSETS, "latest");
    }
    changes.put("startingOffsetsByTimestampStrategy", "latest");
    return options.with(changes);
  }

  private Scan kafka(SourceOptions given) {
    boolean hasHeaders = Arrays.asList(columns.fieldNames()).contains("headers");
    return KafkaSource.scan(given.with(Map.of("includeHeaders", Boolean.toString(hasHeaders))));
  }

  private static String place(Path folder, String name) {
    return folder.resolve(name).toUri().toString();
  }

  private static Path temporary() {
    try {
      return Files.createTempDirectory("tierlog-offsets");
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static void delete(Path folder) {
    try (Stream<Path> all = Files.walk(folder)) {
      for (Path each : all.sorted(Comparator.reverseOrder()).toList()) {
        Files.delete(each);
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
