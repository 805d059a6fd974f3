package io.tierlog.spark;

import io.tierlog.brokers.Brokers;
import io.tierlog.plan.StoreLocation;
import io.tierlog.planner.BrokerFacts;
import io.tierlog.planner.PlanRequest.Comparison;
import io.tierlog.planner.PlannerException;
import io.tierlog.planner.ReadTopics;
import io.tierlog.planner.ScanPlan;
import io.tierlog.planner.Seam;
import io.tierlog.planner.StreamPlanner;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.kafka.common.TopicPartition;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.types.StructType;

/**
 * Plans batches of which the tier gives a part, and brokers the rest. Offsets are those of the brokers, whose log has all of
 * the tier's.
 *
 * <p>Before the first record of a partition is read from the tier, and each time its last leader epoch there has changed,
 * the brokers are asked whether the tier is of their log: by the topic's id, and by the epoch of the record at the seam.
 *
 * <p>Thread safety: one thread at a time, but for {@link #close()}.
 */
final class SeamPlanner implements AutoCloseable {
  /** The options that a stream over the tier refuses, or that are for a whole batch read: offsets are told here. */
  private static final List<String> OF_BATCHES =
      List.of(
          "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushDownPredicate", "reportPartitioning");

  private final SourceOptions options;
  private final StructType columns;
  private final int[] ordinals;
  private final StreamPlanner planner;
  private Brokers brokers;
  private List<StoreLocation> stores = List.of();

  /**
   * @param kafka a scan of Spark's Kafka source over the same topics
   * @param known what the query has read before
   */
  SeamPlanner(SourceOptions options, StructType columns, Scan kafka, ReadTopics known) {
    this.options = options;
    this.columns = columns;
    List<String> fields = Arrays.asList(kafka.readSchema().fieldNames());
    this.ordinals = Arrays.stream(columns.fieldNames()).mapToInt(fields::indexOf).toArray();
    Map<String, String> dropped = new HashMap<>();
    OF_BATCHES.forEach(each -> dropped.put(each, null));
    this.planner =
        new StreamPlanner(
            DriverPlanner.of(options), options.with(dropped).given(), Arrays.asList(columns.fieldNames()), known);
  }

  /** What the query has read so far. */
  ReadTopics known() {
    return planner.known();
  }

  /**
   * Plans a batch.
   *
   * @param kafka Spark's Kafka source, whose offsets they are
   * @param filters of which the tier's part leaves out what does not pass them; the brokers' part does not
   * @throws PlannerException what the planner or the brokers said, or that the tier is not of their log
   */
  InputPartition[] plan(MicroBatchStream kafka, Offset start, Offset end, List<Comparison> filters) {
    TierlogOffset from = TierlogOffset.parse(start.json());
    TierlogOffset until = TierlogOffset.parse(end.json());
    List<Seam> seams = planner.seams(from.offsets(), until.offsets(), local(until));
    Map<String, String> ids = brokers().topicIds(until.offsets().keySet());
    List<InputPartition> tasks = new ArrayList<>();
    stores = List.of();
    if (!seams.isEmpty()) {
      TierlogOffset tierStart = new TierlogOffset();
      TierlogOffset tierEnd = new TierlogOffset();
      for (Seam seam : seams) {
        Long begun = from.get(seam.topic(), seam.partition());
        if (begun != null) {
          tierStart.put(seam.topic(), seam.partition(), begun);
        }
        tierEnd.put(seam.topic(), seam.partition(), seam.offset());
      }
      ScanPlan plan = planner.plan(tierStart.offsets(), tierEnd.offsets(), facts(seams, ids), filters);
      plan.tasks().forEach(task -> tasks.add(new TaskPartition(task)));
      stores = List.copyOf(plan.stores());
      planner.noteRead();
    }
    requireSameTopics(ids);
    seams.forEach(seam -> from.put(seam.topic(), seam.partition(), seam.offset()));
    for (InputPartition planned : kafka.planInputPartitions(kafka.deserializeOffset(from.json()), end)) {
      tasks.add(new BrokerPartition(planned));
    }
    return tasks.toArray(InputPartition[]::new);
  }

  /** The factory for the tasks that were planned last. */
  PartitionReaderFactory readers(MicroBatchStream kafka) {
    TierlogReaderFactory tier =
        new TierlogReaderFactory(stores, columns.fieldNames(), options.readerSettings(columns));
    return new SeamedReaderFactory(tier, kafka.createReaderFactory(), columns, ordinals);
  }

  @Override
  public void close() {
    planner.close();
    if (brokers != null) {
      brokers.close();
    }
  }

  /** Where the brokers' local logs begin, if they are to give all that is in them. */
  private Object local(TierlogOffset until) {
    if (!options.mode().equals("local-preferred")) {
      return null;
    }
    Set<TopicPartition> all = new HashSet<>();
    until
        .offsets()
        .forEach((topic, places) -> places.keySet().forEach(each -> all.add(new TopicPartition(topic, each))));
    TierlogOffset found = new TierlogOffset();
    brokers()
        .localStarts(all)
        .forEach((place, offset) -> found.put(place.topic(), place.partition(), Math.max(0, offset)));
    return found.offsets();
  }

  /** The ids of the topics; and of partitions that nobody has compared yet what lies at the seam. */
  private List<BrokerFacts> facts(List<Seam> seams, Map<String, String> ids) {
    Map<TopicPartition, Long> asked =
        seams.stream()
            .filter(Seam::unchecked)
            .collect(Collectors.toMap(SeamPlanner::place, seam -> Math.max(0, seam.offset() - 1)));
    Map<TopicPartition, Brokers.Found> found = asked.isEmpty() ? Map.of() : brokers().recordsFrom(asked);
    List<BrokerFacts> facts = new ArrayList<>();
    for (Seam seam : seams) {
      Brokers.Found known = found.get(place(seam));
      Brokers.EpochAt first = known == null ? null : known.first();
      facts.add(
          new BrokerFacts(
              seam.topic(),
              seam.partition(),
              ids.get(seam.topic()),
              known == null ? null : known.endOffset(),
              first == null ? null : first.offset(),
              first == null ? null : first.epoch()));
    }
    return facts;
  }

  /** Fails if a topic is another one than the query has read before: its offsets are, too. */
  private void requireSameTopics(Map<String, String> ids) {
    planner
        .known()
        .topicIds()
        .forEach(
            (topic, known) -> {
              if (!ids.getOrDefault(topic, known).equals(known)) {
                throw new PlannerException(
                    "DataLossError",
                    "topic " + topic + " was deleted and made anew: its id was " + known + " and is " + ids.get(topic)
                        + "; its offsets are other ones, so that it takes a new query with a checkpoint of its own");
              }
            });
    planner.keep(ids);
  }

  private static TopicPartition place(Seam seam) {
    return new TopicPartition(seam.topic(), seam.partition());
  }

  private Brokers brokers() {
    if (brokers == null) {
      brokers = new Brokers(options.brokerKeys());
    }
    return brokers;
  }
}
