/**
 * Counts and extremes of a task's records, by group. What a batch's header says, and when it says enough, is the
 * core's to decide (tl_summary of decode.h). Does not belong here: Spark; decoding, which is {@code
 * io.tierlog.engine}'s.
 */
package io.tierlog.summary;
