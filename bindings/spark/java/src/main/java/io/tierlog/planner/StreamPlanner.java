package io.tierlog.planner;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.SortedMap;
import java.util.TreeMap;
import java.util.UUID;

/**
 * Asks about one stream, by a child that is its own until its end, and remembers what the tier had. One in place of a child
 * that was killed looks at all of the tier again.
 *
 * <p>Thread safety: one thread at a time, but for {@link #close()}.
 */
public final class StreamPlanner implements AutoCloseable {
  private final PlannerLease lease;
  private final Map<String, String> options;
  private final List<String> columns;
  private final String name = UUID.randomUUID().toString();
  private final SortedMap<String, String> topicIds = new TreeMap<>();
  private JsonNode read;

  /**
   * The limits of a trigger; null: there is none.
   *
   * @param maxOffsets of all partitions together
   * @param minOffsets without which there is no batch before the delay is over
   * @param maxDelayMillis since the last batch
   */
  public record Limits(Long maxOffsets, Long minOffsets, long maxDelayMillis) {}

  /**
   * An answer.
   *
   * @param offsets by topic and partition
   * @param limits that the options give
   */
  public record Offsets(JsonNode offsets, Limits limits) {}

  /**
   * @param client has the child
   * @param options of the load
   * @param columns that are read
   * @param known what the query has read before
   */
  public StreamPlanner(
      PlannerClient client, Map<String, String> options, List<String> columns, ReadTopics known) {
    this.lease = client.lease();
    this.options = options;
    this.columns = List.copyOf(columns);
    this.topicIds.putAll(known.topicIds());
    this.read = known.read();
  }

  /** What the query has read; of the tier up to what {@link #noteRead} was told last. */
  public ReadTopics known() {
    return new ReadTopics(new TreeMap<>(topicIds), read);
  }

  /**
   * Takes what the query has read of the tier with the batch that was planned last.
   *
   * @throws PlannerException what the planner said, or that it does not work
   */
  public void noteRead() {
    read = told("read", Map.of()).path("read");
  }

  /** Keeps the ids of topics of which the tier has nothing yet. */
  public void keep(Map<String, String> ids) {
    ids.forEach(topicIds::putIfAbsent);
  }

  /**
   * Where a new query begins.
   *
   * @throws PlannerException what the planner said, or that it does not work
   */
  public Offsets begin() {
    return ask("begin", Map.of());
  }

  /**
   * Where the tier ends.
   *
   * @param fresh look at it now
   * @throws PlannerException what the planner said, or that it does not work
   */
  public Offsets ends(boolean fresh) {
    return ask("ends", Map.of("fresh", fresh));
  }

  /**
   * Where the next batch ends.
   *
   * @param last where the query ends; null: it goes on
   * @param limited whether the limits of a trigger count
   * @throws PlannerException what the planner said, or that it does not work
   */
  public Offsets next(Object start, Object last, boolean limited) {
    Map<String, Object> words = new LinkedHashMap<>();
    words.put("start", start);
    words.put("final", last);
    words.put("limited", limited);
    return ask("next", words);
  }

  /**
   * Where the tier's part of a batch ends, of the partitions of which it has one.
   *
   * @param local where the brokers' local logs begin, of which they give all; null: the tier gives all that it has
   * @throws PlannerException what the planner said, or that it does not work
   */
  public List<Seam> seams(Object start, Object end, Object local) {
    Map<String, Object> words = new LinkedHashMap<>();
    words.put("start", start);
    words.put("end", end);
    words.put("local", local);
    JsonNode told = told("seams", words);
    List<Seam> found = new ArrayList<>();
    told.path("seams").forEach(each -> found.add(Seam.of(each)));
    return found;
  }

  /**
   * Plans a batch, or the tier's part of one.
   *
   * @param brokers facts of partitions whose records behind the end are read from brokers
   * @param filters all of which hold for what is wanted
   * @throws PlannerException what the planner said, or that it does not work
   */
  public ScanPlan plan(Object start, Object end, List<BrokerFacts> brokers, List<PlanRequest.Comparison> filters) {
    List<List<Object>> facts = brokers.stream().map(BrokerFacts::words).toList();
    List<List<Object>> wanted = filters.stream().map(PlanRequest.Comparison::words).toList();
    Map<String, Object> words = Map.of("start", start, "end", end, "brokers", facts, "filters", wanted);
    ScanPlan plan = lease.plan(request("plan", words), List.of());
    lease.keep(); // Spark stops the source of a query that has a batch; hours may lie between two of them
    return plan;
  }

  /** Has the child forget the stream, and others use it. */
  @Override
  public void close() {
    lease.close(request("end", Map.of()));
  }

  private Offsets ask(String what, Map<String, Object> more) {
    JsonNode told = told(what, more);
    JsonNode limits = told.path("limits");
    return new Offsets(
        told.path("offsets"),
        new Limits(
            number(limits, "max_offsets"), number(limits, "min_offsets"), limits.path("max_delay_ms").asLong()));
  }

  private JsonNode told(String what, Map<String, Object> more) {
    JsonNode told = lease.offsets(request(what, more));
    told.path("topic_ids").fields().forEachRemaining(each -> topicIds.put(each.getKey(), each.getValue().asText()));
    return told;
  }

  private static Long number(JsonNode limits, String name) {
    return limits.path(name).isNumber() ? (Long) limits.path(name).asLong() : null;
  }

  private Map<String, Object> request(String what, Map<String, Object> more) {
    Map<String, Object> words = new LinkedHashMap<>();
    words.put("op", "stream");
    words.put("ask", what);
    words.put("stream", name);
    words.put("options", options);
    words.put("topic_ids", topicIds);
    words.put("read", read);
    words.put("columns", columns);
    words.putAll(more);
    return words;
  }
}
