import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.sun.management.OperatingSystemMXBean;
import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/** A Java RemoteStorageManager as a side of bench/storage_sides.py: one round for each line of JSON, over the segment that a file describes. */
public final class PluginTurns {
    private static final int READ = 1 << 20;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final JsonNode segment;
    private final String managerClass;
    private final Map<String, RemoteStorageManager> managers = new HashMap<>();
    private byte[] log; // while a round is checked

    private PluginTurns(JsonNode segment, String managerClass) {
        this.segment = segment;
        this.managerClass = managerClass;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        PluginTurns side = new PluginTurns(JSON.readTree(new File(arguments[0])), arguments[1]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode told = JSON.createObjectNode();
            try {
                side.answer(JSON.readTree(line), told);
            } catch (Throwable failed) {
                told.removeAll();
                told.put("error", failed + " <- " + failed.getCause());
            }
            out.println(JSON.writeValueAsString(told));
        }
        System.exit(0);
    }

    private void answer(JsonNode job, ObjectNode told) throws Exception {
        boolean check = job.path("check").asBoolean();
        if (check && log == null) log = Files.readAllBytes(path("log_segment"));
        if (!check) log = null;
        RemoteStorageManager manager = managers.get(job.path("manager").asText());
        int id = job.path("id").asInt();
        switch (job.get("op").asText()) {
            case "open" -> open(job);
            case "close" -> managers.remove(job.get("manager").asText()).close();
            case "copy" -> timed(told, () -> manager.copyLogSegmentData(metadata(id), data()));
            case "copies" -> {
                List<Callable<Object>> copies = new ArrayList<>();
                for (JsonNode each : job.get("ids")) copies.add(() -> manager.copyLogSegmentData(metadata(each.asInt()), data()));
                atOnce(told, copies);
            }
            case "delete" -> manager.deleteLogSegmentData(metadata(id));
            case "whole" -> timed(told, () -> whole(manager, id));
            case "random" -> {
                List<Double> each = new ArrayList<>();
                timed(told, () -> reads(manager, job, job.get("starts"), each));
                told.set("each", JSON.valueToTree(each));
            }
            case "many" -> {
                List<Double> each = Collections.synchronizedList(new ArrayList<>());
                List<Callable<Object>> readers = new ArrayList<>();
                for (JsonNode starts : job.get("lists")) readers.add(() -> reads(manager, job, starts, each));
                atOnce(told, readers);
                told.set("each", JSON.valueToTree(each));
            }
            case "peak" -> Files.writeString(Path.of("/proc/self/clear_refs"), "5");
            case "memory" -> {
                for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
                    String[] field = line.split(":\\s+");
                    if (field[0].matches("VmRSS|VmHWM")) told.put(field[0], Long.parseLong(field[1].split(" ")[0]) << 10);
                    if (field[0].equals("Threads")) told.put("threads", Integer.parseInt(field[1]));
                }
            }
            default -> throw new IllegalArgumentException(job.toString());
        }
    }

    private void open(JsonNode job) throws Exception {
        Map<String, Object> keys = new HashMap<>();
        for (Map.Entry<String, JsonNode> key : job.get("keys").properties()) keys.put(key.getKey(), key.getValue().asText());
        RemoteStorageManager made = (RemoteStorageManager) Class.forName(managerClass).getConstructor().newInstance();
        made.configure(keys);
        managers.put(job.get("manager").asText(), made);
    }

    private Object whole(RemoteStorageManager manager, int id) throws Exception {
        byte[] buffer = new byte[READ];
        int total = 0;
        try (InputStream in = manager.fetchLogSegment(metadata(id), 0)) {
            for (int got = in.readNBytes(buffer, 0, READ); got > 0; got = in.readNBytes(buffer, 0, READ)) {
                same(buffer, got, total);
                total += got;
            }
        }
        if (total != segment.get("sizeBytes").asInt()) throw new IOException("a fetch gave " + total + " bytes");
        return null;
    }

    private Object reads(RemoteStorageManager manager, JsonNode job, JsonNode starts, List<Double> each) throws Exception {
        RemoteLogSegmentMetadata metadata = metadata(job.get("id").asInt());
        boolean given = job.get("given").asBoolean();
        byte[] buffer = new byte[READ];
        for (JsonNode position : starts) {
            int start = position.asInt();
            long began = System.nanoTime();
            try (InputStream in = given ? manager.fetchLogSegment(metadata, start, start + READ - 1) : manager.fetchLogSegment(metadata, start)) {
                if (in.readNBytes(buffer, 0, READ) != READ) throw new IOException("a short answer at " + start);
            }
            each.add((System.nanoTime() - began) / 1e9);
            same(buffer, READ, start);
        }
        return null;
    }

    private void same(byte[] found, int size, int position) throws IOException {
        if (log != null && !Arrays.equals(found, 0, size, log, position, position + size)) {
            throw new IOException("other bytes than the log's at " + position);
        }
    }

    private static void timed(ObjectNode told, Callable<Object> job) throws Exception {
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = system.getProcessCpuTime(), began = System.nanoTime();
        job.call();
        told.put("wall", (System.nanoTime() - began) / 1e9);
        told.put("cpu", (system.getProcessCpuTime() - cpu) / 1e9);
    }

    /** A thread each, from the moment that all of them wait. */
    private static void atOnce(ObjectNode told, List<Callable<Object>> jobs) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(jobs.size());
        CountDownLatch ready = new CountDownLatch(jobs.size()), go = new CountDownLatch(1);
        List<Future<Object>> all = new ArrayList<>();
        for (Callable<Object> job : jobs) {
            all.add(pool.submit(() -> {
                ready.countDown();
                go.await();
                return job.call();
            }));
        }
        ready.await();
        timed(told, () -> {
            go.countDown();
            for (Future<Object> one : all) one.get();
            return null;
        });
        pool.shutdown();
    }

    private Path path(String part) {
        return Path.of(segment.get(part).asText());
    }

    private RemoteLogSegmentMetadata metadata(int id) {
        TopicPartition partition = new TopicPartition(segment.get("topic").asText(), segment.get("partition").asInt());
        TopicIdPartition named = new TopicIdPartition(Uuid.fromString(segment.get("topicId").asText()), partition);
        return new RemoteLogSegmentMetadata(new RemoteLogSegmentId(named, new Uuid(0, id)), 0, segment.get("endOffset").asLong(),
            segment.get("maxTimestampMs").asLong(), 1, 1_700_000_000_000L, segment.get("sizeBytes").asInt(), Optional.empty(),
            RemoteLogSegmentState.COPY_SEGMENT_STARTED, new TreeMap<>(Map.of(0, 0L)), true);
    }

    private LogSegmentData data() {
        return new LogSegmentData(path("log_segment"), path("offset_index"), path("time_index"), Optional.empty(),
            path("producer_snapshot"), ByteBuffer.wrap(segment.get("leaderEpochs").asText().getBytes()));
    }
}
