package io.tierlog.engine;

/**
 * Decrypted and decompressed bytes of a log in native memory; valid until the next window is asked for.
 *
 * @param address of the first byte
 * @param sizeBytes at least 1
 */
record Window(long address, long sizeBytes) {}
