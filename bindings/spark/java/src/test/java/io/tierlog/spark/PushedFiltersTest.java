package io.tierlog.spark;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.List;
import org.apache.spark.sql.connector.expressions.Expression;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.LiteralValue;
import org.apache.spark.sql.connector.expressions.filter.AlwaysTrue;
import org.apache.spark.sql.connector.expressions.filter.Predicate;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;

/** A filter that is taken is evaluated by nobody else: one taken wrongly changes the rows. */
class PushedFiltersTest {
  private static final Expression OFFSET = Expressions.column("offset");

  private static Expression literal(Object value, DataType type) {
    return new LiteralValue<>(value, type);
  }

  private static Expression number(long value) {
    return literal(value, DataTypes.LongType);
  }

  private static Predicate of(String name, Expression... children) {
    return new Predicate(name, children);
  }

  private static void check(Predicate offered, boolean taken, String... comparisons) {
    PushedFilters filters = new PushedFilters();
    assertEquals(taken ? 0 : 1, filters.push(new Predicate[] {offered}).length, offered.name());
    assertEquals(taken ? 1 : 0, filters.absorbed().length);
    assertEquals(List.of(comparisons), filters.comparisons().stream().map(Object::toString).toList());
  }

  @Test
  void comparisonsAreTaken() {
    check(of("<", OFFSET, number(5)), true, "offset < 5");
    check(of("<", number(5), OFFSET), true, "offset > 5");
    check(of(">=", number(5), OFFSET), true, "offset <= 5");
    check(of("<=>", OFFSET, number(5)), true, "offset = 5");
    check(of("=", Expressions.column("partition"), literal(3, DataTypes.IntegerType)), true, "partition = 3");
    check(of(">", Expressions.column("timestamp"), literal(7L, DataTypes.TimestampType)), true, "timestamp > 7");
    Expression topic = literal(UTF8String.fromString("ö"), DataTypes.StringType);
    check(of("=", Expressions.column("topic"), topic), true, "topic = ö");
    check(of("IS_NOT_NULL", OFFSET), true);
    check(new AlwaysTrue(), true);
  }

  @Test
  void whatOnlyNarrowsIsEvaluatedAgain() {
    check(of("IN", OFFSET, number(1), number(9)), false, "offset in [1, 9]");
    check(of("IN", OFFSET, number(Long.MIN_VALUE), number(Long.MAX_VALUE)), false,
        "offset in [" + Long.MIN_VALUE + ", " + Long.MAX_VALUE + "]");
    check(of("IN", OFFSET, number(3), number(1), number(2)), true, "offset in [3, 1, 2]");
    Expression one = literal(1, DataTypes.IntegerType);
    Expression seven = literal(7, DataTypes.IntegerType);
    check(of("IN", Expressions.column("partition"), one, seven), true, "partition in [1, 7]");
  }

  @Test
  void theRestIsLeftToSpark() {
    check(of("<>", OFFSET, number(5)), false);
    check(of("IS_NOT_NULL", Expressions.column("value")), false);
    check(of("<", Expressions.column("topic"), literal(UTF8String.fromString("a"), DataTypes.StringType)), false);
    check(of("=", OFFSET, literal(null, DataTypes.LongType)), false);
    check(of("=", OFFSET, OFFSET), false);
    check(of("=", Expressions.column("headers.key"), number(1)), false);
    check(of("=", OFFSET, literal(5, DataTypes.IntegerType)), false);
    check(of("OR", of("<", OFFSET, number(5)), of(">", OFFSET, number(7))), false);
  }
}
