package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;
import java.util.List;

/** The stores of a task, opened at their first read, and their keys. One thread at a time. */
final class Stores implements AutoCloseable {
  private final List<StoreLocation> locations;
  private final String nativeDirectory;
  private final LogStore[] opened;
  private final KeyRing[] rings;
  private long requests;
  private long storedBytes;

  Stores(List<StoreLocation> locations, String nativeDirectory) {
    this.locations = locations;
    this.nativeDirectory = nativeDirectory;
    opened = new LogStore[locations.size()];
    rings = new KeyRing[locations.size()];
  }

  /** The folder to which libraries are unpacked; null: that of temporary files. */
  String nativeDirectory() {
    return nativeDirectory;
  }

  /** Counts a read that was answered. */
  void counted(long bytes) {
    counted(1, bytes);
  }

  /** Counts reads that were answered. */
  void counted(long reads, long bytes) {
    requests += reads;
    storedBytes += bytes;
  }

  /** How many reads were answered. */
  long requests() {
    return requests;
  }

  /** Bytes that the reads brought. */
  long storedBytes() {
    return storedBytes;
  }

  LogStore store(SegmentPlan segment) {
    LogStore store = opened[segment.store()];
    if (store == null) {
      StoreLocation location = locations.get(segment.store());
      store = isLocal(location) ? new LocalLogStore(location) : new ObjectLogStore(location, nativeDirectory);
      opened[segment.store()] = store;
    }
    return store;
  }

  KeyRing keyRing(SegmentPlan segment) {
    if (rings[segment.store()] == null) {
      rings[segment.store()] = new KeyRing(locations.get(segment.store()));
    }
    return rings[segment.store()];
  }

  /** Whether all stores are folders of this machine. */
  boolean areLocal() {
    return locations.stream().allMatch(Stores::isLocal);
  }

  private static boolean isLocal(StoreLocation location) {
    return location.kind().equals("local");
  }

  @Override
  public void close() {
    for (int number = 0; number < opened.length; number++) {
      if (opened[number] != null) {
        opened[number].close();
        opened[number] = null;
      }
    }
  }
}
