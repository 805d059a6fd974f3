package io.tierlog.engine;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.tierlog.plan.ChunkSlice;
import io.tierlog.plan.RangePlan;
import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;
import io.tierlog.plan.TaskPlan;
import io.tierlog.summary.Grouping;
import io.tierlog.summary.TaskSummary;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.InterruptedIOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Reads tasks that the tests describe: one JSON object a line on standard input, one a line back. Rows go to the file
 * {@code out}, a line each, fields by tabs; without it they are only walked over.
 */
public final class Harness {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final HexFormat HEX = HexFormat.of();

  private Harness() {}

  public static void main(String[] arguments) throws IOException {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      JsonNode request = JSON.readTree(line);
      System.out.println(JSON.writeValueAsString(request.has("kills") ? killed(request) : answer(request)));
    }
  }

  private static ObjectNode answer(JsonNode request) throws IOException {
    ObjectNode answer = JSON.createObjectNode();
    String[] columns = strings(request.path("columns")).toArray(new String[0]);
    if (request.path("javaCipher").asBoolean()) {
      NativeCipher.leaveToJava();
    }
    try (BufferedWriter out = request.hasNonNull("out") ? Files.newBufferedWriter(Path.of(request.get("out").asText())) : null) {
      if (request.has("summary")) {
        sumUp(request, answer);
      } else {
        read(request, columns, out, answer);
      }
    } catch (TierlogException error) {
      answer.put("kind", error.kind());
      answer.put("error", error.getMessage());
    }
    return held(answer);
  }

  private static void sumUp(JsonNode request, ObjectNode answer) throws IOException {
    List<StoreLocation> stores = new ArrayList<>();
    request.get("stores").forEach(store -> stores.add(store(store)));
    Set<String> words = Set.copyOf(strings(request.get("summary")));
    Wanted wanted =
        new Wanted(words.contains("offsets"), words.contains("min_timestamp"), words.contains("max_timestamp"));
    try (TaskSummary task =
        new TaskSummary(task(request), stores, new Grouping(false, false), wanted, settings(request))) {
      RecordSummary found = task.read().values().stream().findFirst().orElse(RecordSummary.NONE);
      answer.put("count", found.count());
      answer.put("leastOffset", found.leastOffset());
      answer.put("greatestOffset", found.greatestOffset());
      answer.put("leastTimestampUs", found.leastTimestampUs());
      answer.put("greatestTimestampUs", found.greatestTimestampUs());
      answer.put("storedBytes", task.storedBytes());
      answer.put("decodedBytes", task.decodedBytes());
    }
  }

  private static ObjectNode held(ObjectNode answer) {
    answer.put("nativeBytes", EngineCounters.nativeBytes());
    answer.put("files", EngineCounters.files());
    answer.put("objectReads", EngineCounters.objectReads());
    answer.put("readers", EngineCounters.readers());
    return answer;
  }

  /** Tasks that end in the middle, by interrupt or by a close from outside, while their rows are looked at. */
  private static ObjectNode killed(JsonNode request) throws IOException {
    List<StoreLocation> stores = new ArrayList<>();
    request.get("stores").forEach(store -> stores.add(store(store)));
    String[] columns = strings(request.get("columns")).toArray(new String[0]);
    Random random = new Random(request.get("seed").asLong());
    List<String> surprises = Collections.synchronizedList(new ArrayList<>());
    int ended = 0;
    for (int number = 0; number < request.get("kills").asInt(); number++) {
      TaskReader reader = new TaskReader(task(request), stores, columns, settings(request));
      Thread thread = new Thread(() -> walk(reader, columns, surprises));
      thread.start();
      try {
        Thread.sleep(0, random.nextInt(1_000_000));
        if (random.nextBoolean()) {
          thread.interrupt();
        }
        reader.close();
        thread.join(30_000);
        ended += thread.isAlive() ? 0 : 1;
      } catch (InterruptedException nobodyDoesThat) {
        throw new IllegalStateException(nobodyDoesThat);
      }
    }
    ObjectNode answer = JSON.createObjectNode();
    answer.put("ended", ended);
    surprises.forEach(answer.putArray("surprises")::add);
    awaitBaseline();
    return held(answer);
  }

  private static void walk(TaskReader reader, String[] columns, List<String> surprises) {
    try (reader) {
      while (reader.next()) {
        try (BufferedWriter nowhere = new BufferedWriter(Writer.nullWriter())) {
          write(reader.get(), columns, nowhere);
        }
      }
    } catch (InterruptedIOException expected) {
      // the kill came while it read
    } catch (IOException | RuntimeException surprise) {
      surprises.add(surprise.toString());
    }
  }

  /** Memory of rows that another thread may have been reading goes when the collector finds that none is. */
  private static void awaitBaseline() {
    for (int tries = 0; EngineCounters.nativeBytes() > 0 && tries < 100; tries++) {
      System.gc();
      try {
        Thread.sleep(50);
      } catch (InterruptedException nobodyDoesThat) {
        throw new IllegalStateException(nobodyDoesThat);
      }
    }
  }

  private static void read(JsonNode request, String[] columns, BufferedWriter out, ObjectNode answer)
      throws IOException {
    List<StoreLocation> stores = new ArrayList<>();
    request.get("stores").forEach(store -> stores.add(store(store)));
    TaskReader reader = new TaskReader(task(request), stores, columns, settings(request));
    long batches = 0;
    long rowsMost = 0;
    int stopAfter = request.path("stopAfter").asInt(Integer.MAX_VALUE);
    try (reader) {
      while (batches < stopAfter && reader.next()) {
        ColumnarBatch batch = reader.get();
        batches++;
        rowsMost = Math.max(rowsMost, batch.numRows());
        if (out != null) {
          write(batch, columns, out);
        }
        batch.closeIfFreeable();
      }
    } finally {
      TaskCounters counters = reader.counters();
      answer.put("columnarBatches", batches);
      answer.put("rowsMost", rowsMost);
      answer.put("records", counters.records());
      answer.put("requests", counters.requests());
      answer.put("storedBytes", counters.storedBytes());
      answer.put("logBytes", counters.logBytes());
      answer.put("decompressedBytes", counters.decompressedBytes());
      answer.put("batches", counters.batches());
      answer.put("batchesSkipped", counters.batchesSkipped());
      answer.put("nativeBytesHigh", counters.nativeBytesHigh());
      counters.warnings().forEach(answer.putArray("warnings")::add);
    }
  }

  private static void write(ColumnarBatch batch, String[] columns, BufferedWriter out) throws IOException {
    for (int row = 0; row < batch.numRows(); row++) {
      InternalRow record = batch.getRow(row);
      StringBuilder line = new StringBuilder();
      for (int i = 0; i < columns.length; i++) {
        line.append(i == 0 ? "" : "\t").append(record.isNullAt(i) ? "null" : field(record, i, columns[i]));
      }
      out.write(line.append('\n').toString());
    }
  }

  private static String field(InternalRow row, int at, String column) {
    return switch (column) {
      case "key", "value" -> HEX.formatHex(row.getBinary(at));
      case "topic", "segment" -> row.getUTF8String(at).toString();
      case "offset", "timestamp" -> Long.toString(row.getLong(at));
      case "headers" -> headers(row.getArray(at));
      default -> Integer.toString(row.getInt(at));
    };
  }

  private static String headers(ArrayData headers) {
    StringBuilder text = new StringBuilder("[");
    for (int i = 0; i < headers.numElements(); i++) {
      InternalRow header = headers.getStruct(i, 2);
      String value = header.isNullAt(1) ? "null" : HEX.formatHex(header.getBinary(1));
      text.append(HEX.formatHex(header.getUTF8String(0).getBytes())).append('=').append(value).append(';');
    }
    return text.append(']').toString();
  }

  // ---- the request ----

  private static ReaderSettings settings(JsonNode request) {
    ReaderSettings standard = ReaderSettings.defaults();
    return new ReaderSettings(
        request.path("offHeapBytesPerTask").asLong(standard.offHeapBytesPerTask()),
        request.path("batchBytes").asInt(standard.batchBytes()),
        request.path("windowBytes").asInt(0),
        request.path("windowsAhead").asInt(standard.windowsAhead()),
        null,
        Set.copyOf(strings(request.path("notNull"))));
  }

  private static List<String> strings(JsonNode list) {
    List<String> all = new ArrayList<>();
    list.forEach(item -> all.add(item.asText()));
    return all;
  }

  private static StoreLocation store(JsonNode store) {
    return new StoreLocation(
        store.get("kind").asText(), store.get("url").asText(), map(store.path("options")), map(store.path("keys")));
  }

  private static TreeMap<String, String> map(JsonNode object) {
    TreeMap<String, String> map = new TreeMap<>();
    object.properties().forEach(entry -> map.put(entry.getKey(), entry.getValue().asText()));
    return map;
  }

  private static TaskPlan task(JsonNode request) throws IOException {
    List<SegmentPlan> segments = new ArrayList<>();
    for (JsonNode segment : request.get("segments")) {
      segments.add(segment(segment));
    }
    List<RangePlan> ranges = new ArrayList<>();
    for (JsonNode range : request.get("ranges")) {
      ranges.add(range(range, segments.get(range.get("segment").asInt())));
    }
    return new TaskPlan(ranges, request.get("failOnDataLoss").asBoolean(), request.get("verifyChecksums").asBoolean(), request.path("trustHeaders").asBoolean());
  }

  private static SegmentPlan segment(JsonNode s) throws IOException {
    boolean encrypted = s.hasNonNull("keyId");
    return new SegmentPlan(
        s.path("store").asInt(0),
        s.get("topic").asText(),
        s.get("partition").asInt(),
        s.get("label").asText(),
        s.get("name").asText(),
        s.get("key").asText(),
        s.get("logPosition").asLong(),
        s.get("sizeBytes").asLong(),
        s.path("compressed").asBoolean(),
        s.path("originalChunkSize").asInt(0),
        encrypted ? s.get("keyId").asText() : null,
        encrypted ? s.get("wrappedKey").binaryValue() : null,
        encrypted ? s.get("aad").binaryValue() : null,
        s.path("lastModifiedMs").asLong(),
        s.path("maxTimestampMs").asLong(Long.MAX_VALUE));
  }

  private static RangePlan range(JsonNode r, SegmentPlan segment) throws IOException {
    JsonNode chunks = r.path("chunks");
    ChunkSlice slice = null;
    if (chunks.isObject()) {
      int[] sizes = new int[chunks.get("transformedSizes").size()];
      for (int i = 0; i < sizes.length; i++) {
        sizes[i] = chunks.get("transformedSizes").get(i).asInt();
      }
      slice =
          new ChunkSlice(
              chunks.get("firstOriginalPosition").asLong(),
              chunks.get("firstTransformedPosition").asLong(),
              sizes,
              chunks.get("lastOriginalSize").asInt());
    }
    return new RangePlan(
        segment,
        r.get("startPosition").asLong(),
        r.get("endPosition").asLong(),
        r.get("fromOffset").asLong(),
        r.get("toOffsetExclusive").asLong(),
        r.path("leastOffset").asLong(0),
        r.path("greatestOffset").asLong(Long.MAX_VALUE),
        r.get("fromTimestampMs").asLong(),
        r.get("toTimestampExclusiveMs").asLong(),
        r.hasNonNull("aborted") ? r.get("aborted").binaryValue() : null,
        slice);
  }
}
