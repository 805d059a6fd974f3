package io.tierlog.engine;

/** Bytes of an object on their way into native memory. One thread waits; any may close, which ends the wait. */
interface Fetch extends AutoCloseable {
  /**
   * Waits for the bytes.
   *
   * @return bytes read, fewer than asked only where the object ends before
   * @throws TierlogException ObjectNotFoundError and its siblings
   * @throws InterruptedException the thread was interrupted
   */
  long await() throws InterruptedException;

  /** Cancels the read: afterwards the memory is not written any more. */
  @Override
  void close();
}
