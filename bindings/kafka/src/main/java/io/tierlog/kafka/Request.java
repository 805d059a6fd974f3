package io.tierlog.kafka;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.NavigableMap;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;

/** Requests as frames (docs/sidecar-protocol.md). */
final class Request {
  static final short VERSION = 1;

  private static final int MAGIC = 0x544C5343;
  private static final byte HELLO = 0;
  private static final byte COPY = 1;
  private static final byte FETCH_RANGE = 2;
  private static final byte FETCH_INDEX = 3;
  private static final byte DELETE = 4;
  private static final byte HEALTH = 5;
  private static final byte METRICS = 6;

  private ByteBuffer bytes = ByteBuffer.allocate(512);

  private Request(byte kind) {
    bytes.putInt(0).put(kind);
  }

  static byte[] hello(int brokerId, byte[] digest) {
    Request made = new Request(HELLO);
    made.room(16).putInt(MAGIC).putShort(VERSION).putShort(VERSION).putInt(brokerId);
    made.bytes(digest);
    return made.frame();
  }

  static byte[] copy(RemoteLogSegmentMetadata metadata, LogSegmentData data) {
    Request made = new Request(COPY);
    made.segment(metadata);
    made.path(data.logSegment());
    made.path(data.offsetIndex());
    made.path(data.timeIndex());
    made.room(1).put((byte) (data.transactionIndex().isPresent() ? 1 : 0));
    if (data.transactionIndex().isPresent()) {
      made.path(data.transactionIndex().get());
    } else {
      made.string("");
    }
    made.path(data.producerSnapshotIndex());
    ByteBuffer epochs = data.leaderEpochIndex().duplicate();
    byte[] checkpoint = new byte[epochs.remaining()];
    epochs.get(checkpoint);
    made.bytes(checkpoint);
    return made.frame();
  }

  static byte[] fetchRange(RemoteLogSegmentMetadata metadata, int position, int lastPosition, int bytesMax) {
    Request made = new Request(FETCH_RANGE);
    made.segment(metadata);
    made.room(12).putInt(position).putInt(lastPosition).putInt(bytesMax);
    return made.frame();
  }

  static byte[] fetchIndex(RemoteLogSegmentMetadata metadata, byte type, int position, int bytesMax) {
    Request made = new Request(FETCH_INDEX);
    made.segment(metadata);
    made.room(9).put(type).putInt(position).putInt(bytesMax);
    return made.frame();
  }

  static byte[] delete(RemoteLogSegmentMetadata metadata) {
    Request made = new Request(DELETE);
    made.segment(metadata);
    return made.frame();
  }

  static byte[] health() {
    return new Request(HEALTH).frame();
  }

  static byte[] metrics() {
    return new Request(METRICS).frame();
  }

  private void segment(RemoteLogSegmentMetadata metadata) {
    var partition = metadata.remoteLogSegmentId().topicIdPartition();
    uuid(partition.topicId());
    string(partition.topic());
    room(4).putInt(partition.partition());
    uuid(metadata.remoteLogSegmentId().id());
    room(48)
        .putLong(metadata.startOffset())
        .putLong(metadata.endOffset())
        .putLong(metadata.maxTimestampMs())
        .putInt(metadata.brokerId())
        .putLong(metadata.eventTimestampMs())
        .putInt(metadata.segmentSizeInBytes())
        .put(metadata.state().id())
        .put(LaterKafka.isTxnIdxEmpty(metadata));
    NavigableMap<Integer, Long> epochs = metadata.segmentLeaderEpochs();
    room(4 + 12 * epochs.size()).putInt(epochs.size());
    epochs.forEach((epoch, startOffset) -> bytes.putInt(epoch).putLong(startOffset));
    bytes(metadata.customMetadata().map(CustomMetadata::value).orElse(null));
  }

  private void uuid(Uuid id) {
    room(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits());
  }

  private void path(Path path) {
    string(path.toAbsolutePath().toString());
  }

  private void string(String text) {
    byte[] encoded = text.getBytes(StandardCharsets.UTF_8);
    if (encoded.length > Short.MAX_VALUE) {
      throw new IllegalArgumentException("a text of " + encoded.length + " bytes");
    }
    room(2 + encoded.length).putShort((short) encoded.length).put(encoded);
  }

  private void bytes(byte[] value) {
    if (value == null) {
      room(4).putInt(-1);
    } else {
      room(4 + value.length).putInt(value.length).put(value);
    }
  }

  private ByteBuffer room(int count) {
    if (bytes.remaining() < count) {
      int size = Math.max(2 * bytes.capacity(), bytes.position() + count);
      bytes = ByteBuffer.wrap(Arrays.copyOf(bytes.array(), size)).position(bytes.position());
    }
    return bytes;
  }

  private byte[] frame() {
    bytes.putInt(0, bytes.position() - 4);
    return Arrays.copyOf(bytes.array(), bytes.position());
  }
}
