/* The transactions of a cleaner: which batches and markers go, over batches of headers alone; and many producers beside
 * a plain table. */
#include "tests/check.h"
#include "tierlog/cleaned_transactions.h"

enum { NOW = 1000, DATA = TL_ATTRIBUTE_TRANSACTIONAL, MARKER = DATA | TL_ATTRIBUTE_CONTROL, PRODUCERS = 300 };

static void store(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

/* Writes a batch of one offset: a marker of a kind (0: abort, 1: commit), or data with no record that is looked at. */
static size_t put(uint8_t *out, int64_t offset, int64_t producer_id, int attributes, int kind, int64_t horizon) {
    static const uint8_t record[] = {32, 0, 0, 0, 8, 0, 0, 0, 0, 12, 0, 0, 0, 0, 0, 9, 0};
    memset(out, 0, TL_HEADER_SIZE_V2);
    memcpy(out + TL_HEADER_SIZE_V2, record, sizeof record);
    out[TL_HEADER_SIZE_V2 + 8] = (uint8_t)kind;
    size_t size = TL_HEADER_SIZE_V2 + (kind < 0 ? 0 : sizeof record);
    store(out, (uint64_t)offset, 8);
    store(out + 8, size - 12, 4);
    out[16] = 2;
    store(out + 21, (uint64_t)(attributes | (horizon ? TL_ATTRIBUTE_DELETE_HORIZON : 0)), 2);
    store(out + 27, (uint64_t)horizon, 8);
    store(out + 43, (uint64_t)producer_id, 8);
    store(out + 51, 5, 2);
    store(out + 57, kind < 0 ? 0 : 1, 4);
    return size;
}

static tl_cleaned_transactions *made(void) {
    tl_cleaned_transactions *transactions;
    CHECK_STATUS(tl_cleaned_transactions_create(&transactions, 1, 2), TL_OK);
    return transactions;
}

static unsigned judged(tl_cleaned_transactions *t, int64_t offset, int64_t producer_id, int attributes, int kind,
                       int64_t horizon) {
    uint8_t log[128], verdict = 0xff;
    tl_fault fault;
    size_t size = put(log, offset, producer_id, attributes, kind, horizon);
    bytes exact = copy_of(log, size);
    CHECK_STATUS(tl_cleaned_transactions_judge(t, exact.data, size, 1, NOW, false, &verdict, &fault), TL_OK);
    free(exact.data);
    return verdict;
}

static void test_verdicts(void) {
    tl_cleaned_transactions *t = made();
    tl_aborted_entry entry = {7, 2, 4, 5};
    size_t count;
    CHECK_STATUS(tl_cleaned_transactions_add(t, &entry), TL_OK);
    CHECK_STATUS(tl_cleaned_transactions_add(t, &entry), TL_OK); /* of the next segment too */
    CHECK_EQUAL(judged(t, 0, 7, DATA, 1, 0), 0);
    CHECK_EQUAL(judged(t, 1, 7, MARKER, 1, 0), 0);
    CHECK_EQUAL(judged(t, 2, 7, DATA, 1, 0), TL_VERDICT_DISCARD);
    CHECK_EQUAL(judged(t, 3, 8, DATA, 1, 0), 0);
    CHECK_EQUAL(judged(t, 4, 7, MARKER, 0, 0), 0); /* its batch is still there */
    const tl_aborted_entry *retained = tl_cleaned_transactions_retained(t, &count);
    CHECK_EQUAL(count, 1);
    CHECK(!memcmp(retained, &entry, sizeof entry));
    tl_cleaned_transactions_forget(t);
    tl_cleaned_transactions_retained(t, &count);
    CHECK_EQUAL(count, 0);
    CHECK_EQUAL(judged(t, 5, 7, MARKER, 0, 0), TL_VERDICT_EMPTY_TRANSACTION);
    CHECK_EQUAL(judged(t, 6, 7, MARKER, 1, NOW + 1), TL_VERDICT_EMPTY_TRANSACTION);
    CHECK_EQUAL(judged(t, 7, 7, MARKER, 1, NOW), TL_VERDICT_DISCARD | TL_VERDICT_EMPTY_TRANSACTION);
    CHECK_EQUAL(judged(t, 8, 8, MARKER, 1, NOW), 0);
    CHECK_EQUAL(judged(t, 9, 8, MARKER, 5, 0), 0);                              /* a control record of another kind */
    CHECK_EQUAL(judged(t, 10, 8, MARKER, -1, 0), TL_VERDICT_EMPTY_TRANSACTION); /* emptied before */
    CHECK_EQUAL(judged(t, 11, 9, 0, 1, 0), 0);                                  /* idempotent */
    tl_cleaned_transactions_destroy(t);
}

static void test_last_records(void) {
    tl_cleaned_transactions *t = made();
    tl_last_record last[] = {{3, 10, 5}, {4, -1, 5}, {9, 12, 5}};
    tl_cleaned_transactions_set_last(t, last, 3);
    CHECK_EQUAL(judged(t, 10, 3, 0, 1, 0), TL_VERDICT_RETAIN_EMPTY);
    CHECK_EQUAL(judged(t, 11, 3, 0, 1, 0), 0);
    CHECK_EQUAL(judged(t, 12, 4, 0, 1, 0), 0);
    CHECK_EQUAL(judged(t, 12, 9, DATA, 1, 0), TL_VERDICT_RETAIN_EMPTY);
    CHECK_EQUAL(judged(t, 13, 4, MARKER, 1, 0), TL_VERDICT_EMPTY_TRANSACTION | TL_VERDICT_RETAIN_EMPTY);
    CHECK_EQUAL(judged(t, 14, 5, 0, 1, 0), 0);
    last[1].producer_epoch = 4;
    CHECK_EQUAL(judged(t, 15, 4, MARKER, 1, 0), TL_VERDICT_EMPTY_TRANSACTION);
    tl_cleaned_transactions_destroy(t);
}

static void test_faults(void) {
    tl_cleaned_transactions *t = made();
    uint8_t log[256], verdicts[2];
    tl_fault fault;
    size_t first = put(log, 0, 1, DATA, 1, 0), size = first + put(log + first, 1, 1, MARKER, 1, 0);
    CHECK_STATUS(tl_cleaned_transactions_judge(t, log, size, 1, NOW, true, verdicts, &fault), TL_BAD_ARGUMENT);
    CHECK_EQUAL(fault.position, first);
    log[first + TL_HEADER_SIZE_V2 + 4] = 1; /* no key */
    CHECK(tl_cleaned_transactions_judge(t, log, size, 2, NOW, true, verdicts, &fault) != TL_OK);
    CHECK_EQUAL(fault.position, first);
    CHECK_STATUS(tl_cleaned_transactions_judge(t, log, size - 1, 2, NOW, true, verdicts, &fault), TL_PARTIAL);
    CHECK_STATUS(tl_cleaned_transactions_judge(t, log, 0, 0, NOW, true, verdicts, &fault), TL_OK);
    tl_cleaned_transactions_destroy(t);
}

/* What is known of a producer, plainly. */
typedef struct known {
    bool is_committed, is_aborted, has_batch;
} known;

/* Producers whose transactions begin, go on and end at random: the verdicts for the map, which is DISCARD alone. */
static void test_many_producers(void) {
    tl_cleaned_transactions *t = made();
    known table[PRODUCERS] = {{0}};
    uint32_t seed = 1;
    size_t retained = 0, count;
    for (int64_t offset = 0; offset < 40000; offset++) {
        int64_t producer = (seed = seed * 69069 + 1) >> 16 & 0xffff;
        producer %= PRODUCERS;
        known *of = table + producer;
        unsigned draw = (seed = seed * 69069 + 1) >> 28;
        uint8_t log[128], verdict;
        tl_fault fault;
        if (draw == 0 && !of->is_aborted) {
            tl_aborted_entry entry = {producer, offset, offset + 9, offset + 10};
            CHECK_STATUS(tl_cleaned_transactions_add(t, &entry), TL_OK);
            *of = (known){of->is_committed, true, false};
        }
        bool is_marker = draw >= 10, is_commit = draw & 1;
        size_t size = put(log, offset, producer, is_marker ? MARKER : DATA, is_commit, 0);
        CHECK_STATUS(tl_cleaned_transactions_judge(t, log, size, 1, NOW, true, &verdict, &fault), TL_OK);
        bool can_go = is_marker ? (is_commit ? !of->is_committed : !(of->is_aborted && of->has_batch)) : of->is_aborted;
        CHECK_EQUAL(verdict, can_go ? TL_VERDICT_DISCARD : 0);
        if (!is_marker && of->is_aborted) of->has_batch = true;
        if (!is_marker && !of->is_aborted) of->is_committed = true;
        if (is_marker && is_commit) of->is_committed = false;
        if (is_marker && !is_commit) {
            retained += !can_go;
            of->is_aborted = of->has_batch = false;
        }
    }
    tl_cleaned_transactions_retained(t, &count);
    CHECK_EQUAL(count, retained);
    CHECK(retained > 100);
    tl_cleaned_transactions_destroy(t);
}

int main(void) {
    test_verdicts();
    test_last_records();
    test_faults();
    test_many_producers();
    return 0;
}
