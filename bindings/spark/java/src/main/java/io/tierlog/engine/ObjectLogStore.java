package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;

/** A LogStore over an object store, by the client of the jar. */
final class ObjectLogStore implements LogStore {
  private final ObjectStoreClient client;

  ObjectLogStore(StoreLocation location, String nativeDirectory) {
    client = ObjectStoreClient.open(location, nativeDirectory);
  }

  @Override
  public Fetch begin(SegmentPlan segment, long start, long end, long address) {
    ObjectRead read = client.begin(segment.key(), start, end, address);
    return new Fetch() {
      @Override
      public long await() throws InterruptedException {
        return read.await();
      }

      @Override
      public void close() {
        read.close();
      }
    };
  }

  @Override
  public void close() {
    client.close();
  }
}
