package io.tierlog.kafka;

import java.io.Closeable;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.JmxReporter;
import org.apache.kafka.common.metrics.KafkaMetricsContext;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.Sensor.RecordingLevel;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.CumulativeCount;
import org.apache.kafka.common.metrics.stats.CumulativeSum;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

/**
 * What the broker asked for, in the MBeans of the Aiven plugin: {@code remote-storage-manager-metrics} in its domain, in sum
 * and by topic; by partition and by kind of object where {@code metrics.recording.level} is DEBUG. Those in sum are there from
 * the start.
 */
final class TierMetrics implements Closeable {
  private static final String DOMAIN = "aiven.kafka.server.tieredstorage";
  private static final String GROUP = "remote-storage-manager-metrics";

  /** Of the objects of a segment, in the order of the sidecar's answer. */
  private static final List<String> OBJECT_TYPES = List.of("log", "indexes", "rsm-manifest");

  private final org.apache.kafka.common.metrics.Metrics metrics;

  /** What is measured of a figure: attribute endings and their statistics. */
  private enum Kind {
    TIME,
    COUNT,
    BYTES;

    Map<String, MeasurableStat> stats() {
      Map<String, MeasurableStat> made = new LinkedHashMap<>();
      if (this == TIME) {
        made.put("-avg", new Avg());
        made.put("-max", new Max());
      } else {
        made.put("-rate", new Rate());
        made.put("-total", this == COUNT ? new CumulativeCount() : new CumulativeSum());
      }
      return made;
    }
  }

  private enum Figure {
    COPY_TIME("segment-copy-time", Kind.TIME),
    DELETES("segment-delete", Kind.COUNT),
    DELETED_BYTES("segment-delete-bytes", Kind.BYTES),
    DELETE_TIME("segment-delete-time", Kind.TIME),
    DELETE_ERRORS("segment-delete-errors", Kind.COUNT),
    REQUESTED_BYTES("segment-fetch-requested-bytes", Kind.BYTES),
    UPLOADS("object-upload", Kind.COUNT),
    UPLOADED_BYTES("object-upload-bytes", Kind.BYTES);

    final String name;
    final Kind kind;

    Figure(String name, Kind kind) {
      this.name = name;
      this.kind = kind;
    }
  }

  TierMetrics(PluginConfig config) {
    MetricConfig settings =
        new MetricConfig()
            .samples(config.metricsSamples())
            .timeWindow(config.metricsWindowMs(), TimeUnit.MILLISECONDS)
            .recordLevel(RecordingLevel.forName(config.metricsLevel()));
    metrics =
        new org.apache.kafka.common.metrics.Metrics(
            settings, new ArrayList<>(List.of(new JmxReporter())), Time.SYSTEM, new KafkaMetricsContext(DOMAIN));
    for (Figure figure : Figure.values()) {
      sensor(figure, RecordingLevel.INFO, Map.of());
    }
  }

  /**
   * A copy that is done.
   *
   * @param objectBytes sizes of the stored objects; -1: that one was there
   */
  void copied(RemoteLogSegmentMetadata metadata, long millis, long[] objectBytes) {
    TopicPartition partition = partition(metadata);
    for (int i = 0; i < objectBytes.length; i++) {
      if (objectBytes[i] >= 0) {
        recordObject(Figure.UPLOADS, partition, OBJECT_TYPES.get(i), 1);
        recordObject(Figure.UPLOADED_BYTES, partition, OBJECT_TYPES.get(i), objectBytes[i]);
      }
    }
    record(Figure.COPY_TIME, partition, millis);
  }

  void fetchAsked(RemoteLogSegmentMetadata metadata, long bytes) {
    record(Figure.REQUESTED_BYTES, partition(metadata), bytes);
  }

  void deletionAsked(RemoteLogSegmentMetadata metadata) {
    record(Figure.DELETES, partition(metadata), 1);
    record(Figure.DELETED_BYTES, partition(metadata), metadata.segmentSizeInBytes());
  }

  void deleted(RemoteLogSegmentMetadata metadata, long millis) {
    record(Figure.DELETE_TIME, partition(metadata), millis);
  }

  void deletionFailed(RemoteLogSegmentMetadata metadata) {
    record(Figure.DELETE_ERRORS, partition(metadata), 1);
  }

  @Override
  public void close() {
    metrics.close();
  }

  private void record(Figure figure, TopicPartition partition, double value) {
    Map<String, String> topic = Map.of("topic", partition.topic());
    Map<String, String> both = Map.of("topic", partition.topic(), "partition", String.valueOf(partition.partition()));
    sensor(figure, RecordingLevel.INFO, Map.of()).record(value);
    sensor(figure, RecordingLevel.INFO, topic).record(value);
    sensor(figure, RecordingLevel.DEBUG, both).record(value);
  }

  private void recordObject(Figure figure, TopicPartition partition, String type, double value) {
    record(figure, partition, value);
    Map<String, String> tags = new LinkedHashMap<>();
    tags.put("object-type", type);
    sensor(figure, RecordingLevel.DEBUG, tags).record(value);
    tags.put("topic", partition.topic());
    sensor(figure, RecordingLevel.DEBUG, tags).record(value);
    tags.put("partition", String.valueOf(partition.partition()));
    sensor(figure, RecordingLevel.DEBUG, tags).record(value);
  }

  private Sensor sensor(Figure figure, RecordingLevel level, Map<String, String> tags) {
    String name = figure.name + " " + tags.getOrDefault("topic", "") + " " + tags.getOrDefault("partition", "") + " "
        + tags.getOrDefault("object-type", "");
    Sensor known = metrics.getSensor(name);
    if (known != null) {
      return known;
    }
    synchronized (this) {
      Sensor made = metrics.sensor(name, level);
      if (!made.hasMetrics()) {
        figure.kind.stats().forEach((ending, stat) -> made.add(metrics.metricName(figure.name + ending, GROUP, "", tags), stat));
      }
      return made;
    }
  }

  private static TopicPartition partition(RemoteLogSegmentMetadata metadata) {
    return metadata.remoteLogSegmentId().topicIdPartition().topicPartition();
  }
}
