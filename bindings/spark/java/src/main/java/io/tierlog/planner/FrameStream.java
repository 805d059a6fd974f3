package io.tierlog.planner;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;

/** Frames in and out of the planner's pipes. Not for two threads at once. */
final class FrameStream {
  /** The most bytes of a body. */
  static final int FRAME_BYTES_MAX = 64 << 20;

  private static final int BUFFER_BYTES = 1 << 16;

  private final DataInputStream in;
  private final DataOutputStream out;

  FrameStream(InputStream in, OutputStream out) {
    this.in = new DataInputStream(new BufferedInputStream(in, BUFFER_BYTES));
    this.out = new DataOutputStream(new BufferedOutputStream(out, BUFFER_BYTES));
  }

  void write(char type, byte[] body) throws IOException {
    if (body.length > FRAME_BYTES_MAX) {
      throw new FrameException("a request of " + body.length + " bytes is too large for the planner");
    }
    out.writeInt(body.length);
    out.writeByte(type);
    out.write(body);
  }

  void flush() throws IOException {
    out.flush();
  }

  /**
   * @throws EOFException the planner ended, before a frame or inside of one
   * @throws FrameException what comes is no frame
   */
  Frame read() throws IOException {
    int length = in.readInt();
    int type = in.readUnsignedByte();
    if (length < 0 || length > FRAME_BYTES_MAX || type < 'A' || type > 'Z') {
      String text = "a frame of type 0x%02x and %d bytes is none of the protocol's";
      throw new FrameException(text.formatted(type, length));
    }
    byte[] body = in.readNBytes(length); // grows as bytes come: a length that lies allocates nothing
    if (body.length < length) {
      throw new EOFException("a frame was cut after " + body.length + " of its " + length + " bytes");
    }
    return new Frame((char) type, body);
  }
}
