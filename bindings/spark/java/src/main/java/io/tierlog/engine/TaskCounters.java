package io.tierlog.engine;

import java.util.List;

/**
 * The counters of a task's reading so far.
 *
 * @param requests reads of log bytes that were answered
 * @param storedBytes what they brought, as stored: compressed and encrypted
 * @param logBytes untransformed bytes of whole windows that went into decoding
 * @param decompressedBytes what the compressed batches came to
 * @param batches decoded
 * @param batchesSkipped outside of what was asked, aborted, or damaged
 * @param records rows given
 * @param crcNs spent on checksums, nanoseconds
 * @param nativeBytesHigh the most native memory held at once, bytes
 * @param warnings what was left out, where data loss does not fail
 */
public record TaskCounters(
    long requests,
    long storedBytes,
    long logBytes,
    long decompressedBytes,
    long batches,
    long batchesSkipped,
    long records,
    long crcNs,
    long nativeBytesHigh,
    List<String> warnings) {}
