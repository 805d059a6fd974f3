package io.tierlog.planner;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.tierlog.plan.ChunkSlice;
import io.tierlog.plan.RangePlan;
import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;
import io.tierlog.plan.TaskPlan;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.OptionalLong;
import java.util.TreeMap;

/** Frames of one answer to {@code plan}, in their order, become a {@link ScanPlan}. */
final class PlanDecoder {
  static final ObjectMapper JSON = new ObjectMapper();

  private static final int LEAST_PAIR_BYTES = 2 * Integer.BYTES;
  private static final int LEAST_RANGE_BYTES = 2 * Integer.BYTES + 8 * Long.BYTES + 1;

  private final List<StoreLocation> stores = new ArrayList<>();
  private final List<SegmentPlan> segments = new ArrayList<>();
  private final List<TaskPlan> tasks = new ArrayList<>();
  private final List<List<Object>> known = new ArrayList<>();
  private List<List<Object>> answer;
  private JsonNode head;

  /**
   * Takes one frame of the answer.
   *
   * @throws FrameException it is malformed, or comes in a wrong place
   */
  void take(Frame frame) throws IOException {
    if ((frame.type() == 'P') != (head == null)) {
      throw new FrameException("frame " + frame.type() + (head == null ? " comes before P" : " comes twice"));
    }
    switch (frame.type()) {
      case 'P' -> head = json(frame);
      case 'O' -> stores.add(store(frame));
      case 'S' -> segments.add(segment(frame));
      case 'T' -> tasks.add(task(frame));
      case 'A' -> takeAnswer(json(frame));
      case 'K' -> takeRows(json(frame), known);
      default -> throw new FrameException("frame " + frame.type() + " does not belong to a plan");
    }
    frame.end();
  }

  /** The plan, when all frames have come. */
  ScanPlan finished() throws FrameException {
    if (head == null) {
      throw new FrameException("the answer has no frame P");
    }
    OptionalLong told = number("tasks");
    if (told.isPresent() && told.getAsLong() != tasks.size()) {
      throw new FrameException("the plan says " + told.getAsLong() + " tasks and has " + tasks.size());
    }
    OptionalLong bytes = number("bytes");
    return new ScanPlan(
        number("rows"),
        flag("exact_rows"),
        bytes.orElseThrow(() -> new FrameException("frame P has no bytes")),
        flag("limit_taken"),
        flag("aggregates_taken"),
        flag("header_only"),
        flag("trust_headers"),
        List.copyOf(stores),
        tasks,
        answer,
        List.copyOf(known));
  }

  static JsonNode json(Frame frame) throws FrameException {
    try {
      return JSON.readTree(frame.rest());
    } catch (JsonProcessingException e) {
      throw new FrameException("frame " + frame.type() + " is not JSON");
    } catch (IOException e) {
      throw new FrameException("frame " + frame.type() + " cannot be read");
    }
  }

  private OptionalLong number(String member) throws FrameException {
    JsonNode node = head.path(member);
    if (node.isNull() || node.isMissingNode()) {
      return OptionalLong.empty();
    }
    if (!node.isIntegralNumber() || !node.canConvertToLong() || node.longValue() < 0) {
      throw new FrameException("frame P has no number " + member);
    }
    return OptionalLong.of(node.longValue());
  }

  private boolean flag(String member) throws FrameException {
    JsonNode node = head.path(member);
    if (!node.isBoolean()) {
      throw new FrameException("frame P does not say " + member);
    }
    return node.booleanValue();
  }

  private static StoreLocation store(Frame frame) throws FrameException {
    return new StoreLocation(frame.str(), frame.str(), pairs(frame), pairs(frame));
  }

  private static TreeMap<String, String> pairs(Frame frame) throws FrameException {
    TreeMap<String, String> pairs = new TreeMap<>();
    for (int left = frame.count(LEAST_PAIR_BYTES); left > 0; left--) {
      pairs.put(frame.str(), frame.str());
    }
    return pairs;
  }

