package io.tierlog.engine;

import java.io.Serializable;
import java.util.Set;

/**
 * The settings of a reader that do not change what it reads.
 *
 * @param offHeapBytesPerTask the most native memory that one task holds, bytes: windows, one decompressed batch, the
 *     rows of one batch. Contexts of the codecs (under 1 MiB) and of an object store's client are not in it
 * @param batchBytes about the size of one columnar batch: small enough to stay in a core's cache
 * @param windowBytes of one read; 0: 2 MiB of local files, 8 MiB of object stores
 * @param windowsAhead of object stores, under way while one is decoded
 * @param nativeDirectory to unpack the native library to; null: system property or {@code java.io.tmpdir}
 * @param notNull columns that the user's schema says hold no nulls: one that does is an error
 */
public record ReaderSettings(
    long offHeapBytesPerTask,
    int batchBytes,
    int windowBytes,
    int windowsAhead,
    String nativeDirectory,
    Set<String> notNull)
    implements Serializable {

  public static final long OFF_HEAP_BYTES_PER_TASK = 512L << 20;
  public static final int BATCH_BYTES = 2 << 20;
  public static final int WINDOWS_AHEAD = 2;
  static final int LOCAL_WINDOW_BYTES = 2 << 20;
  static final int REMOTE_WINDOW_BYTES = 8 << 20;

  public ReaderSettings {
    notNull = Set.copyOf(notNull);
    if (offHeapBytesPerTask < 1 || batchBytes < 1 || windowBytes < 0 || windowsAhead < 0) {
      throw new TierlogException(
          "ConfigError", "offHeapBytesPerTask and batchBytes are at least 1, windowBytes and windowsAhead at least 0");
    }
  }

  /** The default settings. */
  public static ReaderSettings defaults() {
    return new ReaderSettings(OFF_HEAP_BYTES_PER_TASK, BATCH_BYTES, 0, WINDOWS_AHEAD, null, Set.of());
  }
}
