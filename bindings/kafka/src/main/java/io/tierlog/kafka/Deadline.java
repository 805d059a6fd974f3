package io.tierlog.kafka;

import java.util.concurrent.TimeUnit;

/**
 * The moment until which something is waited for.
 *
 * @param nanos of {@link System#nanoTime()}
 */
record Deadline(long nanos) {
  static Deadline in(long millis) {
    return new Deadline(System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis));
  }

  boolean isOver() {
    return nanos - System.nanoTime() <= 0;
  }

  /** Milliseconds until then, rounded up; 0 when it is over. */
  long millisLeft() {
    long left = nanos - System.nanoTime();
    return left <= 0 ? 0 : TimeUnit.NANOSECONDS.toMillis(left) + 1;
  }
}
