package io.tierlog.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** A consumer would get other bytes than were produced, too few of them, or make the broker fetch what nobody reads. */
class SegmentInputStreamTest {
  private static final int SIZE = 3_000_000;
  private static final int PIECE = 64 * 1024;
  private FakeSidecar sidecar;
  private TierlogRemoteStorageManager manager;

  @BeforeEach
  void open() throws IOException {
    sidecar = new FakeSidecar(SIZE);
    manager = Segments.manager(sidecar, "tierlog.connections.max", "1");
  }

  @AfterEach
  void close() throws IOException {
    manager.close();
    sidecar.close();
  }

  private InputStream fetch(int start, int end) throws RemoteStorageException {
    return manager.fetchLogSegment(Segments.metadata(SIZE), start, end);
  }

  @Test
  void allWaysOfReadingGiveTheSameBytes() throws Exception {
    int start = 12_345;
    int end = 1_500_000;
    byte[] expected = Arrays.copyOfRange(sidecar.file, start, end + 1);
    try (InputStream stream = fetch(start, end)) {
      assertArrayEquals(expected, stream.readAllBytes());
      assertEquals(-1, stream.read());
      assertEquals(-1, stream.read(new byte[1 << 20]));
    }
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    try (InputStream stream = fetch(start, end)) {
      stream.transferTo(out);
    }
    assertArrayEquals(expected, out.toByteArray());
    for (int size : new int[] {1, 17, 4096, PIECE - 1, PIECE, PIECE + 1, 1 << 20, 3 << 20}) {
      try (InputStream stream = fetch(start, end)) {
        byte[] found = new byte[expected.length + 10];
        int at = 0;
        for (int now; (now = stream.read(found, at, Math.min(size, found.length - at))) > 0; ) {
          at += now;
        }
        assertArrayEquals(expected, Arrays.copyOf(found, at), "reads of " + size);
      }
    }
    try (InputStream stream = fetch(start, end)) {
      for (int i = 0; i < 70_000; i++) {
        assertEquals(expected[i] & 0xff, stream.read());
      }
    }
  }

  @Test
  void aRangeEndsAtTheSegmentsEnd() throws Exception {
    byte[] tail = Arrays.copyOfRange(sidecar.file, SIZE - 100, SIZE);
    assertArrayEquals(tail, fetch(SIZE - 100, Integer.MAX_VALUE).readAllBytes());
    assertArrayEquals(tail, manager.fetchLogSegment(Segments.metadata(SIZE), SIZE - 100).readAllBytes());
    assertEquals(1, fetch(SIZE - 1, SIZE - 1).readAllBytes().length);
    sidecar.asked.clear();
    assertThrows(RemoteStorageException.class, () -> fetch(SIZE, SIZE));
    assertThrows(RemoteStorageException.class, () -> fetch(5, 4));
    assertThrows(RemoteStorageException.class, () -> fetch(-1, 4));
    assertEquals(List.of(), sidecar.asked);
  }

  @Test
  void onlyWhatIsReadIsAskedFor() throws Exception {
    InputStream stream = fetch(0, SIZE);
    assertEquals(List.of(PIECE), sidecar.sizes);
    byte[] large = new byte[2 << 20];
    assertEquals(PIECE, stream.read(large));
    assertEquals(List.of(PIECE), sidecar.sizes);
    assertEquals(100_000, stream.read(large, 0, 100_000));
    assertEquals(PIECE, stream.available());
    assertEquals(PIECE, stream.read(large));
    assertEquals(1 << 20, stream.read(large));
    assertEquals(1, stream.read(large, 0, 1));
    assertEquals(List.of(PIECE, 100_000 + PIECE, (1 << 20) + PIECE), sidecar.sizes);
    assertEquals(PIECE - 1, stream.available());
    stream.close();
    assertThrows(IOException.class, stream::read);
    assertThrows(IOException.class, stream::available);
  }

  /** A broker reads the head of a batch, the batch, the head of the next one, and as much as its client asked for. */
  @Test
  void aBrokersFetchAsksForEachBatchOnce() throws Exception {
    int batch = 900_000;
    int asked = 1_000_000;
    byte[] found = new byte[asked];
    try (InputStream stream = fetch(0, SIZE)) {
      for (int start = 0; start < asked; start += batch) {
        int end = Math.min(asked, start + batch);
        assertEquals(17, stream.readNBytes(found, start, 17));
        assertEquals(end - start - 17, stream.readNBytes(found, start + 17, end - start - 17));
      }
    }
    assertArrayEquals(Arrays.copyOf(sidecar.file, asked), found);
    assertEquals(List.of(PIECE, batch, PIECE), sidecar.sizes);
  }

