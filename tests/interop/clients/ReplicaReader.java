import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads partitions of a topic from their start to their end with Kafka's own consumer, and prints a JSON object a record.
 * Arguments: bootstrap, topic, isolation, partitions ("[0,1]"), then client properties as key=value.
 */
public final class ReplicaReader {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("isolation.level", arguments[2]);
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        properties.put("fetch.max.wait.ms", "100");
        for (int at = 4; at < arguments.length; at++) {
            String[] pair = arguments[at].split("=", 2);
            properties.put(pair[0], pair[1]);
        }
        List<TopicPartition> partitions = new ArrayList<>();
        for (String number : arguments[3].replaceAll("[\\[\\] ]", "").split(",")) {
            partitions.add(new TopicPartition(arguments[1], Integer.parseInt(number)));
        }
        StringBuilder out = new StringBuilder();
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(partitions);
            Map<TopicPartition, Long> starts = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> left = new HashMap<>(consumer.endOffsets(partitions));
            left.entrySet().removeIf(each -> starts.get(each.getKey()) >= each.getValue());
            consumer.seekToBeginning(partitions);
            long until = System.nanoTime() + 60_000_000_000L;
            while (!left.isEmpty()) {
                if (System.nanoTime() > until) {
                    throw new IllegalStateException("records are missing: " + left);
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    append(out, record);
                }
                left.entrySet().removeIf(each -> consumer.position(each.getKey()) >= each.getValue());
            }
        }
        System.out.write(out.toString().getBytes(StandardCharsets.UTF_8));
        System.out.flush();
    }

    private static void append(StringBuilder out, ConsumerRecord<byte[], byte[]> record) {
        out.append("{\"partition\":").append(record.partition());
        out.append(",\"offset\":").append(record.offset());
        out.append(",\"timestamp\":").append(record.timestamp());
        out.append(",\"timestampType\":\"").append(record.timestampType().name).append('"');
        out.append(",\"key\":").append(text(record.key()));
        out.append(",\"value\":").append(text(record.value()));
        out.append(",\"headers\":[");
        String comma = "";
        for (Header header : record.headers()) {
            String name = Base64.getEncoder().encodeToString(header.key().getBytes(StandardCharsets.UTF_8));
            out.append(comma).append("[\"").append(name).append("\",").append(text(header.value())).append(']');
            comma = ",";
        }
        out.append("]}\n");
    }

    private static String text(byte[] data) {
        return data == null ? "null" : '"' + Base64.getEncoder().encodeToString(data) + '"';
    }
}
