/**
 * How the driver asks Python: the child process {@code python -m pyspark_tierlog.plan}, its frames, and what they
 * become.
 *
 * <p>Belongs here: the protocol of docs/plan-protocol.md, and the life of the child. Does not belong here: Spark, and
 * any decision about what to read.
 */
package io.tierlog.planner;
