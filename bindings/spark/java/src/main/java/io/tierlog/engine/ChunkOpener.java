package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import javax.crypto.AEADBadTagException;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;

/** Stored chunks back to the broker's bytes: AES-GCM units and zstd frames. One thread at a time. */
final class ChunkOpener implements AutoCloseable {
  private static final int IV_BYTES = 12;
  private static final int TAG_BITS = 128;
  private static final int OVERHEAD_BYTES = IV_BYTES + TAG_BITS / 8;

  private final NativeBlock plain;
  private final long[] answer = new long[3];
  private Cipher cipher;
  private long codecs;

  ChunkOpener(TaskMemory memory) {
    plain = new NativeBlock(memory);
  }

  /**
   * One chunk.
   *
   * @param stored where its bytes begin in {@code block}
   * @param position of the chunk in its object, for messages
   * @param out where to; {@code originalBytes} of room
   * @throws TierlogException CorruptObjectError: not authentic, not a zstd frame, or not of that size
   */
  void open(
      SegmentPlan segment,
      SecretKeySpec key,
      NativeBlock block,
      long stored,
      long storedBytes,
      long position,
      NativeBlock out,
      long outAt,
      long originalBytes) {
    long base = block.address();
    if (key == null) {
      decompress(segment, base + stored, storedBytes, position, out.address() + outAt, originalBytes);
      return;
    }
    if (storedBytes < OVERHEAD_BYTES) {
      String text = "an encrypted unit of %d bytes: IV and tag alone take %d";
      throw corrupt(segment, text.formatted(storedBytes, OVERHEAD_BYTES), "TRUNCATED", position, null);
    }
    long size = storedBytes - OVERHEAD_BYTES;
    if (!segment.compressed()) {
      requireSize(segment, size, originalBytes, position);
      decrypt(segment, key, block, stored, storedBytes, position, out.view(outAt, originalBytes));
      return;
    }
    long address = plain.reserve(size);
    decrypt(segment, key, block, stored, storedBytes, position, plain.view(0, size));
    decompress(segment, address, size, position, out.address() + outAt, originalBytes);
  }

  private void decrypt(
      SegmentPlan segment,
      SecretKeySpec key,
      NativeBlock block,
      long stored,
      long storedBytes,
      long position,
      ByteBuffer out) {
    try {
      if (cipher == null) {
        cipher = Cipher.getInstance("AES/GCM/NoPadding");
      }
      ByteBuffer unit = block.view(stored, storedBytes);
      byte[] iv = new byte[IV_BYTES];
      unit.get(iv);
      cipher.init(Cipher.DECRYPT_MODE, key, new GCMParameterSpec(TAG_BITS, iv));
      cipher.updateAAD(segment.aad());
      cipher.doFinal(unit, out);
    } catch (AEADBadTagException cause) {
      String text = "not authentic: the AES-GCM tag does not fit the content, the key and the AAD";
      throw corrupt(segment, text, "NOT_AUTHENTIC", position, cause);
    } catch (GeneralSecurityException cause) {
      throw new TierlogException(
          "EncryptionKeyError", segment.name() + ": this Java has no AES-256-GCM: " + cause.getMessage(), cause);
    }
  }

  private void decompress(
      SegmentPlan segment, long data, long sizeBytes, long position, long out, long originalBytes) {
    if (codecs == 0) {
      codecs = Native.codecsOpen();
      if (codecs == 0) {
        throw new OutOfMemoryError("no native memory for the codecs");
      }
    }
    int status = Native.unzstd(codecs, data, sizeBytes, out, originalBytes, answer);
    if (Faults.isOverLimit(status)) {
      String text = "the zstd frame holds more than the " + originalBytes + " bytes of its chunk";
      throw corrupt(segment, text, "OVER_LIMIT", position, null);
    }
    if (status != 0) {
      String text = "the zstd frame of the chunk is corrupt: " + Faults.text(status, answer[1], answer[2]);
      throw corrupt(segment, text, Native.statusName(status), position, null);
    }
    requireSize(segment, answer[0], originalBytes, position);
  }

  private static void requireSize(SegmentPlan segment, long found, long expected, long position) {
    if (found != expected) {
      String text = "the chunk holds " + found + " bytes, " + expected + " expected";
      throw corrupt(segment, text, "BAD_SIZE", position, null);
    }
  }

  private static CorruptDataException corrupt(
      SegmentPlan segment, String text, String fault, long position, Throwable cause) {
    return new CorruptDataException("CorruptObjectError", fault, text, segment.name(), position, -1, cause);
  }

  @Override
  public void close() {
    plain.close();
    if (codecs != 0) {
      Native.codecsClose(codecs);
      codecs = 0;
    }
  }
}
