package io.tierlog.engine;

import java.util.concurrent.atomic.AtomicInteger;

/**
 * The resources that all readers of this class loader hold now: zero once their tasks are over, however they ended.
 * They have no threads of their own; those of the object stores' client are in {@link ObjectStoreClient#counts}.
 */
public final class EngineCounters {
  static final AtomicInteger READERS = new AtomicInteger();

  private EngineCounters() {}

  /** Native bytes. */
  public static long nativeBytes() {
    NativeLibrary.load(null);
    return Native.liveBytes();
  }

  /** The most native bytes that were ever held at once. */
  public static long nativeBytesHigh() {
    NativeLibrary.load(null);
    return Native.highBytes();
  }

  /** Open local files. */
  public static long files() {
    NativeLibrary.load(null);
    return Native.openFiles();
  }

  /** Reads of object stores under way. */
  public static long objectReads() {
    return ObjectStoreClient.counts()[1];
  }

  /** Readers that were opened and not closed. */
  public static int readers() {
    return READERS.get();
  }
}
