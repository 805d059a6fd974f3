package io.tierlog.kafka;

import java.io.IOException;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/** Calls of the sidecar, their second attempts, and their failures as the KIP's exceptions. */
final class SidecarClient {
  private static final int HEALTH_FAILURES_MAX = 3;

  private final Connections connections;
  private final Buffers buffers;
  private final Patience patience;

  /**
   * How long is waited.
   *
   * @param requestMs for an answer, except a copy's
   * @param healthEveryMs how often the sidecar is asked for its health while a copy runs
   * @param healthMs for the answer to that
   */
  record Patience(long requestMs, long healthEveryMs, long healthMs) {
    static Patience of(PluginConfig config) {
      return new Patience(config.requestTimeoutMs(), 10_000, 5_000);
    }
  }

  /**
   * Bytes of a file.
   *
   * @param buffer has those that are not in the caller's array, and is the caller's now; null: there are none
   * @param count how many, in both
   * @param isLast whether nothing is behind them
   */
  record Piece(ByteBuffer buffer, int count, boolean isLast) {}

  /**
   * A copy that is done.
   *
   * @param custom the custom metadata; null: none
   * @param objectBytes sizes of the objects that it stored: log, indexes, manifest; -1: that one was there
   */
  record Copied(byte[] custom, long[] objectBytes) {}

  /** Takes the body of a response. */
  private interface Body<T> {
    T take(Response response, ByteBuffer buffer) throws IOException;
  }

  SidecarClient(Connections connections, Buffers buffers, Patience patience) {
    this.connections = connections;
    this.buffers = buffers;
    this.patience = patience;
  }

  /**
   * Copies a segment; waits for that as long as the sidecar lives.
   *
   * @throws RemoteStorageException the retriable one only if nothing is stored
   */
  Copied copy(String what, byte[] request) throws RemoteStorageException {
    return call(
        what,
        request,
        true,
        Deadline.in(patience.requestMs()),
        (response, buffer) ->
            new Copied(response.bytes(), new long[] {response.int64(), response.int64(), response.int64()}));
  }

  void delete(String what, byte[] request) throws RemoteStorageException {
    call(what, request, false, Deadline.in(patience.requestMs()), (response, buffer) -> null);
  }

  /** Fetches a piece of at most {@link Buffers#PIECE_BYTES}. */
  Piece fetch(String what, byte[] request) throws RemoteStorageException {
    return call(
        what,
        request,
        false,
        Deadline.in(patience.requestMs()),
        (response, buffer) -> {
          boolean isLast = response.flag();
          int count = pieceSize(response, isLast, Buffers.PIECE_BYTES);
          response.takeRest();
          return new Piece(buffer, count, isLast);
        });
  }

  /**
   * Fetches a piece into the caller's array, and what is beyond its room into a buffer.
   *
   * @param bytesMax that the request asks for: the room, and at most {@link Buffers#PIECE_BYTES} beyond it
   */
  Piece fetch(String what, byte[] request, byte[] into, int from, int room, int bytesMax)
      throws RemoteStorageException {
    return call(
        what,
        request,
        false,
        Deadline.in(patience.requestMs()),
        (response, buffer) -> {
          boolean isLast = response.flag();
          int count = pieceSize(response, isLast, bytesMax);
          response.take(into, from, Math.min(count, room));
          if (count <= room) {
            return new Piece(null, count, isLast);
          }
          response.takeRest();
          return new Piece(buffer, count, isLast);
        });
  }

  /** The sidecar's metrics as JSON; does not count as a request. */
  byte[] metrics(long millisMax) throws IOException {
    return callBeyond(Request.metrics(), Deadline.in(millisMax), Response::bytes);
  }

  void give(ByteBuffer buffer) {
    buffers.give(buffer);
  }

  private static int pieceSize(Response response, boolean isLast, int bytesMax) throws IOException {
    int count = response.left();
    if (count > bytesMax || count == 0 && !isLast) {
      throw new IOException("a piece of " + count + " bytes where " + bytesMax + " were asked for");
    }
    return count;
  }

