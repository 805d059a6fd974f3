package io.tierlog.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.tierlog.engine.ReaderSettings;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The few options that the jar has to understand before the planner checks them all. A value that it does not
 * understand counts as the default: the planner then reports what is wrong.
 */
final class SourceOptions {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Pattern SIZE = Pattern.compile("([0-9]{1,18})\\s*([kmgtpKMGTP]?)(?:[iI]?[bB])?");
  /** The part of a URL before an @, which may be credentials; not an Azure container, which never has a colon. */
  private static final String USER = "(?<!(?i:abfs|abfss|wasb|wasbs):)//[^/@]*@|//[^/@]*:[^/@]*@";
  private static final Set<String> OTHER_TABLES = Set.of("batches", "segments", "transactions");

  private static final String KAFKA = "kafka.";
  private static final String REFRESH_INTERVAL = "refreshInterval";


  /** As {@code parse_duration_ms} of the Python options has it. */
  private static final Pattern TIME = Pattern.compile("([0-9]{1,18})\\s*(ms|s|min|m|h|d|)", Pattern.CASE_INSENSITIVE);

  private final CaseInsensitiveStringMap options;

  SourceOptions(Map<String, String> given) {
    this.options = new CaseInsensitiveStringMap(given);
  }

  /** The options as they were given. */
  Map<String, String> given() {
    return options.asCaseSensitiveMap();
  }

  /**
   * Whether there is a path. Without one it is a table of the catalog, whose options are in its schema, or a mistake.
   */
  boolean hasPath() {
    return options.containsKey("path") || options.containsKey("paths");
  }

  /** Whether Spark is creating a table of its catalog. */
  boolean makesTable() {
    return options.containsKey("provider");
  }

  boolean otherTable() {
    return OTHER_TABLES.contains(word("table"));
  }

  /** {@code auto}, {@code jar}, {@code python}, or a value that the planner refuses. */
  String engine() {
    String engine = word("engine");
    return engine.isEmpty() ? "auto" : engine;
  }

  /** Whether records are read from brokers, too. */
  boolean asksBrokers() {
    return !mode().equals("remote-only");
  }

  /** {@code remote-only}, {@code remote-preferred}, {@code local-preferred}, {@code local-only}, or a wrong word. */
  String mode() {
    String mode = word("mode");
    return mode.isEmpty() ? "remote-only" : mode;
  }

  /** The keys of Kafka's clients. */
  Map<String, String> brokerKeys() {
    Map<String, String> keys = new HashMap<>();
    given()
        .forEach(
            (name, value) -> {
              if (name.toLowerCase(Locale.ROOT).startsWith(KAFKA)) {
                keys.put(name.substring(KAFKA.length()), value);
              }
            });
    return keys;
  }

  /** These options with others; null as a value: without it. */
  SourceOptions with(Map<String, String> changes) {
    CaseInsensitiveStringMap changed = new CaseInsensitiveStringMap(changes);
    Map<String, String> all = new HashMap<>(given());
    all.keySet().removeIf(changed::containsKey);
    changes.forEach(
        (name, value) -> {
          if (value != null) {
            all.put(name, value);
          }
        });
    return new SourceOptions(all);
  }

  /** What has to be equal in the options of loads that share a listing. */
  Map<String, String> ofListing() {
    Map<String, String> all = new HashMap<>(options);
    all.remove(REFRESH_INTERVAL.toLowerCase(Locale.ROOT));
    return all;
  }

  /** How long ago a listing may have begun that serves; 0 if the option is not given, or is wrong. */
  long refreshNanos() {
    Matcher time = TIME.matcher(options.getOrDefault(REFRESH_INTERVAL, "").strip());
    if (!time.matches()) {
      return 0;
    }
    TimeUnit unit =
        switch (time.group(2).toLowerCase(Locale.ROOT)) {
          case "s" -> TimeUnit.SECONDS;
          case "m", "min" -> TimeUnit.MINUTES;
          case "h" -> TimeUnit.HOURS;
          case "d" -> TimeUnit.DAYS;
          default -> TimeUnit.MILLISECONDS;
        };
    return unit.toNanos(Long.parseLong(time.group(1)));
  }

  String plannerPython() {
    return options.get("plannerPython");
  }

  /** The folder to which the shared library is unpacked; null: that of temporary files. */
  String nativeDirectory() {
    return options.get("nativeDirectory");
  }

  boolean reportPartitioning() {
    return flag("reportPartitioning");
  }

  boolean includeHeaders() {
    return flag("includeHeaders");
  }

  /** The columns; null if the option is not given, or is wrong. */
  List<String> columns() {
    String text = options.get("columns");
    if (text == null) {
      return null;
    }
    List<String> names = Arrays.stream(text.split(",")).map(String::strip).filter(name -> !name.isEmpty()).toList();
    return names.isEmpty() || new HashSet<>(names).size() < names.size() ? null : names;
  }

  /**
   * The settings of the tasks' readers.
   *
   * @param schema that Spark wants filled; what it says holds no nulls is checked
   */
  ReaderSettings readerSettings(StructType schema) {
    Set<String> notNull =
        Arrays.stream(schema.fields())
            .filter(field -> !field.nullable())
            .map(StructField::name)
            .collect(Collectors.toSet());
    ReaderSettings defaults = ReaderSettings.defaults();
    return new ReaderSettings(
        sizeBytes("offHeapBytesPerTask", defaults.offHeapBytesPerTask()),
        defaults.batchBytes(),
        defaults.windowBytes(),
        defaults.windowsAhead(),
        nativeDirectory(),
        notNull);
  }

  /** The paths, none of them empty. */
  List<String> paths() {
    List<String> paths = new ArrayList<>();
    if (options.containsKey("path")) {
      paths.add(options.get("path").strip());
    }
    try {
      for (JsonNode path : JSON.readTree(options.getOrDefault("paths", "[]"))) {
        paths.add(path.asText().strip());
      }
    } catch (JsonProcessingException e) {
      return paths; // the planner says what is wrong with it
    }
    return paths;
  }

  /** Whether some path is the URL of an object store. */
  boolean namesObjectStore() {
    return paths().stream().anyMatch(path -> path.contains("://") && !path.startsWith("file:"));
  }

  /** The paths for plans and logs, without credentials and queries in URLs. */
  String shownPaths() {
    List<String> shown =
        paths().stream().map(path -> path.replaceAll(USER, "//***@").replaceAll("[?#].*", "?***")).toList();
    return shown.size() == 1 ? shown.get(0) : shown.toString();
  }

  private String word(String name) {
    return options.getOrDefault(name, "").strip().toLowerCase(Locale.ROOT);
  }

  /** As {@code parse_size_bytes} of the Python options, which has checked it. */
  private long sizeBytes(String name, long otherwise) {
    Matcher size = SIZE.matcher(options.getOrDefault(name, "").strip());
    if (!size.matches()) {
      return otherwise;
    }
    int power = size.group(2).isEmpty() ? 0 : 1 + "kmgtp".indexOf(size.group(2).toLowerCase(Locale.ROOT));
    return Math.multiplyExact(Long.parseLong(size.group(1)), 1L << (10 * power));
  }

  private boolean flag(String name) {
    return word(name).equals("true");
  }
}
