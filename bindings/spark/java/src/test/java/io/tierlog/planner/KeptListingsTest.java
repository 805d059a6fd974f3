package io.tierlog.planner;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotSame;
import static org.junit.jupiter.api.Assertions.assertSame;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.Test;

/** A listing that is kept too long hides records; one that is not costs each query a minute. */
class KeptListingsTest {
  private static final Map<String, String> OPTIONS = Map.of("path", "/a");

  private long now = 5;
  private int listed;
  private final KeptListings listings = new KeptListings(100, () -> now);

  private Listing list() {
    listed++;
    return new Listing(List.of(new byte[40]));
  }

  private Listing load(long ageNanosMax) {
    return listings.get(OPTIONS, ageNanosMax, previous -> list());
  }

  @Test
  void itServesWhileItIsYoung() {
    Listing first = load(10);
    now += 9;
    assertSame(first, load(10));
    now += 1;
    assertNotSame(first, load(10));
    assertEquals(2, listed);
  }

  @Test
  void aLoadThatTakesNoneOfBeforeListsForTheOthers() {
    Listing first = load(10);
    Listing fresh = load(0);
    assertNotSame(first, fresh);
    assertSame(fresh, load(10));
  }

  @Test
  void aNewListingBeginsWithTheOldOne() {
    Listing first = load(10);
    now += 10;
    listings.get(
        OPTIONS,
        10,
        previous -> {
          assertSame(first, previous);
          return list();
        });
    assertEquals(2, listed);
  }

  @Test
  void nothingIsKeptForLoadsThatTakeNone() {
    assertNotSame(load(0), load(0));
    load(10);
    assertEquals(3, listed);
  }

  @Test
  void aFailureIsNotKept() {
    PlannerException failure = new PlannerException("StoreError", "no");
    assertSame(
        failure,
        assertThrows(
            PlannerException.class,
            () ->
                listings.get(
                    OPTIONS,
                    10,
                    previous -> {
                      throw failure;
                    })));
    load(10);
    assertEquals(1, listed);
  }

  @Test
  void theOneOfLongestAgoMakesRoom() {
    Listing first = load(10);
    listings.get(Map.of("path", "/b"), 10, previous -> list());
    assertSame(first, load(10));
    listings.get(Map.of("path", "/c"), 10, previous -> list());
    assertSame(first, load(10));
    listings.get(Map.of("path", "/b"), 10, previous -> list());
    assertEquals(4, listed);
  }

  @Test
  void whatHasNoRoomAtAllIsGivenAndForgotten() {
    assertEquals(101, listings.get(OPTIONS, 10, previous -> new Listing(List.of(new byte[101]))).sizeBytes());
    load(10);
    assertEquals(1, listed);
  }

  @Test
  void onlyLoadsOfTheSameWait() throws Exception {
    CountDownLatch entered = new CountDownLatch(1);
    CountDownLatch go = new CountDownLatch(1);
    ExecutorService threads = Executors.newCachedThreadPool();
    try {
      Future<Listing> slow =
          threads.submit(
              () ->
                  listings.get(
                      OPTIONS,
                      10,
                      previous -> {
                        entered.countDown();
                        try {
                          go.await();
                        } catch (InterruptedException e) {
                          throw new IllegalStateException(e);
                        }
                        return list();
                      }));
      entered.await();
      List<Future<Listing>> waiting = new ArrayList<>();
      for (int i = 0; i < 3; i++) {
        waiting.add(threads.submit(() -> load(10)));
      }
      listings.get(Map.of("path", "/b"), 10, previous -> new Listing(List.of()));
      go.countDown();
      for (Future<Listing> one : waiting) {
        assertSame(slow.get(10, TimeUnit.SECONDS), one.get(10, TimeUnit.SECONDS));
      }
      assertEquals(1, listed);
    } finally {
      threads.shutdownNow();
    }
  }
}
