package io.tierlog.planner;

import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.LongSupplier;
import java.util.function.UnaryOperator;

/**
 * The listings that loads of equal options share: of a bucket of a million segments, one listing serves all queries of
 * an application, until it is too old for one of them.
 *
 * <p>Thread safety: any number of threads. One that asks while a bucket is listed by the same options waits for that
 * listing; others are not held up.
 */
final class KeptListings {
  private static final int LISTINGS_MAX = 16;

  private final long bytesMax;
  private final LongSupplier nanoTime;

  /** By options, the one that was asked for last at the end. */
  private final Map<Map<String, String>, Kept> kept = new LinkedHashMap<>(LISTINGS_MAX, 0.75f, true);

  private static final class Kept {
    private volatile Listing listing;
    private long begunNanos;
  }

  /**
   * @param bytesMax of all that are kept; the one that was asked for longest ago goes first
   * @param nanoTime a clock, as {@link System#nanoTime}
   */
  KeptListings(long bytesMax, LongSupplier nanoTime) {
    this.bytesMax = bytesMax;
    this.nanoTime = nanoTime;
  }

  /**
   * The listing that is kept of these options, or a new one.
   *
   * @param ageNanosMax how long ago its listing may have begun; 0: it is a new one, which takes the place of the one that
   *     is kept, if one is
   * @param list lists the bucket, given the listing that is kept, or null; what it throws is thrown, and nothing changes
   */
  Listing get(Map<String, String> options, long ageNanosMax, UnaryOperator<Listing> list) {
    long asked = nanoTime.getAsLong();
    Kept shared = place(options, ageNanosMax > 0);
    if (shared == null) {
      return list.apply(null);
    }
    synchronized (shared) {
      if (shared.listing == null || asked - shared.begunNanos >= ageNanosMax) {
        long begun = nanoTime.getAsLong();
        shared.listing = list.apply(shared.listing);
        shared.begunNanos = begun;
        trim();
      }
      return shared.listing;
    }
  }

  private synchronized Kept place(Map<String, String> options, boolean keeps) {
    return keeps ? kept.computeIfAbsent(options, unknown -> new Kept()) : kept.get(options);
  }

  private synchronized void trim() {
    long bytes = kept.values().stream().mapToLong(KeptListings::sizeBytes).sum();
    Iterator<Kept> eldest = kept.values().iterator();
    while (bytes > bytesMax || kept.size() > LISTINGS_MAX) {
      bytes -= sizeBytes(eldest.next());
      eldest.remove();
    }
  }

  private static long sizeBytes(Kept one) {
    Listing listing = one.listing;
    return listing == null ? 0 : listing.sizeBytes();
  }
}