  @Test
  void skippedBytesAreNotFetched() throws Exception {
    try (InputStream stream = fetch(0, SIZE)) {
      assertEquals(2_500_000, stream.skip(2_500_000));
      assertEquals(sidecar.file[2_500_000] & 0xff, stream.read());
      assertEquals(2, sidecar.sizes.size());
      assertEquals(10, stream.skip(10));
      assertEquals(0, stream.skip(-5));
      assertEquals(sidecar.file[2_500_011] & 0xff, stream.read());
      assertEquals(SIZE - 2_500_012, stream.skip(Long.MAX_VALUE));
      assertEquals(-1, stream.read());
      assertEquals(2, sidecar.sizes.size());
    }
  }

  @Test
  void openStreamsHoldNoConnection() throws Exception {
    List<InputStream> streams = new ArrayList<>();
    for (int i = 0; i < 200; i++) {
      streams.add(fetch(i, SIZE));
      assertEquals(sidecar.file[i] & 0xff, streams.get(i).read());
    }
    assertEquals(1, sidecar.accepted.get());
    for (InputStream each : streams) {
      each.close();
      each.close();
    }
  }

  @Test
  void buffersAreUsedAgain() throws Exception {
    PluginConfig config = new PluginConfig(Map.of("tierlog.socket", sidecar.socket.toString()));
    Buffers buffers = new Buffers();
    try (Connections connections = new Connections(Sidecar.find(config), config, buffers)) {
      SidecarClient client = new SidecarClient(connections, buffers, SidecarClient.Patience.of(config));
      for (int round = 0; round < 5; round++) {
        List<InputStream> streams = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
          streams.add(
              SegmentInputStream.open(
                  client, "a fetch", (at, most) -> Request.fetchRange(Segments.metadata(SIZE), at, PIECE, most), 0, PIECE));
        }
        assertTrue(buffers.freeCount() <= 1, "each open stream has one");
        for (int i = 0; i < 5; i++) {
          streams.get(i).close();
          assertEquals(PIECE + 1, streams.get(i + 5).readAllBytes().length);
        }
        int free = buffers.freeCount();
        assertTrue(10 <= free && free <= 11, free + " buffers");
      }
    }
  }

  @Test
  void anIndexIsReadToItsEnd() throws Exception {
    for (IndexType type : IndexType.values()) {
      assertArrayEquals(sidecar.file, manager.fetchIndex(Segments.metadata(SIZE), type).readAllBytes());
    }
    try (InputStream stream = manager.fetchIndex(Segments.metadata(SIZE), IndexType.OFFSET)) {
      assertEquals(100_000, stream.skip(100_000));
      assertEquals(sidecar.file[100_000] & 0xff, stream.read());
    }
    try (FakeSidecar empty = new FakeSidecar(0);
        TierlogRemoteStorageManager other = Segments.manager(empty)) {
      assertEquals(-1, other.fetchIndex(Segments.metadata(1), IndexType.OFFSET).read());
      assertEquals(0, other.fetchIndex(Segments.metadata(1), IndexType.TIMESTAMP).readAllBytes().length);
    }
  }

  @Test
  void aFailureBetweenPiecesIsAnErrorAndNoEnd() throws Exception {
    InputStream stream = fetch(0, SIZE);
    sidecar.behaviour =
        call -> {
          call.refuse(1, "gone");
          return true;
        };
    stream.skip(PIECE);
    IOException small = assertThrows(IOException.class, stream::read);
    assertEquals("RemoteResourceNotFoundException", small.getCause().getClass().getSimpleName());
    IOException large = assertThrows(IOException.class, () -> stream.read(new byte[PIECE]));
    assertInstanceOf(RemoteStorageException.class, large.getCause());
    assertTrue(large.getMessage().contains("gone"), large.getMessage());
    sidecar.behaviour = call -> false;
    assertEquals(sidecar.file[PIECE] & 0xff, stream.read());
  }
}
