package io.tierlog.engine;

import java.io.Serializable;

/**
 * What a summary has to know of the records beside their number: less of it needs fewer batches decoded.
 *
 * @param offsets least or greatest offset
 * @param leastTimestamp whether it is
 * @param greatestTimestamp whether it is
 */
public record Wanted(boolean offsets, boolean leastTimestamp, boolean greatestTimestamp) implements Serializable {
  /** TL_SUMMARY_* of decode.h. */
  int bits() {
    return (offsets ? 1 : 0) | (leastTimestamp ? 2 : 0) | (greatestTimestamp ? 4 : 0);
  }
}
