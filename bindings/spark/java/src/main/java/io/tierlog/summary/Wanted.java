package io.tierlog.summary;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;

/**
 * What has to be known of the records.
 *
 * @param byTopic whether topics are apart
 * @param byPartition whether partitions are
 * @param offsets least or greatest offset
 * @param leastTimestamp whether it is
 * @param greatestTimestamp whether it is
 */
public record Wanted(
    boolean byTopic, boolean byPartition, boolean offsets, boolean leastTimestamp, boolean greatestTimestamp)
    implements Serializable {

  boolean timestamps() {
    return leastTimestamp || greatestTimestamp;
  }

  /** Columns to decode where headers do not say enough. */
  String[] columns() {
    List<String> columns = new ArrayList<>(List.of("topic", "partition"));
    if (offsets) {
      columns.add("offset");
    }
    if (timestamps()) {
      columns.add("timestamp");
    }
    return columns.toArray(new String[0]);
  }
}
