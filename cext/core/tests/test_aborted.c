/* A wrong answer shows a read_committed reader data that was rolled back, or hides data that was not. */
#include "check.h"
#include "tierlog/aborted.h"

enum { PRODUCERS = 5, OFFSETS = 200, RANGES_MAX = 64 };

static bool by_looking(const tl_aborted *entries, size_t count, int64_t producer_id, int64_t offset) {
    for (size_t i = 0; i < count; i++)
        if (entries[i].producer_id == producer_id && entries[i].first_offset <= offset &&
            offset <= entries[i].last_offset)
            return true;
    return false;
}

static void test_against_a_linear_search(void) {
    uint64_t seed = 4;
    for (int round = 0; round < 200; round++) {
        tl_aborted entries[RANGES_MAX], sorted[RANGES_MAX];
        size_t count = 0, kept;
        tl_fault fault;
        for (int64_t producer = 0; producer < PRODUCERS; producer++) {
            int64_t offset = (int64_t)(next_random(&seed) % 40);
            while (offset < OFFSETS && count < RANGES_MAX - 1) {
                int64_t last = offset + (int64_t)(next_random(&seed) % 20);
                entries[count++] = (tl_aborted){producer, offset, last};
                if (next_random(&seed) % 3 == 0) entries[count++] = (tl_aborted){producer, offset, last}; /* twice */
                if (count >= RANGES_MAX - 1) break;
                offset = last + 1 + (int64_t)(next_random(&seed) % 50);
            }
        }
        for (size_t i = count; i > 1; i--) { /* shuffle */
            size_t j = next_random(&seed) % i;
            tl_aborted held = entries[i - 1];
            entries[i - 1] = entries[j];
            entries[j] = held;
        }
        memcpy(sorted, entries, sizeof entries);
        CHECK_STATUS(tl_aborted_sort(sorted, count, &kept, &fault), TL_OK);
        CHECK(kept <= count);
        for (int64_t producer = -1; producer <= PRODUCERS; producer++)
            for (int64_t offset = -1; offset < OFFSETS + 30; offset++)
                CHECK_EQUAL(tl_is_aborted(sorted, kept, producer, offset),
                            by_looking(entries, count, producer, offset));
    }
}

static void test_what_cannot_be(void) {
    size_t kept;
    tl_fault fault;
    tl_aborted overlap[] = {{7, 20, 30}, {7, 10, 20}};
    CHECK_STATUS(tl_aborted_sort(overlap, 2, &kept, &fault), TL_BAD_ORDER);
    CHECK_EQUAL(fault.expected, 21);
    CHECK_EQUAL(fault.found, 20);
    tl_aborted nested[] = {{7, 10, 40}, {7, 20, 30}};
    CHECK_STATUS(tl_aborted_sort(nested, 2, &kept, &fault), TL_BAD_ORDER);
    tl_aborted inverted[] = {{7, 10, 9}};
    CHECK_STATUS(tl_aborted_sort(inverted, 1, &kept, &fault), TL_BAD_ORDER);
    tl_aborted others[] = {{8, 10, 40}, {7, 20, 30}};
    CHECK_STATUS(tl_aborted_sort(others, 2, &kept, &fault), TL_OK);
    CHECK_STATUS(tl_aborted_sort(NULL, 0, &kept, &fault), TL_OK);
    CHECK_EQUAL(kept, 0);
    CHECK(!tl_is_aborted(NULL, 0, 7, 10));
}

int main(void) {
    test_against_a_linear_search();
    test_what_cannot_be();
    return 0;
}
