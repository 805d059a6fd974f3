package io.tierlog.planner;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import java.util.SortedMap;
import java.util.TreeMap;

/**
 * What a query has read, by which it knows whether a topic is still the one of before.
 *
 * @param topicIds by topic
 * @param read topic, partition, offset and leader epoch of the last record of each partition that it has from the tier
 */
public record ReadTopics(
    @JsonProperty(required = true) SortedMap<String, String> topicIds, @JsonProperty(required = true) JsonNode read) {
  /** Of a new query. */
  public static final ReadTopics NONE = new ReadTopics(new TreeMap<>(), JsonNodeFactory.instance.arrayNode());

  /**
   * @throws IllegalArgumentException a part is missing, or of another kind
   */
  public ReadTopics {
    if (topicIds == null || topicIds.containsValue(null) || read == null || !read.isArray()) {
      throw new IllegalArgumentException("ids by topic and a list of records expected");
    }
    for (JsonNode each : read) {
      if (!isRecord(each)) {
        throw new IllegalArgumentException("topic, partition, offset and leader epoch expected in place of " + each);
      }
    }
  }

  private static boolean isRecord(JsonNode row) {
    return row.isArray()
        && row.size() == 4
        && row.get(0).isTextual()
        && row.get(1).isInt()
        && (row.get(2).isInt() || row.get(2).isLong())
        && row.get(3).isInt();
  }
}
