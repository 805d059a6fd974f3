import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a group that writes down what it gets, as tests/support/front_consumer.py does, until it is killed. */
public final class GroupMember {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("group.id", arguments[2]);
        properties.put("isolation.level", arguments[3]);
        properties.put("auto.offset.reset", "earliest");
        properties.put("enable.auto.commit", "false");
        properties.put("session.timeout.ms", "6000");
        properties.put("heartbeat.interval.ms", "2000");
        properties.put("max.partition.fetch.bytes", "200000");
        properties.put("reconnect.backoff.max.ms", "500");
        try (Writer out = Files.newBufferedWriter(Path.of(arguments[4]), StandardOpenOption.APPEND)) {
            while (true) {
                out.write("assigned\n");
                try (var consumer =
                        new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                    consume(consumer, arguments[1], out);
                } catch (KafkaException error) {
                    System.err.println(error);
                    Thread.sleep(500);
                }
            }
        }
    }

    private static void consume(KafkaConsumer<byte[], byte[]> consumer, String topic, Writer out) throws Exception {
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                try {
                    out.write("assigned\n");
                } catch (IOException error) {
                    throw new KafkaException(error);
                }
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
        });
        while (true) {
            var records = consumer.poll(Duration.ofMillis(500));
            for (ConsumerRecord<byte[], byte[]> record : records) {
                out.write(record.partition() + " " + record.offset() + " " + digest(record) + "\n");
            }
            out.flush();
            if (!records.isEmpty()) {
                consumer.commitAsync();
            }
        }
    }

    private static String digest(ConsumerRecord<byte[], byte[]> record) throws Exception {
        var bytes = new ByteArrayOutputStream();
        var data = new DataOutputStream(bytes);
        put(data, record.key());
        put(data, record.value());
        for (Header header : record.headers()) {
            put(data, header.key().getBytes(StandardCharsets.UTF_8));
            put(data, header.value());
        }
        data.writeByte(record.timestampType().id);
        data.writeLong(record.timestamp());
        byte[] hash = MessageDigest.getInstance("SHA-256").digest(bytes.toByteArray());
        return HexFormat.of().formatHex(hash, 0, 16);
    }

    private static void put(DataOutputStream data, byte[] value) throws IOException {
        data.writeInt(value == null ? -1 : value.length);
        data.write(value == null ? new byte[0] : value);
    }
}
