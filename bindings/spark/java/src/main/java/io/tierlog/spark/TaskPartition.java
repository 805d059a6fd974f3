package io.tierlog.spark;

import io.tierlog.plan.TaskPlan;
import org.apache.spark.sql.connector.read.InputPartition;

/** The plan of one task, which travels to its executor. */
class TaskPartition implements InputPartition {
  private static final long serialVersionUID = 1L;

  private final TaskPlan task;

  TaskPartition(TaskPlan task) {
    this.task = task;
  }

  TaskPlan task() {
    return task;
  }

  @Override
  public String toString() {
    return "tierlog task of " + task.ranges().size() + " ranges";
  }
}
