import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import javax.management.MBeanAttributeInfo;
import javax.management.ObjectName;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/** A storage manager's class outside of a broker: a line of JSON with a call, a line with its answer. */
public final class PluginPeer {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final RemoteStorageManager manager;
    private final Map<Integer, InputStream> streams = new HashMap<>();
    private Thread other;
    private volatile ObjectNode told;
    private volatile boolean begun;

    private PluginPeer(String name) throws Exception {
        manager = (RemoteStorageManager) Class.forName(name).getConstructor().newInstance();
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        PluginPeer peer = new PluginPeer(arguments[0]);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            out.println(JSON.writeValueAsString(peer.tell(JSON.readTree(line))));
            out.flush();
        }
        peer.manager.close();
        System.exit(0);
    }

    private ObjectNode tell(JsonNode call) {
        ObjectNode answered = JSON.createObjectNode();
        try {
            answer(call, answered);
        } catch (Exception error) {
            answered.put("error", error.getClass().getSimpleName()).put("text", String.valueOf(error.getMessage()));
            if (error.getCause() != null) answered.put("cause", error.getCause().getClass().getSimpleName());
        }
        return answered;
    }

    private void answer(JsonNode call, ObjectNode answered) throws Exception {
        RemoteLogSegmentMetadata segment = call.has("segment") ? segment(call.get("segment")) : null;
        switch (call.get("call").asText()) {
            case "configure" -> {
                Map<String, Object> keys = new HashMap<>();
                call.get("keys").fields().forEachRemaining(each -> keys.put(each.getKey(), each.getValue().asText()));
                manager.configure(keys);
            }
            case "copy" -> {
                Optional<CustomMetadata> custom = manager.copyLogSegmentData(segment, data(call.get("data")));
                custom.ifPresent(each -> answered.put("answer", HexFormat.of().formatHex(each.value())));
            }
            case "fetch" -> {
                try (InputStream stream = fetch(segment, call)) {
                    sum(stream, call.get("at_once").asInt(), answered);
                }
            }
            case "index" -> {
                try (InputStream stream = manager.fetchIndex(segment, IndexType.valueOf(call.get("type").asText()))) {
                    sum(stream, 4096, answered);
                }
            }
            case "delete" -> manager.deleteLogSegmentData(segment);
            case "open" -> streams.put(call.get("stream").asInt(), fetch(segment, call));
            case "read" -> {
                byte[] into = new byte[call.get("count").asInt()];
                int count = streams.get(call.get("stream").asInt()).readNBytes(into, 0, into.length);
                answered.put("answer", HexFormat.of().formatHex(into, 0, count));
            }
            case "shut" -> streams.remove(call.get("stream").asInt()).close();
            case "begin" -> begin(call.get("what"));
            case "interrupt" -> {
                other.interrupt();
                other.join();
                answered.set("answer", told);
            }
            case "join" -> {
                other.join();
                answered.set("answer", told);
            }
            case "beans" -> beans(call.get("pattern").asText(), answered);
            case "heap" -> {
                for (int i = 0; i < 4; i++) System.gc();
                Runtime runtime = Runtime.getRuntime();
                answered.put("answer", runtime.totalMemory() - runtime.freeMemory());
            }
            case "close" -> manager.close();
            default -> throw new IllegalArgumentException(call.toString());
        }
    }

    private void begin(JsonNode what) throws InterruptedException {
        begun = false;
        other = new Thread(() -> {
            begun = true;
            ObjectNode answered = tell(what);
            told = answered.put("interrupted", Thread.currentThread().isInterrupted());
        });
        other.start();
        while (!begun) Thread.sleep(1);
    }

    private InputStream fetch(RemoteLogSegmentMetadata segment, JsonNode call) throws Exception {
        int start = call.get("start").asInt();
        return call.has("end") ? manager.fetchLogSegment(segment, start, call.get("end").asInt()) : manager.fetchLogSegment(segment, start);
    }

    private static void sum(InputStream stream, int atOnce, ObjectNode answered) throws Exception {
        MessageDigest sum = MessageDigest.getInstance("SHA-256");
        byte[] into = new byte[atOnce];
        for (int count; (count = stream.read(into)) >= 0; ) sum.update(into, 0, count);
        answered.put("answer", HexFormat.of().formatHex(sum.digest()));
    }

    private static void beans(String pattern, ObjectNode answered) throws Exception {
        var server = ManagementFactory.getPlatformMBeanServer();
        ObjectNode all = answered.putObject("answer");
        for (ObjectName name : server.queryNames(new ObjectName(pattern), null)) {
            ObjectNode attributes = all.putObject(name.toString());
            for (MBeanAttributeInfo each : server.getMBeanInfo(name).getAttributes()) {
                attributes.put(each.getName(), String.valueOf(server.getAttribute(name, each.getName())));
            }
        }
    }

    private static LogSegmentData data(JsonNode data) {
        JsonNode transactions = data.get("transaction_index");
        return new LogSegmentData(
            Path.of(data.get("log_segment").asText()), Path.of(data.get("offset_index").asText()),
            Path.of(data.get("time_index").asText()),
            transactions.isNull() ? Optional.empty() : Optional.of(Path.of(transactions.asText())),
            Path.of(data.get("producer_snapshot").asText()),
            ByteBuffer.wrap(HexFormat.of().parseHex(data.get("leader_epoch_index").asText())));
    }

    private static RemoteLogSegmentMetadata segment(JsonNode told) throws Exception {
        TopicIdPartition partition = new TopicIdPartition(
            Uuid.fromString(told.get("topic_id").asText()),
            new TopicPartition(told.get("topic").asText(), told.get("partition").asInt()));
        TreeMap<Integer, Long> epochs = new TreeMap<>();
        told.get("epochs").fields().forEachRemaining(each -> epochs.put(Integer.valueOf(each.getKey()), each.getValue().asLong()));
        RemoteLogSegmentId id = new RemoteLogSegmentId(partition, Uuid.fromString(told.get("id").asText()));
        Optional<CustomMetadata> custom = told.get("custom").isNull()
            ? Optional.empty() : Optional.of(new CustomMetadata(HexFormat.of().parseHex(told.get("custom").asText())));
        RemoteLogSegmentState state = RemoteLogSegmentState.valueOf(told.get("state").asText());
        Object[] values = {
            id, told.get("start_offset").asLong(), told.get("end_offset").asLong(), told.get("max_timestamp").asLong(),
            told.get("broker").asInt(), told.get("event_timestamp").asLong(), told.get("size").asInt(), custom, state, epochs,
            told.get("txn_idx_empty").asBoolean()
        };
        for (var constructor : RemoteLogSegmentMetadata.class.getConstructors()) {
            if (constructor.getParameterCount() == values.length) return (RemoteLogSegmentMetadata) constructor.newInstance(values);
        }
        return new RemoteLogSegmentMetadata( // before 3.9
            id, (long) values[1], (long) values[2], (long) values[3], (int) values[4], (long) values[5], (int) values[6], custom, state, epochs);
    }
}
