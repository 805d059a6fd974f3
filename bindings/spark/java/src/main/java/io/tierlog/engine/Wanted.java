package io.tierlog.engine;

import java.io.Serializable;

/**
 * The facts, beside the number of records, that a summary needs: with fewer facts fewer batches are decoded.
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
