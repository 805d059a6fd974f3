package io.tierlog.spark;

import io.tierlog.planner.PlannerException;
import java.util.ServiceLoader;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** Spark's own Kafka source, by its interfaces alone: its classes are private. */
final class KafkaSource {
  private static final String NAME = "kafka";

  private KafkaSource() {}

  /**
   * A scan of the topics that the options name.
   *
   * @throws PlannerException there is no such source
   */
  static Scan scan(SourceOptions options) {
    CaseInsensitiveStringMap given = new CaseInsensitiveStringMap(options.given());
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
