package io.tierlog.planner;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.concurrent.TimeUnit;
import java.util.function.UnaryOperator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** One child, from its start to its end. Not for two threads at once, but for {@link #close()}. */
final class PlannerProcess implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(PlannerProcess.class);
  private static final String MODULE = "pyspark_tierlog.plan";
  private static final long START_SECONDS_MAX = 120;
  private static final long END_SECONDS_MAX = 5;

  /** An idle child is ended after this time: a session with artifacts of its own has its own child, and may be gone. */
  private static final long IDLE_SECONDS_MAX = 600;

  /** An idle child is ended after this time if another one is idle too. */
  private static final long SPARE_SECONDS_MAX = 60;

  private static final int LINE_CHARS_MAX = 4096;
  private static final int LINES_KEPT = 20;

  private final PythonCommand python;
  private final Process process;
  private final FrameStream frames;
  private final Thread drain;
  private final Thread watch;
  private final Thread hook;
  private final Runnable forget;
  private volatile long dueNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(START_SECONDS_MAX);
  private final Deque<String> lastLines = new ArrayDeque<>();

  private PlannerProcess(PythonCommand python, Process process, UnaryOperator<Runnable> atEnd) {
    this.python = python;
    this.process = process;
    this.frames = new FrameStream(process.getInputStream(), process.getOutputStream());
    this.drain = thread("errors", this::drainErrors);
    this.watch = thread("watch", this::endWhenDue);
    this.hook = new Thread(process::destroyForcibly, "tierlog-planner-shutdown");
    Runtime.getRuntime().addShutdownHook(hook);
    this.forget = atEnd.apply(this::close);
    drain.start();
    watch.start();
  }

  /**
   * Starts a child and waits until it says which version it is.
   *
   * @param atEnd has it ended with the application, and gives what forgets it
   * @throws PlannerException there is no such interpreter, it has no Tierlog, or another version
   */
  static PlannerProcess start(PythonCommand python, UnaryOperator<Runnable> atEnd) {
    PlannerProcess started;
    try {
      ProcessBuilder planner = new ProcessBuilder(python.executable(), "-m", MODULE);
      planner.environment().put("PYTHONSAFEPATH", "1"); // or a notebook's random.py would be Python's own there
      started = new PlannerProcess(python, planner.start(), atEnd);
    } catch (IOException e) {
      throw PlannerException.broken(
          "no Python plans for the tierlog jar: " + python + " does not start: " + e.getMessage() + "; " + hint(), e);
    }
    try {
      started.checkVersion(PlanDecoder.json(started.frames.read()));
      started.idle(true);
      return started;
    } catch (IOException e) {
      String said = started.ended();
      throw PlannerException.broken(
          "no Python plans for the tierlog jar: " + python + " -m " + MODULE + " " + said + "; " + hint(), e);
    } catch (RuntimeException | Error e) {
      started.close();
      throw e;
    }
  }

  FrameStream frames() {
    return frames;
  }

  boolean isAlive() {
    return process.isAlive();
  }

  PythonCommand python() {
    return python;
  }

  /** Ends the child if it lives; returns how it ended and what it printed last. */
  String ended() {
    boolean byItself = awaitEnd(1);
    // Process.destroyForcibly would close the pipe of errors, and its last lines with it; the handle's does not.
    process.toHandle().destroyForcibly();
    awaitEnd(END_SECONDS_MAX);
    joinDrain();
    close();
    String how = byItself ? "ended with exit code " + process.exitValue() : "was ended, since it gave no sound answer";
    synchronized (lastLines) {
      return lastLines.isEmpty() ? how + " and said nothing" : how + " and said: " + String.join(" | ", lastLines);
    }
  }

  /** Marks the begin of a request, which may take long. */
  void busy() {
    dueNanos = Long.MAX_VALUE;
  }

  /**
   * Marks the end of a request.
   *
   * @param only whether no other child waits for requests
   */
  void idle(boolean only) {
    dueNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(only ? IDLE_SECONDS_MAX : SPARE_SECONDS_MAX);
  }

  /** Has the child ended within seconds, unless it is marked again. */
  void endSoon() {
    dueNanos = System.nanoTime() + TimeUnit.SECONDS.toNanos(END_SECONDS_MAX);
  }

  /** Ends the child. Any thread, any number of times. */
  @Override
  public void close() {
    process.destroyForcibly();
    watch.interrupt();
    forget.run();
    try {
      Runtime.getRuntime().removeShutdownHook(hook);
    } catch (IllegalStateException e) {
      LOG.debug("tierlog: the JVM ends, and the planner with it");
    }
  }

  private void checkVersion(JsonNode told) {
    int protocol = told.path("protocol").asInt();
    String version = told.path("version").asText("of no version");
    if (protocol == BuildInfo.PROTOCOL && version.equals(BuildInfo.VERSION)) {
      LOG.info("tierlog plans with {}, Python {}", python, told.path("python").asText());
      return;
    }
    String ours = BuildInfo.VERSION;
    String text =
        "the jar is tierlog %s (plan protocol %d), the Python package of %s is tierlog %s (plan protocol %d): install "
            + "equal ones, by pip install 'tierlog[spark]==%s' for that interpreter, or by the jar that the package "
            + "brings, whose path is pyspark_tierlog.jar_path()";
    throw PlannerException.broken(
        text.formatted(ours, BuildInfo.PROTOCOL, python, version, protocol, ours), null);
  }

  private static String hint() {
    return "install tierlog[spark]==" + BuildInfo.VERSION + " for it, or name an interpreter that has it by option "
        + PythonCommand.OPTION + " or by PYSPARK_PYTHON";
  }

  private static Thread thread(String name, Runnable work) {
    Thread thread = new Thread(work, "tierlog-planner-" + name);
    thread.setDaemon(true);
    return thread;
  }

  private void endWhenDue() {
    try {
      while (process.isAlive()) {
        TimeUnit.SECONDS.sleep(1);
        long due = dueNanos;
        if (due != Long.MAX_VALUE && due - System.nanoTime() < 0) {
          LOG.info("tierlog: the planner {} is ended: it has nothing to do, or did not start", python);
          close();
        }
      }
    } catch (InterruptedException e) {
      LOG.debug("tierlog: the planner {} was ended", python);
    }
  }

  private void drainErrors() {
    try (BufferedReader errors =
        new BufferedReader(new InputStreamReader(process.getErrorStream(), StandardCharsets.UTF_8))) {
      for (String line = readLine(errors); line != null; line = readLine(errors)) {
        if (line.isBlank()) {
          continue;
        }
        LOG.warn("tierlog planner: {}", line);
        synchronized (lastLines) {
          if (lastLines.size() == LINES_KEPT) {
            lastLines.removeFirst();
          }
          lastLines.addLast(line);
        }
      }
    } catch (IOException e) {
      LOG.debug("tierlog: the planner's errors ended", e);
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

  private boolean awaitEnd(long seconds) {
    try {
      return process.waitFor(seconds, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return !process.isAlive();
    }
  }

  private void joinDrain() {
    try {
      drain.join(TimeUnit.SECONDS.toMillis(END_SECONDS_MAX));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
