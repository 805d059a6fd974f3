package io.tierlog.engine;

/**
 * A range of an object on its way into native memory.
 *
 * <p>Thread safety: one thread waits; any other may close, which ends the wait.
 */
public final class ObjectRead implements AutoCloseable {
  /** How soon an interrupt is noticed. Arriving data wakes the waiting thread at once. */
  private static final long SLICE_MS = 50;

  private final long transfer;
  private volatile boolean closed;

  ObjectRead(long transfer) {
    this.transfer = transfer;
  }

  /**
   * Waits for the end of the read.
   *
   * @return bytes read, fewer than asked only where the object ends before
   * @throws TierlogException ObjectNotFoundError, StorePermissionError, StoreUnavailableError, StoreError (also where
   *     it was closed)
   * @throws InterruptedException the thread was interrupted; the read goes on until it is closed
   */
  public long await() throws InterruptedException {
    while (true) {
      if (Thread.interrupted()) {
        throw new InterruptedException("interrupted while reading from an object store");
      }
      long bytes = ObjectStoreClient.await0(transfer, SLICE_MS);
      if (bytes >= 0) {
        return bytes;
      }
      if (bytes == ObjectStoreClient.FAILED) {
        byte[] told = ObjectStoreClient.failure0(transfer);
        if (told != null) {
          throw ObjectStoreClient.failure(told, 0);
        }
      }
      if (bytes != ObjectStoreClient.RUNNING) {
        throw new TierlogException("StoreError", "this read was closed");
      }
    }
  }

  /** Cancels the read if it still runs: afterwards its memory is not written any more, and may be freed. */
  @Override
  public void close() {
    if (!closed) {
      closed = true;
      ObjectStoreClient.end0(transfer);
    }
  }
}
