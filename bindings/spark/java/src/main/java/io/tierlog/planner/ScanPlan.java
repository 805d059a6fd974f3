package io.tierlog.planner;

import io.tierlog.plan.StoreLocation;
import io.tierlog.plan.TaskPlan;
import java.util.List;
import java.util.OptionalLong;

/**
 * The planner's answer.
 *
 * @param rows at most so many, by the offsets; empty: not known
 * @param exactRows {@code rows} is the number itself
 * @param bytes of the original logs
 * @param limitTaken the tasks end near the limit; Spark still cuts
 * @param aggregatesTaken {@code answer} or the tasks answer the aggregates
 * @param headerOnly each task answers with partial rows, out of batch headers where these say enough
 * @param trustHeaders headers answer although nobody checks their batches
 * @param stores that the segments lie in, by their numbers
 * @param tasks in their order
 * @param answer rows that answer the aggregates, the grouping columns first, each a {@link String}, {@link Long} or
 *     null; null where tasks do
 * @param known partial rows of the same form, beside those of the tasks
 */
public record ScanPlan(
    OptionalLong rows,
    boolean exactRows,
    long bytes,
    boolean limitTaken,
    boolean aggregatesTaken,
    boolean headerOnly,
    boolean trustHeaders,
    List<StoreLocation> stores,
    List<TaskPlan> tasks,
    List<List<Object>> answer,
    List<List<Object>> known) {}
