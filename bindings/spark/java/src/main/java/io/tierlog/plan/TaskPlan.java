package io.tierlog.plan;

import java.io.Serializable;
import java.util.List;

/**
 * What one Spark task reads, in order.
 *
 * @param ranges by topic, partition and offset
 * @param failOnDataLoss false: what is damaged or gone is left out with a warning
 * @param verifyChecksums check the CRC of every batch
 */
public record TaskPlan(List<RangePlan> ranges, boolean failOnDataLoss, boolean verifyChecksums)
    implements Serializable {

  public TaskPlan {
    ranges = List.copyOf(ranges);
  }
}
