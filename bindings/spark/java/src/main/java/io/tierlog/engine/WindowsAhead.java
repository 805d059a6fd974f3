package io.tierlog.engine;

import java.io.InterruptedIOException;
import java.util.ArrayDeque;
import java.util.Deque;

/**
 * Windows that a few threads of the task's own read ahead: of object stores, whose answers take time.
 *
 * <p>Memory: one window more than there are threads. The threads end with the last piece or with {@link #close}; a read
 * that is under way then goes on until its store answers, and gives its window back itself.
 */
final class WindowsAhead implements Windows {
  private enum State {
    WAITING,
    RUNNING,
    DONE,
    DROPPED
  }

  private static final class Load {
    final Piece piece;
    WindowLoader loader;
    State state = State.WAITING;
    Window window;
    Throwable error;

    Load(Piece piece) {
      this.piece = piece;
    }
  }

  private final Stores stores;
  private final Pieces pieces;
  // All below are guarded by `this`. A load is in `pending` until it is taken; a loader is with a load that is not
  // taken yet, with `taken`, or in `idle`.
  private final Deque<Load> pending = new ArrayDeque<>();
  private final Deque<WindowLoader> idle = new ArrayDeque<>();
  private final int ahead;
  private WindowLoader taken;
  private boolean exhausted;
  private boolean aborted;
  private boolean closed;
  private int threads;
  private int running;

  WindowsAhead(Stores stores, Pieces pieces, TaskMemory memory, int ahead) {
    this.stores = stores;
    this.pieces = pieces;
    this.ahead = ahead;
    for (int number = 0; number <= ahead; number++) {
      idle.add(new WindowLoader(stores, memory));
    }
  }

  @Override
  public synchronized Window next(int number) throws InterruptedIOException {
    if (taken != null) {
      idle.add(taken);
      taken = null;
    }
    drop(number);
    plan();
    Load first = pending.peek();
    if (first == null || first.piece.number() != number) {
      return null;
    }
    while (first.state != State.DONE) {
      await(first.piece);
    }
    pending.remove();
    taken = first.loader;
    if (first.error != null) {
      rethrow(first.error);
    }
    plan();
    return first.window;
  }

  /** Leaves out what belongs to ranges before; a load that runs keeps its loader until it ends. */
  private void drop(int number) {
    while (!pending.isEmpty() && pending.peek().piece.number() < number) {
      Load load = pending.remove();
      if (load.state == State.DONE) {
        idle.add(load.loader);
      }
      load.state = State.DROPPED;
    }
    while (pieces.hasNext() && pieces.number() < number) {
      pieces.skip();
    }
  }

  private void plan() {
    while (pending.size() <= ahead && pieces.hasNext()) {
      pending.add(new Load(pieces.next()));
    }
    exhausted = !pieces.hasNext();
    while (threads < Math.min(ahead, pending.size()) && !aborted) {
      threads++;
      Thread thread = new Thread(this::work, "tierlog-window");
      thread.setDaemon(true);
      EngineCounters.THREADS.incrementAndGet();
      thread.start();
    }
    notifyAll();
  }

  private void await(Piece piece) throws InterruptedIOException {
    if (aborted) {
      throw new InterruptedIOException("the task ended while " + piece.range().segment().name() + " was read");
    }
    try {
      wait();
    } catch (InterruptedException cause) {
      Thread.currentThread().interrupt();
      throw new InterruptedIOException("interrupted while " + piece.range().segment().name() + " was read");
    }
  }

  private static void rethrow(Throwable error) {
    if (error instanceof TierlogException known) {
      throw known;
    }
    if (error instanceof Error fatal) {
      throw fatal;
    }
    throw new IllegalStateException(error);
  }

  // ---- the threads that read ----

  private void work() {
    try {
      for (Load load = begin(); load != null; load = begin()) {
        Window window = null;
        Throwable error = null;
        try {
          window = load.loader.load(load.piece);
        } catch (Throwable failed) {
          error = failed;
        }
        end(load, window, error);
      }
    } finally {
      EngineCounters.THREADS.decrementAndGet();
    }
  }

  /** The next load to run, with a loader; null: nothing more comes. */
  private synchronized Load begin() {
    while (!aborted) {
      Load next = idle.isEmpty() ? null : firstWaiting();
      if (next != null) {
        next.loader = idle.remove();
        next.state = State.RUNNING;
        running++;
        return next;
      }
      if (exhausted && firstWaiting() == null) {
        break;
      }
      try {
        wait();
      } catch (InterruptedException nobodyDoesThat) {
        break;
      }
    }
    threads--;
    return null;
  }

  private Load firstWaiting() {
    for (Load load : pending) {
      if (load.state == State.WAITING) {
        return load;
      }
    }
    return null;
  }

  private synchronized void end(Load load, Window window, Throwable error) {
    running--;
    if (closed) {
      load.loader.close();
      closeStores();
    } else if (load.state == State.DROPPED) {
      idle.add(load.loader);
    } else {
      load.window = window;
      load.error = error;
      load.state = State.DONE;
    }
    notifyAll();
  }

  // ---- the end ----

  @Override
  public synchronized void abort() {
    aborted = true;
    notifyAll();
  }

  @Override
  public synchronized void close() {
    aborted = true;
    closed = true;
    for (Load load : pending) {
      if (load.state == State.DONE) {
        load.loader.close();
      }
    }
    pending.clear();
    idle.forEach(WindowLoader::close);
    idle.clear();
    if (taken != null) {
      taken.close();
      taken = null;
    }
    closeStores();
    notifyAll();
  }

  private void closeStores() {
    if (running == 0) {
      stores.close();
    }
  }
}
