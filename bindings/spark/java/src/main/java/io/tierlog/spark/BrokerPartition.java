package io.tierlog.spark;

import org.apache.spark.sql.connector.read.InputPartition;

/** What Spark's Kafka source planned for one task. */
record BrokerPartition(InputPartition planned) implements InputPartition {
  private static final long serialVersionUID = 1L;

  @Override
  public String[] preferredLocations() {
    return planned.preferredLocations();
  }
}
