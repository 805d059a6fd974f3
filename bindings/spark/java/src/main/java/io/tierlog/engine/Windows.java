package io.tierlog.engine;

import java.io.InterruptedIOException;

/** The windows of a task, in order. One thread takes them; any may abort. */
interface Windows {
  /**
   * The next window of a range.
   *
   * @param number of the range; ranges before it are left out
   * @return valid until the next call; null: the range has no more
   * @throws TierlogException see {@link WindowLoader#load}
   * @throws InterruptedIOException the thread was interrupted, or {@link #abort} was called
   */
  Window next(int number) throws InterruptedIOException;

  /** Wakes who waits in {@link #next}; windows that were given stay valid. */
  void abort();

  /** Gives everything back; what is still being read is given back when that ends. After {@link #abort}. */
  void close();
}
