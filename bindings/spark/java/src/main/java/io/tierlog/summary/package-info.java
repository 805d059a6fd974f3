/**
 * Counts and extremes of a task's records out of batch headers; records are decoded only where a header does not say.
 *
 * <p>The rules are those of docs/plan-protocol.md and of {@code tierlog.remote.manager.scan_aggregates}. Does not
 * belong here: Spark; decoding, which is {@code io.tierlog.engine}'s.
 */
package io.tierlog.summary;
