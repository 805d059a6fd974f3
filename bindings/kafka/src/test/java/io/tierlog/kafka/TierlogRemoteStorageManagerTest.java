package io.tierlog.kafka;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import javax.management.ObjectName;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteResourceNotFoundException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager.IndexType;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A broker would lose, double or leave behind data, or a thread of it would hang. */
@Timeout(120)
class TierlogRemoteStorageManagerTest {
  private static final int SIZE = 1_000_000;
  private static final RemoteLogSegmentMetadata METADATA = Segments.metadata(SIZE);
  private static final String RETRIABLE = LaterKafka.retriable("", null).getClass().getSimpleName();
  private FakeSidecar sidecar;
  private TierlogRemoteStorageManager manager;

  private interface Action {
    void run() throws Exception;
  }

  @BeforeEach
  void open() throws IOException {
    sidecar = new FakeSidecar(SIZE);
    manager = Segments.manager(sidecar);
  }

  @AfterEach
  void close() throws IOException {
    manager.close();
    sidecar.close();
  }

  private List<Action> calls() {
    return List.of(
        () -> manager.copyLogSegmentData(METADATA, Segments.data()),
        () -> manager.fetchLogSegment(METADATA, 0),
        () -> manager.fetchIndex(METADATA, IndexType.OFFSET),
        () -> manager.deleteLogSegmentData(METADATA));
  }

  private static RemoteStorageException failureOf(Action call) {
    return assertInstanceOf(RemoteStorageException.class, assertThrows(Exception.class, call::run));
  }

  private void hang() {
    sidecar.behaviour = call -> call.kind() != FakeSidecar.HELLO && call.kind() != FakeSidecar.HEALTH;
  }

  @Test
  void callsAreAnswered() throws Exception {
    assertArrayEquals(new byte[] {'c', 'm'}, manager.copyLogSegmentData(METADATA, Segments.data()).get().value());
    sidecar.behaviour =
        call -> {
          if (call.kind() == FakeSidecar.COPY) {
            call.answer(FakeSidecar.copied(null));
          }
          return call.kind() == FakeSidecar.COPY;
        };
    assertTrue(manager.copyLogSegmentData(METADATA, Segments.data()).isEmpty());
    manager.deleteLogSegmentData(METADATA);
    assertEquals(List.of(FakeSidecar.COPY, FakeSidecar.COPY, FakeSidecar.DELETE), sidecar.asked);
    assertEquals(1, sidecar.accepted.get());
  }

  @Test
  void statusesAreTheKipsExceptions() {
    String[] names = {
      "", "RemoteResourceNotFoundException", RETRIABLE, "RemoteStorageException", "RemoteStorageException",
      "RemoteStorageException", RETRIABLE, "RemoteStorageException"
    };
    for (int status = 1; status < names.length; status++) {
      int now = status;
      sidecar.behaviour =
          call -> {
            if (call.kind() != FakeSidecar.HELLO) {
              call.refuse(now, "why");
            }
            return call.kind() != FakeSidecar.HELLO;
          };
      for (Action each : calls()) {
        RemoteStorageException failed = failureOf(each);
        assertEquals(names[status], failed.getClass().getSimpleName(), "status " + status);
        assertTrue(failed.getMessage().contains("why"), failed.getMessage());
      }
    }
  }

  @Test
  void anEmptyTransactionIndexIsNotAskedFor() throws Exception {
    if (LaterKafka.isTxnIdxEmpty(METADATA) == LaterKafka.UNKNOWN) {
      return; // this Kafka does not say
    }
    var constructor =
        RemoteLogSegmentMetadata.class.getConstructor(
            METADATA.remoteLogSegmentId().getClass(), long.class, long.class, long.class, int.class, long.class, int.class,
            Map.class, boolean.class);
    RemoteLogSegmentMetadata empty =
        constructor.newInstance(METADATA.remoteLogSegmentId(), 0L, 1L, 2L, 3, 4L, 5, Map.of(0, 0L), true);
    assertThrows(RemoteResourceNotFoundException.class, () -> manager.fetchIndex(empty, IndexType.TRANSACTION));
    assertEquals(List.of(), sidecar.asked);
  }

  @Test
  void aConnectionThatBreaksBeforeItsAnswerIsReplacedOnce() throws Exception {
    AtomicInteger breaks = new AtomicInteger();
    sidecar.behaviour =
        call -> {
          boolean now = call.kind() != FakeSidecar.HELLO && breaks.getAndDecrement() > 0;
          if (now) {
            call.hangUp();
          }
          return now;
        };
    for (Action each : calls().subList(1, 4)) {
      breaks.set(1);
      each.run();
      breaks.set(2);
      assertEquals(RETRIABLE, failureOf(each).getClass().getSimpleName());
    }
    breaks.set(1);
    sidecar.asked.clear();
    assertEquals("RemoteStorageException", failureOf(calls().get(0)).getClass().getSimpleName());
    assertEquals(List.of(FakeSidecar.COPY), sidecar.asked);
  }

