package io.tierlog.engine;

import java.nio.ByteBuffer;

/**
 * The methods of {@code libtierlog_jni.so}; {@link NativeLibrary} loads it. Handles and addresses are not checked: a
 * handle is used by one thread at a time, closed once, and not used behind that.
 */
final class Native {
  // What a decoder's step answers: tlj_step of decoder.h.
  static final int ROWS = 1;
  static final int INPUT = 2;
  static final int ENDED = 3;
  static final int FAULT = 4;
  static final int NO_MEMORY = 5;

  /** The answer of {@link #fileOpen} for a folder or a device. */
  static final int NOT_REGULAR = -4096;

  private Native() {}

  static native long budgetOpen(long limitBytes);

  static native void budgetClose(long budget);

  static native long budgetLive(long budget);

  static native long budgetHigh(long budget);

  static native long budgetRefused(long budget);

  static native long liveBytes();

  static native long highBytes();

  /** Allocates memory; returns its address, or a negative status. */
  static native long allocate(long budget, long sizeBytes);

  static native void release(long budget, long address, long sizeBytes);

  static native ByteBuffer view(long address, long sizeBytes);

  /** Opens a file; returns a descriptor, {@code -errno}, or {@link #NOT_REGULAR}. The path ends with a 0. */
  static native int fileOpen(byte[] path);

  /** Reads from a position; returns the bytes read, fewer than asked only at the end of the file, or {@code -errno}. */
  static native long fileRead(int file, long position, long address, long sizeBytes);

  static native void fileExpect(int file, long position, long sizeBytes);

  static native void fileClose(int file);

  static native long openFiles();

  static native String errorText(int errno);

  static native String statusName(int status);

  static native String statusText(int status);

  /** 0: no memory. */
  static native long codecsOpen();

  static native void codecsClose(long codecs);

  /** Decompresses a zstd frame; returns a status. {@code answer}: size, expected, found. */
  static native int unzstd(long codecs, long data, long sizeBytes, long out, long capacityBytes, long[] answer);

  /** 0: no memory. {@code want}: {@link RecordBatch#want}, or for a summary {@link Wanted#bits}. */
  static native long decoderOpen(long budget, boolean summary, int want, long targetBytes);

  static native void decoderClose(long decoder);

  /** Address of the decoder's {@link Report}. */
  static native long decoderReport(long decoder);

  /** A status. */
  static native int decoderBegin(
      long decoder,
      long basePosition,
      long endPosition,
      long fromOffset,
      long toOffsetExclusive,
      long leastOffset,
      long greatestOffset,
      long fromTimestampMs,
      long toTimestampExclusiveMs,
      byte[] aborted,
      long decompressedLimit,
      boolean verifyCrc);

  static native void decoderFeed(long decoder, long address, long sizeBytes);

  static native int decoderNext(long decoder);

  static native int decoderFinish(long decoder, boolean allowPartial);

  /** Steps over a batch; returns its bytes, or -1: its end is unknown. */
  static native int decoderSkip(long decoder);

  /**
   * In the range that the decoder has begun; positions in bytes; where batches are below worthBytes it gives up. Not
   * checked: headers are believed as far as they contradict neither each other nor the segment's greatest time.
   */
  static native void headersBegin(
      long decoder,
      int file,
      long logPosition,
      long endPosition,
      long readEnd,
      long worthBytes,
      boolean checked,
      long greatestTimestampMs);

  /**
   * Goes on with the headers; returns a status. {@code answer}: needed from, needed to, whether it ended, requests,
   * bytes.
   */
  static native int headersNext(long decoder, long[] answer);
}
