package io.tierlog.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Spark's own Python source of the same name, which the jar hides: looked up as if the jar were not there.
 *
 * <p>One for each {@code load()}, as Spark does it: the instance keeps what Python made of the options.
 */
final class PythonSource {
  private final PythonDataSourceV2 source = new PythonDataSourceV2();

  PythonSource() {
    source.setShortName(TierlogSource.NAME);
  }

  StructType inferSchema(CaseInsensitiveStringMap options) {
    return source.inferSchema(options);
  }

  /** Spark's own table: for streams, which have no plan of a batch to describe. */
  Table bareTable(StructType schema, Map<String, String> properties) {
    return source.getTable(schema, new Transform[0], properties);
  }

  /**
   * @param reason why Python reads, for the plan's description
   */
  Table table(StructType schema, Map<String, String> properties, String reason) {
    return new PythonTable(bareTable(schema, properties), "tierlog engine=python (" + reason + ")");
  }
}
