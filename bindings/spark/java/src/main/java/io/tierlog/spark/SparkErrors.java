package io.tierlog.spark;

import io.tierlog.planner.PlannerException;
import java.util.function.Supplier;
import org.apache.spark.sql.AnalysisException;
import scala.Option;
import scala.collection.immutable.Map;
import scala.collection.immutable.Map$;
import scala.Tuple2;

/** Errors of planning as Spark users know them from the Python source: the same class, the same condition. */
final class SparkErrors {
  private static final String CONDITION = "PYTHON_DATA_SOURCE_ERROR";

  private SparkErrors() {}

  /** Never returns: {@code throw failure(e)} tells the compiler so. The exception is a checked one of Scala's. */
  static RuntimeException failure(PlannerException error) {
    Map<String, String> words = Map$.MODULE$.empty();
    words = words.$plus(new Tuple2<>("action", "plan"));
    words = words.$plus(new Tuple2<>("type", TierlogSource.NAME));
    words = words.$plus(new Tuple2<>("msg", error.kind() + ": " + error.getMessage()));
    throw SparkErrors.<RuntimeException>unchecked(
        new AnalysisException(CONDITION, words, Option.<Throwable>apply(error)));
  }

  /** The answer; what the planner says against it is an error as above. */
  static <T> T told(Supplier<T> asked) {
    try {
      return asked.get();
    } catch (PlannerException e) {
      throw failure(e);
    }
  }

  @SuppressWarnings("unchecked")
  private static <E extends Throwable> E unchecked(Throwable error) throws E {
    throw (E) error;
  }
}
