package org.apache.kafka.server.log.remote.storage;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.EnumMap;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentFileset.RemoteLogSegmentFileType;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;

/**
 * The files of each segment of a test's tier, as Kafka's tests look at them: each was fetched from a storage manager, and is
 * what the broker handed in, else the call fails. One for all brokers of a test. Any thread.
 */
final class FetchedFilesets {
  private static final ConcurrentMap<String, FetchedFilesets> OF_TESTS = new ConcurrentHashMap<>();
  private static final Map<RemoteLogSegmentFileType, IndexType> INDEXES =
      new EnumMap<>(
          Map.of(
              RemoteLogSegmentFileType.OFFSET_INDEX, IndexType.OFFSET,
              RemoteLogSegmentFileType.TIME_INDEX, IndexType.TIMESTAMP,
              RemoteLogSegmentFileType.TRANSACTION_INDEX, IndexType.TRANSACTION,
              RemoteLogSegmentFileType.LEADER_EPOCH_CHECKPOINT, IndexType.LEADER_EPOCH,
              RemoteLogSegmentFileType.PRODUCER_SNAPSHOT, IndexType.PRODUCER_SNAPSHOT));

  private final File directory;
  private final Path fetched;
  private final Map<RemoteLogSegmentId, RemoteLogSegmentMetadata> segments = new HashMap<>(); // guarded by this

  private FetchedFilesets(String folder) {
    directory = new File(folder, "filesets");
    fetched = Path.of(folder, "fetched");
    directory.mkdirs();
  }

  static FetchedFilesets below(String folder) {
    return OF_TESTS.computeIfAbsent(folder, FetchedFilesets::new);
  }

  /** Takes in a segment that a manager has copied; one that it gives back otherwise is an error. */
  synchronized void copied(RemoteStorageManager manager, RemoteLogSegmentMetadata metadata, LogSegmentData data)
      throws RemoteStorageException {
    fetch(manager, metadata);
    segments.put(metadata.remoteLogSegmentId(), metadata);
    RemoteLogSegmentFileset fileset = RemoteLogSegmentFileset.openFileset(directory, metadata);
    Map<RemoteLogSegmentFileType, Path> handedIn =
        new EnumMap<>(
            Map.of(
                RemoteLogSegmentFileType.SEGMENT, data.logSegment(),
                RemoteLogSegmentFileType.OFFSET_INDEX, data.offsetIndex(),
                RemoteLogSegmentFileType.TIME_INDEX, data.timeIndex(),
                RemoteLogSegmentFileType.PRODUCER_SNAPSHOT, data.producerSnapshotIndex()));
    data.transactionIndex()
        .filter(path -> path.toFile().length() > 0)
        .ifPresent(path -> handedIn.put(RemoteLogSegmentFileType.TRANSACTION_INDEX, path));
    try {
      for (Map.Entry<RemoteLogSegmentFileType, Path> each : handedIn.entrySet()) {
        if (Files.mismatch(fileset.getFile(each.getKey()).toPath(), each.getValue()) != -1) {
          throw new RemoteStorageException(each.getValue() + " was stored otherwise");
        }
      }
      byte[] epochs = Files.readAllBytes(fileset.getFile(RemoteLogSegmentFileType.LEADER_EPOCH_CHECKPOINT).toPath());
      if (!ByteBuffer.wrap(epochs).equals(data.leaderEpochIndex().duplicate().rewind())) {
        throw new RemoteStorageException("the leader epochs of " + data.logSegment() + " were stored otherwise");
      }
    } catch (IOException e) {
      throw new RemoteStorageException(e);
    }
  }

  /** Forgets a segment that a manager has deleted; one that it still gives back is an error. */
  synchronized void deleted(RemoteStorageManager manager, RemoteLogSegmentMetadata metadata)
      throws RemoteStorageException {
    for (RemoteLogSegmentFileType type : RemoteLogSegmentFileType.values()) {
      if (isThere(manager, metadata, type)) {
        throw new RemoteStorageException(type + " of " + metadata.remoteLogSegmentId() + " is there behind its deletion");
      }
    }
    forget(metadata);
  }

  /**
   * Shows all partitions and segments.
   *
   * @param manager fetches each segment anew, and one that it does not find is not shown; null: as they were fetched last
   */
  synchronized void traverse(RemoteStorageManager manager, LocalTieredStorageTraverser traverser) {
    if (manager != null) {
      for (RemoteLogSegmentMetadata each : new ArrayList<>(segments.values())) {
        try {
          fetch(manager, each);
        } catch (RemoteResourceNotFoundException e) {
          forget(each);
        } catch (RemoteStorageException e) {
          throw new IllegalStateException("cannot read " + each, e);
        }
      }
    }
    File[] partitions = directory.listFiles();
    for (File each : partitions == null ? new File[0] : partitions) {
      RemoteTopicPartitionDirectory.openExistingTopicPartitionDirectory(each.getName(), directory).traverse(traverser);
    }
  }

  private void forget(RemoteLogSegmentMetadata metadata) {
    segments.remove(metadata.remoteLogSegmentId());
    RemoteLogSegmentFileset.openFileset(directory, metadata).delete();
  }

  private void fetch(RemoteStorageManager manager, RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
    RemoteLogSegmentFileset fileset = RemoteLogSegmentFileset.openFileset(directory, metadata);
    for (RemoteLogSegmentFileType type : RemoteLogSegmentFileType.values()) {
      try (InputStream stream = open(manager, metadata, type)) {
        Files.copy(stream, fetched, StandardCopyOption.REPLACE_EXISTING);
        Files.move(fetched, fileset.getFile(type).toPath(), StandardCopyOption.ATOMIC_MOVE);
      } catch (RemoteResourceNotFoundException e) {
        if (!type.isOptional()) {
          throw e;
        }
      } catch (IOException e) {
        throw new RemoteStorageException(e);
      }
    }
  }

  private static boolean isThere(
      RemoteStorageManager manager, RemoteLogSegmentMetadata metadata, RemoteLogSegmentFileType type)
      throws RemoteStorageException {
    try {
      open(manager, metadata, type).close();
      return true;
    } catch (RemoteResourceNotFoundException e) {
      return false;
    } catch (IOException e) {
      throw new RemoteStorageException(e);
    }
  }

  private static InputStream open(
      RemoteStorageManager manager, RemoteLogSegmentMetadata metadata, RemoteLogSegmentFileType type)
      throws RemoteStorageException {
    return type == RemoteLogSegmentFileType.SEGMENT
        ? manager.fetchLogSegment(metadata, 0)
        : manager.fetchIndex(metadata, INDEXES.get(type));
  }
}
