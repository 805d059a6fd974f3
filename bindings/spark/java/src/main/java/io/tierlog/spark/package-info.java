/**
 * The Data Source V2 behind {@code spark.read.format("tierlog")} where this jar is on the class path.
 *
 * <p>Belongs here: what Spark's interfaces ask for, said in terms of a plan that {@code io.tierlog.planner} fetches and
 * {@code io.tierlog.engine} executes; the hand-over to Spark's Python source. Does not belong here: decisions about
 * what to read, bytes of Kafka.
 */
package io.tierlog.spark;