  @Test
  void connectionsOfASidecarThatWasRestartedAreReplaced() throws Exception {
    for (Action each : calls()) {
      each.run();
      sidecar.stopListening();
      sidecar.hangUp();
      Thread later =
          new Thread(
              () -> {
                try {
                  Thread.sleep(100);
                  sidecar.listen();
                } catch (IOException | InterruptedException e) {
                  throw new IllegalStateException(e);
                }
              });
      later.start();
      each.run();
      later.join();
    }
  }

  @Test
  void aCopyThatNoSidecarTookIsRetriable() throws Exception {
    try (TierlogRemoteStorageManager hasty = Segments.manager(sidecar, "tierlog.request.timeout.ms", "100")) {
      sidecar.stopListening();
      sidecar.hangUp();
      RemoteStorageException failed = failureOf(() -> hasty.copyLogSegmentData(METADATA, Segments.data()));
      assertEquals(RETRIABLE, failed.getClass().getSimpleName());
    }
  }

  @Test
  void brokenAnswersAreErrorsAndTheirConnectionsAreDropped() throws Exception {
    byte[][] answers = {
      {0, 0, 0, 9, 0, 1}, // half of one
      {0, 0},
      {0, 0, 0, 0},
      {-1, -1, -1, -1},
      {127, -1, -1, -1, 0, 1},
      {0, 0, 0, 2, 0, 1, 9}, // more than one
      {0, 0, 0, 2, 0, 0}, // no bytes, but more are behind
      {0, 0, 0, 2, 3, 0},
      {0, 0, 0, 4, 3, 127, 127, 65},
    };
    for (byte[] each : answers) {
      sidecar.behaviour =
          call -> {
            if (call.kind() == FakeSidecar.RANGE) {
              call.raw(each);
              call.channel().shutdownOutput();
            }
            return call.kind() == FakeSidecar.RANGE;
          };
      sidecar.asked.clear();
      failureOf(() -> manager.fetchLogSegment(METADATA, 0));
      assertEquals(List.of(FakeSidecar.RANGE), sidecar.asked, "an answer had begun");
      sidecar.behaviour = call -> false;
      assertEquals(SIZE, manager.fetchLogSegment(METADATA, 0).readAllBytes().length);
    }
    sidecar.behaviour =
        call -> {
          if (call.kind() == FakeSidecar.RANGE) {
            call.answer(new byte[70_000]);
          }
          return call.kind() == FakeSidecar.RANGE;
        };
    failureOf(() -> manager.fetchLogSegment(METADATA, 0));
  }

  @Test
  void anAnswerInSingleBytesIsWhole() throws Exception {
    sidecar.behaviour =
        call -> {
          if (call.kind() == FakeSidecar.RANGE) {
            for (byte each : new byte[] {0, 0, 0, 5, 0, 1, 7, 8, 9}) {
              call.raw(new byte[] {each});
              Thread.sleep(2);
            }
          }
          return call.kind() == FakeSidecar.RANGE;
        };
    assertArrayEquals(new byte[] {7, 8, 9}, manager.fetchLogSegment(METADATA, 0).readAllBytes());
  }

  @Test
  void aRequestHasADeadline() throws Exception {
    try (TierlogRemoteStorageManager hasty = Segments.manager(sidecar, "tierlog.request.timeout.ms", "50")) {
      hang();
      assertEquals(RETRIABLE, failureOf(() -> hasty.deleteLogSegmentData(METADATA)).getClass().getSimpleName());
      assertNotNull(sidecar.closedByClient.poll(60, TimeUnit.SECONDS));
      assertEquals(List.of(FakeSidecar.DELETE), sidecar.asked);
    }
  }

  @Test
  void aRequestThatFindsAllConnectionsInUseHasItToo() throws Exception {
    try (TierlogRemoteStorageManager hasty =
        Segments.manager(sidecar, "tierlog.request.timeout.ms", "50", "tierlog.connections.max", "1")) {
      hang();
      Thread copies = new Thread(() -> failureOf(() -> hasty.copyLogSegmentData(METADATA, Segments.data())));
      copies.start();
      while (sidecar.asked.isEmpty()) {
        Thread.sleep(1);
      }
      RemoteStorageException failed = failureOf(() -> hasty.deleteLogSegmentData(METADATA));
      assertTrue(failed.getMessage().contains("tierlog.connections.max"), failed.getMessage());
      sidecar.hangUp();
      copies.join();
    }
  }

