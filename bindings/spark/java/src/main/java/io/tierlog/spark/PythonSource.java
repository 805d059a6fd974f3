package io.tierlog.spark;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
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
  private static final String ENGINE = "engine";
  private static final Set<String> HEARD = Set.of("auto", "jar");

  private final PythonDataSourceV2 source = new PythonDataSourceV2();

  PythonSource() {
    source.setShortName(TierlogSource.NAME);
  }

  StructType inferSchema(CaseInsensitiveStringMap options) {
    return source.inferSchema(handedOver(options));
  }

  /** Spark's own table, for a catalog, which asks before there is anything to read. */
  Table bareTable(StructType schema, Map<String, String> properties) {
    return source.getTable(schema, new Transform[0], handedOver(new CaseInsensitiveStringMap(properties)));
  }

  /**
   * @param reason why Python reads, for the plan's description
   */
  Table table(StructType schema, Map<String, String> properties, String reason) {
    return new PythonTable(bareTable(schema, properties), "tierlog engine=python (" + reason + ")");
  }

  /**
   * The options without {@code engine}, which was obeyed here: Python, which never sees this jar, would report that
   * there is none.
   */
  static CaseInsensitiveStringMap handedOver(CaseInsensitiveStringMap options) {
    if (!HEARD.contains(options.getOrDefault(ENGINE, "auto").strip().toLowerCase(Locale.ROOT))) {
      return options;
    }
    Map<String, String> changed = new HashMap<>(options.asCaseSensitiveMap());
    changed.keySet().removeIf(ENGINE::equalsIgnoreCase);
    changed.put(ENGINE, "python");
    return new CaseInsensitiveStringMap(changed);
  }
}
