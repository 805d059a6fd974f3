package io.tierlog.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.tierlog.planner.PlannerException;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * {@code spark.read.format("tierlog")} where this jar is on the class path; Spark makes one for each {@code load()}.
 *
 * <p>Records are read here. Other tables, {@code engine=python}, and in {@code engine=auto} what this jar
 * cannot read on this machine, go to the Python source of the same name.
 */
public final class TierlogSource implements TableProvider, DataSourceRegister {
  private static final Logger LOG = LoggerFactory.getLogger(TierlogSource.class);

  static final String NAME = "tierlog";

  /** Where {@code pyspark_tierlog.options.catalog_tables} keeps the options of a table of Spark's catalog. */
  private static final String OPTIONS_METADATA = "tierlog.options";

  private final PythonSource python = new PythonSource();

  @Override
  public String shortName() {
    return NAME;
  }

  /** Accepts a schema of the user's, which chooses and orders columns. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap given) {
    Purpose.isStream();
    SourceOptions options = new SourceOptions(given.asCaseSensitiveMap());
    if (!options.hasPath() || options.makesTable() || EngineChoice.pythonReason(options).isPresent()) {
      return python.inferSchema(given);
    }
    try {
      return RecordColumns.chosen(options);
    } catch (PlannerException e) {
      throw SparkErrors.failure(e);
    }
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    boolean isStream = Purpose.isStream();
    Map<String, String> remembered = remembered(schema);
    SourceOptions options = new SourceOptions(remembered == null ? properties : remembered);
    if (remembered == null && (!options.hasPath() || options.makesTable())) {
      return python.bareTable(schema, properties);
    }
    Optional<String> reason = EngineChoice.pythonReason(options);
    if (reason.isPresent()) {
      LOG.info("tierlog: Python reads: {}", reason.get());
      return python.table(schema, properties, reason.get());
    }
    try {
      RecordColumns.check(options, schema);
      return isStream || options.asksBrokers()
          ? TierlogTable.followed(schema, options)
          : TierlogTable.pinned(schema, options);
    } catch (PlannerException e) {
      throw SparkErrors.failure(e);
    }
  }

  /** The options of a table of Spark's catalog; null: it is none, or remembers none. */
  private static Map<String, String> remembered(StructType schema) {
    for (StructField field : schema.fields()) {
      if (field.metadata().contains(OPTIONS_METADATA)) {
        try {
          String text = field.metadata().getString(OPTIONS_METADATA);
          return new ObjectMapper().readValue(text, new TypeReference<HashMap<String, String>>() {});
        } catch (JsonProcessingException e) {
          throw new IllegalStateException("the catalog keeps options of a tierlog table that are not JSON", e);
        }
      }
    }
    return null;
  }
}
