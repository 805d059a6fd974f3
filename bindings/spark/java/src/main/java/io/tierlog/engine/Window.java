package io.tierlog.engine;

/**
 * Bytes of a log in native memory, undone; valid until the next one is asked for.
 *
 * @param address of the first byte
 * @param sizeBytes at least 1
 */
record Window(long address, long sizeBytes) {}
