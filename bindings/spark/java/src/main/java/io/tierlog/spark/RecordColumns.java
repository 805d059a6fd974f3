package io.tierlog.spark;

import io.tierlog.planner.PlannerException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * Columns of the records: those of Spark's Kafka source, all nullable, and two on request. The same, word for word, as
 * {@code pyspark_tierlog.columns}: a job must not change with the path that it takes.
 */
final class RecordColumns {
  private static final StructType HEADER =
      new StructType().add("key", DataTypes.StringType, true).add("value", DataTypes.BinaryType, true);

  static final StructType ALL =
      new StructType()
          .add("key", DataTypes.BinaryType, true)
          .add("value", DataTypes.BinaryType, true)
          .add("topic", DataTypes.StringType, true)
          .add("partition", DataTypes.IntegerType, true)
          .add("offset", DataTypes.LongType, true)
          .add("timestamp", DataTypes.TimestampType, true)
          .add("timestampType", DataTypes.IntegerType, true)
          .add("headers", DataTypes.createArrayType(HEADER, true), true)
          .add("leaderEpoch", DataTypes.IntegerType, true)
          .add("segment", DataTypes.StringType, true);

  private static final int DEFAULT_COLUMNS = 7;

  private RecordColumns() {}

  /**
   * The columns that the options ask for.
   *
   * @throws PlannerException {@code columns} names one that is not there
   */
  static StructType chosen(SourceOptions options) {
    if (options.columns() != null) {
      return picked(options.columns());
    }
    List<String> names = new ArrayList<>(Arrays.asList(ALL.fieldNames()).subList(0, DEFAULT_COLUMNS));
    if (options.includeHeaders()) {
      names.add("headers");
    }
    return picked(names);
  }

  /**
   * Checks a schema, ours or the user's.
   *
   * @throws PlannerException it names a column that is not there, or gives it another type, or contradicts the options
   */
  static void check(SourceOptions options, StructType schema) {
    StructType known = picked(Arrays.asList(schema.fieldNames()));
    List<String> columns = options.columns();
    if (columns != null && !new HashSet<>(columns).equals(new HashSet<>(Arrays.asList(schema.fieldNames())))) {
      throw new PlannerException(
          "ConfigError",
          "columns=" + String.join(",", columns) + " and the given schema " + String.join(",", schema.fieldNames())
              + " differ");
    }
    for (int i = 0; i < known.length(); i++) {
      DataType offered = known.fields()[i].dataType();
      DataType wanted = schema.fields()[i].dataType();
      if (!wanted.equals(offered)) {
        throw new PlannerException(
            "ConfigError",
            "column " + known.fields()[i].name() + " is " + offered.simpleString() + ", the given schema says "
                + wanted.simpleString());
      }
    }
  }

  private static StructType picked(List<String> names) {
    StructType picked = new StructType();
    for (String name : names) {
      picked = picked.add(field(name));
    }
    return picked;
  }

  private static StructField field(String name) {
    for (StructField field : ALL.fields()) {
      if (field.name().equals(name)) {
        return field;
      }
    }
    String hint =
        NearestName.among(ALL.fieldNames(), name)
            .map(near -> "; did you mean '" + near + "'?")
            .orElse("; it has " + String.join(", ", ALL.fieldNames()));
    throw new PlannerException("ConfigError", "table records has no column '" + name + "'" + hint);
  }
}
