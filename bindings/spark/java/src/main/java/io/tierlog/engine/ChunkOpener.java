package io.tierlog.engine;

import io.tierlog.plan.ChunkSlice;
import io.tierlog.plan.SegmentPlan;
import java.nio.ByteBuffer;
import java.security.GeneralSecurityException;
import javax.crypto.AEADBadTagException;
import javax.crypto.Cipher;
import javax.crypto.spec.GCMParameterSpec;
import javax.crypto.spec.SecretKeySpec;
import org.apache.spark.unsafe.Platform;

/**
 * Turns stored chunks back into the broker's bytes: decrypts AES-GCM units, in place if the native cipher is there, and
 * decompresses zstd frames. One thread at a time.
 */
final class ChunkOpener implements AutoCloseable {
  private static final int IV_BYTES = 12;
  private static final int TAG_BITS = 128;
  private static final int OVERHEAD_BYTES = IV_BYTES + TAG_BITS / 8;

  private static final String NOT_AUTHENTIC =
      "not authentic: the AES-GCM tag does not fit the content, the key and the AAD";

  private final NativeBlock window;
  private final NativeBlock plain;
  private final long[] answer = new long[3];
  private Cipher cipher;
  private long codecs;

  ChunkOpener(TaskMemory memory) {
    window = new NativeBlock(memory);
    plain = new NativeBlock(memory);
  }

  /**
   * Opens the chunks of a piece into one window.
   *
   * @param stored the stored chunks
   * @return valid until the next call
   * @throws TierlogException EncryptionKeyError; CorruptObjectError: a chunk is not authentic, not a zstd frame, or not
   *     of its size; ConfigError: the ceiling of native memory
   */
  Window open(Piece piece, Stores stores, WindowLoader stored) {
    SegmentPlan segment = piece.range().segment();
    ChunkSlice chunks = piece.range().chunks();
    SecretKeySpec key = segment.encrypted() ? stores.keyRing(segment).dataKey(segment) : null;
    boolean inPlace = key != null && NativeCipher.isUsable(stores.nativeDirectory());
    int first = piece.firstChunk();
    int last = piece.lastChunk();
    long chunkBytes = segment.originalChunkSize();
    long lastBytes = last == chunks.transformedSizes().length - 1 ? chunks.lastOriginalSize() : chunkBytes;
    window.reserve((last - first) * chunkBytes + lastBytes);
    Chunk[] wanted = new Chunk[last - first + 1];
    long at = 0;
    for (int chunk = first; chunk <= last; chunk++) {
      int storedBytes = chunks.transformedSizes()[chunk];
      Chunk one =
          new Chunk(segment, stored.start() + at, stored.stored(), at, storedBytes, chunk == last ? lastBytes : chunkBytes);
      requireStoredSize(one, chunks.firstOriginalPosition() / chunkBytes + chunk);
      wanted[chunk - first] = one;
      at += storedBytes;
    }
    for (int chunk = 0; chunk < wanted.length; chunk++) {
      open(wanted[chunk], key, inPlace, chunk * chunkBytes);
    }
    long skipped = piece.start() - (chunks.firstOriginalPosition() + first * chunkBytes);
    return new Window(window.address() + skipped, piece.end() - piece.start());
  }

  /**
   * @param position in the object, for messages
   * @param at where it begins in {@code block}
   */
  private record Chunk(
      SegmentPlan segment, long position, NativeBlock block, long at, long storedBytes, long originalBytes) {
    long address() {
      return block.address() + at;
    }
  }

  /** Opens one chunk into its place in the window. */
  private void open(Chunk chunk, SecretKeySpec key, boolean inPlace, long windowAt) {
    if (key == null) {
      decompress(chunk, chunk.address(), chunk.storedBytes(), window.address() + windowAt);
      return;
    }
    if (chunk.storedBytes() < OVERHEAD_BYTES) {
      String text = "an encrypted unit of %d bytes: IV and tag alone take %d";
      throw corrupt(chunk, text.formatted(chunk.storedBytes(), OVERHEAD_BYTES), "TRUNCATED", null);
    }
    long size = chunk.storedBytes() - OVERHEAD_BYTES;
    if (!chunk.segment().compressed()) {
      requireSize(chunk, size);
    }
    if (inPlace) {
      decryptInPlace(chunk, key, size);
      take(chunk, chunk.address() + IV_BYTES, size, windowAt);
    } else if (chunk.segment().compressed()) {
      plain.reserve(size);
      decrypt(chunk, key, plain.view(0, size));
      take(chunk, plain.address(), size, windowAt);
    } else {
      decrypt(chunk, key, window.view(windowAt, size));
    }
  }

