package io.tierlog.spark;

import io.tierlog.planner.PlannerException;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.TreeMap;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Spark's own Kafka source, by its interfaces alone: its classes are private. */
final class KafkaSource {
  private static final String NAME = "kafka";

  /** All that is fetched is there already: a fetch behind it would hold its task up for half a second. */
  private static final Map<String, String> DEFAULTS = Map.of("kafka.fetch.max.wait.ms", "10");

  private KafkaSource() {}

  /**
   * A scan of the topics that the options name.
   *
   * @throws PlannerException there is no such source
   */
  static Scan scan(SourceOptions options) {
    Map<String, String> all = new TreeMap<>(String.CASE_INSENSITIVE_ORDER);
    all.putAll(DEFAULTS);
    all.putAll(options.given());
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(all);
    TableProvider provider = provider();
    var table = provider.getTable(provider.inferSchema(given), new Transform[0], given.asCaseSensitiveMap());
    return ((SupportsRead) table).newScanBuilder(given).build();
  }

  private static TableProvider provider() {
    return ServiceLoader.load(DataSourceRegister.class, KafkaSource.class.getClassLoader()).stream()
        .map(ServiceLoader.Provider::get)
        .filter(each -> each.shortName().equals(NAME) && each instanceof TableProvider)
        .map(TableProvider.class::cast)
        .findFirst()
        .orElseThrow(
            () ->
                new PlannerException(
                    "ConfigError",
                    "brokers are read by Spark's Kafka source, which is not there: put spark-sql-kafka-0-10 of this"
                        + " Spark where this jar is (spark.jars.packages), or use mode=remote-only"));
  }
}
