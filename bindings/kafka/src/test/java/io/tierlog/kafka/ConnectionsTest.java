package io.tierlog.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A broker would run out of connections, or a reader would get the bytes of another's answer. */
@Timeout(120)
class ConnectionsTest {
  private static final int SIZE = 600_000;
  private static final int THREADS = 8;
  private static final int CALLS = 300;
  private static final RemoteLogSegmentMetadata METADATA = Segments.metadata(SIZE);

  /** Answers at random: whole, in halves, not at all, in part and then the end. */
  private static FakeSidecar.Behaviour moody(FakeSidecar sidecar) {
    Random chance = new Random(1);
    return call -> {
      int mood;
      synchronized (chance) {
        mood = call.kind() == FakeSidecar.HELLO ? chance.nextInt(20) + 10 : chance.nextInt(30);
      }
      switch (mood) {
        case 0 -> call.raw(new byte[] {0, 0});
        case 1 -> call.refuse(2, "later");
        case 2 -> call.raw(new byte[] {0, 0, 1, 0, 0, 0, 7, 7});
        case 3 -> call.raw(new byte[] {0, 0, 0, 2, 0, 1, 9, 9});
        case 10 -> { }
        default -> {
          return false;
        }
      }
      if (mood != 1) {
        call.channel().shutdownInput();
        call.channel().shutdownOutput();
      }
      return true;
    };
  }

  @Test
  void noWaitForADeadlineIsWithoutEnd() {
    for (long millis : new long[] {-100_000, -1, 0}) {
      assertEquals(1, Deadline.in(millis).millisLeft()); // Object.wait(0) and select(0) wait for ever
    }
    assertTrue(Deadline.in(1_000).millisLeft() <= 1_001);
  }

  @Test
  void failuresAndInterruptsLoseNoConnection() throws Exception {
    try (FakeSidecar sidecar = new FakeSidecar(SIZE)) {
      PluginConfig config =
          new PluginConfig(Map.of("tierlog.socket", sidecar.socket.toString(), "tierlog.connections.max", "5"));
      Buffers buffers = new Buffers();
      Connections connections = new Connections(Sidecar.find(config), config, buffers);
      SidecarClient client = new SidecarClient(connections, buffers, new SidecarClient.Patience(60_000, 50, 1_000));
      sidecar.behaviour = moody(sidecar);
      AtomicInteger sound = new AtomicInteger();
      AtomicReference<Throwable> wrong = new AtomicReference<>();
      List<Thread> threads = new ArrayList<>();
      for (int i = 0; i < THREADS; i++) {
        Random chance = new Random(i);
        threads.add(new Thread(() -> work(client, sidecar, chance, sound, wrong)));
      }
      threads.forEach(Thread::start);
      Random chance = new Random(99);
      while (threads.stream().anyMatch(Thread::isAlive)) {
        Thread.sleep(3);
        threads.get(chance.nextInt(THREADS)).interrupt();
      }
      assertNull(wrong.get(), () -> wrong.get().toString());
      assertTrue(sound.get() > THREADS * CALLS / 4, sound + " calls succeeded");
      assertEquals(5, connections.freeCount());
      // Those of health calls do not count.
      assertTrue(connections.openCount() <= 5 + THREADS, connections.openCount() + " connections");
      connections.close();
      assertEquals(0, connections.openCount());
    }
  }

  private static void work(
      SidecarClient client, FakeSidecar sidecar, Random chance, AtomicInteger sound, AtomicReference<Throwable> wrong) {
    for (int i = 0; i < CALLS; i++) {
      Thread.interrupted();
      int start = chance.nextInt(SIZE - 1);
      int last = Math.min(start + chance.nextInt(300_000), SIZE - 1);
      byte[] expected = Arrays.copyOfRange(sidecar.file, start, last + 1);
      try {
        if (chance.nextInt(4) == 0) {
          assertArrayEquals(new byte[] {'c', 'm'}, client.copy("copy", Request.copy(METADATA, Segments.data())).custom());
          sound.incrementAndGet();
          continue;
        }
        try (InputStream stream =
            SegmentInputStream.open(
                client, "fetch", (at, most) -> Request.fetchRange(METADATA, at, last, most), start, last)) {
          byte[] found = new byte[expected.length];
          int step = 1 << (8 + chance.nextInt(11));
          int count = 0;
          for (int now; (now = stream.read(found, count, Math.min(step, found.length - count))) > 0; ) {
            count += now;
          }
          assertEquals(expected.length, count);
          assertArrayEquals(expected, found);
          sound.incrementAndGet();
        }
      } catch (RemoteStorageException | IOException e) {
        // as it should be
      } catch (RuntimeException | Error e) {
        wrong.compareAndSet(null, e);
      }
    }
  }
}
