package io.tierlog.kafka;

import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.util.Objects;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

/**
 * A range of a segment's file, or an index, that is asked for piece by piece. Between two reads it holds no connection, and a
 * buffer only while that has bytes.
 */
final class SegmentInputStream extends InputStream {
  /** What a read takes at once, at most. */
  private static final int READ_BYTES_MAX = 1024 * 1024;

  private final SidecarClient client;
  private final String what;
  private final Pieces pieces;
  private final int lastPosition;

  /** Of the first byte that is not asked for yet. */
  private int position;

  /** Bytes before {@link #position}; null: none. */
  private ByteBuffer buffer;

  private boolean atEnd;
  private boolean closed;

  /** Encodes the request for a piece. */
  interface Pieces {
    byte[] request(int position, int bytesMax);
  }

  private SegmentInputStream(SidecarClient client, String what, Pieces pieces, int position, int lastPosition) {
    this.client = client;
    this.what = what;
    this.pieces = pieces;
    this.position = position;
    this.lastPosition = lastPosition;
  }

  /**
   * Opens a stream, and asks for its first piece.
   *
   * @param lastPosition inclusive; Integer.MAX_VALUE: the sidecar says where the end is
   */
  static SegmentInputStream open(SidecarClient client, String what, Pieces pieces, int position, int lastPosition)
      throws RemoteStorageException {
    SegmentInputStream made = new SegmentInputStream(client, what, pieces, position, lastPosition);
    made.fetchPiece();
    return made;
  }

  @Override
  public synchronized int read() throws IOException {
    checkOpen();
    return has() ? buffered(buffer.get() & 0xff) : -1;
  }

  @Override
  public synchronized int read(byte[] into, int from, int count) throws IOException {
    Objects.checkFromIndexSize(from, count, into.length);
    checkOpen();
    if (count == 0) {
      return 0;
    }
    if (buffer == null && !atEnd && count >= Buffers.PIECE_BYTES) {
      return readPiece(into, from, Math.min(count, READ_BYTES_MAX));
    }
    if (!has()) {
      return -1;
    }
    int now = Math.min(count, buffer.remaining());
    buffer.get(into, from, now);
    return buffered(now);
  }

  @Override
  public synchronized long skip(long count) throws IOException {
    checkOpen();
    int now = buffer == null ? 0 : (int) Math.max(0, Math.min(count, buffer.remaining()));
    if (now > 0) {
      buffer.position(buffer.position() + now);
      buffered(0);
    }
    if (lastPosition == Integer.MAX_VALUE) {
      return count <= now ? now : now + super.skip(count - now);
    }
    if (buffer != null || atEnd || count <= now) {
      return now;
    }
    int more = (int) Math.min(count - now, left());
    position += more;
    atEnd = left() == 0;
    return now + more;
  }

  @Override
  public synchronized int available() throws IOException {
    checkOpen();
    return buffer == null ? 0 : buffer.remaining();
  }

  @Override
  public synchronized void close() {
    closed = true;
    release();
  }

  /** Whether there is a byte to read, which is in the buffer then. */
  private boolean has() throws IOException {
    if (buffer == null && !atEnd) {
      try {
        fetchPiece();
      } catch (RemoteStorageException e) {
        throw new IOException(e.getMessage(), e);
      }
    }
    return buffer != null;
  }

  private void fetchPiece() throws RemoteStorageException {
    int bytesMax = Math.min(Buffers.PIECE_BYTES, left());
    SidecarClient.Piece piece = client.fetch(what, pieces.request(position, bytesMax));
    buffer = piece.buffer();
    pass(piece);
    buffered(0);
  }

  /**
   * Reads into the caller's array, and some bytes behind that into a buffer: a broker that takes a batch to its end looks at
   * the head of the next one.
   */
  private int readPiece(byte[] into, int from, int room) throws IOException {
    int bytesMax = Math.min(room + Buffers.PIECE_BYTES, left());
    try {
      SidecarClient.Piece piece =
          client.fetch(what, pieces.request(position, bytesMax), into, from, room, bytesMax);
      buffer = piece.buffer();
      pass(piece);
      return piece.count() == 0 ? -1 : Math.min(piece.count(), room);
    } catch (RemoteStorageException e) {
      throw new IOException(e.getMessage(), e);
    }
  }

  private void pass(SidecarClient.Piece piece) {
    position += piece.count();
    atEnd = piece.isLast() || left() == 0;
  }

  /** Bytes that may be asked for. */
  private int left() {
    return lastPosition == Integer.MAX_VALUE ? Integer.MAX_VALUE - position : lastPosition - position + 1;
  }

  /** Gives the buffer back once it is empty; returns its argument. */
  private int buffered(int result) {
    if (buffer != null && !buffer.hasRemaining()) {
      release();
    }
    return result;
  }

  private void release() {
    if (buffer != null) {
      client.give(buffer);
      buffer = null;
    }
  }

  private void checkOpen() throws IOException {
    if (closed) {
      throw new IOException("the stream is closed");
    }
  }
}
