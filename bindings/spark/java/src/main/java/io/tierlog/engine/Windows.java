package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;
import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.Deque;

/**
 * The windows of a task, in order; some are loaded while one is decoded.
 *
 * <p>Local files are read when they are wanted, by the thread that decodes them while they are in its core's cache; the
 * system reads ahead. Reads of object stores are begun ahead. Chunks are opened where they are wanted: a task has one
 * core. Memory: stored bytes of as many windows as are ahead and one more, and one opened window.
 *
 * <p>One thread at a time, but for {@link #abort}.
 */
final class Windows implements AutoCloseable {
  private final Stores stores;
  private final Pieces pieces;
  private final ChunkOpener opener;
  private final Deque<WindowLoader> pending = new ArrayDeque<>();
  private final Deque<WindowLoader> idle = new ArrayDeque<>();
  private WindowLoader taken;
  private Piece faulty;
  private volatile WindowLoader awaited;
  private volatile boolean aborted;

  /**
   * @param ahead windows under way while one is decoded
   */
  Windows(Stores stores, Pieces pieces, TaskMemory memory, int ahead) {
    this.stores = stores;
    this.pieces = pieces;
    opener = new ChunkOpener(memory);
    for (int number = 0; number <= ahead; number++) {
      idle.add(new WindowLoader(stores, memory));
    }
  }

  /**
   * The next window of a range.
   *
   * @param number of the range; ranges before it are left out
   * @return valid until the next call; null: the range has no more
   * @throws TierlogException CorruptObjectError, ObjectNotFoundError, EncryptionKeyError, StoreError and its kinds;
   *     ConfigError: the ceiling of native memory
   * @throws InterruptedIOException the thread was interrupted, or {@link #abort} was called
   */
  Window next(int number) throws InterruptedIOException {
    if (taken != null) {
      idle.add(taken);
      taken = null;
    }
    while (!pending.isEmpty() && pending.peek().piece().number() < number) {
      WindowLoader dropped = pending.remove();
      dropped.cancel();
      idle.add(dropped);
    }
    while (pieces.hasNext() && pieces.number() < number) {
      pieces.skip();
    }
    beginNext();
    if (pending.isEmpty() || pending.peek().piece().number() != number) {
      return null;
    }
    taken = pending.remove();
    Piece piece = taken.piece();
    faulty = piece;
    SegmentPlan segment = piece.range().segment();
    if (segment.encrypted()) {
      // First of all: where damage may be left out, an object that is cut hides no missing key.
      stores.keyRing(segment).dataKey(segment);
    }
    await(taken);
    return segment.transformed()
        ? opener.open(piece, stores, taken)
        : new Window(taken.stored().address(), piece.end() - piece.start());
  }

  /**
   * Of the window that {@link #next} could not give, what lies before the fault: of a plain log the bytes that are there, of
   * one in chunks its whole chunks, one at a time, as a part of one is neither authentic nor a whole frame.
   *
   * @return valid until the next call; null: no more
   * @throws TierlogException as {@link #next}, but for the fault
   * @throws InterruptedIOException as {@link #next}
   */
  Window beforeFault() throws InterruptedIOException {
    Piece piece = faulty;
    faulty = null;
    if (piece == null) {
      return null;
    }
    if (!piece.range().segment().transformed()) {
      return taken.found() > 0 ? new Window(taken.stored().address(), taken.found()) : null;
    }
    long chunkBytes = piece.range().segment().originalChunkSize();
    long end = Math.min((piece.start() / chunkBytes + 1) * chunkBytes, piece.end());
    Piece chunk = new Piece(piece.number(), piece.range(), piece.start(), end);
    try {
      taken.begin(chunk);
      await(taken);
      Window window = opener.open(chunk, stores, taken);
      faulty = end < piece.end() ? new Piece(piece.number(), piece.range(), end, piece.end()) : null;
      return window;
    } catch (CorruptDataException fault) {
      return null;
    }
  }

  private void beginNext() {
    while (!idle.isEmpty() && pieces.hasNext()) {
      WindowLoader loader = idle.peek();
      loader.begin(pieces.next());
      pending.add(idle.remove());
    }
  }

  private void await(WindowLoader loader) throws InterruptedIOException {
    String name = loader.piece().range().segment().name();
    awaited = loader;
    try {
      if (aborted) {
        throw new InterruptedIOException("the task ended while " + name + " was read");
      }
      loader.await();
    } catch (InterruptedException cause) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while " + name + " was read");
    } catch (TierlogException error) {
      if (aborted) {
        throw new InterruptedIOException("the task ended while " + name + " was read");
      }
      throw error;
    } finally {
      awaited = null;
    }
  }

  /** Ends the wait of {@link #next}, now and later. Windows that were given stay valid. Any thread. */
  void abort() {
    aborted = true;
    WindowLoader loader = awaited;
    if (loader != null) {
      loader.interrupt();
    }
  }

  /** Cancels all loads and releases all memory. */
  @Override
  public void close() {
    pending.forEach(WindowLoader::close);
    pending.clear();
    idle.forEach(WindowLoader::close);
    idle.clear();
    if (taken != null) {
      taken.close();
      taken = null;
    }
    opener.close();
    stores.close();
  }
}