  private SegmentPlan segment(Frame frame) throws FrameException {
    int store = frame.i32();
    if (store < 0 || store >= stores.size()) {
      throw new FrameException("frame S names store " + store + " of " + stores.size());
    }
    String topic = sharedTopic(frame.str());
    int partition = frame.i32();
    String label = frame.str();
    String name = frame.str();
    String key = frame.str();
    long logPosition = frame.size();
    long sizeBytes = frame.size();
    boolean compressed = frame.flag();
    int originalChunkSize = frame.i32();
    boolean encrypted = frame.flag();
    return new SegmentPlan(
        store,
        topic,
        partition,
        label,
        name.equals(key) ? key : name,
        key,
        logPosition,
        sizeBytes,
        compressed,
        originalChunkSize,
        encrypted ? frame.str() : null,
        encrypted ? frame.bytes() : null,
        encrypted ? frame.bytes() : null,
        frame.i64(),
        frame.i64());
  }

  /** The topic of the segment before, where it is the same: a plan can have a million segments, and keeps their texts. */
  private String sharedTopic(String topic) {
    String before = segments.isEmpty() ? null : segments.get(segments.size() - 1).topic();
    return topic.equals(before) ? before : topic;
  }

  private TaskPlan task(Frame frame) throws FrameException {
    int count = frame.count(LEAST_RANGE_BYTES);
    List<RangePlan> ranges = new ArrayList<>(count);
    for (int i = 0; i < count; i++) {
      ranges.add(range(frame));
    }
    return new TaskPlan(ranges, flag("fail_on_data_loss"), flag("verify_checksums"), flag("trust_headers"));
  }

  private RangePlan range(Frame frame) throws FrameException {
    int segment = frame.i32();
    if (segment < 0 || segment >= segments.size()) {
      throw new FrameException("frame T names segment " + segment + " of " + segments.size());
    }
    long start = frame.size();
    long end = frame.size();
    if (start > end || end > segments.get(segment).sizeBytes()) {
      throw new FrameException("frame T has bytes " + start + " to " + end + " of a segment");
    }
    return new RangePlan(
        segments.get(segment),
        start,
        end,
        frame.i64(),
        frame.i64(),
        frame.i64(),
        frame.i64(),
        frame.i64(),
        frame.i64(),
        frame.bytes(),
        frame.flag() ? chunks(frame) : null);
  }

  private static ChunkSlice chunks(Frame frame) throws FrameException {
    long firstOriginal = frame.size();
    long firstTransformed = frame.size();
    int lastSize = frame.i32();
    int[] sizes = new int[frame.count(Integer.BYTES)];
    for (int i = 0; i < sizes.length; i++) {
      sizes[i] = frame.i32();
    }
    return new ChunkSlice(firstOriginal, firstTransformed, sizes, lastSize);
  }

  private void takeAnswer(JsonNode rows) throws FrameException {
    if (answer == null) {
      answer = new ArrayList<>();
    }
    takeRows(rows, answer);
  }

  private static void takeRows(JsonNode rows, List<List<Object>> taken) throws FrameException {
    if (!rows.isArray()) {
      throw new FrameException("a frame of rows is no list of them");
    }
    for (JsonNode row : rows) {
      if (!row.isArray()) {
        throw new FrameException("a frame of rows has a row that is no list");
      }
      List<Object> values = new ArrayList<>(row.size());
      for (JsonNode value : row) {
        values.add(value(value));
      }
      taken.add(values);
    }
  }

  private static Object value(JsonNode value) throws FrameException {
    if (value.isNull()) {
      return null;
    }
    if (value.isTextual()) {
      return value.textValue();
    }
    if (value.isIntegralNumber() && value.canConvertToLong()) {
      return value.longValue();
    }
    throw new FrameException("a frame of rows has a value that is neither a text nor a whole number");
  }
}
