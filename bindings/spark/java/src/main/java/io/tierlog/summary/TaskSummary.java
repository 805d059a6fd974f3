package io.tierlog.summary;

import io.tierlog.engine.HeaderWalk;
import io.tierlog.engine.ReaderSettings;
import io.tierlog.engine.RecordSummary;
import io.tierlog.engine.TaskCounters;
import io.tierlog.engine.TaskReader;
import io.tierlog.engine.Wanted;
import io.tierlog.plan.RangePlan;
import io.tierlog.plan.SegmentPlan;
import io.tierlog.plan.StoreLocation;
import io.tierlog.plan.TaskPlan;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/**
 * One task's summary: first the headers of what lies in local files, then the bytes of what they do not say. One
 * thread, but {@link #close}.
 */
public final class TaskSummary implements AutoCloseable {
  /**
   * A group of records that are summed up together.
   *
   * @param topic null: topics are not apart
   * @param partition null: partitions are not apart
   */
  public record Group(String topic, Integer partition) {}

  private final TaskPlan task;
  private final List<StoreLocation> stores;
  private final Grouping grouping;
  private final Wanted wanted;
  private final ReaderSettings settings;
  private final Map<Group, RecordSummary> groups = new LinkedHashMap<>();
  private volatile HeaderWalk walk;
  private volatile TaskReader reader;
  private volatile boolean closed;
  private long requests;
  private long bytes;
  private long batches;
  private long crcNs;

  public TaskSummary(
      TaskPlan task, List<StoreLocation> stores, Grouping grouping, Wanted wanted, ReaderSettings settings) {
    this.task = task;
    this.stores = stores;
    this.grouping = grouping;
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
    List<RangePlan> undecided = readHeaders();
    if (!undecided.isEmpty()) {
      readRecords(undecided);
    }
    groups.values().removeIf(summary -> summary.count() == 0);
    return groups;
  }

  /** Reads of log bytes. */
  public long requests() {
    return requests + (reader == null ? 0 : reader.counters().requests());
  }

  /** Stored bytes that were read. */
  public long storedBytes() {
    return bytes + (reader == null ? 0 : reader.counters().storedBytes());
  }

  /** Untransformed bytes of the windows that were decoded. */
  public long decodedBytes() {
    return reader == null ? 0 : reader.counters().logBytes();
  }

  /** Batches whose header said enough. */
  public long batchesSkipped() {
    return batches + (reader == null ? 0 : reader.counters().batchesSkipped());
  }

  /** Time spent on checksums, nanoseconds. */
  public long crcNs() {
    return crcNs + (reader == null ? 0 : reader.counters().crcNs());
  }

  @Override
  public void close() {
    closed = true;
    HeaderWalk walking = walk;
    if (walking != null) {
      walking.abort();
    }
    TaskReader reading = reader;
    if (reading != null) {
      reading.close();
    }
  }

  /** Reads the headers; returns the ranges that they do not answer. */
  private List<RangePlan> readHeaders() throws InterruptedIOException {
    List<RangePlan> undecided = new ArrayList<>();
    try (HeaderWalk walking = HeaderWalk.summingUp(stores, wanted, !task.trustHeaders(), settings)) {
      walk = walking;
      for (RangePlan range : task.ranges()) {
        checkOpen();
        add(range, walking.read(range, undecided::add));
      }
      requests = walking.requests();
      bytes = walking.storedBytes();
      batches = walking.batches();
      crcNs = walking.crcNs();
    }
    return undecided;
  }

  private void readRecords(List<RangePlan> undecided) throws IOException {
    reader = TaskReader.ofSummary(task.over(undecided), stores, wanted, this::add, settings);
    try {
      checkOpen();
      while (reader.next()) {
        throw new IllegalStateException("a summary has no rows");
      }
    } finally {
      reader.close();
    }
    checkOpen();
  }

  private void checkOpen() throws InterruptedIOException {
    if (closed) {
      throw new InterruptedIOException("the task was ended");
    }
  }

  private void add(RangePlan range, RecordSummary summary) {
    SegmentPlan segment = range.segment();
    Group group =
        new Group(grouping.byTopic() ? segment.topic() : null, grouping.byPartition() ? segment.partition() : null);
    groups.merge(group, summary, RecordSummary::plus);
  }
}
