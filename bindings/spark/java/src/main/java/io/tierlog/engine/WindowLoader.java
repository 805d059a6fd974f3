package io.tierlog.engine;

import io.tierlog.plan.ChunkSlice;
import io.tierlog.plan.SegmentPlan;
import javax.crypto.spec.SecretKeySpec;

/** Memory for one window and the way into it. One thread at a time. */
final class WindowLoader implements AutoCloseable {
  private final Stores stores;
  private final NativeBlock window;
  private final NativeBlock stored;
  private final ChunkOpener opener;

  WindowLoader(Stores stores, TaskMemory memory) {
    this.stores = stores;
    window = new NativeBlock(memory);
    stored = new NativeBlock(memory);
    opener = new ChunkOpener(memory);
  }

  /**
   * Fetches the piece and undoes what was done to it.
   *
   * @return valid until the next load
   * @throws TierlogException CorruptObjectError, ObjectNotFoundError with the segment's age, EncryptionKeyError,
   *     StoreError and its kinds
   */
  Window load(Piece piece) {
    SegmentPlan segment = piece.range().segment();
    try {
      return segment.transformed() ? chunked(piece) : plain(piece);
    } catch (TierlogException error) {
      if (!error.kind().equals("ObjectNotFoundError")) {
        throw error;
      }
      long age = Math.max(0, System.currentTimeMillis() - segment.lastModifiedMs());
      String text =
          "%s: gone since it was listed (retention may have deleted it; it was written %s ago): %s";
      throw new TierlogException(
          error.kind(), text.formatted(segment.name(), Texts.inWords(age), error.getMessage()), error);
    }
  }

  private Window plain(Piece piece) {
    SegmentPlan segment = piece.range().segment();
    long start = segment.logPosition() + piece.start();
    long end = segment.logPosition() + piece.end();
    LogStore store = fetch(segment, start, end, window.reserve(end - start));
    long rangeEnd = segment.logPosition() + piece.range().endPosition();
    store.expect(segment, end, Math.min(rangeEnd, end + (end - start)));
    return new Window(window.address(), end - start);
  }

  private Window chunked(Piece piece) {
    SegmentPlan segment = piece.range().segment();
    ChunkSlice chunks = piece.range().chunks();
    int[] sizes = chunks.transformedSizes();
    long chunkBytes = segment.originalChunkSize();
    int first = Math.toIntExact((piece.start() - chunks.firstOriginalPosition()) / chunkBytes);
    int last = Math.toIntExact((piece.end() - 1 - chunks.firstOriginalPosition()) / chunkBytes);
    long base = segment.logPosition() + chunks.firstTransformedPosition();
    for (int chunk = 0; chunk < first; chunk++) {
      base += sizes[chunk];
    }
    long end = base;
    for (int chunk = first; chunk <= last; chunk++) {
      end += sizes[chunk];
    }
    SecretKeySpec key = segment.encrypted() ? stores.keyRing(segment).dataKey(segment) : null;
    fetch(segment, base, end, stored.reserve(end - base));
    long lastBytes = last == sizes.length - 1 ? chunks.lastOriginalSize() : chunkBytes;
    window.reserve((last - first) * chunkBytes + lastBytes);
    long at = base;
    for (int chunk = first; chunk <= last; chunk++) {
      long original = chunk == last ? lastBytes : chunkBytes;
      opener.open(
          segment, key, stored, at - base, sizes[chunk], at, window, (chunk - first) * chunkBytes, original);
      at += sizes[chunk];
    }
    long skipped = piece.start() - (chunks.firstOriginalPosition() + first * chunkBytes);
    return new Window(window.address() + skipped, piece.end() - piece.start());
  }

  /** All of it, or CorruptObjectError: the object ends before. */
  private LogStore fetch(SegmentPlan segment, long start, long end, long address) {
    LogStore store = stores.store(segment);
    long found = store.read(segment, start, end, address);
    stores.requests().incrementAndGet();
    stores.storedBytes().addAndGet(found);
    if (found != end - start) {
      String text = "the object ends early: " + (end - start) + " bytes wanted, " + found + " there";
      throw new CorruptDataException("CorruptObjectError", "TRUNCATED", text, segment.name(), start, -1, null);
    }
    return store;
  }

  @Override
  public void close() {
    window.close();
    stored.close();
    opener.close();
  }
}
