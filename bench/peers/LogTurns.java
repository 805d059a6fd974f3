package org.apache.kafka.storage.internals.log;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/** Kafka's own UnifiedLog and OffsetIndex as a side of bench/local_log.py: one round for each line of stdin, its words
 * the question, one line of JSON the answer. */
public final class LogTurns {
    private static final long DAY = 86400000;
    private static final int LEADER_EPOCH = 3;
    private static final long NOW = 1700000000000L;

    /** Where a roll leaves its fsync: it is never done, as on the other side. */
    private static final class Dropped implements Scheduler {
        private static final ScheduledFuture<?> NEVER =
                Executors.newSingleThreadScheduledExecutor(Dropped::daemon).schedule(() -> { }, 365, TimeUnit.DAYS);

        private static Thread daemon(Runnable task) {
            Thread thread = new Thread(task);
            thread.setDaemon(true);
            return thread;
        }

        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delay, long period) {
            return NEVER;
        }

        @Override
        public void resizeThreadPool(int size) { }
    }

    private static UnifiedLog open(String folder, String segmentBytes) throws Exception {
        File directory = new File(folder);
        Files.createDirectories(directory.toPath());
        LogConfig config = new LogConfig(Map.of("segment.bytes", segmentBytes, "retention.ms", "-1"));
        return UnifiedLog.create(directory, config, 0L, 0L, new Dropped(), new BrokerTopicStats(), Time.SYSTEM, 900000,
                new ProducerStateManagerConfig((int) DAY, false), 600000, new LogDirFailureChannel(1), false,
                Optional.empty());
    }

    /** The batches of a file, each a producer's request of its own. */
    private static List<MemoryRecords> requests(byte[] data) {
        List<MemoryRecords> found = new ArrayList<>();
        ByteBuffer all = ByteBuffer.wrap(data);
        for (int at = 0; at < data.length;) {
            int size = 12 + all.getInt(at + 8);
            found.add(MemoryRecords.readableRecords(all.slice(at, size)));
            at += size;
        }
        return found;
    }

    /** append DATA FOLDER SEGMENT_BYTES: all batches into a new log, which is closed behind the measurement. */
    private static String append(String[] asked) throws Exception {
        List<MemoryRecords> requests = requests(Files.readAllBytes(Path.of(asked[1])));
        UnifiedLog log = open(asked[2], asked[3]);
        RequestLocal local = RequestLocal.withThreadConfinedCaching();
        System.gc();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long start = System.nanoTime(), begun = threads.getCurrentThreadCpuTime(), check = 0;
        for (MemoryRecords records : requests)
            check += log.appendAsLeader(records, LEADER_EPOCH, AppendOrigin.CLIENT, local, VerificationGuard.SENTINEL,
                    (short) 0).lastOffset();
        double seconds = seconds(start), cpu = (threads.getCurrentThreadCpuTime() - begun) / 1e9;
        long end = log.logEndOffset();
        int segments = log.numberOfSegments();
        log.close();
        return String.format("{\"seconds\": %f, \"cpu\": %f, \"batches\": %d, \"end\": %d, \"segments\": %d, \"check\": %d}",
                seconds, cpu, requests.size(), end, segments, check);
    }

    /** recover FOLDER SEGMENT_BYTES: what a broker does at an unclean start. */
    private static String recover(String[] asked) throws Exception {
        long start = System.nanoTime();
        UnifiedLog log = open(asked[1], asked[2]);
        double seconds = seconds(start);
        long end = log.logEndOffset();
        log.close();
        return String.format("{\"seconds\": %f, \"end\": %d}", seconds, end);
    }

    /** lookup INDEX BASE QUESTIONS ANSWERS: each of the offsets in a file of longs; answers are written on request. */
    private static String lookup(String[] asked) throws Exception {
        long base = Long.parseLong(asked[2]);
        ByteBuffer questions = ByteBuffer.wrap(Files.readAllBytes(Path.of(asked[3]))).order(ByteOrder.LITTLE_ENDIAN);
        long[] targets = new long[questions.remaining() / 8];
        questions.asLongBuffer().get(targets);
        File file = new File(asked[1]);
        try (OffsetIndex index = new OffsetIndex(file, base, (int) file.length(), false)) {
            long check = 0, start = System.nanoTime();
            for (long target : targets) {
                OffsetPosition found = index.lookup(target);
                check += found.offset() + found.position();
            }
            double seconds = seconds(start);
            if (!asked[4].equals("-")) {
                ByteBuffer answers = ByteBuffer.allocate(16 * targets.length).order(ByteOrder.LITTLE_ENDIAN);
                for (long target : targets) {
                    OffsetPosition found = index.lookup(target);
                    answers.putLong(found.offset()).putLong(found.position());
                }
                Files.write(Path.of(asked[4]), answers.array());
            }
            return String.format("{\"seconds\": %f, \"lookups\": %d, \"check\": %d}", seconds, targets.length, check);
        }
    }

    /** clean FOLDER SEGMENT_BYTES DEDUPE_BYTES IO_BYTES: all segments but the active one, of a log that was closed. */
    private static String clean(String[] asked) throws Exception {
        LogConfig config = new LogConfig(Map.of("segment.bytes", asked[2], "cleanup.policy", "compact"));
        UnifiedLog log = UnifiedLog.create(new File(asked[1]), config, 0L, Long.MAX_VALUE, new Dropped(),
                new BrokerTopicStats(), Time.SYSTEM, 900000, new ProducerStateManagerConfig((int) DAY, false), 600000,
                new LogDirFailureChannel(1), true, Optional.empty());
        log.updateHighWatermark(log.logEndOffset());
        int ioBytes = Integer.parseInt(asked[4]);
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(Integer.parseInt(asked[3])), ioBytes, 1 << 20, 0.9,
                new Throttler(Double.MAX_VALUE, 300, "throttler", "entries", Time.SYSTEM), Time.SYSTEM, partition -> { });
        System.gc();
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        long start = System.nanoTime(), begun = threads.getCurrentThreadCpuTime();
        var done = cleaner.doClean(new LogToClean(log, 0, log.activeSegment().baseOffset(), false), NOW);
        double seconds = seconds(start), cpu = (threads.getCurrentThreadCpuTime() - begun) / 1e9;
        log.close();
        return String.format("{\"seconds\": %f, \"cpu\": %f, \"next\": %d, \"read\": %d, \"written\": %d}", seconds, cpu,
                done.getKey(), done.getValue().messagesRead(), done.getValue().messagesWritten());
    }

    private static double seconds(long start) {
        return (System.nanoTime() - start) / 1e9;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] asked = line.split(" ");
            System.out.println(switch (asked[0]) {
                case "append" -> append(asked);
                case "recover" -> recover(asked);
                case "clean" -> clean(asked);
                default -> lookup(asked);
            });
            System.out.flush();
        }
    }
}