  @Test
  void anInterruptEndsACallAndKeepsTheFlag() throws Exception {
    hang();
    for (Action each : calls()) {
      sidecar.asked.clear();
      AtomicReference<RemoteStorageException> failed = new AtomicReference<>();
      AtomicReference<Boolean> flag = new AtomicReference<>();
      Thread thread =
          new Thread(
              () -> {
                failed.set(failureOf(each));
                flag.set(Thread.currentThread().isInterrupted());
              });
      thread.start();
      while (sidecar.asked.isEmpty()) {
        Thread.sleep(1);
      }
      thread.interrupt();
      thread.join();
      assertTrue(failed.get().getMessage().contains("interrupted"), failed.get().getMessage());
      assertTrue(flag.get());
      assertNotNull(sidecar.closedByClient.poll(60, TimeUnit.SECONDS));
    }
  }

  @Test
  void anInterruptedReadIsAnErrorAndNoEnd() throws Exception {
    InputStream stream = manager.fetchLogSegment(METADATA, 0);
    stream.skip(Buffers.PIECE_BYTES);
    Thread.currentThread().interrupt();
    assertThrows(IOException.class, stream::read);
    assertThrows(IOException.class, () -> stream.read(new byte[1 << 20]));
    assertTrue(Thread.interrupted());
    assertEquals(sidecar.file[Buffers.PIECE_BYTES] & 0xff, stream.read());
    Thread.currentThread().interrupt();
    RemoteStorageException failed = failureOf(() -> manager.copyLogSegmentData(METADATA, Segments.data()));
    assertTrue(Thread.interrupted());
    assertEquals(RETRIABLE, failed.getClass().getSimpleName());
    assertFalse(sidecar.asked.contains(FakeSidecar.COPY));
  }

  @Test
  void closeEndsCallsUnderWay() throws Exception {
    hang();
    List<Thread> threads = new ArrayList<>();
    CountDownLatch ended = new CountDownLatch(16);
    for (int i = 0; i < 16; i++) {
      Action call = calls().get(i % 4);
      Thread thread =
          new Thread(
              () -> {
                RemoteStorageException failed = failureOf(call);
                assertTrue(failed.getMessage().contains("closed"), failed.getMessage());
                ended.countDown();
              });
      thread.start();
      threads.add(thread);
    }
    while (sidecar.asked.size() < 16) {
      Thread.sleep(1);
    }
    manager.close();
    manager.close();
    for (Thread each : threads) {
      each.join();
    }
    assertEquals(0, ended.getCount());
    for (Action each : calls()) {
      assertTrue(failureOf(each).getMessage().contains("closed"));
    }
  }

  @Test
  void aCopyIsWaitedForAsLongAsTheSidecarLives() throws Exception {
    PluginConfig config = new PluginConfig(Map.of("tierlog.socket", sidecar.socket.toString()));
    Buffers buffers = new Buffers();
    try (Connections connections = new Connections(Sidecar.find(config), config, buffers)) {
      SidecarClient client = new SidecarClient(connections, buffers, new SidecarClient.Patience(60_000, 5, 500));
      AtomicInteger healths = new AtomicInteger();
      sidecar.behaviour =
          call -> {
            if (call.kind() == FakeSidecar.COPY) {
              while (healths.get() < 7) {
                Thread.sleep(1);
              }
            }
            return call.kind() == FakeSidecar.HEALTH && healths.incrementAndGet() % 3 != 0; // two of three have no answer
          };
      assertArrayEquals(new byte[] {'c', 'm'}, client.copy("copy", Request.copy(METADATA, Segments.data())).custom());
      assertTrue(healths.get() >= 7);

      SidecarClient hasty = new SidecarClient(connections, buffers, new SidecarClient.Patience(1_000, 5, 20));
      sidecar.asked.clear();
      sidecar.behaviour = call -> call.kind() == FakeSidecar.COPY || call.kind() == FakeSidecar.HEALTH;
      RemoteStorageException failed = failureOf(() -> hasty.copy("copy", Request.copy(METADATA, Segments.data())));
      assertEquals("RemoteStorageException", failed.getClass().getSimpleName());
      assertEquals(3, sidecar.asked.stream().filter(kind -> kind == FakeSidecar.HEALTH).count());
    }
  }

