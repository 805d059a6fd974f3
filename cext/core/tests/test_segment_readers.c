/* Readers of the segment table beside its writer. All fields of a segment follow from its number, so that one that was
 * read half before and half behind a change is seen: a broker would fetch the wrong object by it. */
#define _XOPEN_SOURCE 700
#include "check.h"
#include "tierlog/segment_table.h"

#include <pthread.h>

enum { SHARED_SEGMENTS = 600, PARTITIONS = 3, READERS = 2, ROUNDS = 30, FINDS = 300 };

typedef struct shared {
    tl_segment_table *table;
    bool done;
    uint64_t found;
} shared;

static tl_partition_id partition_of(int number) {
    tl_partition_id id = {.partition = number};
    memset(id.topic_id, 7, 16);
    return id;
}

static tl_segment numbered(int number, tl_segment_epoch epochs[2]) {
    epochs[0] = (tl_segment_epoch){number / 100, number * 100};
    epochs[1] = (tl_segment_epoch){number / 100 + 1, number * 100 + 60};
    tl_segment segment = {.start_offset = number * 100,
                          .end_offset = number * 100 + 99,
                          .max_timestamp_ms = number + 1,
                          .event_timestamp_ms = number + 2,
                          .broker_id = number + 3,
                          .size_bytes = number + 4,
                          .epochs = epochs,
                          .epoch_count = (size_t)(1 + number % 2),
                          .custom_size = -1};
    for (int i = 0; i < 16; i++) segment.id[i] = (uint8_t)(number >> i % 4 * 4);
    return segment;
}

static void check_numbered(const tl_segment_copy *copy) {
    int number = (int)(copy->start_offset / 100);
    tl_segment_epoch epochs[2];
    tl_segment expected_one = numbered(number, epochs);
    CHECK(!memcmp(copy->id, expected_one.id, 16));
    CHECK_EQUAL(copy->end_offset, expected_one.end_offset);
    CHECK_EQUAL(copy->max_timestamp_ms, number + 1);
    CHECK_EQUAL(copy->broker_id, number + 3);
    CHECK_EQUAL(copy->size_bytes, number + 4);
    CHECK_EQUAL(copy->epoch_count, expected_one.epoch_count);
}

/* Many questions at once, and segments by their ids. */
static void ask_many(shared *s, uint64_t *random) {
    enum { QUESTIONS = 40 };
    tl_segment_question questions[QUESTIONS];
    tl_segment_copy copies[QUESTIONS];
    uint8_t found[QUESTIONS];
    int64_t highest[QUESTIONS];
    for (int i = 0; i < QUESTIONS; i++) {
        int number = (int)(next_random(random) % SHARED_SEGMENTS);
        questions[i] = (tl_segment_question){partition_of(number % PARTITIONS), number / 100, number * 100 + 10};
    }
    tl_segment_table_find_many(s->table, questions, QUESTIONS, copies, found);
    tl_segment_table_highest_many(s->table, questions, QUESTIONS, highest);
    for (int i = 0; i < QUESTIONS; i++) {
        CHECK(highest[i] < SHARED_SEGMENTS * 100);
        if (!found[i]) continue;
        check_numbered(&copies[i]);
        CHECK_EQUAL(copies[i].start_offset, questions[i].offset - 10);
        CHECK_EQUAL(copies[i].state, TL_COPY_FINISHED);
    }
    int number = (int)(next_random(random) % SHARED_SEGMENTS);
    tl_partition_id id = partition_of(number % PARTITIONS);
    tl_segment_epoch epochs[2];
    tl_segment wanted = numbered(number, epochs);
    tl_segment_room room = {epochs, 2, NULL, 0};
    bool is_there;
    CHECK_STATUS(tl_segment_table_get(s->table, &id, wanted.id, &room, &copies[0], &is_there), TL_OK);
    if (!is_there) return;
    check_numbered(&copies[0]);
    CHECK_EQUAL(copies[0].start_offset, number * 100);
    CHECK_EQUAL(epochs[0].start_offset, number * 100);
}

static void *read_beside(void *context) {
    shared *s = context;
    uint64_t random = 5;
    while (!__atomic_load_n(&s->done, __ATOMIC_ACQUIRE)) {
        int number = (int)(next_random(&random) % SHARED_SEGMENTS);
        tl_partition_id id = partition_of(number % PARTITIONS);
        tl_segment_epoch epochs[2];
        tl_segment_room room = {epochs, 2, NULL, 0};
        tl_segment_copy copy, some[16];
        bool found;
        CHECK_STATUS(tl_segment_table_find(s->table, &id, number / 100, number * 100 + 10, &room, &copy, &found),
                     TL_OK);
        if (found) {
            check_numbered(&copy);
            CHECK_EQUAL(copy.start_offset / 100, number);
            CHECK_EQUAL(copy.state, TL_COPY_FINISHED);
            CHECK_EQUAL(epochs[0].start_offset, number * 100);
            __atomic_fetch_add(&s->found, 1, __ATOMIC_RELAXED);
        }
        tl_segment_cursor cursor;
        tl_segment_cursor_open(&cursor, &id, number % 8 - 1);
        int64_t before = -1;
        for (size_t count; (count = tl_segment_table_list(s->table, &cursor, some, 16));)
            for (size_t i = 0; i < count; i++) {
                check_numbered(&some[i]);
                CHECK(cursor.epoch < 0 || some[i].start_offset > before);
                before = some[i].start_offset;
            }
        CHECK(tl_segment_table_highest(s->table, &id, number / 100) < SHARED_SEGMENTS * 100);
        ask_many(s, &random);
    }
    return NULL;
}

static void test_readers_beside_a_writer(void) {
    shared s = {.done = false};
    pthread_t readers[READERS];
    tl_event_outcome outcome;
    int state;
    CHECK_STATUS(
        tl_segment_table_create(&s.table, &(tl_segment_table_options){sizeof(tl_segment_table_options), 9, false}),
        TL_OK);
    for (int i = 0; i < READERS; i++) CHECK(!pthread_create(&readers[i], NULL, read_beside, &s));
    for (int round = 0; round < ROUNDS || __atomic_load_n(&s.found, __ATOMIC_RELAXED) < FINDS; round++) {
        for (int to = TL_COPY_STARTED; to <= TL_DELETE_FINISHED; to++)
            for (int number = 0; number < SHARED_SEGMENTS; number++) {
                tl_partition_id id = partition_of(number % PARTITIONS);
                tl_segment_epoch epochs[2];
                tl_segment segment = numbered(number, epochs);
                tl_segment_change change = {.state = (uint8_t)to, .broker_id = number + 3, .custom_size = -1};
                memcpy(change.id, segment.id, 16);
                tl_status status = to ? tl_segment_table_change(s.table, &id, &change, &outcome, &state)
                                      : tl_segment_table_add(s.table, &id, &segment, &outcome, &state);
                CHECK_STATUS(status, TL_OK);
                CHECK_EQUAL(outcome, TL_EVENT_APPLIED);
            }
        if (round % 3 == 0)
            for (int i = 0; i < PARTITIONS; i++) {
                tl_partition_id id = partition_of(i);
                CHECK(tl_segment_table_forget(s.table, &id));
            }
    }
    __atomic_store_n(&s.done, true, __ATOMIC_RELEASE);
    for (int i = 0; i < READERS; i++) pthread_join(readers[i], NULL);
    tl_segment_table_destroy(s.table);
}

int main(void) {
    test_readers_beside_a_writer();
    return 0;
}
