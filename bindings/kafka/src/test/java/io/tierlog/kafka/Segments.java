package io.tierlog.kafka;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;

/** A segment, its files, and a storage manager for tests. */
final class Segments {
  private Segments() {}

  static RemoteLogSegmentMetadata metadata(int size) {
    return metadata(size, 3);
  }

  static RemoteLogSegmentMetadata metadata(int size, int partition) {
    return new RemoteLogSegmentMetadata(
        new RemoteLogSegmentId(
            new TopicIdPartition(new Uuid(1, 2), new TopicPartition("t", partition)), new Uuid(4, 5)),
        6,
        7,
        8,
        9,
        10,
        size,
        Optional.of(new CustomMetadata(new byte[] {'c'})),
        RemoteLogSegmentState.COPY_SEGMENT_FINISHED,
        new TreeMap<>(Map.of(1, 6L)));
  }

  static LogSegmentData data() {
    return new LogSegmentData(
        Path.of("/d/t-3/6.log"),
        Path.of("/d/t-3/6.index"),
        Path.of("/d/t-3/6.timeindex"),
        Optional.empty(),
        Path.of("/d/t-3/6.snapshot"),
        ByteBuffer.wrap("0\n0\n".getBytes(StandardCharsets.UTF_8)));
  }

  static TierlogRemoteStorageManager manager(FakeSidecar sidecar, String... more) {
    Map<String, Object> keys = new HashMap<>(Map.of("tierlog.socket", sidecar.socket.toString(), "broker.id", 9));
    for (int i = 0; i < more.length; i += 2) {
      keys.put(more[i], more[i + 1]);
    }
    TierlogRemoteStorageManager made = new TierlogRemoteStorageManager();
    made.configure(keys);
    return made;
  }
}
