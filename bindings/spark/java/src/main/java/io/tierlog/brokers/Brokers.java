package io.tierlog.brokers;

import io.tierlog.planner.PlannerException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.Consumer;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.AuthenticationException;
import org.apache.kafka.common.errors.AuthorizationException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The brokers of a cluster, asked for what Spark's Kafka source does not tell: ids of topics, where local logs begin, leader
 * epochs of records.
 *
 * <p>Every call ends within the client's {@code default.api.timeout.ms}. Its {@link PlannerException} names the cause.
 *
 * <p>Thread safety: one thread at a time.
 */
public final class Brokers implements AutoCloseable {
  private static final Duration RECORDS_WITHIN = Duration.ofSeconds(60);
  private static final Duration POLL = Duration.ofMillis(200);
  private static final int FETCH_BYTES = 64 << 10;

  private final Map<String, Object> keys;
  private final Admin admin;
  private Consumer<byte[], byte[]> consumer;

  /** A record that is there, by the leader under which it was written; null: its format knows none. */
  public record EpochAt(long offset, Integer epoch) {}

  /**
   * What a partition's leader has.
   *
   * @param endOffset behind the last record that all in-sync replicas have
   * @param first the first record of those that were asked for; null: there is none
   */
  public record Found(long endOffset, EpochAt first) {}

  /**
   * @param keys of Kafka's clients, with {@code bootstrap.servers}
   */
  public Brokers(Map<String, String> keys) {
    this.keys = new HashMap<>(keys);
    this.admin = told("making a Kafka client", () -> Admin.create(new HashMap<>(keys)));
  }

  /** The ids of topics, as Kafka writes them. Topics that are not there, or have none, are left out. */
  public Map<String, String> topicIds(Collection<String> topics) {
    return told(
        "describing topics",
        () -> {
          Map<String, String> found = new HashMap<>();
          for (var each : admin.describeTopics(topics).topicNameValues().entrySet()) {
            try {
              Uuid id = result(each.getValue()).topicId();
              if (id != null && !id.equals(Uuid.ZERO_UUID)) {
                found.put(each.getKey(), id.toString());
              }
            } catch (UnknownTopicOrPartitionException e) {
              continue;
            }
          }
          return found;
        });
  }

  /** Where the logs on the leaders' disks begin: what lies in front is in the tier alone. */
  public Map<TopicPartition, Long> localStarts(Collection<TopicPartition> partitions) {
    return told(
        "asking where local logs begin",
        () -> {
          Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
          partitions.forEach(each -> asked.put(each, OffsetSpec.earliestLocal()));
          Map<TopicPartition, Long> found = new HashMap<>();
          result(admin.listOffsets(asked).all()).forEach((each, info) -> found.put(each, info.offset()));
          return found;
        });
  }

  /** For each partition the first record that is there from an offset on, or from where its log begins by now. */
  public Map<TopicPartition, Found> recordsFrom(Map<TopicPartition, Long> wanted) {
    return told(
        "reading records at the seam",
        () -> {
          Consumer<byte[], byte[]> asked = consumer();
          Map<TopicPartition, Long> offsets = new HashMap<>(asked.beginningOffsets(wanted.keySet()));
          wanted.forEach((each, offset) -> offsets.merge(each, offset, Math::max));
          Map<TopicPartition, Long> ends = asked.endOffsets(offsets.keySet());
          Map<TopicPartition, EpochAt> first = new HashMap<>();
          asked.assign(offsets.keySet());
          offsets.forEach(asked::seek);
          Set<TopicPartition> left = new HashSet<>(offsets.keySet());
          left.removeIf(each -> offsets.get(each) >= ends.get(each));
          List<TopicPartition> idle = new ArrayList<>(offsets.keySet());
          idle.removeAll(left);
          asked.pause(idle);
          for (long until = System.nanoTime() + RECORDS_WITHIN.toNanos(); !left.isEmpty(); ) {
            if (System.nanoTime() > until) {
              throw new PlannerException(
                  "StoreUnavailableError", "the brokers give no records of " + left + " within 60 s");
            }
            for (ConsumerRecord<byte[], byte[]> record : asked.poll(POLL)) {
              TopicPartition place = new TopicPartition(record.topic(), record.partition());
              first.putIfAbsent(place, new EpochAt(record.offset(), record.leaderEpoch().orElse(null)));
            }
            List<TopicPartition> done = new ArrayList<>(left);
            done.removeIf(each -> !first.containsKey(each) && asked.position(each) < ends.get(each));
            left.removeAll(done);
            asked.pause(done);
          }
          asked.unsubscribe();
          Map<TopicPartition, Found> found = new HashMap<>();
          offsets.keySet().forEach(each -> found.put(each, new Found(ends.get(each), first.get(each))));
          return found;
        });
  }

  @Override
  public void close() {
    admin.close(Duration.ZERO);
    if (consumer != null) {
      consumer.close(Duration.ZERO);
    }
  }

  private Consumer<byte[], byte[]> consumer() {
    if (consumer == null) {
      Map<String, Object> all = new HashMap<>(keys);
      all.put("key.deserializer", ByteArrayDeserializer.class);
      all.put("value.deserializer", ByteArrayDeserializer.class);
      all.put("enable.auto.commit", "false");
      all.put("auto.offset.reset", "none");
      all.put("isolation.level", "read_uncommitted");
      all.put("max.partition.fetch.bytes", FETCH_BYTES);
      all.putIfAbsent("fetch.max.wait.ms", "10"); // what is asked for is there
      consumer = new KafkaConsumer<>(all);
    }
    return consumer;
  }

  private interface Question<T> {
    T asked() throws InterruptedException;
  }

  private static <T> T result(KafkaFuture<T> future) throws InterruptedException {
    try {
      return future.get();
    } catch (ExecutionException e) {
      if (e.getCause() instanceof KafkaException known) {
        throw known;
      }
      throw new KafkaException(e.getCause());
    }
  }

  private static <T> T told(String what, Question<T> question) {
    try {
      return question.asked();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new PlannerException("CancelledError", what + " was interrupted");
    } catch (KafkaException e) {
      throw new PlannerException(kind(e), what + ": " + e.getMessage());
    }
  }

  private static String kind(KafkaException error) {
    if (error instanceof AuthenticationException || error instanceof AuthorizationException) {
      return "StorePermissionError";
    }
    boolean isRefused = error instanceof UnsupportedVersionException || error.getCause() instanceof RuntimeException;
    return isRefused ? "ConfigError" : "StoreUnavailableError";
  }
}
