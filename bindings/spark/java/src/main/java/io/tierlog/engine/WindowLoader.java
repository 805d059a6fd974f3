package io.tierlog.engine;

import io.tierlog.plan.ChunkSlice;
import io.tierlog.plan.SegmentPlan;

/** Loads the stored bytes of one window, and holds the memory for them. One thread, but for {@link #interrupt}. */
final class WindowLoader implements AutoCloseable {
  private final Stores stores;
  private final NativeBlock stored;
  private Piece piece;
  private LogStore store;
  private volatile Fetch fetch;
  private TierlogException refused;
  private long start;
  private long end;
  private long found;

  WindowLoader(Stores stores, TaskMemory memory) {
    this.stores = stores;
    stored = new NativeBlock(memory);
  }

  /** The piece that is being loaded. */
  Piece piece() {
    return piece;
  }

  /** Memory of the stored bytes. */
  NativeBlock stored() {
    return stored;
  }

  /** Position in the object of the first stored byte. */
  long start() {
    return start;
  }

  /** How many stored bytes came: all, or those of an object that was cut. */
  long found() {
    return found;
  }

  /**
   * Begins to fetch a piece; its errors come where it is waited for.
   *
   * @throws TierlogException ConfigError: the ceiling of native memory
   */
  void begin(Piece next) {
    SegmentPlan segment = next.range().segment();
    piece = next;
    start = segment.logPosition() + next.start();
    end = segment.logPosition() + next.end();
    if (segment.transformed()) {
      ChunkSlice chunks = next.range().chunks();
      start = segment.logPosition() + chunks.firstTransformedPosition();
      for (int chunk = 0; chunk < next.firstChunk(); chunk++) {
        start += chunks.transformedSizes()[chunk];
      }
      end = start;
      for (int chunk = next.firstChunk(); chunk <= next.lastChunk(); chunk++) {
        end += chunks.transformedSizes()[chunk];
      }
    }
    long address = stored.reserve(end - start);
    refused = null;
    found = 0;
    try {
      store = stores.store(segment);
      fetch = store.begin(segment, start, end, address);
    } catch (TierlogException error) {
      refused = error;
    }
  }

  /**
   * Waits until all bytes are there.
   *
   * @throws TierlogException CorruptObjectError: the object ends before; ObjectNotFoundError with the segment's age,
   *     StoreError and its kinds
   * @throws InterruptedException the thread was interrupted
   */
  void await() throws InterruptedException {
    SegmentPlan segment = piece.range().segment();
    try {
      if (refused != null) {
        throw refused;
      }
      found = fetch.await();
      stores.counted(found);
      if (found != end - start) {
        String text = "the object ends early: " + (end - start) + " bytes wanted, " + found + " there";
        throw new CorruptDataException("CorruptObjectError", "TRUNCATED", text, segment.name(), start, -1, null);
      }
      long rangeEnd = segment.logPosition() + piece.range().readEnd();
      store.expect(segment, end, segment.transformed() ? end + (end - start) : Math.min(rangeEnd, end + (end - start)));
    } catch (CorruptDataException error) {
      throw error; // names the segment as messages may
    } catch (TierlogException told) {
      TierlogException error = masked(told, segment);
      if (!error.kind().equals("ObjectNotFoundError")) {
        throw error;
      }
      long age = Math.max(0, System.currentTimeMillis() - segment.lastModifiedMs());
      String text = "%s: gone since it was listed (retention may have deleted it; it was written %s ago): %s";
      throw new TierlogException(
          error.kind(), text.formatted(segment.name(), Texts.inWords(age), error.getMessage()), error);
    } finally {
      cancel();
    }
  }

  /** The store's error without its cause, which would show the masked prefix. */
  private static TierlogException masked(TierlogException error, SegmentPlan segment) {
    if (error.kind().equals("ConfigError")) {
      return error;
    }
    String text = Texts.masked(error.getMessage(), segment.name(), segment.key());
    return text.equals(error.getMessage()) ? error : new TierlogException(error.kind(), text);
  }

  /** Cancels the load. */
  void cancel() {
    Fetch under = fetch;
    fetch = null;
    if (under != null) {
      under.close();
    }
  }

  /** Ends a wait. Any thread. */
  void interrupt() {
    Fetch under = fetch;
    if (under != null) {
      under.close();
    }
  }

  @Override
  public void close() {
    cancel();
    stored.close();
  }
}
