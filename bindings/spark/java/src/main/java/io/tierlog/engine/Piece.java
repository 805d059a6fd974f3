package io.tierlog.engine;

import io.tierlog.plan.RangePlan;

/**
 * What one window holds.
 *
 * @param number of the range in its task
 * @param range it is part of
 * @param start first byte, in the original log
 * @param end behind the last byte
 */
record Piece(int number, RangePlan range, long start, long end) {}
