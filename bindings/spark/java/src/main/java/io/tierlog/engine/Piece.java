package io.tierlog.engine;

import io.tierlog.plan.RangePlan;

/**
 * The part of a range that one window holds.
 *
 * @param number of the range in its task
 * @param range the range
 * @param start first byte, in the original log
 * @param end behind the last byte
 */
record Piece(int number, RangePlan range, long start, long end) {
  /** Index, in the range's chunks, of the first chunk that is needed. For transformed logs. */
  int firstChunk() {
    return chunkAt(start);
  }

  /** Index of the last chunk that is needed, inclusive. */
  int lastChunk() {
    return chunkAt(end - 1);
  }

  private int chunkAt(long position) {
    return Math.toIntExact((position - range.chunks().firstOriginalPosition()) / range.segment().originalChunkSize());
  }
}