  @Test
  void withoutMemoryACallIsAnExceptionAndNoError() throws Exception {
    AtomicInteger lacks = new AtomicInteger();
    Buffers buffers =
        new Buffers() {
          @Override
          ByteBuffer take() {
            if (lacks.getAndUpdate(left -> Math.max(0, left - 1)) > 0) {
              throw new OutOfMemoryError("Cannot reserve");
            }
            return super.take();
          }
        };
    PluginConfig config =
        new PluginConfig(Map.of("tierlog.socket", sidecar.socket.toString(), "tierlog.connections.max", "1"));
    try (Connections connections = new Connections(Sidecar.find(config), config, buffers)) {
      SidecarClient client = new SidecarClient(connections, buffers, new SidecarClient.Patience(60_000, 5, 5_000));
      List<Action> calls =
          List.of(
              () -> client.copy("copy", Request.copy(METADATA, Segments.data())),
              () -> client.give(client.fetch("fetch", Request.fetchRange(METADATA, 0, 9, 10)).buffer()),
              () -> client.delete("deletion", Request.delete(METADATA)));
      for (Action each : calls) {
        lacks.set(1);
        RemoteStorageException failed = failureOf(each);
        assertEquals(RETRIABLE, failed.getClass().getSimpleName());
        assertTrue(failed.getMessage().contains("no memory: Cannot reserve"), failed.getMessage());
        each.run();
      }
      sidecar.behaviour =
          call -> {
            if (call.kind() == FakeSidecar.COPY) {
              lacks.set(2); // of the questions for its health
              while (lacks.get() > 0) {
                Thread.sleep(1);
              }
            }
            return false;
          };
      calls.get(0).run();
    }
  }

  @Test
  void configureSaysWhatIsWrong() throws Exception {
    ConfigException none =
        assertThrows(
            ConfigException.class,
            () -> new TierlogRemoteStorageManager().configure(Map.of("tierlog.socket", sidecar.folder + "/none")));
    assertTrue(none.getMessage().contains("start it before the broker"), none.getMessage());
    sidecar.behaviour =
        call -> {
          call.refuse(5, "another configuration");
          return true;
        };
    ConfigException refused = assertThrows(ConfigException.class, () -> Segments.manager(sidecar));
    assertTrue(refused.getMessage().contains("another configuration"), refused.getMessage());
    sidecar.behaviour = call -> true;
    ConfigException silent =
        assertThrows(ConfigException.class, () -> Segments.manager(sidecar, "tierlog.start.timeout.ms", "50"));
    assertTrue(silent.getMessage().contains("see that it runs"), silent.getMessage());
    TierlogRemoteStorageManager fresh = new TierlogRemoteStorageManager();
    assertThrows(IllegalStateException.class, () -> fresh.fetchLogSegment(METADATA, 0));
    fresh.close();
  }

  @Test
  void metricsAreThereFromTheStartAndUntilTheEnd() throws Exception {
    var server = ManagementFactory.getPlatformMBeanServer();
    ObjectName name = new ObjectName("tierlog.test:type=fake0");
    assertEquals(2.5, server.getAttribute(name, "copies-total"));
    assertEquals("copies-total", server.getMBeanInfo(name).getAttributes()[0].getName());
    manager.close();
    assertFalse(server.isRegistered(name));
  }

  @Test
  void metricsOfNewPartitionsComeSoonAndAreAskedForSeldom() throws Exception {
    var server = ManagementFactory.getPlatformMBeanServer();
    sidecar.beanNumber = 1;
    Deadline begun = Deadline.in(0);
    int partition = 0;
    while (!server.isRegistered(new ObjectName("tierlog.test:type=fake1"))) {
      manager.deleteLogSegmentData(Segments.metadata(1, partition++));
    }
    long seconds = TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - begun.nanos());
    assertTrue(partition > 10, partition + " partitions");
    assertTrue(sidecar.metricsAsked.get() <= 3 + seconds, sidecar.metricsAsked + " times in " + seconds + " s");
  }

  @Test
  void metricsWithAnythingElseAreRefused() {
    assertEquals(
        Map.of("a:b=\"c\u00e9", Map.of("d", -1.5e3, "e", Double.NaN), "f", Map.of()),
        MetricsJson.read(" {\"a:b=\\\"c\\u00e9\": {\"d\": -1.5e3 , \"e\":NaN}, \"f\":{} } ".getBytes()));
    for (String each : new String[] {"", "{", "{}x", "[]", "{\"a\":1}", "{\"a\":{\"b\":null}}", "{\"a\\u00\"", "{\"a\":{\"b\":1}"}) {
      assertThrows(IllegalArgumentException.class, () -> MetricsJson.read(each.getBytes()), each);
    }
  }
}
