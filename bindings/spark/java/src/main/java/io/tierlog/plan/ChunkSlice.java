package io.tierlog.plan;

import java.io.Serializable;

/**
 * The chunks of a transformed log that a range needs, neighbours in the object.
 *
 * @param firstOriginalPosition of the first chunk, in the original log
 * @param firstTransformedPosition of the first chunk, from the log's first byte in the object
 * @param transformedSizes stored bytes of each
 * @param lastOriginalSize of the last chunk; all before have the segment's {@code originalChunkSize}
 */
public record ChunkSlice(
    long firstOriginalPosition, long firstTransformedPosition, int[] transformedSizes, int lastOriginalSize)
    implements Serializable {}
