package io.tierlog.kafka;

import java.io.BufferedReader;
import java.io.Closeable;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.net.SocketTimeoutException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.ClosedChannelException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.config.ConfigException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A sidecar that is a child of the broker. It gets its configuration by its standard input, whose end is its own, and is
 * started again when it dies. One thread starts it, writes its lines to the broker's log, and sees it end.
 */
final class SidecarProcess implements Closeable {
  private static final Logger LOG = LoggerFactory.getLogger(SidecarProcess.class);
  private static final String READY = "ready";
  private static final long PAUSE_MILLIS_MIN = 200;
  private static final long PAUSE_MILLIS_MAX = 30_000;

  /** One that served for so long is started again as if it were the first time. */
  private static final long SOUND_NANOS = TimeUnit.SECONDS.toNanos(60);

  private static final long END_MILLIS_MAX = 10_000;
  private static final int LINE_CHARS_MAX = 4096;
  private static final int LINES_KEPT = 20;

  /** Linux takes 107; what is left is for the file's name. */
  private static final int SOCKET_BYTES_MAX = 100;

  private final PluginConfig config;
  private final long endMillisMax;
  private final Path folder;
  private final Thread watch = new Thread(this::run, "tierlog-sidecar");
  private final Deque<String> lastLines = new ArrayDeque<>();

  // Guarded by this:
  private Process process;
  private Path socket;
  private String ended;
  private boolean closed;

  private SidecarProcess(PluginConfig config, long endMillisMax) {
    this.config = config;
    this.endMillisMax = endMillisMax;
    this.folder = privateFolder();
    watch.setDaemon(true);
  }

  /**
   * Starts a sidecar, and waits until it listens.
   *
   * @throws ConfigException it does not start, with what it said
   */
  static SidecarProcess start(PluginConfig config) {
    return start(config, END_MILLIS_MAX);
  }

  /**
   * @param endMillisMax how long it may take to end when it is told
   */
  static SidecarProcess start(PluginConfig config, long endMillisMax) {
    SidecarProcess made = new SidecarProcess(config, endMillisMax);
    made.watch.start();
    String failed;
    try {
      failed = made.awaitStart(Deadline.in(config.startTimeoutMs()));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      failed = "the start was interrupted";
    }
    if (failed != null) {
      made.close();
      throw new ConfigException(
          "no sidecar: `" + config.python() + " -m tierlog sidecar` " + failed
              + (failed.contains("does not start") || failed.contains("No module named")
                  ? "; pip install 'tierlog[sidecar]' for that interpreter, or name one that has it by rsm.config."
                      + PluginConfig.PYTHON
                  : ""));
    }
    return made;
  }

  /** Where it listens; waits while it is started again. */
  synchronized Path socket(Deadline deadline) throws IOException {
    try {
      while (socket == null) {
        if (closed) {
          throw new ClosedChannelException();
        }
        if (deadline.isOver()) {
          throw new SocketTimeoutException("the sidecar " + (ended == null ? "does not listen yet" : ended));
        }
        wait(deadline.millisLeft());
      }
      return socket;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new ClosedByInterruptException();
    }
  }

