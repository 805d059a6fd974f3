package io.tierlog.engine;

import io.tierlog.plan.RangePlan;
import io.tierlog.plan.StoreLocation;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;

/**
 * Looks at the batch headers of ranges of logs that lie in local files as a broker wrote them. Sums up what they say, or
 * only rules out what does not count. One thread, but for {@link #abort}.
 *
 * <p>Checked headers are those of batches whose checksum was right: all of the file is read. Others are believed as far
 * as they contradict neither each other nor themselves: a few bytes of each batch are read.
 */
public final class HeaderWalk implements AutoCloseable {
  /** Reading smaller batches whole takes no longer than reading their headers. */
  private static final int WORTH_BYTES = 32 << 10;

  private final List<StoreLocation> locations;
  private final long worthBytes;
  private final boolean checked;
  private final TaskMemory memory;
  private final Decoder decoder;
  private LocalLogStore store;
  private int storeNumber = -1;
  private long requests;
  private long bytes;
  private volatile boolean aborted;

  /**
   * A walk that sums up.
   *
   * @param locations the stores of the segments to come
   * @param checked whether a header says something only where the checksum of its batch is right
   * @throws TierlogException ConfigError: the native library cannot be loaded
   */
  public static HeaderWalk summingUp(
      List<StoreLocation> locations, Wanted wanted, boolean checked, ReaderSettings settings) {
    return new HeaderWalk(locations, wanted, checked, settings);
  }

  /**
   * A walk that rules batches out without reading their bytes, except the last one before those that are needed and the
   * first one behind them: so no damaged header alone hides records.
   */
  static HeaderWalk rulingOut(List<StoreLocation> locations, ReaderSettings settings) {
    return new HeaderWalk(locations, null, false, settings);
  }

  private HeaderWalk(List<StoreLocation> locations, Wanted wanted, boolean checked, ReaderSettings settings) {
    NativeLibrary.load(settings.nativeDirectory());
    this.locations = locations;
    this.checked = checked;
    worthBytes = wanted == null ? WORTH_BYTES : 0;
    memory = new TaskMemory(settings.offHeapBytesPerTask());
    try {
      decoder = wanted == null ? Decoder.ofRows(memory, 0, 1) : Decoder.ofSummary(memory, wanted);
    } catch (OutOfMemoryError error) {
      memory.letGo();
      throw error;
    }
  }

  /**
   * Reads the headers of a range and returns their summary, of no records if nothing is summed up.
   *
   * @param undecided gets the parts, between batch borders, whose records have to be looked at: all of the range where
   *     something is wrong with it, for who decodes says what
   * @throws InterruptedIOException {@link #abort}
   */
  public RecordSummary read(RangePlan range, Consumer<RangePlan> undecided) throws InterruptedIOException {
    StoreLocation location = locations.get(range.segment().store());
    if (!location.kind().equals("local") || range.segment().transformed()) {
      undecided.accept(range);
      return RecordSummary.NONE;
    }
    int file;
    try {
      file = store(range.segment().store()).open(range.segment().key());
    } catch (TierlogException error) {
      undecided.accept(range);
      return RecordSummary.NONE;
    }
    return walk(file, range, undecided);
  }

  private RecordSummary walk(int file, RangePlan range, Consumer<RangePlan> undecided) throws InterruptedIOException {
    decoder.beginHeaders(range, file, worthBytes, checked);
    List<long[]> needed = new ArrayList<>();
    long[] answer = new long[5];
    while (answer[2] == 0) {
      if (aborted || Thread.currentThread().isInterrupted()) {
        throw new InterruptedIOException("the task was ended");
      }
      int status = decoder.nextHeaders(answer);
      if (status != 0) {
        undecided.accept(range);
        return RecordSummary.NONE;
      }
      if (answer[0] < answer[1]) {
        addPart(needed, answer[0], answer[1]);
      }
    }
    requests += answer[3];
    bytes += answer[4];
    needed.forEach(part -> undecided.accept(range.between(part[0], part[1])));
    return decoder.summary();
  }

  private static void addPart(List<long[]> parts, long from, long to) {
    long[] last = parts.isEmpty() ? null : parts.get(parts.size() - 1);
    if (last != null && last[1] == from) {
      last[1] = to;
    } else {
      parts.add(new long[] {from, to});
    }
  }

  private LocalLogStore store(int number) {
    if (storeNumber != number) {
      closeStore();
      store = new LocalLogStore(locations.get(number));
      storeNumber = number;
    }
    return store;
  }

  /** Reads of log bytes. */
  public long requests() {
    return requests;
  }

  /** Bytes that these reads brought. */
  public long storedBytes() {
    return bytes;
  }

  /** Time spent on checksums, nanoseconds. */
  public long crcNs() {
    return decoder.report().get(Report.CRC_NS);
  }

  /** Batches whose header said enough. */
  public long batches() {
    return decoder.report().get(Report.BATCHES_SKIPPED);
  }

  /** Has {@link #read} end soon. Any thread. */
  public void abort() {
    aborted = true;
  }

  private void closeStore() {
    if (store != null) {
      store.close();
      store = null;
    }
  }

  @Override
  public void close() {
    closeStore();
    decoder.close();
    memory.letGo();
  }
}
