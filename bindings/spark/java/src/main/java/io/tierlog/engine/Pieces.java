package io.tierlog.engine;

import io.tierlog.plan.ChunkSlice;
import io.tierlog.plan.RangePlan;
import io.tierlog.plan.SegmentPlan;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

/** The ranges of a task, cut into windows: at chunk borders if there are chunks, so that no chunk is read twice. */
final class Pieces implements Iterator<Piece> {
  /** Chunks of one window at most: a hostile manifest may say that a chunk is one byte. */
  private static final int CHUNKS_PER_WINDOW_MAX = 16384;

  private final List<RangePlan> ranges;
  private final long windowBytes;
  private int number;
  private long at = -1;

  Pieces(List<RangePlan> ranges, long windowBytes) {
    this.ranges = ranges;
    this.windowBytes = windowBytes;
  }

  @Override
  public boolean hasNext() {
    while (number < ranges.size()) {
      RangePlan range = ranges.get(number);
      if (at < 0) {
        check(range);
        at = range.startPosition();
      }
      if (at < range.readEnd()) {
        return true;
      }
      skip();
    }
    return false;
  }

  @Override
  public Piece next() {
    if (!hasNext()) {
      throw new NoSuchElementException();
    }
    RangePlan range = ranges.get(number);
    long start = at;
    if (range.chunks() == null) {
      at = Math.min(start + windowBytes, range.readEnd());
    } else {
      long chunk = range.segment().originalChunkSize();
      long step = chunk * Math.max(1, Math.min(windowBytes / chunk, CHUNKS_PER_WINDOW_MAX));
      at = Math.min((start / step + 1) * step, range.readEnd());
    }
    return new Piece(number, range, start, at);
  }

  /** Number of the range of the next piece. */
  int number() {
    return number;
  }

  /** Leaves out the rest of the range under way. */
  void skip() {
    number++;
    at = -1;
  }

  /** Checks that a range's numbers fit together: a plan is trusted, but not with memory. */
  private static void check(RangePlan range) {
    SegmentPlan segment = range.segment();
    ChunkSlice chunks = range.chunks();
    boolean sound =
        0 <= range.startPosition()
            && range.startPosition() <= range.endPosition()
            && range.endPosition() <= segment.sizeBytes()
            && segment.logPosition() >= 0;
    if (sound && range.startPosition() < range.endPosition()) {
      sound = segment.transformed() == (chunks != null) && (chunks == null || covers(segment, chunks, range));
    }
    if (!sound) {
      String text = "range %d … %d is not within the %d bytes of %s";
      throw new TierlogException(
          "ConfigError",
          text.formatted(range.startPosition(), range.endPosition(), segment.sizeBytes(), segment.name()));
    }
  }

  private static boolean covers(SegmentPlan segment, ChunkSlice chunks, RangePlan range) {
    int count = chunks.transformedSizes().length;
    if (count == 0 || chunks.firstTransformedPosition() < 0 || chunks.lastOriginalSize() < 1) {
      return false;
    }
    for (int size : chunks.transformedSizes()) {
      if (size < 0) {
        return false;
      }
    }
    long first = chunks.firstOriginalPosition();
    long end = first + (count - 1L) * segment.originalChunkSize() + chunks.lastOriginalSize();
    return first % segment.originalChunkSize() == 0
        && chunks.lastOriginalSize() <= segment.originalChunkSize()
        && first <= range.startPosition()
        && range.readEnd() <= end;
  }
}
