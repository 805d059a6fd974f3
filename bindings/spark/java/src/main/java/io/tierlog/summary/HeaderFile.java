package io.tierlog.summary;

import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Headers of a log that lies in a local file as the broker wrote it: a few bytes of each batch are read. */
final class HeaderFile implements AutoCloseable {
  /** Holds some headers of small batches, and costs no more than one. */
  private static final int BLOCK_BYTES = 4096;

  private final FileChannel file;
  private final long logPosition;
  private final ByteBuffer block = ByteBuffer.allocateDirect(BLOCK_BYTES);
  private long blockPosition;
  private long requests;
  private long bytes;

  private HeaderFile(FileChannel file, long logPosition) {
    this.file = file;
    this.logPosition = logPosition;
    block.limit(0);
  }

  /** Null where there is no such file to look into: who decodes tells why. */
  static HeaderFile open(StoreLocation store, SegmentPlan segment) throws IOException {
    if (!store.kind().equals("local") || segment.transformed()) {
      return null;
    }
    Path root = Path.of(store.url()).normalize();
    Path path = root.resolve(segment.key()).normalize();
    if (!path.startsWith(root)) {
      return null;
    }
    return new HeaderFile(FileChannel.open(path, StandardOpenOption.READ), segment.logPosition());
  }

  /**
   * The header of the batch at a position of the log.
   *
   * @param end of what may be read; exclusive
   * @return null: there is no whole batch
   */
  BatchHeader at(long position, long end) throws IOException {
    long from = position - blockPosition;
    if (from < 0 || from + BatchHeader.BYTES > block.limit()) {
      fill(position, end);
      from = 0;
    }
    block.position((int) from);
    BatchHeader header = BatchHeader.parse(block);
    return header == null || header.sizeBytes() > end - position ? null : header;
  }

  long requests() {
    return requests;
  }

  long bytes() {
    return bytes;
  }

  private void fill(long position, long end) throws IOException {
    block.clear().limit((int) Math.min(BLOCK_BYTES, end - position));
    long at = logPosition + position;
    while (block.hasRemaining()) {
      int read = file.read(block, at + block.position());
      requests++;
      if (read < 0) {
        break;
      }
      bytes += read;
    }
    block.flip();
    blockPosition = position;
  }

  @Override
  public void close() throws IOException {
    file.close();
  }
}
