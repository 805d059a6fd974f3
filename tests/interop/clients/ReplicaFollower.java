import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Follows partitions with Kafka's own consumer until stdin ends, and prints a JSON object for each record and each error.
 * Arguments: bootstrap, how long a fetch waits in ms, then topic:partition:offset (-1: the beginning).
 */
public final class ReplicaFollower {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("fetch.max.wait.ms", arguments[1]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("metadata.max.age.ms", "1000");
        properties.put("max.partition.fetch.bytes", "3000");
        Map<TopicPartition, Long> starts = new HashMap<>();
        for (int at = 2; at < arguments.length; at++) {
            String[] place = arguments[at].split(":");
            starts.put(new TopicPartition(place[0], Integer.parseInt(place[1])), Long.parseLong(place[2]));
        }
        List<TopicPartition> fromStart = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(starts.keySet());
            for (var start : starts.entrySet()) {
                if (start.getValue() < 0) {
                    fromStart.add(start.getKey());
                } else {
                    consumer.seek(start.getKey(), start.getValue());
                }
            }
            if (!fromStart.isEmpty()) {
                consumer.seekToBeginning(fromStart);
            }
            byte[] input = new byte[1];
            Thread watching = new Thread(() -> {
                try {
                    while (System.in.read(input) >= 0) { }
                } catch (java.io.IOException error) {
                    System.err.println(error);
                }
                consumer.wakeup();
            });
            watching.setDaemon(true);
            watching.start();
            while (true) {
                StringBuilder out = new StringBuilder();
                try {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                        out.append("{\"topic\":\"").append(record.topic());
                        out.append("\",\"partition\":").append(record.partition());
                        out.append(",\"offset\":").append(record.offset());
                        out.append(",\"value\":\"").append(Base64.getEncoder().encodeToString(record.value()));
                        out.append("\"}\n");
                    }
                } catch (org.apache.kafka.common.errors.WakeupException ended) {
                    return;
                } catch (KafkaException error) {
                    String text = error.toString().replaceAll("[^ -~]|[\"\\\\]", " ");
                    out.append("{\"error\":\"").append(text).append("\"}\n");
                    Thread.sleep(100);
                }
                System.out.print(out);
                System.out.flush();
            }
        }
    }
}
