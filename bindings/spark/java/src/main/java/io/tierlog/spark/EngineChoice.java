package io.tierlog.spark;

import io.tierlog.engine.NativeLibrary;
import io.tierlog.engine.TierlogException;
import io.tierlog.planner.PlannerException;
import java.util.Optional;

/** The choice of the engine: this jar or Python. */
final class EngineChoice {
  private static final String STORE_LIBRARY = "libtierlog_store.so";

  private EngineChoice() {}

  /**
   * The reason why Python reads, for {@code explain()}; empty: the jar reads. Requests that the planner refuses stay
   * with the jar.
   *
   * @throws PlannerException {@code engine=jar} cannot be had
   */
  static Optional<String> pythonReason(SourceOptions options) {
    if (options.engine().equals("python")) {
      return Optional.of("by option engine");
    }
    if (options.otherTable()) {
      return Optional.of("the jar reads records only");
    }
    Optional<String> missing = missing(options);
    if (missing.isPresent() && options.engine().equals("jar")) {
      throw SparkErrors.failure(new PlannerException("ConfigError", "option engine: jar: " + missing.get()));
    }
    return missing;
  }

  private static Optional<String> missing(SourceOptions options) {
    try {
      NativeLibrary.load(options.nativeDirectory());
    } catch (TierlogException e) {
      return Optional.of(e.getMessage());
    }
    if (options.namesObjectStore() && !NativeLibrary.carries(STORE_LIBRARY)) {
      return Optional.of("this jar carries no " + STORE_LIBRARY + ", which reads object stores");
    }
    return Optional.empty();
  }
}
