package io.tierlog.spark;

import io.tierlog.planner.PlanRequest.Comparison;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Literal;
import org.apache.spark.sql.connector.expressions.NamedReference;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Comparisons of topic, partition, offset and timestamp with literals, out of Spark's predicates. Those that the
 * planner keeps exactly are not evaluated again: so says {@code pyspark_tierlog.pushdown}, whose rules these are.
 */
final class PushedFilters {
  private static final Map<String, String> OPERATIONS =
      Map.of("=", "=", "<=>", "=", "<", "<", "<=", "<=", ">", ">", ">=", ">=", "IN", "in");
  private static final Map<String, String> MIRRORED = Map.of("=", "=", "<", ">", "<=", ">=", ">", "<", ">=", "<=");
  private static final List<String> COLUMNS = List.of("topic", "partition", "offset", "timestamp");

  private final List<Predicate> absorbed = new ArrayList<>();
  private final List<Comparison> comparisons = new ArrayList<>();

  /** Takes the predicates that it can use, and returns those that Spark has to evaluate after the scan. */
  Predicate[] push(Predicate[] offered) {
    List<Predicate> left = new ArrayList<>();
    for (Predicate predicate : offered) {
      if (isAlwaysTrue(predicate)) {
        absorbed.add(predicate);
        continue;
      }
      Optional<Comparison> comparison = comparison(predicate);
      comparison.ifPresent(comparisons::add);
      if (comparison.filter(PushedFilters::isExact).isPresent()) {
        absorbed.add(predicate);
      } else {
        left.add(predicate);
      }
    }
    return left.toArray(new Predicate[0]);
  }

  Predicate[] absorbed() {
    return absorbed.toArray(new Predicate[0]);
  }

  List<Comparison> comparisons() {
    return List.copyOf(comparisons);
  }

  /** A predicate as a comparison; empty if it does not compare one of our columns with literals of its type. */
  static Optional<Comparison> comparison(Predicate predicate) {
    Expression[] children = predicate.children();
    String operation = OPERATIONS.get(predicate.name());
    if (operation == null || children.length < 2) {
      return Optional.empty();
    }
    if (children[0] instanceof Literal && children.length == 2 && MIRRORED.containsKey(operation)) {
      children = new Expression[] {children[1], children[0]};
      operation = MIRRORED.get(operation);
    }
    String column = column(children[0]);
    if (column == null || column.equals("topic") && !(operation.equals("=") || operation.equals("in"))) {
      return Optional.empty();
    }
    List<Object> values = new ArrayList<>();
    for (int i = 1; i < children.length; i++) {
      Object value = value(children[i], column);
      if (value == null) {
        return Optional.empty();
      }
      values.add(value);
    }
    return Optional.of(new Comparison(column, operation, operation.equals("in") ? List.copyOf(values) : values.get(0)));
  }

  /** These columns have a value in every row. */
  private static boolean isAlwaysTrue(Predicate predicate) {
    return predicate.name().equals("ALWAYS_TRUE")
        || predicate.name().equals("IS_NOT_NULL") && column(predicate.children()[0]) != null;
  }

  private static boolean isExact(Comparison comparison) {
    if (!comparison.operation().equals("in") || List.of("topic", "partition").contains(comparison.column())) {
      return true;
    }
    HashSet<Object> values = new HashSet<>((List<?>) comparison.value());
    long least = values.stream().mapToLong(value -> (Long) value).min().orElseThrow();
    long most = values.stream().mapToLong(value -> (Long) value).max().orElseThrow();
    return most - least == values.size() - 1; // an overflow is negative, and so not equal
  }

  /** Name of the column; null if it is none of ours. */
  private static String column(Expression expression) {
    if (!(expression instanceof NamedReference reference) || reference.fieldNames().length != 1) {
      return null;
    }
    String name = reference.fieldNames()[0];
    return COLUMNS.contains(name) ? name : null;
  }

  /** The literal as a string or as a number in the column's unit; null if it is of another type, or null. */
  private static Object value(Expression expression, String column) {
    if (!(expression instanceof Literal<?> literal) || literal.value() == null) {
      return null;
    }
    DataType type = literal.dataType();
    return switch (column) {
      case "topic" -> type instanceof StringType && literal.value() instanceof UTF8String text ? text.toString() : null;
      case "partition" -> type.equals(DataTypes.IntegerType) ? Long.valueOf((Integer) literal.value()) : null;
      case "offset" -> type.equals(DataTypes.LongType) ? (Object) literal.value() : null;
      default -> type.equals(DataTypes.TimestampType) ? (Object) literal.value() : null;
    };
  }
}
