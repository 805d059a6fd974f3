package io.tierlog.spark;

import io.tierlog.planner.PlannerClient;
import io.tierlog.planner.PythonCommand;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;

/** The planners of this driver, one for each interpreter, ended with the application and with the JVM. */
final class DriverPlanner {
  private static final Map<PythonCommand, PlannerClient> CLIENTS = new ConcurrentHashMap<>();

  private DriverPlanner() {}

  /** The planner of the interpreter that the options, the environment or Spark's configuration name. */
  static PlannerClient of(SourceOptions options) {
    return CLIENTS.computeIfAbsent(
        python(options), chosen -> new PlannerClient(chosen, DriverPlanner::endWithApplication));
  }

  private static PythonCommand python(SourceOptions options) {
    String configured = SparkContext.getOrCreate().getConf().get("spark.pyspark.python", null);
    return PythonCommand.choose(options.plannerPython(), System.getenv(), configured);
  }

  /**
   * Has a child ended with the application.
   *
   * @return what forgets it
   */
  private static Runnable endWithApplication(Runnable end) {
    SparkContext context = SparkContext.getOrCreate();
    SparkListener listener =
        new SparkListener() {
          @Override
          public void onApplicationEnd(SparkListenerApplicationEnd event) {
            end.run();
          }
        };
    context.addSparkListener(listener);
    return () -> context.removeSparkListener(listener);
  }
}