  /** Puts decrypted bytes into their place in the window. */
  private void take(Chunk chunk, long data, long sizeBytes, long windowAt) {
    if (chunk.segment().compressed()) {
      decompress(chunk, data, sizeBytes, window.address() + windowAt);
    } else {
      Platform.copyMemory(null, data, null, window.address() + windowAt, sizeBytes);
    }
  }

  private void decryptInPlace(Chunk chunk, SecretKeySpec key, long sizeBytes) {
    long found = NativeCipher.open0(key.getEncoded(), chunk.segment().aad(), chunk.address(), chunk.storedBytes());
    if (found == NativeCipher.NOT_AUTHENTIC) {
      throw corrupt(chunk, NOT_AUTHENTIC, "NOT_AUTHENTIC", null);
    }
    if (found != sizeBytes) {
      throw new TierlogException("EncryptionKeyError", chunk.segment().name() + ": its data key is none of AES-256");
    }
  }

  private void decrypt(Chunk chunk, SecretKeySpec key, ByteBuffer out) {
    try {
      if (cipher == null) {
        cipher = Cipher.getInstance("AES/GCM/NoPadding");
      }
      ByteBuffer unit = chunk.block().view(chunk.at(), chunk.storedBytes());
      byte[] iv = new byte[IV_BYTES];
      unit.get(iv);
      cipher.init(Cipher.DECRYPT_MODE, key, new GCMParameterSpec(TAG_BITS, iv));
      cipher.updateAAD(chunk.segment().aad());
      cipher.doFinal(unit, out);
    } catch (AEADBadTagException cause) {
      throw corrupt(chunk, NOT_AUTHENTIC, "NOT_AUTHENTIC", cause);
    } catch (GeneralSecurityException cause) {
      String text = chunk.segment().name() + ": this Java cannot open AES-256-GCM: " + cause.getMessage();
      throw new TierlogException("EncryptionKeyError", text, cause);
    }
  }

  private void decompress(Chunk chunk, long data, long sizeBytes, long out) {
    if (codecs == 0) {
      codecs = Native.codecsOpen();
      if (codecs == 0) {
        throw new OutOfMemoryError("no native memory for the codecs");
      }
    }
    int status = Native.unzstd(codecs, data, sizeBytes, out, chunk.originalBytes(), answer);
    if (Faults.isOverLimit(status)) {
      String text = "the zstd frame holds more than the " + chunk.originalBytes() + " bytes of its chunk";
      throw corrupt(chunk, text, "OVER_LIMIT", null);
    }
    if (status != 0) {
      String text = "the zstd frame of the chunk is corrupt: " + Faults.text(status, answer[1], answer[2]);
      throw corrupt(chunk, text, Native.statusName(status), null);
    }
    requireSize(chunk, answer[0]);
  }

  /** No way to store a chunk makes it larger: what zstd adds to noise, IV and tag, and room. */
  private static void requireStoredSize(Chunk chunk, long number) {
    long bytes = chunk.originalBytes();
    if (chunk.storedBytes() > bytes + bytes / 64 + 4096) {
      String text = "chunk %d of %d bytes is said to be stored in %d".formatted(number, bytes, chunk.storedBytes());
      throw corrupt(chunk, text, "OVER_LIMIT", null);
    }
  }

  private static void requireSize(Chunk chunk, long found) {
    if (found != chunk.originalBytes()) {
      String text = "the chunk holds " + found + " bytes, " + chunk.originalBytes() + " expected";
      throw corrupt(chunk, text, "BAD_SIZE", null);
    }
  }

  private static CorruptDataException corrupt(Chunk chunk, String text, String fault, Throwable cause) {
    return new CorruptDataException(
        "CorruptObjectError", fault, text, chunk.segment().name(), chunk.position(), -1, cause);
  }

  @Override
  public void close() {
    window.close();
    plain.close();
    if (codecs != 0) {
      Native.codecsClose(codecs);
      codecs = 0;
    }
  }
}
