package io.tierlog.kafka;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * A response that is read as far as it was taken. Its bytes go through a buffer of the caller.
 *
 * <p>Invariant: {@code buffer}, between position and limit, and then the connection have the {@code left} bytes of the body.
 */
final class Response {
  /** A piece of 4 MiB, and what is around it. */
  private static final int LENGTH_MAX = 4 * 1024 * 1024 + 1024;

  private static final int HEAD_BYTES = 5;

  private final Connection connection;
  private final ByteBuffer buffer;
  private final Deadline deadline;
  private int left;

  private Response(Connection connection, ByteBuffer buffer, Deadline deadline) {
    this.connection = connection;
    this.buffer = buffer;
    this.deadline = deadline;
  }

  /**
   * Reads the head of a response.
   *
   * @throws AnswerException its status is not 0; the response is read to its end
   */
  static Response begin(Connection connection, ByteBuffer buffer, Deadline deadline) throws IOException {
    buffer.clear().limit(0);
    Response made = new Response(connection, buffer, deadline);
    made.left = HEAD_BYTES;
    made.need(HEAD_BYTES);
    int length = buffer.getInt();
    if (length < 1 || length > LENGTH_MAX) {
      throw new IOException("a response of " + length + " bytes");
    }
    int status = buffer.get();
    made.left = length - 1;
    if (status != 0) {
      String text = made.string();
      made.end();
      throw new AnswerException(status, text);
    }
    return made;
  }

  /** Bytes of the body that are not yet taken. */
  int left() {
    return left;
  }

  boolean flag() throws IOException {
    need(1);
    left--;
    return buffer.get() != 0;
  }

  short int16() throws IOException {
    need(2);
    left -= 2;
    return buffer.getShort();
  }

  int int32() throws IOException {
    need(4);
    left -= 4;
    return buffer.getInt();
  }

  long int64() throws IOException {
    need(8);
    left -= 8;
    return buffer.getLong();
  }

  String string() throws IOException {
    int size = int16();
    if (size < 0) {
      throw new IOException("a text of " + size + " bytes");
    }
    byte[] text = new byte[size];
    take(text, 0, size);
    return new String(text, StandardCharsets.UTF_8);
  }

  /** Null for null. */
  byte[] bytes() throws IOException {
    int size = int32();
    if (size == -1) {
      return null;
    }
    if (size < 0 || size > left) {
      throw new IOException("a value of " + size + " bytes");
    }
    byte[] value = new byte[size];
    take(value, 0, size);
    return value;
  }

  /** Copies the next bytes of the body. */
  void take(byte[] into, int from, int count) throws IOException {
    checkLeft(count);
    int at = from;
    while (at < from + count) {
      if (!buffer.hasRemaining()) {
        fill();
      }
      int now = Math.min(buffer.remaining(), from + count - at);
      buffer.get(into, at, now);
      at += now;
      left -= now;
    }
  }

  /** Reads the body to its end, which is between the buffer's position and limit then. It has to fit. */
  void takeRest() throws IOException {
    need(left);
    checkNothingBehind(buffer.remaining() - left);
    left = 0;
  }

  /** Checks that the body was taken whole, and that nothing is behind it. */
  void end() throws IOException {
    if (left != 0) {
      throw new IOException(left + " bytes are left over in a response");
    }
    checkNothingBehind(buffer.remaining());
  }

  private static void checkNothingBehind(int count) throws IOException {
    if (count != 0) {
      throw new IOException(count + " bytes are behind a response");
    }
  }

  private void need(int count) throws IOException {
    checkLeft(count);
    if (count > buffer.capacity()) {
      throw new IOException("a response of " + count + " bytes, more than were asked for");
    }
    while (buffer.remaining() < count) {
      fill();
    }
  }

  private void checkLeft(int count) throws IOException {
    if (count > left) {
      throw new IOException("a response ends before its fields do");
    }
  }

  /** Reads more behind what the buffer has. */
  private void fill() throws IOException {
    if (!buffer.hasRemaining()) {
      buffer.clear().limit(0);
    } else if (buffer.limit() == buffer.capacity()) {
      buffer.compact().flip();
    }
    int start = buffer.position();
    buffer.position(buffer.limit()).limit(buffer.capacity());
    try {
      connection.read(buffer, deadline);
    } finally {
      buffer.limit(buffer.position()).position(start);
    }
  }
}
