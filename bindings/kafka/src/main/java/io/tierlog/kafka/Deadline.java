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

  /** Milliseconds until then, rounded up; 1 when it is over, since a wait or a select of 0 has no end. */
  long millisLeft() {
    return TimeUnit.NANOSECONDS.toMillis(Math.max(0, nanos - System.nanoTime())) + 1;
  }
}
