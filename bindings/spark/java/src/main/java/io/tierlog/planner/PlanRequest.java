package io.tierlog.planner;

import java.io.Serializable;
import java.util.List;
import java.util.Map;

/**
 * A request to plan.
 *
 * @param options of the load
 * @param listing pinned at the load
 * @param columns wanted, in this order
 * @param filters all of which hold
 * @param limit records; null: all
 * @param aggregates null: the records themselves
 */
public record PlanRequest(
    Map<String, String> options,
    Listing listing,
    List<String> columns,
    List<Comparison> filters,
    Long limit,
    Aggregates aggregates) {

  /**
   * @param column {@code topic}, {@code partition}, {@code offset}, {@code timestamp}
   * @param operation {@code =}, {@code in}, {@code <}, {@code <=}, {@code >}, {@code >=}
   * @param value {@link String} or {@link Long} (timestamps: microseconds since 1970), a list of them for {@code in}
   */
  public record Comparison(String column, String operation, Object value) {
    List<Object> words() {
      return List.of(column, operation, value);
    }

    @Override
    public String toString() {
      return column + " " + operation + " " + value;
    }
  }

  /**
   * @param groupBy of {@code topic}, {@code partition}
   * @param functions each {@code [count]}, {@code [min, column]} or {@code [max, column]}
   */
  public record Aggregates(List<String> groupBy, List<List<String>> functions) implements Serializable {
    public Aggregates {
      groupBy = List.copyOf(groupBy);
      functions = List.copyOf(functions);
    }

    Map<String, Object> words() {
      return Map.of("group_by", groupBy, "functions", functions);
    }
  }

  public PlanRequest {
    columns = List.copyOf(columns);
    filters = List.copyOf(filters);
  }
}
