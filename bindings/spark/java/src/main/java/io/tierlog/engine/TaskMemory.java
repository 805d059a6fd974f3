package io.tierlog.engine;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * The native memory of one task, under its ceiling.
 *
 * <p>It lives until all its holders have released it: a read that is under way when the task is killed gives its window
 * back later. Thread safety: any number of threads.
 */
final class TaskMemory {
  private final long budget;
  private final long limitBytes;
  private final AtomicInteger holders = new AtomicInteger(1);

  TaskMemory(long limitBytes) {
    this.limitBytes = limitBytes;
    budget = Native.budgetOpen(limitBytes);
    if (budget == 0) {
      throw new OutOfMemoryError("no native memory for a task");
    }
  }

  /** Handle for the native side. */
  long budget() {
    return budget;
  }

  long highBytes() {
    return Native.budgetHigh(budget);
  }

  void hold() {
    holders.incrementAndGet();
  }

  void letGo() {
    if (holders.decrementAndGet() == 0) {
      Native.budgetClose(budget);
    }
  }

  /**
   * The exception for a negative status of an allocation.
   *
   * @param status a {@code tl_status}
   */
  RuntimeException refusal(int status) {
    if (!Faults.isOverLimit(status)) {
      return new TierlogException("TierlogError", "the machine has no native memory left: " + Native.statusText(status));
    }
    String text =
        "the task needs %d bytes of native memory at once and offHeapBytesPerTask is %d: raise it, and "
            + "spark.executor.memoryOverhead with it";
    return new TierlogException("ConfigError", text.formatted(Native.budgetRefused(budget), limitBytes));
  }
}
