package org.apache.kafka.storage.internals.log;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Delayed;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import java.util.stream.Collectors;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.Records;
import org.apache.kafka.common.utils.Crc32C;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Kafka's own UnifiedLog, one command a line of stdin, for tests.interop.test_log_peer. An answer is what the command
 * gave, " | " and all that the log tells of itself. Work for later is done before the answer; time stands where it was
 * told. In Kafka's package: much of what it tells, it tells nobody else. */
public final class LogPeer {
    private static final class Clock implements Time {
        private long now;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1000000;
        }

        @Override
        public void sleep(long milliseconds) { }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadline) { }
    }

    /** Does once, behind each command, what is to be done once; nothing again and again. */
    private static final class Later implements Scheduler {
        private final ArrayDeque<Runnable> tasks = new ArrayDeque<>();

        private static final class Future extends CompletableFuture<Void> implements ScheduledFuture<Void> {
            @Override
            public long getDelay(TimeUnit unit) {
                return 0;
            }

            @Override
            public int compareTo(Delayed other) {
                return 0;
            }
        }

        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            if (periodMs < 0) tasks.add(task);
            return new Future();
        }

        @Override
        public void resizeThreadPool(int newSize) { }

        private void run() {
            while (!tasks.isEmpty()) tasks.poll().run();
        }
    }

    private final Clock clock = new Clock();
    private final Later later = new Later();
    private UnifiedLog log;

    private static MemoryRecords records(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex.equals("-") ? "" : hex)));
    }

    private static LogConfig config(String words) {
        Map<String, String> settings = new HashMap<>();
        for (String word : words.split(";")) {
            String[] pair = word.split("=", 2);
            if (pair.length == 2) settings.put(pair[0], pair[1]);
        }
        return new LogConfig(settings);
    }

    /** open FOLDER CONFIG logStart recoveryPoint highWatermark clean topicId tiered verification */
    private String open(String[] asked) throws Exception {
        log = null;
        int day = 86400000;
        Optional<Uuid> id = asked[7].equals("-") ? Optional.empty() : Optional.of(Uuid.fromString(asked[7]));
        ProducerStateManagerConfig producers = new ProducerStateManagerConfig(day, asked[9].equals("1"));
        boolean tiered = asked[8].equals("1");
        log = UnifiedLog.create(new File(asked[1]), config(asked[2]), Long.parseLong(asked[3]), Long.parseLong(asked[4]),
                later, new BrokerTopicStats(tiered), clock, 900000, producers, day, new LogDirFailureChannel(9),
                asked[6].equals("1"), id, new ConcurrentHashMap<>(), tiered, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.updateHighWatermark(watermark(Long.parseLong(asked[5])));
        return "open";
    }

    /** Ours keeps a high watermark at or above the local start. */
    private long watermark(long offset) {
        return log.remoteLogEnabled() ? Math.max(offset, log.localLogStartOffset()) : offset;
    }

    /** Ours takes back what is copied when it is cut; Kafka's only rises. */
    private void lowerCopied(long offset) throws Exception {
        var copied = UnifiedLog.class.getDeclaredField("highestOffsetInRemoteStorage");
        copied.setAccessible(true);
        copied.setLong(log, Math.min(log.highestOffsetInRemoteStorage(), offset - 1));
    }

    /** A producer snapshot of nobody. */
    private static final byte[] NO_PRODUCERS = HexFormat.of().parseHex("000148674bc700000000");

    /** fromtier offset logStart epoch:start,...: begin anew with the newest producers, as a follower whose leader has them
     * in the tier. The snapshots are reloaded twice: the first time Kafka deletes the empty one that it took at the offset, and that is
     * too late where the tier's is there. */
    private void fromTier(long offset, long logStart, String epochs) throws Exception {
        var known = ProducerStateManager.listSnapshotFiles(log.dir()).stream().max(Comparator.comparing(file -> file.offset));
        byte[] producers = known.isEmpty() ? NO_PRODUCERS : Files.readAllBytes(known.get().file().toPath());
        log.truncateFullyAndStartAt(offset, Optional.of(logStart));
        lowerCopied(offset);
        log.producerStateManager().truncateFullyAndReloadSnapshots();
        Files.write(LogFileUtils.producerSnapshotFile(log.dir(), offset).toPath(), producers);
        log.producerStateManager().truncateFullyAndReloadSnapshots();
        log.loadProducerState(offset);
        if (epochs.equals("-")) return;
        for (String entry : epochs.split(",")) {
            String[] numbers = entry.split(":");
            log.assignEpochStartOffset(Integer.parseInt(numbers[0]), Long.parseLong(numbers[1]));
        }
    }

    private static String told(LogAppendInfo info) {
        return "taken " + info.firstOffset() + " " + info.lastOffset() + " " + info.maxTimestamp() + " "
                + info.logAppendTime();
    }

    /** leader HEX epoch origin transactionVersion verify */
    private String leader(String[] asked) throws Exception {
        VerificationGuard guard = VerificationGuard.SENTINEL;
        MemoryRecords given = records(asked[1]);
        if (asked[5].equals("1")) {
            var batch = given.batches().iterator().next();
            guard = log.maybeStartTransactionVerification(batch.producerId(), batch.baseSequence(), batch.producerEpoch(),
                    Short.parseShort(asked[4]) == 2);
        }
        long end = log.logEndOffset();
        LogAppendInfo info = log.appendAsLeader(given, Integer.parseInt(asked[2]), AppendOrigin.valueOf(asked[3]),
                RequestLocal.noCaching(), guard, Short.parseShort(asked[4]));
        if (info.validBytes() > 0 && log.logEndOffset() == end)
            return "duplicate " + info.firstOffset() + " " + info.lastOffset();
        return told(info);
    }

    /** read offset maxBytes isolation minOneMessage */
    private String read(String[] asked) throws Exception {
        FetchDataInfo found = log.read(Long.parseLong(asked[1]), Integer.parseInt(asked[2]),
                FetchIsolation.valueOf(asked[3]), asked[4].equals("1"));
        Records records = found.records;
        ByteBuffer bytes = ByteBuffer.allocate(0);
        int position = -1;
        if (records instanceof FileRecords file) {
            bytes = ByteBuffer.allocate(file.sizeInBytes());
            file.readInto(bytes, 0);
        }
        String aborted = found.abortedTransactions.map(entries -> entries.stream()
                .map(entry -> entry.producerId() + ":" + entry.firstOffset()).collect(Collectors.joining(","))).orElse("-");
        return "read " + found.fetchOffsetMetadata.segmentBaseOffset + " "
                + found.fetchOffsetMetadata.relativePositionInSegment + " " + bytes.limit() + " "
                + Crc32C.compute(bytes.array(), 0, bytes.limit()) + " " + (found.firstEntryIncomplete ? 1 : 0) + " "
                + aborted;
    }

    /** list timestamp: what is local, where the log is tiered. */
    private String list(String[] asked) {
        List<FileRecords.TimestampAndOffset> local = new ArrayList<>();
        AsyncOffsetReader reader = (partition, timestamp, start, epochs, search) -> {
            try {
                search.get().ifPresent(local::add);
            } catch (java.io.IOException failed) {
                throw new java.io.UncheckedIOException(failed);
            }
            return new AsyncOffsetReadFutureHolder<>(null, null);
        };
        log.fetchOffsetByTimestamp(Long.parseLong(asked[1]), Optional.of(reader)).timestampAndOffsetOpt()
                .ifPresent(local::add);
        return local.isEmpty() ? "none" : local.stream().map(found -> "found " + found.timestamp + " " + found.offset + " "
                + found.leaderEpoch.map(String::valueOf).orElse("none")).findFirst().get();
    }

    private String state() {
        if (log == null) return "closed";
        StringBuilder out = new StringBuilder();
        out.append(log.logStartOffset()).append(' ').append(log.remoteLogEnabled() ? log.localLogStartOffset() : -1);
        // Both move to where a batch begins, even in front of the log start, when they are looked up.
        out.append(' ').append(Math.max(log.lastStableOffset(), log.logStartOffset()));
        out.append(' ').append(Math.max(log.highWatermark(), log.logStartOffset()));
        out.append(' ').append(log.logEndOffset()).append(' ');
        out.append(Math.max(log.recoveryPoint(), log.logSegments().get(0).baseOffset()));
        out.append(' ').append(log.highestOffsetInRemoteStorage()).append(" |");
        for (LogSegment segment : log.logSegments()) {
            long largest = 0;
            try {
                largest = segment.largestRecordTimestamp().orElse(-1L);
            } catch (java.io.IOException failed) {
                throw new java.io.UncheckedIOException(failed);
            }
            out.append(' ').append(segment.baseOffset()).append(':').append(segment.size()).append(':').append(largest);
        }
        out.append(" |");
        log.leaderEpochCache().epochEntries().forEach(e -> out.append(" " + e.epoch() + ":" + e.startOffset()));
        out.append(" |");
        for (ProducerStateEntry entry : new TreeMap<>(log.producerStateManager().activeProducers()).values())
            out.append(String.format(" %d:%d:%d:%d:%d:%d:%d:%d:%d", entry.producerId(), entry.producerEpoch(),
                    entry.lastSeq(), entry.lastDataOffset(), entry.lastOffsetDelta(), entry.lastTimestamp(),
                    entry.coordinatorEpoch(), entry.currentTxnFirstOffset().orElse(-1L), entry.batchMetadata().size()));
        return out.toString();
    }

    /** What the cleaner would take of the log, from a checkpoint on, and how late it is. */
    private String cleanable(Optional<Long> checkpoint) throws Exception {
        var offsets = LogCleanerManager.cleanableOffsets(log, checkpoint, clock.now);
        var delay = LogCleanerManager.class.getDeclaredMethod("maxCompactionDelay", UnifiedLog.class, long.class, long.class);
        delay.setAccessible(true);
        long delayMs = (long) delay.invoke(null, log, offsets.firstDirtyOffset(), clock.now);
        LogToClean found = new LogToClean(log, offsets.firstDirtyOffset(), offsets.firstUncleanableDirtyOffset(), delayMs > 0);
        return String.format("cleanable %d %d %d %d %d %d %d", offsets.firstDirtyOffset(),
                offsets.firstUncleanableDirtyOffset(), offsets.forceUpdateCheckpoint() ? 1 : 0,
                found.firstUncleanableOffset(), found.cleanBytes(), found.cleanableBytes(), delayMs);
    }

    /** clean firstDirty firstUncleanable mapBytes ioBytes: the log by a cleaner of its own. */
    private String clean(String[] asked) throws Exception {
        int bytes = Integer.parseInt(asked[4]);
        Throttler throttler = new Throttler(Double.MAX_VALUE, Long.MAX_VALUE, "cleaner-io", "bytes", Time.SYSTEM);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(Integer.parseInt(asked[3])), bytes, bytes, 0.9, throttler,
                clock, partition -> { });
        LogToClean found = new LogToClean(log, Long.parseLong(asked[1]), Long.parseLong(asked[2]), false);
        var done = cleaner.doClean(found, clock.now);
        CleanerStats stats = done.getValue();
        return String.format("cleaned %d %d %d %d %d %d %d", done.getKey(), stats.bytesRead(), stats.bytesWritten(),
                stats.mapMessagesRead(), stats.messagesRead(), stats.messagesWritten(), stats.invalidMessagesRead());
    }

    private String answer(String[] asked) throws Exception {
        long number = asked.length > 1 && asked[1].matches("-?\\d{1,19}") ? Long.parseLong(asked[1]) : -1;
        LogStartOffsetIncrementReason reason = LogStartOffsetIncrementReason.ClientRecordDeletion;
        switch (asked[0]) {
            case "time":
                clock.now = number;
                return "done";
            case "open":
                return open(asked);
            case "leader":
                return leader(asked);
            case "follower":
                return told(log.appendAsFollower(records(asked[1]), Integer.parseInt(asked[2])));
            case "epoch":
                log.assignEpochStartOffset((int) number, Long.parseLong(asked[2]));
                return "done";
            case "roll":
                return "rolled " + log.roll().baseOffset();
            case "flush":
                log.flush(false);
                return "done";
            case "watermark":
                return "at " + log.updateHighWatermark(watermark(number));
            case "raise":
                return "was " + log.maybeIncrementHighWatermark(new LogOffsetMetadata(number))
                        .map(old -> String.valueOf(Math.max(old.messageOffset, log.logStartOffset()))).orElse("none");
            case "start":
                return "done " + (log.maybeIncrementLogStartOffset(number, reason) ? 1 : 0);
            case "localstart":
                log.maybeIncrementLocalLogStartOffset(number, reason);
                return "done";
            case "copied":
                log.updateHighestOffsetInRemoteStorage(number);
                return "done";
            case "remotestart":
                log.updateLogStartOffsetFromRemoteTier(number);
                return "done";
            case "truncate":
                boolean cut = log.truncateTo(number);
                log.updateHighWatermark(log.highWatermark()); // the last stable offset is stale until then
                if (cut) lowerCopied(number);
                return "done " + (cut ? 1 : 0);
            case "restart":
                log.truncateFullyAndStartAt(number,
                        asked[2].equals("-") ? Optional.empty() : Optional.of(Long.parseLong(asked[2])));
                lowerCopied(number);
                return "done";
            case "fromtier":
                fromTier(number, Long.parseLong(asked[2]), asked[3]);
                return "done";
            case "retention":
                return "gone " + log.deleteOldSegments();
            case "cleanable":
                return cleanable(asked[1].equals("-") ? Optional.empty() : Optional.of(number));
            case "clean":
                return clean(asked);
            case "unverify": // what a refused append of a follower may have taken already
                for (long producer = 0; producer < 9; producer++)
                    log.producerStateManager().clearVerificationStateEntry(producer);
                return "done";
            case "expire":
                log.removeExpiredProducers(clock.now);
                return "done";
            case "config":
                log.updateConfig(config(asked[1]));
                return "done";
            case "read":
                return read(asked);
            case "list":
                return list(asked);
            case "epochend":
                return "end " + log.endOffsetForEpoch((int) number).map(found -> found.epoch() + " " + found.offset())
                        .orElse("-1 -1");
            case "aborted": // it tells of some that end before the start, too
                return "aborted" + log.collectAbortedTransactions(number, Long.parseLong(asked[2])).stream()
                        .filter(entry -> entry.lastOffset() >= number)
                        .map(entry -> " " + entry.producerId() + ":" + entry.firstOffset() + ":" + entry.lastOffset())
                        .collect(Collectors.joining());
            case "close": // as a LogManager does
                log.flush(true);
                log.close();
                log.removeLogMetrics();
                log = null;
                return "done";
            case "drop": // as a broker that is killed: nothing more is written
                log.closeHandlers();
                log.removeLogMetrics();
                later.tasks.clear();
                log = null;
                return "done";
            default:
                throw new IllegalArgumentException(asked[0]);
        }
    }

    private String answered(String line) {
        String told;
        try {
            told = answer(line.split(" "));
        } catch (RecordValidationException refused) {
            told = "refused " + Errors.forException(refused.invalidException()).code() + " " + refused.recordErrors()
                    .stream().map(error -> "" + error.batchIndex).collect(Collectors.joining(","));
        } catch (Exception | Error refused) {
            refused.printStackTrace();
            told = "refused " + Errors.forException(refused).code() + " ";
        }
        later.run();
        return told + " | " + state();
    }

    public static void main(String[] arguments) throws Exception {
        LogPeer peer = new LogPeer();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(peer.answered(line));
            System.out.flush();
        }
    }
}
