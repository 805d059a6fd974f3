package io.tierlog.planner;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Deque;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.Semaphore;
import java.util.function.UnaryOperator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Asks children that stay between requests: one, and more while it is busy, so that a listing that takes minutes holds
 * no other query up. A child that was killed is started anew, and the request asked once more.
 *
 * <p>Thread safety: any number of threads; four are answered at once, the others wait their turn.
 */
public final class PlannerClient implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(PlannerClient.class);

  /** The most bytes of an answer's frames: far above 10^6 ranges; a broken child can fill no more. */
  private static final long ANSWER_BYTES_MAX = Math.min(4L << 30, Runtime.getRuntime().maxMemory() / 2);

  /** The most children: each uses a core and 100 to 200 MiB while it plans. */
  private static final int CHILDREN_MAX = 4;

  private final PythonCommand python;
  private final UnaryOperator<Runnable> atEnd;
  private final Semaphore turns = new Semaphore(CHILDREN_MAX, true);

  /** All children of this client, busy or not. */
  private final Set<PlannerProcess> children = ConcurrentHashMap.newKeySet();

  /** The idle children; the one that was asked last is asked first, so that the others end. */
  private final Deque<PlannerProcess> idle = new ConcurrentLinkedDeque<>();

  /**
   * @param atEnd has a child ended with the application, and gives what forgets it
   */
  public PlannerClient(PythonCommand python, UnaryOperator<Runnable> atEnd) {
    this.python = python;
    this.atEnd = atEnd;
  }

  /**
   * Lists what the options name.
   *
   * @throws PlannerException what the planner said, or that it does not work
   */
  public Listing list(Map<String, String> options) {
    List<byte[]> frames = new ArrayList<>();
    ask(
        Map.of("op", "list", "options", options),
        List.of(),
        () -> {
          frames.clear();
          return frame -> {
            if (frame.type() != 'L') {
              throw new FrameException("frame " + frame.type() + " does not belong to a listing");
            }
            frames.add(frame.rest());
          };
        });
    return new Listing(frames);
  }

  /**
   * Plans from a listing.
   *
   * @throws PlannerException what the planner said, or that it does not work
   */
  public ScanPlan plan(PlanRequest request) {
    Map<String, Object> words = new LinkedHashMap<>();
    words.put("op", "plan");
    words.put("options", request.options());
    words.put("columns", request.columns());
    words.put("filters", request.filters().stream().map(PlanRequest.Comparison::words).toList());
    words.put("limit", request.limit());
    words.put("aggregates", request.aggregates() == null ? null : request.aggregates().words());
    words.put("blobs", request.listing().frames().size());
    return planned(words, request.listing().frames());
  }

  /**
   * Plans.
   *
   * @throws PlannerException what the planner said, or that it does not work
   */
  ScanPlan planned(Map<String, Object> request, List<byte[]> blobs) {
    ScanPlan[] plan = new ScanPlan[1];
    ask(
        request,
        blobs,
        () -> {
          PlanDecoder decoder = new PlanDecoder();
          return new Answer() {
            @Override
            public void take(Frame frame) throws IOException {
              decoder.take(frame);
            }

            @Override
            public void end() throws IOException {
              plan[0] = decoder.finished();
            }
          };
        });
    return plan[0];
  }

  /**
   * Asks about offsets.
   *
   * @throws PlannerException what the planner said, or that it does not work
   */
  JsonNode offsets(Map<String, Object> request) {
    JsonNode[] found = new JsonNode[1];
    ask(
        request,
        List.of(),
        () ->
            frame -> {
              if (frame.type() != 'O') {
                throw new FrameException("frame " + frame.type() + " does not belong to offsets");
              }
              found[0] = PlanDecoder.json(frame);
            });
    if (found[0] == null) {
      throw PlannerException.broken("the planner " + python + " gave no offsets", null);
    }
    return found[0];
  }

  /** Ends the children; a later request starts another. Never waits for a request that runs: that one fails. */
  @Override
  public void close() {
    children.forEach(PlannerProcess::close);
  }

  private interface Answer {
    void take(Frame frame) throws IOException;

    default void end() throws IOException {}
  }

  private interface Asking {
    Answer begin();
  }

  private void ask(Map<String, Object> request, List<byte[]> blobs, Asking asking) {
    PlannerException told;
    turns.acquireUninterruptibly();
    try {
      told = answered(request, blobs, asking);
    } finally {
      turns.release();
    }
    if (told != null) {
      throw told;
    }
  }

  /** The error that the planner told; null: it answered. */
  private PlannerException answered(Map<String, Object> request, List<byte[]> blobs, Asking asking) {
    for (boolean again = false; ; again = true) {
      PlannerProcess child = take();
      try {
        PlannerException told = exchange(child.frames(), request, blobs, asking.begin());
        giveBack(child);
        return told;
      } catch (FrameException e) {
        children.remove(child);
        throw PlannerException.broken(
            "the planner " + child.python() + " gave an answer that is none: " + e.getMessage() + "; it "
                + child.ended(), e);
      } catch (IOException e) {
        children.remove(child);
        String said = child.ended();
        if (again) {
          throw PlannerException.broken(
              "the planner " + child.python() + " ended twice over one request; it " + said, e);
        }
        LOG.warn("tierlog: the planner {} {}; it is started anew", child.python(), said);
      } catch (RuntimeException | Error e) {
        end(child); // what it would say next belongs to nobody
        throw e;
      }
    }
  }

  /** A child that is this thread's alone. */
  private PlannerProcess take() {
    for (PlannerProcess child = idle.pollFirst(); child != null; child = idle.pollFirst()) {
      child.busy();
      if (child.isAlive()) {
        return child;
      }
      end(child); // forgotten by all who would end it
    }
    PlannerProcess started = PlannerProcess.start(python, atEnd);
    started.busy();
    children.add(started);
    return started;
  }

  private void giveBack(PlannerProcess child) {
    child.idle(idle.isEmpty());
    idle.addFirst(child);
  }

  private void end(PlannerProcess child) {
    children.remove(child);
    child.close();
  }

  /** The error that the planner told; null: it answered. */
  private static PlannerException exchange(
      FrameStream frames, Map<String, Object> request, List<byte[]> blobs, Answer answer) throws IOException {
    frames.write('Q', PlanDecoder.JSON.writeValueAsBytes(request));
    for (byte[] blob : blobs) {
      frames.write('B', blob);
    }
    frames.flush();
    long left = ANSWER_BYTES_MAX;
    while (true) {
      Frame frame = frames.read();
      left -= frame.sizeBytes();
      if (left < 0) {
        throw new FrameException("it has more than " + ANSWER_BYTES_MAX + " bytes");
      }
      switch (frame.type()) {
        case 'Z' -> {
          frame.end();
          answer.end();
          return null;
        }
        case 'E' -> {
          return error(PlanDecoder.json(frame));
        }
        case 'W' -> {
          LOG.warn("tierlog: {}", frame.str());
          frame.end();
        }
        default -> answer.take(frame);
      }
    }
  }

  private static PlannerException error(JsonNode told) {
    return new PlannerException(told.path("kind").asText("TierlogError"), told.path("text").asText());
  }
}
