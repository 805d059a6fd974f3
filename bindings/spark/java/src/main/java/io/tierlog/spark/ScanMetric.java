package io.tierlog.spark;

import java.util.Arrays;
import java.util.Locale;
import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.connector.metric.CustomMetric;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;

/** A sum over tasks for Spark's UI, which makes one by its class name: so each is a public class with no arguments. */
abstract class ScanMetric implements CustomMetric {
  private final String name;
  private final String description;

  ScanMetric(String name, String description) {
    this.name = name;
    this.description = description;
  }

  /**
   * The metrics; none if the UI could not load their classes, which it looks for in the class loader of the application.
   * One of a session (ADD JAR, artifacts) has them for nobody else, and Spark would log five stack traces a query.
   */
  static CustomMetric[] all() {
    if (!inApplication()) {
      return new CustomMetric[0];
    }
    return new CustomMetric[] {
      new BytesFetchedMetric(),
      new BytesDecodedMetric(),
      new RequestsMetric(),
      new BatchesSkippedMetric(),
      new CrcTimeMetric()
    };
  }

  private static boolean inApplication() {
    ClassLoader application = SparkSession.active().sharedState().jarClassLoader().getParent();
    try {
      return Class.forName(ScanMetric.class.getName(), false, application) == ScanMetric.class;
    } catch (ClassNotFoundException e) {
      return false;
    }
  }

  /** One task's value of the metric of this name. */
  record Value(String name, long value) implements CustomTaskMetric {}

  @Override
  public final String name() {
    return name;
  }

  @Override
  public final String description() {
    return description;
  }

  @Override
  public final String aggregateTaskMetrics(long[] values) {
    return text(Arrays.stream(values).sum());
  }

  abstract String text(long total);

  static String bytesText(long total) {
    String[] units = {"B", "KiB", "MiB", "GiB", "TiB"};
    double shown = total;
    int unit = 0;
    while (shown >= 1024 && unit < units.length - 1) {
      shown /= 1024;
      unit++;
    }
    return String.format(Locale.ROOT, unit == 0 ? "%.0f %s" : "%.1f %s", shown, units[unit]);
  }
}
