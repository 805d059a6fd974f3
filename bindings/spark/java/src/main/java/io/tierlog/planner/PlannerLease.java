package io.tierlog.planner;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.locks.ReentrantLock;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A child that is asked by one at a time, from the first request until this is closed; then it is idle again, for others. A
 * child that was killed is replaced, and the request asked once more.
 *
 * <p>Thread safety: one thread at a time, but for {@link #close()}.
 */
final class PlannerLease implements AutoCloseable {
  private static final Logger LOG = LoggerFactory.getLogger(PlannerLease.class);

  /** The most bytes of an answer's frames: far above 10^6 ranges; a broken child can fill no more. */
  private static final long ANSWER_BYTES_MAX = Math.min(4L << 30, Runtime.getRuntime().maxMemory() / 2);

  private final PlannerClient client;
  private final ReentrantLock turn = new ReentrantLock();
  private volatile PlannerProcess child;
  private volatile boolean kept;
  private volatile boolean closed;

  PlannerLease(PlannerClient client) {
    this.client = client;
  }

  /**
   * Lists what the options name.
   *
   * @param previous what is in it need not be read again; null: nothing is known
   * @throws PlannerException what the planner said, or that it does not work
   */
  Listing list(Map<String, String> options, Listing previous) {
    List<byte[]> frames = new ArrayList<>();
    List<byte[]> known = previous == null ? List.of() : previous.frames();
    ask(
        Map.of("op", "list", "options", options, "blobs", known.size()),
        known,
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
  ScanPlan plan(PlanRequest request) {
    Map<String, Object> words = new LinkedHashMap<>();
    words.put("op", "plan");
    words.put("options", request.options());
    words.put("columns", request.columns());
    words.put("filters", request.filters().stream().map(PlanRequest.Comparison::words).toList());
    words.put("limit", request.limit());
    words.put("aggregates", request.aggregates() == null ? null : request.aggregates().words());
    words.put("blobs", request.listing().frames().size());
    return plan(words, request.listing().frames());
  }

  /**
   * Plans.
   *
   * @throws PlannerException what the planner said, or that it does not work
   */
  ScanPlan plan(Map<String, Object> request, List<byte[]> blobs) {
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
      throw PlannerException.broken("the planner " + child.python() + " gave no offsets", null);
    }
    return found[0];
  }

  /** Has the child stay until this is closed, however long nothing is asked: its user is sure to close this. */
  void keep() {
    kept = true;
    PlannerProcess used = child;
    if (used != null) {
      used.busy();
    }
  }

  /**
   * Asks a last thing, and gives the child back. A child that does not answer within seconds is ended, and so is one that
   * is asked meanwhile: that request fails. Any thread, any number of times.
   *
   * @param last whose answer is of no interest; null: nothing
   */
  void close(Map<String, Object> last) {
    closed = true;
    if (!turn.tryLock()) {
      end(child);
      return;
    }
    try {
      PlannerProcess used = child;
      child = null;
      if (used != null && last != null) {
        try {
          used.endSoon();
          exchange(used.frames(), last, List.of(), frame -> {});
        } catch (IOException | RuntimeException e) {
          LOG.debug("tierlog: a planner did not answer at its end", e);
          end(used);
          return;
        }
      }
      if (used != null) {
        client.giveBack(used);
      }
    } finally {
      turn.unlock();
    }
  }

  @Override
  public void close() {
    close(null);
  }

  private interface Answer {
    void take(Frame frame) throws IOException;

    default void end() throws IOException {}
  }

  private interface Asking {
    Answer begin();
  }

  private void ask(Map<String, Object> request, List<byte[]> blobs, Asking asking) {
    turn.lock();
    try {
      PlannerException told = answered(request, blobs, asking);
      if (told != null) {
        throw told;
      }
    } finally {
      if (closed) {
        end(child);
        child = null;
      }
      turn.unlock();
    }
  }

  private static void end(PlannerProcess asked) {
    if (asked != null) {
      asked.close();
    }
  }

  /** The error that the planner told; null: it answered. */
  private PlannerException answered(Map<String, Object> request, List<byte[]> blobs, Asking asking) {
    for (boolean again = false; ; again = true) {
      if (closed) {
        throw new PlannerException("CancelledError", "the planner was closed");
      }
      if (child == null) {
        child = client.take();
      }
      PlannerProcess asked = child;
      try {
        asked.busy();
        PlannerException told = exchange(asked.frames(), request, blobs, asking.begin());
        if (!kept) {
          asked.idle(true);
        }
        return told;
      } catch (FrameException e) {
        child = null;
        throw PlannerException.broken(
            "the planner " + asked.python() + " gave an answer that is none: " + e.getMessage() + "; it "
                + asked.ended(), e);
      } catch (IOException e) {
        child = null;
        String said = asked.ended();
        if (again) {
          throw PlannerException.broken(
              "the planner " + asked.python() + " ended twice over one request; it " + said, e);
        }
        LOG.warn("tierlog: the planner {} {}; it is started anew", asked.python(), said);
      } catch (RuntimeException | Error e) {
        child = null;
        asked.close(); // what it would say next belongs to nobody
        throw e;
      }
    }
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
