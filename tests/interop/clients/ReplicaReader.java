import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
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
 * Reads partitions of topics from their start to their end with Kafka's own consumer.
 *
 * A line of stdin is a question: bootstrap, topic, isolation, partitions ("0,1") and a file, separated by spaces. The records
 * go to the file, a JSON object each; then their count is the answer, a line of stdout.
 */
public final class ReplicaReader {
    public static void main(String[] arguments) throws Exception {
        var questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split(" ");
            List<TopicPartition> partitions = new ArrayList<>();
            for (String number : words[3].split(",")) {
                partitions.add(new TopicPartition(words[1], Integer.parseInt(number)));
            }
            StringBuilder out = new StringBuilder();
            int count = read(words[0], words[2], partitions, out);
            Files.writeString(Path.of(words[4]), out);
            System.out.println(count);
        }
    }

    private static int read(String bootstrap, String isolation, List<TopicPartition> partitions, StringBuilder out) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("isolation.level", isolation);
        properties.put("auto.offset.reset", "none");
        properties.put("enable.auto.commit", "false");
        properties.put("fetch.max.wait.ms", "100");
        int count = 0;
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
                    count++;
                }
                left.entrySet().removeIf(each -> consumer.position(each.getKey()) >= each.getValue());
            }
        }
        return count;
    }

    private static void append(StringBuilder out, ConsumerRecord<byte[], byte[]> record) {
        out.append("{\"partition\":").append(record.partition());
        out.append(",\"offset\":").append(record.offset());
        out.append(",\"timestamp\":").append(record.timestamp());
        out.append(",\"timestampType\":\"").append(record.timestampType().name).append('"');
        out.append(",\"leaderEpoch\":").append(record.leaderEpoch().map(String::valueOf).orElse("null"));
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
