package io.tierlog.engine;

import java.util.concurrent.atomic.AtomicInteger;

/** What all readers of this class loader hold right now: zero once their tasks are over, however they ended. */
public final class EngineCounters {
  static final AtomicInteger THREADS = new AtomicInteger();
  static final AtomicInteger READERS = new AtomicInteger();

  private EngineCounters() {}

  /** Native bytes. */
  public static long nativeBytes() {
    NativeLibrary.load(null);
    return Native.liveBytes();
  }

  /** The most native bytes there ever were at once. */
  public static long nativeBytesHigh() {
    NativeLibrary.load(null);
    return Native.highBytes();
  }

  /** Open local files. */
  public static long files() {
    NativeLibrary.load(null);
    return Native.openFiles();
  }

  /** Threads that read ahead. */
  public static int threads() {
    return THREADS.get();
  }

  /** Readers that were opened and not closed. */
  public static int readers() {
    return READERS.get();
  }
}
