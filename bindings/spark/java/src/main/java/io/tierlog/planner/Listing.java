package io.tierlog.planner;

import java.util.List;

/**
 * What the bucket held when it was listed, in the planner's own words, which only the planner reads.
 *
 * @param frames as they came
 */
public record Listing(List<byte[]> frames) {
  public Listing {
    frames = List.copyOf(frames);
  }

  @Override
  public String toString() {
    return "Listing[" + frames.stream().mapToLong(frame -> frame.length).sum() + " bytes]";
  }
}
