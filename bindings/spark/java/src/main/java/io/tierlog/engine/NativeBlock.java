package io.tierlog.engine;

import java.nio.ByteBuffer;

/**
 * A block of native memory that grows and is reused. It takes no memory until it is asked for. One thread at a time.
 */
final class NativeBlock implements AutoCloseable {
  private final TaskMemory memory;
  private long address;
  private long sizeBytes;

  NativeBlock(TaskMemory memory) {
    this.memory = memory;
  }

  /**
   * Address of at least this many bytes. What was there before is lost when the block must grow.
   *
   * @throws TierlogException ConfigError: above the task's ceiling
   */
  long reserve(long wantedBytes) {
    if (address == 0 || sizeBytes < wantedBytes) {
      close();
      long got = Native.allocate(memory.budget(), wantedBytes);
      if (got < 0) {
        throw memory.refusal((int) -got);
      }
      memory.hold();
      address = got;
      sizeBytes = wantedBytes;
    }
    return address;
  }

  /** Address of the first byte, once memory was reserved. */
  long address() {
    return address;
  }

  /** A view of bytes of this block, valid as long as the block does not grow. */
  ByteBuffer view(long from, long lengthBytes) {
    return Native.view(address + from, lengthBytes);
  }

  @Override
  public void close() {
    if (address != 0) {
      Native.release(memory.budget(), address, sizeBytes);
      address = 0;
      memory.letGo();
    }
  }
}
