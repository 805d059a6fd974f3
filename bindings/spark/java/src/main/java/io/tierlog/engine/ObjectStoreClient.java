package io.tierlog.engine;

import io.tierlog.plan.StoreLocation;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Map;

/**
 * Ranges of objects of one bucket, read into native memory by libtierlog_store.so: the client that obstore wraps for
 * the Python path, so with its options, credentials, retries and error texts.
 *
 * <p>Opening makes no request. Clients of equal location share connections, also after a close for half a minute. All
 * requests of a class loader are served by one I/O thread.
 *
 * <p>Thread safety: any number of threads. Closing while another thread reads fails none of what has begun.
 */
public final class ObjectStoreClient implements AutoCloseable {
  static final String LIBRARY = "libtierlog_store.so";
  static final long RUNNING = -1;
  static final long FAILED = -2;
  private static final long UNKNOWN = -3;
  private static boolean loaded;

  private final String url;
  private long client;

  private ObjectStoreClient(String url, long client) {
    this.url = url;
    this.client = client;
  }

  /** Whether this jar was built with the library; else object stores take the Python path. */
  public static boolean available() {
    return NativeLibrary.carries(LIBRARY);
  }

  /**
   * Opens a client, which the caller closes.
   *
   * @param location of kind {@code "object"}
   * @param nativeDirectory as {@link NativeLibrary#load(Class, String, String)} takes it
   * @throws TierlogException ConfigError: an option is unknown or malformed, or the library cannot be loaded
   */
  public static ObjectStoreClient open(StoreLocation location, String nativeDirectory) {
    load(nativeDirectory);
    byte[] answer = open0(request(location));
    if (answer[0] != 0) {
      throw failure(answer, 1);
    }
    return new ObjectStoreClient(location.url(), ByteBuffer.wrap(answer, 1, Long.BYTES).getLong());
  }

  /** Loads the library, once. Throws as {@link NativeLibrary#load(Class, String, String)}. */
  static synchronized void load(String nativeDirectory) {
    if (!loaded) {
      NativeLibrary.load(ObjectStoreClient.class, LIBRARY, nativeDirectory);
      loaded = true;
    }
  }

  private static byte[] request(StoreLocation location) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (DataOutputStream out = new DataOutputStream(bytes)) {
      write(out, location.url());
      for (Map.Entry<String, String> option : location.options().entrySet()) {
        write(out, option.getKey());
        write(out, option.getValue());
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return bytes.toByteArray();
  }

  private static void write(DataOutputStream out, String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  /**
   * Begins to read a range; several may be under way.
   *
   * @param key below the location's URL
   * @param start first byte
   * @param end behind the last byte
   * @param address where to: {@code end - start} bytes that are not freed before the read is over, or closed
   */
  public ObjectRead begin(String key, long start, long end, long address) {
    if (start < 0 || end < start || address == 0) {
      throw new IllegalArgumentException("not a range with memory: " + start + " to " + end);
    }
    long transfer;
    synchronized (this) {
      transfer = begin0(client, key.getBytes(StandardCharsets.UTF_8), start, end, address);
    }
    if (transfer == UNKNOWN) {
      throw new IllegalStateException(url + ": this client is closed");
    }
    return new ObjectRead(transfer);
  }

  /**
   * Reads a range.
   *
   * @return bytes read, fewer than asked only where the object ends before
   * @throws TierlogException ObjectNotFoundError, StorePermissionError, StoreUnavailableError, StoreError
   * @throws InterruptedException the thread was interrupted; the memory is the caller's again
   */
  public long read(String key, long start, long end, long address) throws InterruptedException {
    try (ObjectRead read = begin(key, start, end, address)) {
      return read.await();
    }
  }

  /** Releases the client. Reads that have begun go on. */
  @Override
  public synchronized void close() {
    if (client != 0) {
      close0(client);
      client = 0;
    }
  }

  /** The number of [clients, reads, threads] that this class loader holds now. Nothing is loaded for the answer. */
  public static synchronized long[] counts() {
    return loaded ? new long[] {count0(0), count0(1), count0(2)} : new long[3];
  }

  static TierlogException failure(byte[] answer, int from) {
    String told = new String(answer, from, answer.length - from, StandardCharsets.UTF_8);
    int line = told.indexOf('\n');
    return new TierlogException(told.substring(0, line), told.substring(line + 1));
  }

  @Override
  public String toString() {
    return "ObjectStoreClient[" + url + "]";
  }

  private static native byte[] open0(byte[] request);

  private static native void close0(long client);

  private static native long begin0(long client, byte[] key, long start, long end, long address);

  static native long await0(long transfer, long milliseconds);

  static native byte[] failure0(long transfer);

  static native void end0(long transfer);

  private static native long count0(int which);
}
