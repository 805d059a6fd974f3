/**
 * The executor's reader: ranges of a plan become columnar batches over native memory.
 *
 * <p>It decides nothing: what to read, and what to do when it cannot be read, is in the plan. No record becomes a Java
 * object here; memory is counted by task and bounded by {@link io.tierlog.engine.ReaderSettings#offHeapBytesPerTask}.
 * Not here: Spark's planning interfaces ({@code io.tierlog.spark}) and talk with the planner
 * ({@code io.tierlog.planner}).
 */
package io.tierlog.engine;
