package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;

/** Reads log objects of one store into native memory. Thread safety: any number of threads. */
interface LogStore extends AutoCloseable {
  /**
   * Bytes of an object.
   *
   * @param start first byte, in the object
   * @param end behind the last byte
   * @param address where to
   * @return bytes read, fewer than asked only where the object ends before
   * @throws TierlogException ObjectNotFoundError and its siblings
   */
  long read(SegmentPlan segment, long start, long end, long address);

  /** These bytes will be read soon. */
  default void expect(SegmentPlan segment, long start, long end) {}

  @Override
  void close();
}
