package io.tierlog.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.tierlog.planner.PlannerException;
import java.util.Collections;
import java.util.SortedMap;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** The offsets of a stream: of each partition the next one, in the JSON of Spark's Kafka source. */
final class TierlogOffset extends Offset {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final SortedMap<String, SortedMap<Integer, Long>> offsets = new TreeMap<>();

  /**
   * @throws PlannerException it is no such JSON
   */
  TierlogOffset(JsonNode told) {
    if (!told.isObject()) {
      throw foreign(told.toString());
    }
    told.fields().forEachRemaining(
        topic -> {
          SortedMap<Integer, Long> partitions = new TreeMap<>();
          if (!topic.getValue().isObject()) {
            throw foreign(told.toString());
          }
          topic.getValue().fields().forEachRemaining(
              each -> {
                if (!each.getKey().matches("[0-9]{1,9}") || !each.getValue().isIntegralNumber()) {
                  throw foreign(told.toString());
                }
                partitions.put(Integer.valueOf(each.getKey()), each.getValue().asLong());
              });
          offsets.put(topic.getKey(), partitions);
        });
  }

  /** No offsets. */
  TierlogOffset() {}

  /** Sets the offset of a partition. */
  void put(String topic, int partition, long offset) {
    offsets.computeIfAbsent(topic, any -> new TreeMap<>()).put(partition, offset);
  }

  /** The offset of a partition; null: it has none. */
  Long get(String topic, int partition) {
    SortedMap<Integer, Long> partitions = offsets.get(topic);
    return partitions == null ? null : partitions.get(partition);
  }

  /**
   * Reads a checkpoint's text.
   *
   * @throws PlannerException it is of another source
   */
  static TierlogOffset parse(String json) {
    try {
      return new TierlogOffset(JSON.readTree(json));
    } catch (JsonProcessingException e) {
      throw foreign(json);
    }
  }

  /** The offsets by topic and partition. */
  SortedMap<String, SortedMap<Integer, Long>> offsets() {
    return Collections.unmodifiableSortedMap(offsets);
  }

  @Override
  public String json() {
    try {
      return JSON.writeValueAsString(offsets);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  private static PlannerException foreign(String text) {
    String shown = text.length() > 200 ? text.substring(0, 200) : text;
    return new PlannerException(
        "ConfigError", "the checkpoint's offsets are not of a topic, as {\"orders\":{\"0\":23}}: " + shown);
  }
}
