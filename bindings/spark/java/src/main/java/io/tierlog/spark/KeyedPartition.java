package io.tierlog.spark;

import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.TaskPlan;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.HasPartitionKey;
import org.apache.spark.unsafe.types.UTF8String;

/** A task whose ranges are all of one partition of one topic. */
final class KeyedPartition extends TaskPartition implements HasPartitionKey {
  private static final long serialVersionUID = 1L;

  KeyedPartition(TaskPlan task) {
    super(task);
  }

  /** Topic and partition, in the order of {@link TierlogScan#outputPartitioning()}. */
  @Override
  public InternalRow partitionKey() {
    SegmentPlan segment = task().ranges().get(0).segment();
    return new GenericInternalRow(new Object[] {UTF8String.fromString(segment.topic()), segment.partition()});
  }
}
