package io.tierlog.kafka;

import java.io.IOException;
import java.io.InputStream;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

/**
 * Kafka's remote storage manager, served by a Tierlog sidecar on the same machine.
 *
 * <p>It takes the keys of Aiven's plugin unchanged ({@code rsm.config.*}), which go to the sidecar, and {@code tierlog.*} of
 * its own. A copy's failure is the retriable exception only if nothing of the copy is stored: Kafka does not clean up after
 * that one. Any thread at any time, except for {@link #configure}, which comes first.
 */
public final class TierlogRemoteStorageManager implements RemoteStorageManager {
  private Sidecar sidecar;
  private Connections connections;
  private SidecarClient client;
  private Metrics metrics;
  private TierMetrics tierMetrics;
  private boolean closed;

  /** For Kafka. */
  public TierlogRemoteStorageManager() {}

  /**
   * Finds the sidecar, or starts one, and greets it.
   *
   * @throws ConfigException a key of ours is wrong, there is no sidecar, or it has another configuration
   */
  @Override
  public synchronized void configure(Map<String, ?> configs) {
    if (sidecar != null || closed) {
      throw new IllegalStateException("the storage manager is configured already");
    }
    PluginConfig config = new PluginConfig(configs);
    Buffers buffers = new Buffers();
    sidecar = Sidecar.find(config);
    connections = new Connections(sidecar, config, buffers);
    try {
      connections.probe(Deadline.in(config.startTimeoutMs()));
    } catch (IOException e) {
      String said = e.getMessage() == null ? e.toString() : e.getMessage();
      close();
      String remedy =
          e instanceof AnswerException
              ? ""
              : ": see that it runs, and that the broker may open its socket (`tierlog sidecar --group`)";
      throw new ConfigException(sidecar + " does not serve this broker: " + said + remedy);
    } catch (RuntimeException | Error e) {
      close();
      throw e;
    }
    client = new SidecarClient(connections, buffers, SidecarClient.Patience.of(config));
    tierMetrics = new TierMetrics(config);
    metrics = new Metrics(client);
    metrics.refresh();
  }

  @Override
  public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata metadata, LogSegmentData data)
      throws RemoteStorageException {
    long began = System.currentTimeMillis();
    SidecarClient.Copied copied = client().copy("copy of " + name(metadata), Request.copy(metadata, data));
    tierMetrics.copied(metadata, System.currentTimeMillis() - began, copied.objectBytes());
    metrics.saw("copy", metadata);
    return Optional.ofNullable(copied.custom()).map(CustomMetadata::new);
  }

  @Override
  public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int startPosition)
      throws RemoteStorageException {
    return fetchLogSegment(metadata, startPosition, Integer.MAX_VALUE);
  }

  /**
   * @param endPosition inclusive; the segment's end where that is before it
   * @throws RemoteResourceNotFoundException the segment is not in the store
   */
  @Override
  public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int startPosition, int endPosition)
      throws RemoteStorageException {
    int lastPosition = Math.min(endPosition, metadata.segmentSizeInBytes() - 1);
    if (startPosition < 0 || startPosition > lastPosition) {
      throw new RemoteStorageException(
          "positions " + startPosition + " to " + endPosition + " are not in " + name(metadata) + " of "
              + metadata.segmentSizeInBytes() + " bytes");
    }
    SidecarClient asked = client();
    tierMetrics.fetchAsked(metadata, lastPosition - startPosition + 1L);
    InputStream opened =
        SegmentInputStream.open(
            asked,
            "fetch of " + name(metadata),
            (position, bytesMax) -> Request.fetchRange(metadata, position, lastPosition, bytesMax),
            startPosition,
            lastPosition);
    metrics.saw("fetch", metadata);
    return opened;
  }

  /**
   * @throws RemoteResourceNotFoundException the index is not in the store; a transaction index that the metadata says is empty
   *     is not looked for
   */
  @Override
  public InputStream fetchIndex(RemoteLogSegmentMetadata metadata, IndexType indexType) throws RemoteStorageException {
    if (indexType == IndexType.TRANSACTION && LaterKafka.isTxnIdxEmpty(metadata) == 1) {
      throw new RemoteResourceNotFoundException(name(metadata) + " has no transaction index");
    }
    byte type = indexId(indexType);
    return SegmentInputStream.open(
        client(),
        "fetch of index " + indexType + " of " + name(metadata),
        (position, bytesMax) -> Request.fetchIndex(metadata, type, position, bytesMax),
        0,
        Integer.MAX_VALUE);
  }

  @Override
  public void deleteLogSegmentData(RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
    SidecarClient asked = client();
    tierMetrics.deletionAsked(metadata);
    long began = System.currentTimeMillis();
    try {
      asked.delete("deletion of " + name(metadata), Request.delete(metadata));
    } catch (RemoteStorageException e) {
      tierMetrics.deletionFailed(metadata);
      throw e;
    }
    tierMetrics.deleted(metadata, System.currentTimeMillis() - began);
    metrics.saw("delete", metadata);
  }

  /** Ends the calls under way, and the sidecar if it was started here. Any number of times. */
  @Override
  public synchronized void close() {
    if (closed) {
      return;
    }
    closed = true;
    if (connections != null) {
      connections.close();
    }
    if (metrics != null) {
      metrics.close();
    }
    if (tierMetrics != null) {
      tierMetrics.close();
    }
    if (sidecar != null) {
      sidecar.close();
    }
  }

  private SidecarClient client() {
    if (client == null) {
      throw new IllegalStateException("the storage manager is not configured");
    }
    return client;
  }

  private static byte indexId(IndexType type) {
    return switch (type) {
      case OFFSET -> 0;
      case TIMESTAMP -> 1;
      case PRODUCER_SNAPSHOT -> 2;
      case TRANSACTION -> 3;
      case LEADER_EPOCH -> 4;
    };
  }

  private static String name(RemoteLogSegmentMetadata metadata) {
    var id = metadata.remoteLogSegmentId();
    return "segment " + id.id() + " of " + id.topicIdPartition().topicPartition();
  }
}
