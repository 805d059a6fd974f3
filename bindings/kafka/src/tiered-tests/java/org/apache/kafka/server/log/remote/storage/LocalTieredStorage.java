package org.apache.kafka.server.log.remote.storage;

import io.tierlog.kafka.TierlogRemoteStorageManager;
import java.io.File;
import java.io.FileReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.Reader;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorageEvent.EventType;
import org.apache.kafka.server.log.remote.storage.LocalTieredStorageListener.LocalTieredStorageListeners;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

/**
 * Tierlog's plugin in the place of Kafka's class of this name, for Kafka's own integration tests: first on their class path.
 *
 * <p>Each call goes to the plugin, whose keys are in the file that the system property {@value #KEYS_FILE} names; its objects
 * lie below the folder that a test gives. What the tests look at beside the calls is here: the history of events, and the
 * files of each segment, which are written from what the plugin fetches ({@link FetchedFilesets}).
 */
public final class LocalTieredStorage implements RemoteStorageManager {
  /** These three names are what the tests configure. */
  public static final String STORAGE_DIR_CONFIG = "dir";

  public static final String DELETE_ON_CLOSE_CONFIG = "delete.on.close";
  public static final String BROKER_ID = "broker.id";

  private static final String KEYS_FILE = "tierlog.tiered.keys";
  private static final String STORAGE_ROOT = "storage.root";

  private final RemoteStorageManager plugin = new TierlogRemoteStorageManager();
  private final LocalTieredStorageListeners listeners = new LocalTieredStorageListeners();
  private final LocalTieredStorageHistory history = new LocalTieredStorageHistory();
  private final AtomicInteger eventTimestamp = new AtomicInteger(-1);
  private volatile FetchedFilesets filesets;
  private volatile int brokerId = -1;
  private volatile boolean closed;

  /** For Kafka. */
  public LocalTieredStorage() {
    history.listenTo(this);
  }

  @Override
  public void configure(Map<String, ?> configs) {
    String folder = (String) Objects.requireNonNull(configs.get(STORAGE_DIR_CONFIG), STORAGE_DIR_CONFIG);
    if (Boolean.parseBoolean((String) configs.get(DELETE_ON_CLOSE_CONFIG))) {
      throw new InvalidConfigurationException(DELETE_ON_CLOSE_CONFIG + " is not what the tests of a whole broker ask for");
    }
    brokerId = (Integer) configs.get(BROKER_ID);
    filesets = FetchedFilesets.below(folder);
    File objects = new File(folder, "objects");
    objects.mkdirs(); // each broker of a test does
    Map<String, Object> keys = new HashMap<>(pluginKeys());
    keys.put(STORAGE_ROOT, objects.getPath());
    keys.put(BROKER_ID, brokerId);
    plugin.configure(keys);
  }

  private static Map<String, String> pluginKeys() {
    Properties read = new Properties();
    String path = System.getProperty(KEYS_FILE);
    try (Reader file = new FileReader(path)) {
      read.load(file);
    } catch (IOException e) {
      throw new InvalidConfigurationException("cannot read the keys of the plugin, " + path, e);
    }
    Map<String, String> keys = new HashMap<>();
    read.stringPropertyNames().forEach(name -> keys.put(name, read.getProperty(name)));
    return keys;
  }

  @Override
  public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata metadata, LogSegmentData data)
      throws RemoteStorageException {
    return told(
        EventType.COPY_SEGMENT,
        metadata,
        () -> {
          Optional<CustomMetadata> custom = plugin.copyLogSegmentData(metadata, data);
          filesets.copied(plugin, stored(metadata, custom), data);
          return custom;
        });
  }

  @Override
  public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int startPosition)
      throws RemoteStorageException {
    return told(EventType.FETCH_SEGMENT, metadata, () -> plugin.fetchLogSegment(metadata, startPosition));
  }

  @Override
  public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int startPosition, int endPosition)
      throws RemoteStorageException {
    return told(
        EventType.FETCH_SEGMENT, metadata, () -> plugin.fetchLogSegment(metadata, startPosition, endPosition));
  }

  @Override
  public InputStream fetchIndex(RemoteLogSegmentMetadata metadata, IndexType type) throws RemoteStorageException {
    EventType event =
        switch (type) {
          case OFFSET -> EventType.FETCH_OFFSET_INDEX;
          case TIMESTAMP -> EventType.FETCH_TIME_INDEX;
          case PRODUCER_SNAPSHOT -> EventType.FETCH_PRODUCER_SNAPSHOT;
          case TRANSACTION -> EventType.FETCH_TRANSACTION_INDEX;
          case LEADER_EPOCH -> EventType.FETCH_LEADER_EPOCH_CHECKPOINT;
        };
    return told(event, metadata, () -> plugin.fetchIndex(metadata, type));
  }

  @Override
  public void deleteLogSegmentData(RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
    told(
        EventType.DELETE_SEGMENT,
        metadata,
        () -> {
          plugin.deleteLogSegmentData(metadata);
          filesets.deleted(plugin, metadata);
          return null;
        });
  }

  @Override
  public void close() {
    closed = true;
    try {
      plugin.close();
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Shows a visitor what the plugin gives back now, read through this broker; what was there at last, once it is closed. */
  public void traverse(LocalTieredStorageTraverser traverser) {
    filesets.traverse(closed ? null : plugin, Objects.requireNonNull(traverser));
  }

  public void addListener(LocalTieredStorageListener listener) {
    listeners.add(listener);
  }

  public LocalTieredStorageHistory getHistory() {
    return history;
  }

  public int brokerId() {
    return brokerId;
  }

  /** A call with its event, which is numbered before the call and told after it: a failure is one, too. */
  private <T> T told(EventType type, RemoteLogSegmentMetadata metadata, Call<T> call) throws RemoteStorageException {
    LocalTieredStorageEvent.Builder event =
        LocalTieredStorageEvent.newBuilder(
                brokerId, type, eventTimestamp.incrementAndGet(), metadata.remoteLogSegmentId())
            .withMetadata(metadata);
    try {
      T answer = call.run();
      listeners.onStorageEvent(event.build());
      return answer;
    } catch (RemoteStorageException | RuntimeException e) {
      listeners.onStorageEvent(event.withException(e).build());
      throw e;
    }
  }

  /** What the broker's metadata manager will say of a segment that was copied. */
  private static RemoteLogSegmentMetadata stored(RemoteLogSegmentMetadata begun, Optional<CustomMetadata> custom) {
    return begun.createWithUpdates(
        new RemoteLogSegmentMetadataUpdate(
            begun.remoteLogSegmentId(),
            begun.eventTimestampMs(),
            custom,
            RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
            begun.brokerId()));
  }

  private interface Call<T> {
    T run() throws RemoteStorageException;
  }
}
