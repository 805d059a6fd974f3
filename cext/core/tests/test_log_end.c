/* A segment that is not rolled outgrows its index; a producer that is believed too much writes twice or with a gap. */
#include "check.h"
#include "tierlog/log_end.h"

enum { BASE = 1000 };

static void test_when_a_segment_is_rolled(void) {
    tl_index_tail tail;
    tl_segment_end end = {.size = 600, .first_timestamp = 50};
    tl_roll_limits limits = {.size = 1000, .age_ms = 100};
    tl_index_begin(&tail, BASE, 100, 1, 1);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 400, BASE + 9, 60), TL_ROLL_NOT);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 401, BASE + 9, 60), TL_ROLL_NOW);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, INT64_MAX, BASE + 9, 60), TL_ROLL_NOW);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, (int64_t)BASE + INT32_MAX, 60), TL_ROLL_NOT);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, (int64_t)BASE + INT32_MAX + 1, 60), TL_ROLL_NOW);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, 150), TL_ROLL_NOT);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, 151), TL_ROLL_NOW);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, INT64_MIN), TL_ROLL_NOT);
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, INT64_MAX), TL_ROLL_NOW);
    end.first_timestamp = -1;
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, INT64_MAX), TL_ROLL_BY_CLOCK);
    end.first_timestamp = TL_NO_TIMESTAMP_KNOWN;
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, INT64_MAX), TL_ROLL_BY_CLOCK);
    end.size = 0; /* an empty segment is not too old for anything */
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, INT64_MAX), TL_ROLL_NOT);
    tail.offset_room = 0;
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, 60), TL_ROLL_NOW);
    tail.offset_room = 1;
    tail.time_room = 0;
    CHECK_EQUAL(tl_roll_due(&end, &tail, &limits, 1, BASE + 9, 60), TL_ROLL_NOW);
}

static void test_sequences(void) {
    CHECK_EQUAL(tl_sequence_after(3, 4), 7);
    CHECK_EQUAL(tl_sequence_after(-1, 5), -1);
    CHECK_EQUAL(tl_sequence_after(INT32_MAX, 0), INT32_MAX);
    CHECK_EQUAL(tl_sequence_after(INT32_MAX, 1), 0);
    CHECK_EQUAL(tl_sequence_after(INT32_MAX, INT32_MAX), INT32_MAX - 1);
}

static void test_who_continues(void) {
    tl_producer known = {.producer_id = 7, .transaction_offset = -1, .producer_epoch = 2};
    tl_batch_header next = {.magic = 2, .producer_id = 7, .producer_epoch = 2, .base_sequence = 10};
    CHECK(!tl_producer_continues(&known, &next)); /* nothing is known that it could continue */
    tl_producer_keep(&known, &(tl_producer_batch){.last_sequence = 9});
    CHECK(tl_producer_continues(&known, &next));
    next.base_sequence = 9;
    CHECK(!tl_producer_continues(&known, &next));
    next.base_sequence = 11;
    CHECK(!tl_producer_continues(&known, &next));
    next.base_sequence = 10;
    next.producer_epoch = 3;
    CHECK(!tl_producer_continues(&known, &next));
    next.producer_epoch = 2;
    next.attributes = TL_ATTRIBUTE_TRANSACTIONAL; /* it begins a transaction */
    CHECK(!tl_producer_continues(&known, &next));
    known.transaction_offset = 0;
    CHECK(tl_producer_continues(&known, &next));
    next.attributes = TL_ATTRIBUTE_TRANSACTIONAL | TL_ATTRIBUTE_CONTROL; /* it ends one */
    CHECK(!tl_producer_continues(&known, &next));
    next.attributes = 0;
    CHECK(!tl_producer_continues(&known, &next));
    known.transaction_offset = -1;
    known.batches[0].last_sequence = INT32_MAX;
    next.base_sequence = 0;
    CHECK(tl_producer_continues(&known, &next));
    next.base_sequence = INT32_MIN;
    CHECK(!tl_producer_continues(&known, &next));
}

static void test_the_last_five_are_kept(void) {
    tl_producer known = {.producer_id = 7};
    for (int32_t sequence = 0; sequence < 12; sequence++) {
        tl_producer_keep(&known, &(tl_producer_batch){.last_sequence = sequence, .last_offset = 100 + sequence});
        CHECK_EQUAL(known.batch_count, sequence < TL_PRODUCER_BATCHES ? sequence + 1 : TL_PRODUCER_BATCHES);
        for (int32_t row = 0; row < known.batch_count; row++) {
            CHECK_EQUAL(known.batches[row].last_sequence, sequence - known.batch_count + 1 + row);
            CHECK_EQUAL(known.batches[row].last_offset, 100 + sequence - known.batch_count + 1 + row);
        }
    }
}

int main(void) {
    test_when_a_segment_is_rolled();
    test_sequences();
    test_who_continues();
    test_the_last_five_are_kept();
    return 0;
}
