package io.tierlog.engine;

/**
 * AES-256-GCM in native memory, by libtierlog_store.so, which has it for TLS: three times as fast as Java 17's own, and
 * without a copy. A jar without that library decrypts in Java.
 */
final class NativeCipher {
  static final long MALFORMED = -1;
  static final long NOT_AUTHENTIC = -2;
  private static Boolean usable;

  private NativeCipher() {}

  /** Whether the cipher can be used here; the library is loaded for the answer. */
  static synchronized boolean isUsable(String nativeDirectory) {
    if (usable == null) {
      usable = ObjectStoreClient.available() && loads(nativeDirectory);
    }
    return usable;
  }

  /** Has Java decrypt from now on, for tests. */
  static synchronized void leaveToJava() {
    usable = false;
  }

  private static boolean loads(String nativeDirectory) {
    try {
      ObjectStoreClient.load(nativeDirectory);
      return true;
    } catch (TierlogException cannotBeUnpacked) {
      return false; // who needs it for its stores says so
    }
  }

  /** In place: IV, content, tag. Size of the plain bytes, which begin behind the IV, or what is wrong. */
  static native long open0(byte[] key, byte[] aad, long address, long sizeBytes);
}
