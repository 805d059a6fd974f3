package io.tierlog.kafka;

import java.io.Closeable;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.file.Path;
import java.util.Deque;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

/** Connections to the sidecar: each has one call at a time, a bounded number is in use, and those not in use wait here. */
final class Connections implements Closeable {
  private static final long IDLE_NANOS_MAX = TimeUnit.SECONDS.toNanos(60);
  private static final long RETRY_MILLIS_MIN = 10;
  private static final long RETRY_MILLIS_MAX = 500;

  private final Sidecar sidecar;
  private final Buffers buffers;
  private final byte[] firstHello;
  private final byte[] hello;
  private final Semaphore permits;
  private final Deque<Connection> idle = new ConcurrentLinkedDeque<>();
  private final Set<Connection> open = ConcurrentHashMap.newKeySet();
  private final CountDownLatch closed = new CountDownLatch(1);

  Connections(Sidecar sidecar, PluginConfig config, Buffers buffers) {
    this.sidecar = sidecar;
    this.buffers = buffers;
    this.firstHello = Request.hello(config.brokerId(), config.digest());
    // Credentials of the sidecar's may be others by then.
    this.hello = Request.hello(config.brokerId(), null);
    this.permits = new Semaphore(config.connectionsMax(), true);
  }

  /**
   * Takes a connection, which is given back or dropped. Waits while all are in use, and while there is no sidecar.
   *
   * @param fresh whether one that was used before will not do
   * @throws AnswerException the sidecar refuses ours
   */
  Connection take(boolean fresh, Deadline deadline) throws IOException {
    try {
      if (!permits.tryAcquire(deadline.millisLeft(), TimeUnit.MILLISECONDS)) {
        throw new SocketTimeoutException("as many requests as " + PluginConfig.CONNECTIONS_MAX + " allows are under way");
      }
    } catch (InterruptedException e) {
      throw interrupted();
    }
    boolean taken = false;
    try {
      Connection found = takeBeyond(fresh, deadline);
      taken = true;
      return found;
    } finally {
      if (!taken) {
        permits.release();
      }
    }
  }

  void give(Connection connection) {
    giveBeyond(connection);
    permits.release();
  }

  void drop(Connection connection) {
    dropBeyond(connection);
    permits.release();
  }

  /** Takes a connection that does not count. */
  Connection takeBeyond(boolean fresh, Deadline deadline) throws IOException {
    dropIdle(fresh ? 0 : IDLE_NANOS_MAX);
    for (Connection found = idle.pollFirst(); found != null; found = idle.pollFirst()) {
      if (!found.isStale()) {
        return found;
      }
      dropBeyond(found);
    }
    return openUntil(deadline);
  }

  void giveBeyond(Connection connection) {
    connection.rest();
    idle.addFirst(connection);
    if (closed.getCount() == 0) {
      dropBeyond(connection);
    }
  }

  void dropBeyond(Connection connection) {
    open.remove(connection);
    connection.close();
  }

  /** Tries once to open a connection that is kept, and compares configurations. */
  void probe(Deadline deadline) throws IOException {
    giveBeyond(openOnce(firstHello, deadline));
  }

  /** How many calls may begin at once. */
  int freeCount() {
    return permits.availablePermits();
  }

  /** How many there are, those that wait here among them. */
  int openCount() {
    return open.size();
  }

  boolean isClosed() {
    return closed.getCount() == 0;
  }

  /** Ends all calls. */
  @Override
  public void close() {
    closed.countDown();
    open.forEach(this::dropBeyond);
    idle.clear();
  }

  private void dropIdle(long nanosMin) {
    for (Connection last = idle.peekLast(); last != null && last.restedNanos() >= nanosMin; last = idle.peekLast()) {
      if (idle.removeLastOccurrence(last)) {
        dropBeyond(last);
      }
    }
  }

  private Connection openUntil(Deadline deadline) throws IOException {
    long pause = RETRY_MILLIS_MIN;
    while (true) {
      IOException failed;
      try {
        return openOnce(hello, deadline);
      } catch (ClosedByInterruptException e) {
        throw e;
      } catch (AnswerException e) {
        if (e.status() != AnswerException.STOPPING) {
          throw e;
        }
        failed = e;
      } catch (IOException e) {
        failed = e;
      }
      try {
        if (closed.await(Math.min(pause, deadline.millisLeft()), TimeUnit.MILLISECONDS)) {
          throw new ClosedChannelException();
        }
      } catch (InterruptedException e) {
        throw interrupted();
      }
      if (deadline.isOver()) {
        SocketTimeoutException late = new SocketTimeoutException("no sidecar answers: " + failed.getMessage());
        late.initCause(failed);
        throw late;
      }
      pause = Math.min(2 * pause, RETRY_MILLIS_MAX);
    }
  }

  private Connection openOnce(byte[] hello, Deadline deadline) throws IOException {
    Path socket = sidecar.socket(deadline);
    ByteBuffer buffer = buffers.take();
    Connection made = null;
    boolean greeted = false;
    try {
      made = Connection.open(socket);
      open.add(made);
      if (isClosed()) {
        throw new ClosedChannelException();
      }
      made.write(ByteBuffer.wrap(hello), deadline);
      Response answer = Response.begin(made, buffer, deadline);
      short version = answer.int16();
      answer.string();
      answer.int32();
      answer.end();
      if (version != Request.VERSION) {
        throw new IOException("the sidecar speaks version " + version);
      }
      greeted = true;
      return made;
    } finally {
      buffers.give(buffer);
      if (!greeted && made != null) {
        dropBeyond(made);
      }
    }
  }

  private static ClosedByInterruptException interrupted() {
    Thread.currentThread().interrupt();
    return new ClosedByInterruptException();
  }
}