  private <T> T call(String what, byte[] request, boolean isCopy, Deadline deadline, Body<T> body)
      throws RemoteStorageException {
    IOException first = null;
    while (true) {
      boolean sent = false;
      Connection connection = null;
      long before = 0;
      try {
        connection = connections.take(first != null, deadline);
        before = connection.bytesRead();
        ByteBuffer buffer = null;
        T result = null;
        boolean reusable = false;
        try {
          buffer = buffers.take(); // in here, since there may be no memory for one
          write(connection, request, buffer, deadline);
          sent = true;
          if (isCopy) {
            awaitCopy(connection);
          }
          // A copy's answer has begun, and all others have to end by then.
          Response response =
              Response.begin(connection, buffer, isCopy ? Deadline.in(patience.requestMs()) : deadline);
          result = body.take(response, buffer);
          if (!(result instanceof Piece piece) || piece.buffer() == null) {
            response.end();
          }
          reusable = true;
          return result;
        } catch (AnswerException e) {
          reusable = true;
          throw e;
        } finally {
          boolean isHandedOn = reusable && result instanceof Piece piece && piece.buffer() != null;
          if (buffer != null && !isHandedOn) {
            buffers.give(buffer);
          }
          if (reusable) {
            connections.give(connection);
          } else {
            connections.drop(connection);
          }
        }
      } catch (IOException e) {
        boolean untouched = connection != null && connection.bytesRead() == before;
        if (first == null && mayRepeat(e, untouched, sent && isCopy)) {
          first = e;
          continue;
        }
        throw failure(what, e, sent && isCopy);
      } catch (OutOfMemoryError e) {
        // An error ends a task of Kafka's for good: the partition is not tiered any more until the broker's restart.
        throw failure(what, new IOException("the broker has no memory: " + e.getMessage(), e), sent && isCopy);
      }
    }
  }

  private boolean mayRepeat(IOException e, boolean untouched, boolean mayBeStored) {
    if (e instanceof AnswerException answer) {
      return answer.status() == AnswerException.STOPPING;
    }
    return untouched
        && !mayBeStored
        && !(e instanceof SocketTimeoutException)
        && !(e instanceof ClosedByInterruptException)
        && !connections.isClosed();
  }

  private static void write(Connection connection, byte[] request, ByteBuffer buffer, Deadline deadline)
      throws IOException {
    ByteBuffer frame = request.length <= buffer.capacity() ? buffer.clear().put(request).flip() : ByteBuffer.wrap(request);
    connection.write(frame, deadline);
  }

  private void awaitCopy(Connection connection) throws IOException {
    int failures = 0;
    while (!connection.awaitAnswer(Deadline.in(patience.healthEveryMs()))) {
      try {
        callBeyond(Request.health(), Deadline.in(patience.healthMs()), Response::string);
        failures = 0;
      } catch (ClosedByInterruptException e) {
        throw e;
      } catch (IOException | OutOfMemoryError e) {
        if (++failures == HEALTH_FAILURES_MAX) {
          throw new IOException("the sidecar does not say whether it lives: " + e.getMessage(), e);
        }
      }
    }
  }

  private interface SmallBody<T> {
    T take(Response response) throws IOException;
  }

  private <T> T callBeyond(byte[] request, Deadline deadline, SmallBody<T> body) throws IOException {
    ByteBuffer buffer = buffers.take();
    Connection connection = null;
    boolean reusable = false;
    try {
      connection = connections.takeBeyond(false, deadline);
      write(connection, request, buffer, deadline);
      Response response = Response.begin(connection, buffer, deadline);
      T result = body.take(response);
      response.end();
      reusable = true;
      return result;
    } catch (AnswerException e) {
      reusable = connection != null; // else it was the answer to a greeting
      throw e;
    } finally {
      buffers.give(buffer);
      if (reusable) {
        connections.giveBeyond(connection);
      } else if (connection != null) {
        connections.dropBeyond(connection);
      }
    }
  }

  private RemoteStorageException failure(String what, IOException e, boolean mayBeStored) {
    String text = what + ": ";
    if (e instanceof AnswerException answer) {
      text += e.getMessage();
      return switch (answer.status()) {
        case AnswerException.NOT_FOUND -> new RemoteResourceNotFoundException(text, e);
        case AnswerException.RETRIABLE, AnswerException.STOPPING -> LaterKafka.retriable(text, e);
        default -> new RemoteStorageException(text, e);
      };
    }
    if (e instanceof ClosedByInterruptException) {
      text += "the thread was interrupted";
    } else if (e instanceof ClosedChannelException && connections.isClosed()) {
      text += "the storage manager is closed";
    } else if (e.getCause() instanceof OutOfMemoryError) {
      text += e.getMessage();
    } else {
      text += "the sidecar failed: " + (e.getMessage() == null ? e.toString() : e.getMessage());
    }
    return mayBeStored ? new RemoteStorageException(text, e) : LaterKafka.retriable(text, e);
  }
}
