package io.tierlog.engine;

import io.tierlog.plan.SegmentPlan;
import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.Deque;

/**
 * The windows of a task, in order, some under way while one is decoded.
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
    SegmentPlan segment = piece.range().segment();
    if (segment.encrypted()) {
      // First of all: where damage may be left out, an object that is cut hides no missing key.
      stores.keyRing(segment).dataKey(segment);
    }
    await(taken);
    if (segment.transformed()) {
      return opener.open(piece, stores, taken);
    }
    return new Window(taken.stored().address(), piece.end() - piece.start());
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

  /** From any thread: ends the wait of {@link #next}, and those to come. Windows that were given stay valid. */
  void abort() {
    aborted = true;
    WindowLoader loader = awaited;
    if (loader != null) {
      loader.interrupt();
    }
  }

  /** Gives up what is under way and gives everything back. */
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
