package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;

/** Reads log objects of one store into native memory. One thread at a time. */
interface LogStore extends AutoCloseable {
  /**
   * Begins to read a range of a segment's log object.
   *
   * @param start first byte, in the object
   * @param end behind the last byte
   * @param address where to; stays until the fetch is over or closed
   */
  Fetch begin(SegmentPlan segment, long start, long end, long address);

  /** Announces bytes that will soon be read. */
  default void expect(SegmentPlan segment, long start, long end) {}

  @Override
  void close();
}