  /** Ends it: by the end of its input, which it has some seconds for, else by force. Any thread, any number of times. */
  @Override
  public void close() {
    Process last;
    synchronized (this) {
      closed = true;
      last = process;
      notifyAll();
    }
    boolean interrupted = false;
    try {
      if (last != null) {
        endInput(last);
        if (!last.waitFor(endMillisMax, TimeUnit.MILLISECONDS)) {
          LOG.warn("tierlog: the sidecar did not end within {} ms, and is killed", endMillisMax);
        }
      }
    } catch (InterruptedException e) {
      interrupted = true;
    }
    if (last != null) {
      last.destroyForcibly();
    }
    try {
      watch.join(END_MILLIS_MAX);
    } catch (InterruptedException e) {
      interrupted = true;
    }
    remove(folder);
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  @Override
  public String toString() {
    return "the sidecar that " + config.python() + " runs";
  }

  private void run() {
    long pause = PAUSE_MILLIS_MIN;
    for (int number = 1; ; number++) {
      Path listening = folder.resolve("s" + number);
      long started = System.nanoTime();
      String how = runOnce(listening);
      remove(listening);
      if (System.nanoTime() - started > SOUND_NANOS) {
        pause = PAUSE_MILLIS_MIN;
      }
      synchronized (this) {
        socket = null;
        process = null;
        ended = how;
        notifyAll();
        if (closed) {
          return;
        }
        LOG.error("tierlog: the sidecar {}; it is started again in {} ms", how, pause);
        try {
          for (Deadline next = Deadline.in(pause); !closed && !next.isOver(); ) {
            wait(next.millisLeft());
          }
        } catch (InterruptedException e) {
          return; // nobody has this thread
        }
        if (closed) {
          return;
        }
      }
      pause = Math.min(2 * pause, PAUSE_MILLIS_MAX);
    }
  }

  /** Runs a sidecar to its end; returns how it ended. */
  private String runOnce(Path listening) {
    Process started;
    lastLines.clear();
    try {
      ProcessBuilder sidecar =
          new ProcessBuilder(
                  config.python(), "-m", "tierlog", "sidecar", "--config", "-", "--listen", "unix:" + listening)
              .redirectErrorStream(true);
      sidecar.environment().put("PYTHONSAFEPATH", "1"); // or modules of the broker's folder would run, with the secrets
      started = sidecar.start();
    } catch (IOException e) {
      return "does not start: " + e.getMessage();
    }
    synchronized (this) {
      process = started;
      if (closed) {
        started.destroyForcibly();
      }
    }
    try {
      OutputStream input = started.getOutputStream();
      input.write((config.json() + "\n").getBytes(StandardCharsets.UTF_8));
      input.flush();
    } catch (IOException e) {
      LOG.debug("tierlog: the sidecar does not take its configuration", e);
    }
    try (BufferedReader lines =
        new BufferedReader(new InputStreamReader(started.getInputStream(), StandardCharsets.UTF_8))) {
      for (String line = readLine(lines); line != null; line = readLine(lines)) {
        hear(line, listening);
      }
    } catch (IOException e) {
      LOG.debug("tierlog: the sidecar's lines ended", e);
    }
    try {
      int code = started.waitFor();
      return "ended with exit code " + code + (lastLines.isEmpty() ? "" : " and said: " + String.join(" | ", lastLines));
    } catch (InterruptedException e) {
      return "was left";
    }
  }

  private void hear(String line, Path listening) {
    if (line.equals(READY)) {
      synchronized (this) {
        socket = listening;
        notifyAll();
      }
      LOG.info("tierlog: the sidecar listens at {}", listening);
    } else if (!line.isBlank()) {
      if (line.contains("ERROR") || line.contains("WARNING")) {
        LOG.warn("tierlog sidecar: {}", line);
      } else {
        LOG.info("tierlog sidecar: {}", line);
      }
      if (lastLines.size() == LINES_KEPT) {
        lastLines.removeFirst();
      }
      lastLines.addLast(line);
    }
  }

  /** Null when it listens, else why it does not. */
  private synchronized String awaitStart(Deadline deadline) throws InterruptedException {
    while (socket == null && ended == null) {
      if (deadline.isOver()) {
        return "did not listen within " + config.startTimeoutMs() + " ms (rsm.config." + PluginConfig.START_TIMEOUT + ")";
      }
      wait(deadline.millisLeft());
    }
    return socket == null ? ended : null;
  }

  private static void endInput(Process process) {
    try {
      process.getOutputStream().close();
    } catch (IOException e) {
      LOG.debug("tierlog: the sidecar's input was closed already", e);
    }
  }

  private static Path privateFolder() {
    Path temporary = Path.of(System.getProperty("java.io.tmpdir")).toAbsolutePath();
    try {
      Path made =
          Files.createTempDirectory(
              temporary, "tierlog", PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
      if (made.toString().getBytes(StandardCharsets.UTF_8).length + "/s0000000".length() > SOCKET_BYTES_MAX) {
        remove(made);
        throw new ConfigException(
            "the broker's java.io.tmpdir, " + temporary + ", is too long for a socket below it: start the broker with a "
                + "shorter one (-Djava.io.tmpdir=/tmp), or a sidecar of its own (rsm.config." + PluginConfig.SOCKET + ")");
      }
      return made;
    } catch (IOException e) {
      throw new ConfigException("no folder for the sidecar's socket can be made below " + temporary + ": " + e);
    }
  }

  private static void remove(Path path) {
    try {
      Files.deleteIfExists(path);
    } catch (IOException e) {
      LOG.debug("tierlog: {} stays", path, e);
    }
  }

  /** A line cut at LINE_CHARS_MAX; null at the end. */
  private static String readLine(BufferedReader reader) throws IOException {
    StringBuilder line = new StringBuilder();
    int read;
    while ((read = reader.read()) >= 0 && read != '\n') {
      if (line.length() < LINE_CHARS_MAX) {
        line.append((char) read);
      }
    }
    return read < 0 && line.isEmpty() ? null : line.toString();
  }
}
