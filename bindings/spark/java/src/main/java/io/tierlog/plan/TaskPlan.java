package io.tierlog.plan;

import java.io.Serializable;
import java.util.List;

/**
 * The ranges that one Spark task reads, in order.
 *
 * @param ranges by topic, partition and offset
 * @param failOnDataLoss false: what is damaged or gone is left out with a warning
 * @param verifyChecksums check the CRC of every batch that is read
 * @param trustHeaders headers answer aggregates although nobody checks their batches
 */
public record TaskPlan(List<RangePlan> ranges, boolean failOnDataLoss, boolean verifyChecksums, boolean trustHeaders)
    implements Serializable {

  public TaskPlan {
    ranges = List.copyOf(ranges);
  }

  /** The same plan over other ranges. */
  public TaskPlan over(List<RangePlan> others) {
    return new TaskPlan(others, failOnDataLoss, verifyChecksums, trustHeaders);
  }
}
