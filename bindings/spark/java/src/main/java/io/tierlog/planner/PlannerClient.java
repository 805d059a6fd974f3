package io.tierlog.planner;

import java.util.Deque;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.Semaphore;
import java.util.function.Function;
import java.util.function.UnaryOperator;

/**
 * Asks children that stay between requests: one, and more while it is busy, so that a listing that takes minutes holds
 * no other query up.
 *
 * <p>Thread safety: any number of threads; four are answered at once, the others wait their turn.
 */
public final class PlannerClient {
  /** The most children: each uses a core and 100 to 200 MiB while it plans. */
  private static final int CHILDREN_MAX = 4;

  /** The most bytes of listings that loads share: 10^6 segments have some 100 MB. */
  private static final long LISTINGS_BYTES_MAX = Runtime.getRuntime().maxMemory() / 8;

  private final PythonCommand python;
  private final UnaryOperator<Runnable> atEnd;
  private final Semaphore turns = new Semaphore(CHILDREN_MAX, true);
  private final KeptListings listings = new KeptListings(LISTINGS_BYTES_MAX, System::nanoTime);

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
   * @param equal what has to be equal in the options of loads that share a listing
   * @param ageNanosMax how long ago a listing may have begun that is taken instead; 0: the bucket is listed
   * @throws PlannerException what the planner said, or that it does not work
   */
  public Listing list(Map<String, String> options, Map<String, String> equal, long ageNanosMax) {
    return listings.get(equal, ageNanosMax, previous -> inTurn(lease -> lease.list(options, previous)));
  }

  /**
   * Plans from a listing.
   *
   * @throws PlannerException what the planner said, or that it does not work
   */
  public ScanPlan plan(PlanRequest request) {
    return inTurn(lease -> lease.plan(request));
  }

  /** A child for a conversation, which waits for no turn. */
  PlannerLease lease() {
    return new PlannerLease(this);
  }

  private <T> T inTurn(Function<PlannerLease, T> asked) {
    turns.acquireUninterruptibly();
    try (PlannerLease lease = lease()) {
      return asked.apply(lease);
    } finally {
      turns.release();
    }
  }

  /** A child that is the caller's alone. */
  PlannerProcess take() {
    for (PlannerProcess child = idle.pollFirst(); child != null; child = idle.pollFirst()) {
      child.busy();
      if (child.isAlive()) {
        return child;
      }
      child.close(); // forgotten by all who would end it
    }
    PlannerProcess started = PlannerProcess.start(python, atEnd);
    started.busy();
    return started;
  }

  void giveBack(PlannerProcess child) {
    child.idle(idle.isEmpty());
    idle.addFirst(child);
  }
}
