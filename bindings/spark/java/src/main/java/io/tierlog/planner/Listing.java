package io.tierlog.planner;

import java.util.List;

/**
 * The listing of a bucket, in a form that only the planner reads.
 *
 * @param frames as they came
 */
public record Listing(List<byte[]> frames) {
  public Listing {
    frames = List.copyOf(frames);
  }

  long sizeBytes() {
    return frames.stream().mapToLong(frame -> frame.length).sum();
  }

  @Override
  public String toString() {
    return "Listing[" + sizeBytes() + " bytes]";
  }
}
