package io.tierlog.summary;

import io.tierlog.engine.ReaderSettings;
import io.tierlog.engine.TaskCounters;
import io.tierlog.engine.TaskReader;
import io.tierlog.plan.RangePlan;
import io.tierlog.plan.StoreLocation;
import io.tierlog.plan.TaskPlan;
import io.tierlog.summary.HeaderRules.Verdict;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** One task's summary: first the headers, then the records of what they do not say. One thread, but {@link #close}. */
public final class TaskSummary implements AutoCloseable {
  /**
   * Of records that are summed up together.
   *
   * @param topic null: topics are not apart
   * @param partition null: partitions are not apart
   */
  public record Group(String topic, Integer partition) {}

  private final TaskPlan task;
  private final List<StoreLocation> stores;
  private final Wanted wanted;
  private final ReaderSettings settings;
  private final Map<Group, RecordSummary> groups = new LinkedHashMap<>();
  private final List<RangePlan> undecided = new ArrayList<>();
  private volatile TaskReader reader;
  private volatile boolean closed;
  private long requests;
  private long bytes;
  private long batches;

  public TaskSummary(TaskPlan task, List<StoreLocation> stores, Wanted wanted, ReaderSettings settings) {
    this.task = task;
    this.stores = stores;
    this.wanted = wanted;
    this.settings = settings;
  }

  /**
   * The summaries of the groups that have records.
   *
   * @throws io.tierlog.engine.TierlogException as {@link TaskReader#next}
   * @throws InterruptedIOException the task was killed
   */
  public Map<Group, RecordSummary> read() throws IOException {
    for (RangePlan range : task.ranges()) {
      readHeaders(range);
    }
    if (!undecided.isEmpty()) {
      readRecords();
    }
    groups.values().removeIf(summary -> summary.count() == 0);
    return groups;
  }

  /** Reads of log bytes, and what they brought. */
  public long requests() {
    return requests + (reader == null ? 0 : reader.counters().requests());
  }

  /** As stored. */
  public long storedBytes() {
    return bytes + (reader == null ? 0 : reader.counters().storedBytes());
  }

  /** Of batches that were decoded. */
  public long decodedBytes() {
    return reader == null ? 0 : reader.counters().logBytes();
  }

  /** Batches whose header said enough. */
  public long batchesSkipped() {
    TaskCounters decoded = reader == null ? null : reader.counters();
    return batches + (decoded == null ? 0 : decoded.batchesSkipped());
  }

  @Override
  public void close() {
    closed = true;
    TaskReader reading = reader;
    if (reading != null) {
      reading.close();
    }
  }

  private void readHeaders(RangePlan range) throws IOException {
    RecordSummary summary = new RecordSummary();
    List<RangePlan> left = new ArrayList<>();
    try (HeaderFile file = HeaderFile.open(stores.get(range.segment().store()), range.segment())) {
      if (file == null) {
        left.add(range);
      } else {
        walk(file, range, summary, left);
        requests += file.requests();
        bytes += file.bytes();
      }
    } catch (ClosedByInterruptException | InterruptedIOException e) {
      throw e;
    } catch (IOException e) {
      undecided.add(range); // who decodes says what is wrong with the object
      return;
    }
    undecided.addAll(left);
    group(range.segment().topic(), range.segment().partition()).add(summary);
  }

  /** Adds to the summary what headers say; the rest of the range is left, in parts between batch borders. */
  private void walk(HeaderFile file, RangePlan range, RecordSummary summary, List<RangePlan> left) throws IOException {
    HeaderRules rules = new HeaderRules(range, wanted);
    long position = range.startPosition();
    long leftFrom = -1;
    while (position < range.endPosition()) {
      if (closed) {
        throw new InterruptedIOException("the task was ended");
      }
      BatchHeader batch = file.at(position, range.endPosition());
      if (batch == null) {
        left.add(part(range, leftFrom >= 0 ? leftFrom : position, range.endPosition()));
        return;
      }
      Verdict verdict = rules.verdict(batch);
      if (verdict == Verdict.RECORDS) {
        leftFrom = leftFrom >= 0 ? leftFrom : position;
      } else {
        batches++;
        if (leftFrom >= 0) {
          left.add(part(range, leftFrom, position));
          leftFrom = -1;
        }
      }
      if (verdict == Verdict.HEADER) {
        rules.add(batch, summary);
      }
      position += batch.sizeBytes();
      if (rules.isLast(batch)) {
        break;
      }
    }
    if (leftFrom >= 0) {
      left.add(part(range, leftFrom, position));
    }
  }

  private static RangePlan part(RangePlan range, long start, long end) {
    return new RangePlan(
        range.segment(),
        start,
        end,
        range.fromOffset(),
        range.toOffsetExclusive(),
        range.fromTimestampMs(),
        range.toTimestampExclusiveMs(),
        range.aborted(),
        range.chunks());
  }

  private void readRecords() throws IOException {
    TaskPlan rest = new TaskPlan(undecided, task.failOnDataLoss(), task.verifyChecksums());
    reader = new TaskReader(rest, stores, wanted.columns(), settings);
    try {
      while (!closed && reader.next()) {
        addRecords(reader.get());
      }
    } finally {
      reader.close();
    }
    if (closed) {
      throw new InterruptedIOException("the task was ended");
    }
  }

  /** Rows of one range: all of one topic and partition. */
  private void addRecords(ColumnarBatch rows) {
    int count = rows.numRows();
    if (count == 0) {
      return;
    }
    RecordSummary summary = group(rows.column(0).getUTF8String(0).toString(), rows.column(1).getInt(0));
    summary.addCount(count);
    if (wanted.offsets()) {
      ColumnVector offsets = rows.column(2);
      for (int row = 0; row < count; row++) {
        summary.addOffset(offsets.getLong(row));
      }
    }
    if (wanted.timestamps()) {
      ColumnVector timestamps = rows.column(rows.numCols() - 1);
      for (int row = 0; row < count; row++) {
        summary.addTimestamp(timestamps.getLong(row));
      }
    }
  }

  private RecordSummary group(String topic, int partition) {
    Group group = new Group(wanted.byTopic() ? topic : null, wanted.byPartition() ? partition : null);
    return groups.computeIfAbsent(group, missing -> new RecordSummary());
  }
}
