package io.tierlog.kafka;

import java.io.Closeable;
import java.io.EOFException;
import java.io.IOException;
import java.net.SocketTimeoutException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;

/**
 * A connection to a sidecar. Each wait on it has a deadline, and ends by an interrupt too, which closes it and leaves the
 * thread's flag set. For one thread at a time, but for {@link #close()}, which ends the other's wait.
 */
final class Connection implements Closeable {
  private final SocketChannel channel;
  private final Selector selector;
  private final SelectionKey key;

  /** When it was used last, as {@link System#nanoTime()}. */
  private volatile long usedNanos = System.nanoTime();

  private long bytesRead;

  private Connection(SocketChannel channel, Selector selector) throws IOException {
    this.channel = channel;
    this.selector = selector;
    this.key = channel.register(selector, SelectionKey.OP_READ);
  }

  static Connection open(Path socket) throws IOException {
    SocketChannel channel = SocketChannel.open(StandardProtocolFamily.UNIX);
    Selector selector = null;
    boolean made = false;
    try {
      channel.configureBlocking(false);
      // A Unix-domain socket is connected at once, or the queue of the listener is full, which is an error.
      if (!channel.connect(UnixDomainSocketAddress.of(socket))) {
        throw new IOException("the sidecar takes no connection at present");
      }
      selector = Selector.open();
      Connection connection = new Connection(channel, selector);
      made = true;
      return connection;
    } finally {
      if (!made) {
        channel.close();
        if (selector != null) {
          selector.close();
        }
      }
    }
  }

  /** Bytes that were read since it was opened. */
  long bytesRead() {
    return bytesRead;
  }

  void rest() {
    usedNanos = System.nanoTime();
  }

  long restedNanos() {
    return System.nanoTime() - usedNanos;
  }

  /** Writes all that the buffer has. */
  void write(ByteBuffer from, Deadline deadline) throws IOException {
    while (from.hasRemaining()) {
      checkInterrupt();
      if (channel.write(from) == 0) {
        await(SelectionKey.OP_WRITE, deadline);
      }
    }
  }

  /**
   * Reads at least one byte.
   *
   * @throws EOFException the sidecar closed the connection
   */
  void read(ByteBuffer into, Deadline deadline) throws IOException {
    while (true) {
      checkInterrupt();
      int count = channel.read(into);
      if (count > 0) {
        bytesRead += count;
        return;
      }
      if (count < 0) {
        throw new EOFException("the sidecar closed the connection");
      }
      await(SelectionKey.OP_READ, deadline);
    }
  }

  /** Waits for the first byte of an answer, or the connection's end; returns false if there is none by the deadline. */
  boolean awaitAnswer(Deadline deadline) throws IOException {
    return select(SelectionKey.OP_READ, deadline);
  }

  /** Whether nothing can be asked over it: between two requests there is something to read, its end as a rule. */
  boolean isStale() {
    try {
      key.interestOps(SelectionKey.OP_READ);
      selector.selectedKeys().clear();
      return selector.selectNow() > 0;
    } catch (IOException | ClosedSelectorException | CancelledKeyException e) {
      return true;
    }
  }

  /** Any thread, any number of times. */
  @Override
  public void close() {
    try (Selector ended = selector) {
      channel.close();
      ended.wakeup();
    } catch (IOException e) {
      // The descriptor is gone whatever it says.
    }
  }

  private void await(int operation, Deadline deadline) throws IOException {
    if (!select(operation, deadline)) {
      close();
      throw new SocketTimeoutException("no answer of the sidecar in time");
    }
  }

  private boolean select(int operation, Deadline deadline) throws IOException {
    try {
      key.interestOps(operation);
      while (true) {
        checkInterrupt();
        selector.selectedKeys().clear();
        if (deadline.isOver() ? selector.selectNow() > 0 : selector.select(deadline.millisLeft()) > 0) {
          return true;
        }
        checkInterrupt();
        if (!channel.isOpen()) {
          throw new ClosedChannelException();
        }
        if (deadline.isOver()) {
          return false;
        }
      }
    } catch (ClosedSelectorException | CancelledKeyException e) {
      throw new ClosedChannelException();
    }
  }

  private void checkInterrupt() throws ClosedByInterruptException {
    if (Thread.currentThread().isInterrupted()) {
      close();
      throw new ClosedByInterruptException();
    }
  }
}
