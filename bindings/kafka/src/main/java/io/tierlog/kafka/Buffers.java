package io.tierlog.kafka;

import java.nio.ByteBuffer;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;

/**
 * Direct buffers of one size that are used again. Only free ones are known here: one that is never given back is freed with
 * the object that has it.
 */
class Buffers {
  /** Bytes of a piece that a stream asks for when its reader takes less at a time. */
  static final int PIECE_BYTES = 64 * 1024;

  /** A whole response with a piece fits. */
  static final int SIZE_BYTES = PIECE_BYTES + 64;

  private static final int FREE_MAX = 256;

  private final BlockingQueue<ByteBuffer> free = new ArrayBlockingQueue<>(FREE_MAX);

  /**
   * An empty buffer, which is the caller's until it is given back.
   *
   * @throws OutOfMemoryError the broker's other buffers have all that -XX:MaxDirectMemorySize allows
   */
  ByteBuffer take() {
    ByteBuffer found = free.poll();
    return found == null ? ByteBuffer.allocateDirect(SIZE_BYTES) : found.clear();
  }

  int freeCount() {
    return free.size();
  }

  void give(ByteBuffer buffer) {
    free.offer(buffer);
  }
}
