package io.tierlog.planner;

import java.util.Arrays;
import java.util.List;

/**
 * A partition at its leader, for the planner to compare with the tier.
 *
 * @param topicId null: the brokers have none
 * @param endOffset behind the last record that all in-sync replicas have; null: nobody asked
 * @param firstOffset of the first record from one in front of the seam on; null: nobody asked, or there is none
 * @param firstEpoch the leader epoch of that record; null: its format has none
 */
public record BrokerFacts(
    String topic, int partition, String topicId, Long endOffset, Long firstOffset, Integer firstEpoch) {

  List<Object> words() {
    return Arrays.asList(topic, partition, topicId, endOffset, firstOffset, firstEpoch);
  }
}
