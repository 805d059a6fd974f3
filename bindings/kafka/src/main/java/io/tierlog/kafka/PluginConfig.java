package io.tierlog.kafka;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigException;

/** The keys {@code rsm.config.*} as a broker gives them: without that prefix, and with its id, by two names since 4.4. */
final class PluginConfig {
  static final String SOCKET = "tierlog.socket";
  static final String PYTHON = "tierlog.python";
  static final String REQUEST_TIMEOUT = "tierlog.request.timeout.ms";
  static final String START_TIMEOUT = "tierlog.start.timeout.ms";
  static final String CONNECTIONS_MAX = "tierlog.connections.max";

  private static final String OURS = "tierlog.";
  private static final String BROKER_ID = "broker.id";
  private static final String NODE_ID = "node.id";
  // Of the Aiven plugin, and of the sidecar's storage manager too.
  private static final String SAMPLES = "metrics.num.samples";
  private static final String WINDOW = "metrics.sample.window.ms";
  private static final String LEVEL = "metrics.recording.level";
  private static final ConfigDef KEYS =
      new ConfigDef()
          .define(SOCKET, Type.STRING, null, Importance.MEDIUM, "Socket of a sidecar that runs.")
          .define(PYTHON, Type.STRING, "python3", Importance.MEDIUM, "Interpreter of a sidecar that is started.")
          .define(
              REQUEST_TIMEOUT, Type.INT, 60_000, Range.atLeast(1), Importance.LOW,
              "Time for the answer to a request, except a copy's.")
          .define(
              START_TIMEOUT, Type.INT, 30_000, Range.atLeast(1), Importance.LOW,
              "Time for a sidecar to start and to answer.")
          .define(
              CONNECTIONS_MAX, Type.INT, 256, Range.atLeast(1), Importance.LOW,
              "Requests under way at once; more wait.")
          .define(BROKER_ID, Type.INT, -1, Importance.LOW, "The broker's.")
          .define(SAMPLES, Type.INT, 2, Range.atLeast(1), Importance.LOW, "Samples of a rate.")
          .define(WINDOW, Type.LONG, 30_000L, Range.atLeast(1), Importance.LOW, "Time of a sample.")
          .define(LEVEL, Type.STRING, "INFO", Importance.LOW, "DEBUG: by partition too.")
          .define(NODE_ID, Type.INT, -1, Importance.LOW, "The broker's.");

  private final Map<String, Object> values;
  private final Map<String, String> managerKeys = new TreeMap<>();

  /**
   * @throws ConfigException a key of ours has a value that it cannot have, or is none of ours
   */
  PluginConfig(Map<String, ?> configs) {
    values = KEYS.parse(configs);
    configs.forEach(
        (key, value) -> {
          if (key.startsWith(OURS)) {
            if (!KEYS.names().contains(key)) {
              throw new ConfigException("unknown key rsm.config." + key + "; there are " + ourNames());
            }
          } else if (value != null && !key.equals(NODE_ID)) {
            managerKeys.put(key, value.toString());
          }
        });
  }

  /** Null: not given. */
  String socket() {
    return (String) values.get(SOCKET);
  }

  String python() {
    return (String) values.get(PYTHON);
  }

  int requestTimeoutMs() {
    return (int) values.get(REQUEST_TIMEOUT);
  }

  int startTimeoutMs() {
    return (int) values.get(START_TIMEOUT);
  }

  int connectionsMax() {
    return (int) values.get(CONNECTIONS_MAX);
  }

  int metricsSamples() {
    return (int) values.get(SAMPLES);
  }

  long metricsWindowMs() {
    return (long) values.get(WINDOW);
  }

  String metricsLevel() {
    return (String) values.get(LEVEL);
  }

  /** -1: not given. */
  int brokerId() {
    return (int) values.get(managerKeys.containsKey(BROKER_ID) ? BROKER_ID : NODE_ID);
  }

  /** What a sidecar takes by {@code --config -}: an object of strings in one line. Secrets are in it. */
  String json() {
    StringBuilder made = new StringBuilder("{");
    managerKeys.forEach(
        (key, value) -> {
          made.append(made.length() > 1 ? "," : "");
          appendQuoted(made, key);
          made.append(':');
          appendQuoted(made, value);
        });
    return made.append('}').toString();
  }

  /** The digest of docs/sidecar-protocol.md. */
  byte[] digest() {
    TreeMap<byte[], String> ordered = new TreeMap<>(Arrays::compareUnsigned);
    managerKeys.forEach(
        (key, value) -> {
          if (!key.equals(BROKER_ID)) {
            ordered.put(key.getBytes(StandardCharsets.UTF_8), value);
          }
        });
    try {
      MessageDigest sum = MessageDigest.getInstance("SHA-256");
      ordered.forEach(
          (key, value) -> {
            sum.update(key);
            sum.update((byte) 0);
            sum.update(value.strip().getBytes(StandardCharsets.UTF_8));
            sum.update((byte) 0);
          });
      return sum.digest();
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e); // every Java has it
    }
  }

  private static String ourNames() {
    return KEYS.names().stream().filter(name -> name.startsWith(OURS)).sorted().collect(Collectors.joining(", "));
  }

  private static void appendQuoted(StringBuilder made, String text) {
    made.append('"');
    for (int i = 0; i < text.length(); i++) {
      char each = text.charAt(i);
      if (each == '"' || each == '\\') {
        made.append('\\').append(each);
      } else if (each < 0x20 || each > 0x7e) {
        made.append(String.format("\\u%04x", (int) each));
      } else {
        made.append(each);
      }
    }
    made.append('"');
  }
}
