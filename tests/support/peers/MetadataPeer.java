import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;

/**
 * Kafka's own TopicBasedRemoteLogMetadataManager outside of a broker: a line of JSON with a call, a line with its answer.
 * Segments are the bytes of their records, by Kafka's RemoteLogMetadataSerde.
 */
public final class MetadataPeer {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = System.out;
        System.setOut(System.err);
        Map<String, Object> configs = new HashMap<>();
        JSON.readTree(arguments[0]).fields().forEachRemaining(each -> configs.put(each.getKey(), each.getValue().asText()));
        TopicBasedRemoteLogMetadataManager manager = new TopicBasedRemoteLogMetadataManager();
        manager.configure(configs);
        manager.onBrokerReady();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ObjectNode told = JSON.createObjectNode();
            try {
                answer(manager, JSON.readTree(line), told);
            } catch (Exception error) {
                Throwable cause = error instanceof ExecutionException ? error.getCause() : error;
                told.put("error", cause.getClass().getSimpleName()).put("text", String.valueOf(cause.getMessage()));
            }
            out.println(JSON.writeValueAsString(told));
            out.flush();
        }
        manager.close();
        System.exit(0);
    }

    private static void answer(TopicBasedRemoteLogMetadataManager manager, JsonNode call, ObjectNode told) throws Exception {
        TopicIdPartition partition = call.has("topic") ? partition(call) : null;
        switch (call.get("call").asText()) {
            case "lead" -> manager.onPartitionLeadershipChanges(Set.of(partition), Set.of());
            case "stop" -> manager.onStopPartitions(Set.of(partition));
            case "ready" -> told.put("answer", manager.isReady(partition));
            case "put" -> wait(put(manager, HexFormat.of().parseHex(call.get("record").asText())));
            case "find" -> segment(told, manager.remoteLogSegmentMetadata(partition, call.get("epoch").asInt(), call.get("offset").asLong()));
            case "next" -> segment(told, manager.nextSegmentWithTxnIndex(partition, call.get("epoch").asInt(), call.get("offset").asLong()));
            case "highest" -> {
                Optional<Long> found = manager.highestOffsetForEpoch(partition, call.get("epoch").asInt());
                if (found.isPresent()) told.put("answer", found.get());
                else told.putNull("answer");
            }
            case "size" -> told.put("answer", manager.remoteLogSize(partition, call.get("epoch").asInt()));
            case "list" -> {
                Iterator<RemoteLogSegmentMetadata> found = call.has("epoch")
                    ? manager.listRemoteLogSegments(partition, call.get("epoch").asInt())
                    : manager.listRemoteLogSegments(partition);
                ArrayNode all = told.putArray("answer");
                found.forEachRemaining(each -> all.add(HexFormat.of().formatHex(SERDE.serialize(each))));
            }
            default -> throw new IllegalArgumentException(call.toString());
        }
    }

    private static CompletableFuture<Void> put(TopicBasedRemoteLogMetadataManager manager, byte[] value) throws Exception {
        RemoteLogMetadata record = SERDE.deserialize(value);
        if (record instanceof RemoteLogSegmentMetadata segment) return manager.addRemoteLogSegmentMetadata(segment);
        if (record instanceof RemoteLogSegmentMetadataUpdate update) return manager.updateRemoteLogSegmentMetadata(update);
        return manager.putRemotePartitionDeleteMetadata((RemotePartitionDeleteMetadata) record);
    }

    private static void wait(CompletableFuture<Void> future) throws Exception {
        future.get(30, TimeUnit.SECONDS);
    }

    private static void segment(ObjectNode told, Optional<RemoteLogSegmentMetadata> found) {
        if (found.isPresent()) told.put("answer", HexFormat.of().formatHex(SERDE.serialize(found.get())));
        else told.putNull("answer");
    }

    private static TopicIdPartition partition(JsonNode call) {
        TopicPartition name = new TopicPartition(call.get("topic").asText(), call.get("partition").asInt());
        return new TopicIdPartition(Uuid.fromString(call.get("topic_id").asText()), name);
    }
}
