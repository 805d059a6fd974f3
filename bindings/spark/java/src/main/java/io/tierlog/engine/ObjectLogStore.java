package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;

/** An object store, by the client of the jar. */
final class ObjectLogStore implements LogStore {
  ObjectLogStore(StoreLocation location, String nativeDirectory) {
    throw new TierlogException("ConfigError", "this jar was built without its client for object stores: " + location.url());
  }

  @Override
  public long read(SegmentPlan segment, long start, long end, long address) {
    throw new UnsupportedOperationException();
  }

  @Override
  public void close() {}
}
