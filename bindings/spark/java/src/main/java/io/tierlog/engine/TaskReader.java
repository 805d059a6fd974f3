package io.tierlog.engine;

import io.tierlog.plan.RangePlan;
import io.tierlog.plan.StoreLocation;
import io.tierlog.plan.TaskPlan;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BiConsumer;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The records of a task that count, as columnar batches.
 *
 * <p>One batch, filled again and again: rows are valid until the next {@link #next}. What operators keep they copy, as
 * they must of Spark's own readers. One thread reads; any may close. A reader that another thread closes ends its work
 * at once, and keeps the memory of the rows that were given until no one can reach them.
 */
public final class TaskReader implements PartitionReader<ColumnarBatch> {
  private static final Logger LOG = LoggerFactory.getLogger(TaskReader.class);

  private final TaskPlan task;
  private final List<StoreLocation> locations;
  private final ReaderSettings settings;
  private final Stores stores;
  private final RecordBatch rows;
  private final TaskMemory memory;
  private final Decoder decoder;
  private final BiConsumer<RangePlan, RecordSummary> summaries;
  private final List<String> warnings = new ArrayList<>();
  private final ReentrantLock lock = new ReentrantLock();

  private List<RangePlan> ranges;
  private volatile HeaderWalk walk;
  private volatile Windows windows;
  private int number = -1;
  private boolean inRange;
  private boolean finishing;
  private boolean allowPartial;
  /** The error behind the windows that are still given: no window follows them. */
  private TierlogException cut;
  private long logBytes;
  private long batchesRuledOut;
  private long records;
  private Thread owner;
  private volatile boolean closing;
  private TaskCounters last;

  /**
   * Makes a reader, which opens nothing yet but memory.
   *
   * @param task what to read
   * @param locations of its segments
   * @param columns of the table {@code records}, in the order wanted; none: batches have rows only
   * @param settings how to read
   * @throws TierlogException ConfigError: an unknown column, or the native library cannot be loaded
   */
  public TaskReader(TaskPlan task, List<StoreLocation> locations, String[] columns, ReaderSettings settings) {
    this(task, locations, columns, null, null, settings);
  }

  /**
   * A reader that gives no rows: {@link #next} reads all records, and answers that there are none.
   *
   * @param wanted what is summed up
   * @param summaries gets each range's, in order; of a range that is read in part, that
   */
  public static TaskReader ofSummary(
      TaskPlan task,
      List<StoreLocation> locations,
      Wanted wanted,
      BiConsumer<RangePlan, RecordSummary> summaries,
      ReaderSettings settings) {
    return new TaskReader(task, locations, new String[0], wanted, summaries, settings);
  }

  private TaskReader(
      TaskPlan task,
      List<StoreLocation> locations,
      String[] columns,
      Wanted wanted,
      BiConsumer<RangePlan, RecordSummary> summaries,
      ReaderSettings settings) {
    NativeLibrary.load(settings.nativeDirectory());
    this.task = task;
    this.locations = locations;
    this.settings = settings;
    this.summaries = summaries;
    rows = new RecordBatch(columns, settings.notNull());
    stores = new Stores(locations, settings.nativeDirectory());
    memory = new TaskMemory(settings.offHeapBytesPerTask());
    try {
      decoder =
          wanted == null
              ? Decoder.ofRows(memory, rows.want(), settings.batchBytes())
              : Decoder.ofSummary(memory, wanted);
    } catch (OutOfMemoryError error) {
      memory.letGo();
      throw error;
    }
    EngineCounters.READERS.incrementAndGet();
  }

  /** Prepares the windows when reading begins. */
  private void prepare() throws InterruptedIOException {
    ranges = task.ranges();
    if (ranges.stream().anyMatch(TaskReader::endsInTime)) {
      ranges = narrowed();
    }
    windows = openWindows();
  }

  /**
   * Whether the range ends at a time: no index shows where a time ends, only headers of batches whose records have one
   * time.
   */
  private static boolean endsInTime(RangePlan range) {
    return range.toTimestampExclusiveMs() < Long.MAX_VALUE;
  }

  private List<RangePlan> narrowed() throws InterruptedIOException {
    List<RangePlan> left = new ArrayList<>();
    try (HeaderWalk walking = HeaderWalk.rulingOut(locations, settings)) {
      walk = walking;
      for (RangePlan range : ranges) {
        if (closing) {
          walking.abort();
        }
        if (endsInTime(range)) {
          walking.read(range, left::add);
        } else {
          left.add(range);
        }
      }
      stores.counted(walking.requests(), walking.storedBytes());
      batchesRuledOut = walking.batches();
    } finally {
      walk = null;
    }
    return left;
  }

  private Windows openWindows() {
    boolean local = stores.areLocal();
    int standard = local ? ReaderSettings.LOCAL_WINDOW_BYTES : ReaderSettings.REMOTE_WINDOW_BYTES;
    int size = settings.windowBytes() > 0 ? settings.windowBytes() : standard;
    Pieces pieces = new Pieces(ranges, size);
    return new Windows(stores, pieces, memory, local ? 0 : settings.windowsAhead());
  }

  /**
   * Decodes the next batch.
   *
   * @throws TierlogException in the words of the Python path: CorruptRecordError, SizeLimitError, CorruptObjectError
   *     (with topic-partition, object, byte position and offset; rows before it were given), ObjectNotFoundError,
   *     EncryptionKeyError, StoreError and its kinds, ConfigError: the ceiling of native memory
   * @throws InterruptedIOException the thread was interrupted while it waited, or the reader was closed
   */
  @Override
  public boolean next() throws IOException {
    lock.lock();
    try {
      owner = Thread.currentThread();
      if (ranges == null && !closing) {
        prepare();
      }
      while (!closing) {
        if (!inRange && !beginRange()) {
          return false;
        }
        if (finishing ? finish() : advance()) {
          records += decoder.report().getInt(Report.ROWS);
          rows.bind(decoder.report());
          return true;
        }
      }
      throw new InterruptedIOException("the reader was closed");
    } finally {
      lock.unlock();
    }
  }

  @Override
  public ColumnarBatch get() {
    return rows.batch();
  }

  // ---- one range after another ----

  private RangePlan range() {
    return ranges.get(number);
  }

  private boolean beginRange() {
    if (number + 1 >= ranges.size()) {
      return false;
    }
    number++;
    decoder.begin(range(), task.verifyChecksums());
    rows.begin(range());
    inRange = true;
    finishing = false;
    allowPartial = false;
    cut = null;
    return true;
  }

  /** Goes one step; returns whether it gave rows. */
  private boolean advance() throws InterruptedIOException {
    switch (decoder.next()) {
      case Native.ROWS:
        return true;
      case Native.INPUT:
        feed();
        return false;
      case Native.ENDED:
        finishing = true;
        return false;
      default:
        skip(located(decoder.fault()));
        return false;
    }
  }

  private boolean finish() {
    int step = decoder.finish(allowPartial);
    if (step == Native.FAULT) {
      TierlogException error = located(decoder.fault());
      if (task.failOnDataLoss() || allowPartial) {
        throw error;
      }
      leaveOutRest(error);
      return false;
    }
    inRange = step == Native.ROWS;
    if (!inRange && summaries != null) {
      records += decoder.report().get(Report.SUMMARY_RECORDS);
      summaries.accept(range(), decoder.summary());
    }
    return inRange;
  }

  private void feed() throws InterruptedIOException {
    try {
      Window window = cut == null ? windows.next(number) : windows.beforeFault();
      if (window != null) {
        logBytes += window.sizeBytes();
        decoder.feed(window);
      } else if (cut == null) {
        finishing = true;
      } else {
        leaveOutRest(cut);
      }
    } catch (TierlogException error) {
      boolean lost = error instanceof CorruptDataException || error.kind().equals("ObjectNotFoundError");
      if (!lost || task.failOnDataLoss()) {
        throw error;
      }
      if (cut != null || !(error instanceof CorruptDataException)) {
        leaveOutRest(error);
      } else {
        cut = error; // asked for more, the windows give what lies before it
      }
    }
  }

  /** Steps over a damaged batch, if that is allowed. */
  private void skip(TierlogException error) {
    if (task.failOnDataLoss() || !(error instanceof CorruptDataException)) {
      throw error;
    }
    int sizeBytes = decoder.skip();
    if (sizeBytes < 0) {
      leaveOutRest(error);
    } else {
      leaveOut("a batch of " + sizeBytes + " bytes", error);
    }
  }

  private void leaveOutRest(TierlogException error) {
    leaveOut("the rest of the range from position " + decoder.position() + " on", error);
    finishing = true;
    allowPartial = true;
  }

  private void leaveOut(String what, TierlogException error) {
    String text = "left out " + what + ": " + error.getMessage();
    warnings.add(text);
    LOG.warn("{}", text);
  }

  private TierlogException located(TierlogException error) {
    String place = range().segment().topic() + "-" + range().segment().partition() + " " + range().segment().name();
    return error instanceof CorruptDataException corrupt ? corrupt.located(place) : error;
  }

  // ---- the end ----

  /** The counters so far; after {@link #close} those of the whole task. */
  public TaskCounters counters() {
    lock.lock();
    try {
      return last != null ? last : count();
    } finally {
      lock.unlock();
    }
  }

  private TaskCounters count() {
    Report report = decoder.report();
    return new TaskCounters(
        stores.requests(),
        stores.storedBytes(),
        logBytes,
        report.get(Report.DECOMPRESSED_BYTES),
        report.get(Report.BATCHES),
        report.get(Report.BATCHES_SKIPPED) + batchesRuledOut,
        records,
        report.get(Report.CRC_NS),
        memory.highBytes(),
        List.copyOf(warnings));
  }

  @Override
  public void close() {
    closing = true;
    HeaderWalk walking = walk;
    if (walking != null) {
      walking.abort();
    }
    Windows reading = windows;
    if (reading != null) {
      reading.abort();
    }
    lock.lock();
    try {
      if (last != null) {
        return;
      }
      last = count();
      if (windows != null) {
        windows.close();
      } else {
        stores.close();
      }
      if (owner == null || owner == Thread.currentThread()) {
        decoder.close();
      } else {
        decoder.closeBehind(rows.anchor());
      }
      memory.letGo();
      EngineCounters.READERS.decrementAndGet();
    } finally {
      lock.unlock();
    }
  }
}
