package io.tierlog.engine;

import io.tierlog.plan.RangePlan;
import io.tierlog.plan.SegmentPlan;
import java.lang.ref.Cleaner;

/**
 * The native decoder of a task and the rows of its last batch.
 *
 * <p>One thread at a time; closed once.
 */
final class Decoder {
  /** The most bytes that one batch may decompress to, as on the Python path. */
  private static final long DECOMPRESSED_LIMIT = 256L << 20;

  private final TaskMemory memory;
  private final long handle;
  private final Report report;

  /** A decoder that gives rows: about {@code batchBytes} at once, of the columns {@link RecordBatch#want}. */
  static Decoder ofRows(TaskMemory memory, int want, int batchBytes) {
    return new Decoder(memory, Native.decoderOpen(memory.budget(), false, want, batchBytes));
  }

  /** A decoder that sums rows up instead of giving them. */
  static Decoder ofSummary(TaskMemory memory, Wanted wanted) {
    return new Decoder(memory, Native.decoderOpen(memory.budget(), true, wanted.bits(), 0));
  }

  private Decoder(TaskMemory memory, long handle) {
    this.memory = memory;
    this.handle = handle;
    if (handle == 0) {
      throw new OutOfMemoryError("no native memory for a decoder");
    }
    memory.hold();
    report = new Report(Native.decoderReport(handle));
  }

  /** The report of the last step. */
  Report report() {
    return report;
  }

  void begin(RangePlan range, boolean verifyChecksums) {
    int status =
        Native.decoderBegin(
            handle,
            range.startPosition(),
            range.endPosition(),
            range.fromOffset(),
            range.toOffsetExclusive(),
            range.leastOffset(),
            range.greatestOffset(),
            range.fromTimestampMs(),
            range.toTimestampExclusiveMs(),
            range.aborted(),
            DECOMPRESSED_LIMIT,
            verifyChecksums);
    if (status != 0) {
      throw memory.refusal(status);
    }
  }

  /** Gives the decoder a window, which must stay valid until {@link Native#INPUT} comes again. */
  void feed(Window window) {
    Native.decoderFeed(handle, window.address(), window.sizeBytes());
  }

  /** Decodes on; returns {@link Native#ROWS}, INPUT, ENDED or FAULT. */
  int next() {
    return checked(Native.decoderNext(handle));
  }

  /** Decodes the rest after the last window; returns {@link Native#ROWS}, ENDED or FAULT. */
  int finish(boolean allowPartial) {
    return checked(Native.decoderFinish(handle, allowPartial));
  }

  /** Steps over a damaged batch; returns its bytes, or -1: its end is unknown. */
  int skip() {
    return Native.decoderSkip(handle);
  }

  private int checked(int step) {
    if (step == Native.NO_MEMORY) {
      throw memory.refusal(report.getInt(Report.STATUS));
    }
    return step;
  }

  /** Begins to look at the headers of a range, in a file. */
  void beginHeaders(RangePlan range, int file, long worthBytes, boolean checked) {
    begin(range, checked);
    SegmentPlan segment = range.segment();
    Native.headersBegin(
        handle,
        file,
        segment.logPosition(),
        range.endPosition(),
        range.readEnd(),
        worthBytes,
        checked,
        segment.maxTimestampMs());
  }

  /** Goes on with the headers; returns a status, as {@link Native#headersNext}. */
  int nextHeaders(long[] answer) {
    return Native.headersNext(handle, answer);
  }

  /** The summary of the range under way. */
  RecordSummary summary() {
    return new RecordSummary(
        report.get(Report.SUMMARY_RECORDS),
        report.get(Report.LEAST_OFFSET),
        report.get(Report.GREATEST_OFFSET),
        report.get(Report.LEAST_TIMESTAMP),
        report.get(Report.GREATEST_TIMESTAMP));
  }

  /** The fault of the last step; not located. */
  TierlogException fault() {
    return Faults.ofRecords(
        report.getInt(Report.STATUS),
        report.get(Report.FAULT_POSITION),
        report.get(Report.FAULT_BASE_OFFSET),
        report.get(Report.FAULT_RECORD),
        report.get(Report.FAULT_EXPECTED),
        report.get(Report.FAULT_FOUND));
  }

  /** Position of the first byte that was not decoded. */
  long position() {
    return report.get(Report.POSITION);
  }

  void close() {
    release(handle, memory);
  }

  /** Closes the decoder once nothing can reach {@code anchor} any more: another thread may be reading its rows. */
  void closeBehind(Object anchor) {
    long decoder = handle;
    TaskMemory held = memory;
    Late.CLEANER.register(anchor, () -> release(decoder, held));
  }

  private static void release(long handle, TaskMemory memory) {
    Native.decoderClose(handle);
    memory.letGo();
  }

  /** The thread that closes decoders late. It starts when it is needed, which is hardly ever. */
  private static final class Late {
    static final Cleaner CLEANER = Cleaner.create();
  }
}
