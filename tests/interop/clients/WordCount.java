import java.io.IOException;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of a topic, each exactly once, into another one, until standard input ends.
 *
 * <p>Arguments: bootstrap, input, output, application id, folder of its state.
 */
public final class WordCount {
  private WordCount() {}

  public static void main(String[] arguments) throws IOException {
    Properties keys = new Properties();
    keys.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    keys.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
    keys.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
    keys.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    keys.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    keys.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 200);
    keys.put("consumer.auto.offset.reset", "earliest");
    keys.put("producer.transaction.timeout.ms", 10000);
    keys.put("consumer.session.timeout.ms", 6000);

    StreamsBuilder builder = new StreamsBuilder();
    builder
        .stream(arguments[1], Consumed.with(Serdes.ByteArray(), Serdes.String()))
        .selectKey((key, word) -> word.substring(0, word.indexOf(' ')))
        .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
        .count(Materialized.with(Serdes.String(), Serdes.Long()))
        .toStream()
        .mapValues(String::valueOf)
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));

    try (KafkaStreams streams = new KafkaStreams(builder.build(), keys)) {
      streams.setUncaughtExceptionHandler(
          (Throwable fault) -> {
            fault.printStackTrace();
            Runtime.getRuntime().halt(1);
            return null;
          });
      streams.start();
      while (System.in.read() >= 0) {}
    }
  }
}
