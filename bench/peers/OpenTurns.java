package kafka.log;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledFuture;
import java.util.concurrent.TimeUnit;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;
import scala.jdk.javaapi.CollectionConverters;

/** Kafka's own LogManager as a side of bench/local_log.py: one round for each line of stdin, "FOLDER THREADS ANSWERS":
 * it opens a log directory, writes each log's offsets into a file, and closes the directory. */
public final class OpenTurns {
    /** Where a broker leaves its periodic work, none of which is due while it opens its logs. */
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

    private static KafkaConfig config(String folder, String threads) {
        Properties given = new Properties();
        given.putAll(Map.of("process.roles", "broker", "node.id", "1", "controller.quorum.voters", "2@localhost:9",
                "controller.listener.names", "CONTROLLER", "listeners", "PLAINTEXT://localhost:0",
                "log.dirs", folder, "num.recovery.threads.per.data.dir", threads, "log.retention.ms", "-1",
                "log.cleaner.enable", "false"));
        given.put("log.segment.bytes", "1048576");
        return KafkaConfig.fromProps(given, false);
    }

    private static String open(String[] asked) throws Exception {
        long start = System.nanoTime();
        LogManager manager = LogManager.apply(config(asked[0], asked[1]), CollectionConverters.asScala(List.<String>of()),
                resource -> new Properties(), new Dropped(), Time.SYSTEM, new BrokerTopicStats(), new LogDirFailureChannel(1));
        manager.startup(CollectionConverters.asScala(java.util.Set.<String>of()), manager.startup$default$2());
        double seconds = (System.nanoTime() - start) / 1e9;
        List<String> lines = new ArrayList<>();
        long segments = 0;
        for (UnifiedLog log : CollectionConverters.asJava(manager.allLogs())) {
            segments += log.numberOfSegments();
            lines.add(log.topicPartition() + " " + log.logStartOffset() + " " + log.logEndOffset() + " " + log.recoveryPoint());
        }
        lines.sort(null);
        Files.write(Path.of(asked[2]), lines);
        manager.shutdown(-1);
        return String.format("{\"seconds\": %f, \"logs\": %d, \"segments\": %d}", seconds, lines.size(), segments);
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            System.out.println(open(line.split(" ")));
            System.out.flush();
        }
    }
}
