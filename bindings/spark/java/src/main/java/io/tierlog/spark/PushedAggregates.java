package io.tierlog.spark;

import io.tierlog.engine.RecordSummary;
import io.tierlog.engine.Wanted;
import io.tierlog.planner.PlanRequest.Aggregates;
import io.tierlog.summary.Grouping;
import io.tierlog.summary.TaskSummary.Group;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.aggregate.AggregateFunc;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.Count;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.expressions.aggregate.Max;
import org.apache.spark.sql.connector.expressions.aggregate.Min;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Aggregates that a plan may answer: counts of rows, least and greatest offsets and timestamps, by topic and partition.
 *
 * @param words for the planner
 * @param schema of the rows that answer: the grouping columns, then the functions
 */
record PushedAggregates(Aggregates words, StructType schema) implements Serializable {
  private static final Set<String> GROUPING = Set.of("topic", "partition");
  private static final Set<String> ORDERED = Set.of("offset", "timestamp");

  /** Columns without nulls: counting one of them is counting rows. */
  private static final Set<String> NEVER_NULL = Set.of("topic", "partition", "offset", "timestamp", "timestampType");

  /** The aggregates, if all of them are such; else empty. */
  static Optional<PushedAggregates> of(Aggregation aggregation) {
    StructType schema = new StructType();
    List<String> groupBy = new ArrayList<>();
    for (Expression expression : aggregation.groupByExpressions()) {
      String column = column(expression);
      if (!GROUPING.contains(column)) {
        return Optional.empty();
      }
      groupBy.add(column);
      schema = schema.add(RecordColumns.ALL.apply(column));
    }
    List<List<String>> functions = new ArrayList<>();
    for (AggregateFunc function : aggregation.aggregateExpressions()) {
      List<String> words = words(function);
      if (words.isEmpty()) {
        return Optional.empty();
      }
      functions.add(words);
      DataType type = words.size() == 1 ? DataTypes.LongType : RecordColumns.ALL.apply(words.get(1)).dataType();
      schema = schema.add(String.join("_", words) + "_" + functions.size(), type, true);
    }
    return Optional.of(new PushedAggregates(new Aggregates(groupBy, functions), schema));
  }

  /** Rows of the planner as Spark keeps them. */
  InternalRow[] rows(List<List<Object>> answer) {
    return answer.stream().map(this::row).toArray(InternalRow[]::new);
  }

  Grouping grouping() {
    return new Grouping(words.groupBy().contains("topic"), words.groupBy().contains("partition"));
  }

  /** The facts that tasks have to find out. */
  Wanted wanted() {
    List<List<String>> functions = words.functions();
    return new Wanted(
        functions.stream().anyMatch(function -> function.contains("offset")),
        functions.contains(List.of("min", "timestamp")),
        functions.contains(List.of("max", "timestamp")));
  }

  /** One group's partial row. */
  InternalRow row(Group group, RecordSummary summary) {
    List<Object> values = new ArrayList<>();
    for (String column : words.groupBy()) {
      values.add(column.equals("topic") ? group.topic() : (Object) (long) group.partition());
    }
    for (List<String> function : words.functions()) {
      values.add(value(function, summary));
    }
    return row(values);
  }

  private static Long value(List<String> function, RecordSummary summary) {
    if (function.size() == 1) {
      return summary.count();
    }
    if (summary.count() == 0) {
      return null;
    }
    boolean least = function.get(0).equals("min");
    if (function.get(1).equals("offset")) {
      return least ? summary.leastOffset() : summary.greatestOffset();
    }
    return least ? summary.leastTimestampUs() : summary.greatestTimestampUs();
  }

  private InternalRow row(List<Object> values) {
    if (values.size() != schema.length()) {
      throw new IllegalStateException("the planner's row has " + values.size() + " values of " + schema.length());
    }
    Object[] cells = new Object[schema.length()];
    for (int i = 0; i < cells.length; i++) {
      Object value = values.get(i);
      if (value instanceof String text) {
        cells[i] = UTF8String.fromString(text);
      } else if (value instanceof Long number && schema.fields()[i].dataType().equals(DataTypes.IntegerType)) {
        cells[i] = number.intValue();
      } else {
        cells[i] = value;
      }
    }
    return new GenericInternalRow(cells);
  }

  private static List<String> words(AggregateFunc function) {
    if (function instanceof CountStar) {
      return List.of("count");
    }
    if (function instanceof Count count) {
      return !count.isDistinct() && NEVER_NULL.contains(column(count.column())) ? List.of("count") : List.of();
    }
    if (function instanceof Min min && ORDERED.contains(column(min.column()))) {
      return List.of("min", column(min.column()));
    }
    if (function instanceof Max max && ORDERED.contains(column(max.column()))) {
      return List.of("max", column(max.column()));
    }
    return List.of();
  }

  private static String column(Expression expression) {
    return expression instanceof NamedReference reference && reference.fieldNames().length == 1
        ? reference.fieldNames()[0]
        : "";
  }
}
