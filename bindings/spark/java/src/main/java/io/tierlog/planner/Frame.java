package io.tierlog.planner;

import java.nio.ByteBuffer;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.StandardCharsets;

/**
 * One frame, and a read position in its body. Every read checks what is left, so a count or a length that lies is a
 * {@link FrameException} before anything is allocated for it.
 */
final class Frame {
  private final char type;
  private final ByteBuffer left;

  Frame(char type, byte[] body) {
    this.type = type;
    this.left = ByteBuffer.wrap(body);
  }

  char type() {
    return type;
  }

  int sizeBytes() {
    return left.capacity();
  }

  boolean flag() throws FrameException {
    need(1);
    byte value = left.get();
    if (value != 0 && value != 1) {
      throw new FrameException("frame " + type + " has " + value + " where 0 or 1 belongs");
    }
    return value == 1;
  }

  int i32() throws FrameException {
    need(Integer.BYTES);
    return left.getInt();
  }

  long i64() throws FrameException {
    need(Long.BYTES);
    return left.getLong();
  }

  /** A number that is never negative. */
  long size() throws FrameException {
    long value = i64();
    if (value < 0) {
      throw new FrameException("frame " + type + " has " + value + " where a size or a position belongs");
    }
    return value;
  }

  /**
   * A count of elements that follow.
   *
   * @param leastBytes that each of them takes in the frame
   */
  int count(int leastBytes) throws FrameException {
    int value = i32();
    if (value < 0 || value > left.remaining() / leastBytes) {
      throw new FrameException("frame " + type + " counts " + value + " of what its end leaves no room for");
    }
    return value;
  }

  String str() throws FrameException {
    byte[] bytes = bytes();
    if (bytes == null) {
      throw new FrameException("frame " + type + " has null where a text belongs");
    }
    return text(ByteBuffer.wrap(bytes));
  }

  /** A byte array; null if the frame says null. */
  byte[] bytes() throws FrameException {
    int length = i32();
    if (length == -1) {
      return null;
    }
    if (length < -1 || length > left.remaining()) {
      throw new FrameException("frame " + type + " has a length of " + length + ", " + left.remaining() + " are left");
    }
    byte[] bytes = new byte[length];
    left.get(bytes);
    return bytes;
  }

  /** All remaining bytes. */
  byte[] rest() {
    byte[] bytes = new byte[left.remaining()];
    left.get(bytes);
    return bytes;
  }

  void end() throws FrameException {
    if (left.hasRemaining()) {
      throw new FrameException("frame " + type + " has " + left.remaining() + " bytes behind its end");
    }
  }

  private String text(ByteBuffer utf8) throws FrameException {
    try {
      return StandardCharsets.UTF_8.newDecoder().decode(utf8).toString();
    } catch (CharacterCodingException e) {
      throw new FrameException("frame " + type + " has a text that is not UTF-8");
    }
  }

  private void need(int bytes) throws FrameException {
    if (left.remaining() < bytes) {
      throw new FrameException("frame " + type + " of " + left.capacity() + " bytes is too short");
    }
  }
}
