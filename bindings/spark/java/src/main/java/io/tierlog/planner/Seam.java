package io.tierlog.planner;

import com.fasterxml.jackson.databind.JsonNode;

/**
 * Where the records of a partition end in the tier, within one batch, and begin at the brokers.
 *
 * @param offset records below it are the tier's
 * @param unchecked whether nobody has compared what the tier has now with the brokers' log
 */
public record Seam(String topic, int partition, long offset, boolean unchecked) {

  /** Reads an entry of the planner's answer. */
  static Seam of(JsonNode entry) {
    return new Seam(entry.get(0).asText(), entry.get(1).asInt(), entry.get(2).asLong(), entry.get(3).asBoolean());
  }
}
