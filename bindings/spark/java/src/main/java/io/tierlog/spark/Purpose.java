package io.tierlog.spark;

import io.tierlog.planner.PlannerException;
import java.util.List;
import java.util.Set;
import java.util.function.Predicate;

/**
 * What Spark wants a table for. It tells no source, and asks for schema and options first, so that who writes would be told
 * what a reader needs: seen in who asks, the answer comes at once.
 *
 * <p>Where Spark asks by other ways than today's, the table's capabilities have Spark refuse in its own words.
 */
final class Purpose {
  private static final String WRITES =
      "tierlog only reads: a tier is written by Kafka's brokers, or by the command tierlog copy";

  /** Spark's classes without their packages, which changed between its versions. */
  private static final Set<String> WRITERS = Set.of("DataFrameWriter", "DataFrameWriterV2", "DataStreamWriter");
  private static final Set<String> READERS = Set.of("DataFrameReader", "DataStreamReader", "V2SessionCatalog");

  private Purpose() {}

  /** Whether Spark is asked for a stream. Fails if it is asked to write. */
  static boolean isStream() {
    List<String> asking =
        StackWalker.getInstance()
            .walk(frames -> frames.map(StackWalker.StackFrame::getClassName).filter(Purpose::asks).toList())
            .stream()
            .map(name -> name.substring(name.lastIndexOf('.') + 1))
            .toList();
    // A writer asks for its table itself; behind the analysis of a query it is only where the query's rows go.
    if (!asking.isEmpty() && WRITERS.contains(asking.get(0))) {
      throw SparkErrors.failure(new PlannerException("ConfigError", WRITES));
    }
    Predicate<String> known = name -> READERS.contains(name) || WRITERS.contains(name);
    return asking.stream().filter(known).findFirst().filter("DataStreamReader"::equals).isPresent();
  }

  private static boolean asks(String className) {
    return className.startsWith("org.apache.spark.sql.") && !className.contains(".DataSourceV2Utils");
  }
}
