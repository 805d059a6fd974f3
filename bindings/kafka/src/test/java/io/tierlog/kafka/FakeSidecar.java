package io.tierlog.kafka;

import java.io.Closeable;
import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicInteger;

/** A sidecar that serves one file and does what a test says. */
final class FakeSidecar implements Closeable {
  static final int HELLO = 0;
  static final int COPY = 1;
  static final int RANGE = 2;
  static final int INDEX = 3;
  static final int DELETE = 4;
  static final int HEALTH = 5;
  static final int METRICS = 6;

  final Path folder = Files.createTempDirectory("fake");
  final Path socket = folder.resolve("s");
  final byte[] file;

  /** Kinds of all requests but hello and metrics, in order. */
  final List<Integer> asked = new CopyOnWriteArrayList<>();

  /** How many bytes each piece was asked for. */
  final List<Integer> sizes = new CopyOnWriteArrayList<>();

  /** An entry a connection that the client closed. */
  final BlockingQueue<String> closedByClient = new LinkedBlockingQueue<>();

  final AtomicInteger accepted = new AtomicInteger();
  final AtomicInteger metricsAsked = new AtomicInteger();

  /** A number in the name of the one MBean. */
  volatile int beanNumber;
  final Set<SocketChannel> open = ConcurrentHashMap.newKeySet();
  volatile byte[] lastBody;

  /** What is done instead of the usual answer. */
  volatile Behaviour behaviour = call -> false;

  private ServerSocketChannel listener;

  /** Returns whether it has dealt with a request. */
  interface Behaviour {
    boolean deal(Call call) throws IOException, InterruptedException;
  }

  FakeSidecar(int size) throws IOException {
    file = new byte[size];
    for (int i = 0; i < size; i++) {
      file[i] = (byte) (i * 31 + (i >> 8));
    }
    listen();
  }

  void listen() throws IOException {
    listener = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
    listener.bind(UnixDomainSocketAddress.of(socket), 256);
    ServerSocketChannel mine = listener;
    start(
        () -> {
          while (true) {
            SocketChannel channel = mine.accept();
            accepted.incrementAndGet();
            open.add(channel);
            start(() -> serve(channel));
          }
        });
  }

  /** Ends all connections, as a sidecar does that is restarted. */
  void hangUp() throws IOException {
    for (SocketChannel each : open) {
      shut(each);
      open.remove(each);
    }
  }

  /** Closed alone it would live on for as long as its thread's read does. */
  private static void shut(SocketChannel channel) throws IOException {
    try (channel) {
      channel.shutdownInput();
      channel.shutdownOutput();
    } catch (ClosedChannelException e) {
      // by its thread
    }
  }

  void stopListening() throws IOException {
    listener.close();
    Files.deleteIfExists(socket);
  }

  @Override
  public void close() throws IOException {
    stopListening();
    hangUp();
    Files.deleteIfExists(folder);
  }

  /** A request, and ways to answer it. */
  record Call(SocketChannel channel, int kind, byte[] body) {
    void answer(byte[] body) throws IOException {
      raw(ByteBuffer.allocate(5 + body.length).putInt(1 + body.length).put((byte) 0).put(body).array());
    }

    void refuse(int status, String text) throws IOException {
      byte[] said = text.getBytes(StandardCharsets.UTF_8);
      raw(
          ByteBuffer.allocate(7 + said.length)
              .putInt(3 + said.length)
              .put((byte) status)
              .putShort((short) said.length)
              .put(said)
              .array());
    }

    void raw(byte[] bytes) throws IOException {
      ByteBuffer left = ByteBuffer.wrap(bytes);
      while (left.hasRemaining()) {
        channel.write(left);
      }
    }

    void hangUp() throws IOException {
      channel.close();
    }
  }

  private interface Work {
    void run() throws IOException, InterruptedException;
  }

  private static void start(Work work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (IOException | InterruptedException e) {
                // the test is over, or the client is gone
              }
            });
    thread.setDaemon(true);
    thread.start();
  }

  private void serve(SocketChannel channel) throws IOException, InterruptedException {
    while (true) {
      byte[] head = read(channel, 4);
      if (head == null) {
        closedByClient.add("closed");
        channel.close();
        open.remove(channel);
        return;
      }
      byte[] frame = read(channel, ByteBuffer.wrap(head).getInt());
      byte[] body = java.util.Arrays.copyOfRange(frame, 1, frame.length);
      Call call = new Call(channel, frame[0], body);
      if (call.kind() != HELLO && call.kind() != METRICS) {
        asked.add(call.kind());
        lastBody = body;
      }
      if (!behaviour.deal(call)) {
        usual(call);
      }
    }
  }

  /** The answer to a copy: custom metadata, which may be null, and the sizes of three objects. */
  static byte[] copied(byte[] custom) {
    ByteBuffer made = ByteBuffer.allocate(28 + (custom == null ? 0 : custom.length));
    made.putInt(custom == null ? -1 : custom.length);
    if (custom != null) {
      made.put(custom);
    }
    return made.putLong(5).putLong(-1).putLong(7).array();
  }

  void usual(Call call) throws IOException {
    ByteBuffer body = ByteBuffer.wrap(call.body());
    int end = body.capacity();
    switch (call.kind()) {
      case HELLO -> call.answer(new byte[] {0, 1, 0, 1, 'x', 0, 0, 0, 7});
      case COPY -> call.answer(copied(new byte[] {'c', 'm'}));
      case RANGE -> piece(call, body.getInt(end - 12), body.getInt(end - 8), body.getInt(end - 4));
      case INDEX -> piece(call, body.getInt(end - 8), -1, body.getInt(end - 4));
      case DELETE -> call.answer(new byte[0]);
      case HEALTH -> call.answer(new byte[] {0, 0});
      case METRICS -> {
        metricsAsked.incrementAndGet();
        String text = "{\"tierlog.test:type=fake%s\": {\"copies-total\": 2.5}}".formatted(beanNumber);
        byte[] json = text.getBytes(StandardCharsets.UTF_8);
        call.answer(ByteBuffer.allocate(4 + json.length).putInt(json.length).put(json).array());
      }
      default -> call.hangUp();
    }
  }

  private void piece(Call call, int position, int last, int most) throws IOException {
    sizes.add(most);
    int end = Math.min(last < 0 ? file.length : Math.min(last + 1, file.length), position + most);
    byte[] body = new byte[1 + end - position];
    body[0] = (byte) (end == file.length || end == last + 1 ? 1 : 0);
    System.arraycopy(file, position, body, 1, end - position);
    call.answer(body);
  }

  /** Null at the end. */
  private static byte[] read(SocketChannel channel, int count) throws IOException {
    ByteBuffer into = ByteBuffer.allocate(count);
    while (into.hasRemaining()) {
      if (channel.read(into) < 0) {
        return null;
      }
    }
    return into.array();
  }
}
