package io.tierlog.engine;

import io.tierlog.plan.RangePlan;

/**
 * What one window holds.
 *
 * @param number of the range in its task
 * @param range it is part of
 * @param start first byte, in the original log
 * @param end behind the last byte
 */
record Piece(int number, RangePlan range, long start, long end) {
  /** Of a transformed log: index in the range's chunks of the first one needed. */
  int firstChunk() {
    return chunkAt(start);
  }

  /** The last one, inclusive. */
  int lastChunk() {
    return chunkAt(end - 1);
  }

  private int chunkAt(long position) {
    return Math.toIntExact((position - range.chunks().firstOriginalPosition()) / range.segment().originalChunkSize());
  }
}
