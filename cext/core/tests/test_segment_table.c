/* The segment table against an array that is searched from end to end, in both ways of answering. A wrong answer here
 * is a fetch of the wrong segment, or history that a broker no longer finds. */
#include "check.h"
#include "segment_table.h"

enum { SEGMENTS_MAX = 400, EPOCHS_MAX = 12, PARTITIONS = 3 };

typedef struct known {
    bool there, was_finished;
    int partition;
    tl_segment segment;
    tl_segment_epoch epochs[EPOCHS_MAX];
    uint8_t custom[40];
    bool referenced[EPOCHS_MAX], lost[EPOCHS_MAX];
} known;

typedef struct model {
    known segments[SEGMENTS_MAX];
    int64_t highest[PARTITIONS][64];
    bool as_kafka;
} model;

static tl_partition_id partition_of(int number) {
    tl_partition_id id = {.partition = number};
    memset(id.topic_id, 7, 16);
    return id;
}

static int64_t end_of(const known *k, size_t i) {
    return i + 1 < k->segment.epoch_count ? k->epochs[i + 1].start_offset - 1 : k->segment.end_offset;
}

static uint64_t below(uint64_t *random, uint64_t bound) { return next_random(random) % bound; }

static void make(known *k, uint64_t *random, int64_t scale) {
    *k = (known){.there = true, .partition = (int)below(random, PARTITIONS)};
    for (int i = 0; i < 16; i++) k->segment.id[i] = (uint8_t)next_random(random);
    k->segment.start_offset = (int64_t)below(random, 300) * scale;
    k->segment.end_offset = k->segment.start_offset + (int64_t)below(random, 60) * scale;
    k->segment.max_timestamp_ms = below(random, 8) ? (int64_t)below(random, 1u << 30) - 5 : INT64_MAX - 3;
    k->segment.event_timestamp_ms = (int64_t)next_random(random);
    k->segment.broker_id = (int32_t)next_random(random);
    k->segment.size_bytes = (int32_t)below(random, 1u << 30);
    k->segment.txn_index_empty = below(random, 2);
    k->segment.epoch_count = 1 + below(random, below(random, 10) ? 3 : EPOCHS_MAX);
    int32_t epoch = (int32_t)below(random, 6);
    int64_t start = k->segment.start_offset + (below(random, 9) ? 0 : 2);
    for (size_t i = 0; i < k->segment.epoch_count; i++) {
        k->epochs[i] = (tl_segment_epoch){epoch, start};
        epoch += 1 + (int32_t)below(random, 3);
        start += (int64_t)below(random, 12) * scale;
    }
    k->segment.custom_size = (int64_t)below(random, 3) - 1;
    if (k->segment.custom_size > 0) k->segment.custom_size = (int64_t)below(random, sizeof k->custom + 1);
    for (size_t i = 0; i < sizeof k->custom; i++) k->custom[i] = (uint8_t)next_random(random);
}

static tl_segment as_given(const known *k) {
    tl_segment given = k->segment;
    given.epochs = k->epochs;
    given.custom = k->custom;
    return given;
}

static void check_copy(const known *k, const tl_segment_copy *copy) {
    CHECK(!memcmp(copy->id, k->segment.id, 16));
    CHECK_EQUAL(copy->start_offset, k->segment.start_offset);
    CHECK_EQUAL(copy->end_offset, k->segment.end_offset);
    CHECK_EQUAL(copy->max_timestamp_ms, k->segment.max_timestamp_ms);
    CHECK_EQUAL(copy->event_timestamp_ms, k->segment.event_timestamp_ms);
    CHECK_EQUAL(copy->broker_id, k->segment.broker_id);
    CHECK_EQUAL(copy->size_bytes, k->segment.size_bytes);
    CHECK_EQUAL(copy->state, k->segment.state);
    CHECK_EQUAL(copy->txn_index_empty, k->segment.txn_index_empty);
    CHECK_EQUAL(copy->epoch_count, k->segment.epoch_count);
    CHECK_EQUAL(copy->custom_size, k->segment.custom_size);
}

/* Kafka's RemoteLogLeaderEpochState, by its rules. */
static void finish_in_model(model *m, known *done) {
    for (size_t i = 0; i < done->segment.epoch_count; i++) {
        int32_t epoch = done->epochs[i].epoch;
        int64_t start = done->epochs[i].start_offset, end = end_of(done, i),
                *highest = &m->highest[done->partition][epoch];
        for (known *k = m->segments; k < m->segments + SEGMENTS_MAX; k++)
            for (size_t j = 0; k->there && k->partition == done->partition && j < k->segment.epoch_count; j++) {
                if (k == done || k->epochs[j].epoch != epoch || !k->referenced[j]) continue;
                bool same = k->epochs[j].start_offset == start, displaced = *highest <= end;
                if (k->epochs[j].start_offset < start) continue;
                if (displaced) k->referenced[j] = false;
                if (same && !displaced) k->referenced[j] = false, k->lost[j] = true;
            }
        done->referenced[i] = true;
        done->lost[i] = false;
        if (end > *highest) *highest = end;
    }
}

static const known *expected(const model *m, int partition, int32_t epoch, int64_t offset) {
    const known *best = NULL;
    int64_t best_start = -1, best_end = -1;
    for (const known *k = m->segments; k < m->segments + SEGMENTS_MAX; k++)
        for (size_t j = 0; k->there && k->partition == partition && j < k->segment.epoch_count; j++) {
            int64_t start = k->epochs[j].start_offset, end = end_of(k, j);
            if (k->epochs[j].epoch != epoch || start > offset) continue;
            if (m->as_kafka) {
                if (k->referenced[j] && start > best_start) best = k, best_start = start, best_end = end;
            } else if (k->segment.state == TL_COPY_FINISHED && end >= offset && end > best_end) {
                best = k, best_end = end;
            }
        }
    return best && best_end >= offset ? best : NULL;
}

static void check_questions(const model *m, const tl_segment_table *table, uint64_t *random, int64_t scale) {
    for (int i = 0; i < 8; i++) {
        int partition = (int)below(random, PARTITIONS);
        int32_t epoch = (int32_t)below(random, 14);
        int64_t offset = (int64_t)below(random, 380) * scale;
        tl_partition_id id = partition_of(partition);
        tl_segment_epoch epochs[EPOCHS_MAX];
        uint8_t custom[40];
        tl_segment_room room = {epochs, EPOCHS_MAX, custom, sizeof custom};
        tl_segment_copy copy;
        bool found;
        CHECK_STATUS(tl_segment_table_find(table, &id, epoch, offset, &room, &copy, &found), TL_OK);
        const known *k = expected(m, partition, epoch, offset);
        CHECK_EQUAL(found, k != NULL);
        if (found && memcmp(copy.id, k->segment.id, 16) == 0) {
            check_copy(k, &copy);
            for (uint32_t e = 0; e < copy.epoch_count; e++) {
                CHECK_EQUAL(epochs[e].epoch, k->epochs[e].epoch);
                CHECK_EQUAL(epochs[e].start_offset, k->epochs[e].start_offset);
            }
            if (copy.custom_size > 0) CHECK(!memcmp(custom, k->custom, (size_t)copy.custom_size));
        } else if (found) { /* another of the same reach */
            CHECK(!m->as_kafka);
        }
        CHECK_EQUAL(tl_segment_table_highest(table, &id, epoch), m->highest[partition][epoch]);
    }
}

static void check_lists(const model *m, const tl_segment_table *table, uint64_t *random) {
    int partition = (int)below(random, PARTITIONS);
    for (int32_t epoch = -1; epoch < 14; epoch++) {
        size_t want = 0, got = 0, more;
        for (const known *k = m->segments; k < m->segments + SEGMENTS_MAX; k++) {
            if (!k->there || k->partition != partition) continue;
            bool in = epoch < 0;
            for (size_t j = 0; j < k->segment.epoch_count; j++)
                in |= k->epochs[j].epoch == epoch && !(m->as_kafka && k->lost[j]);
            want += in;
        }
        tl_partition_id id = partition_of(partition);
        tl_segment_cursor cursor;
        tl_segment_copy some[7];
        tl_segment_cursor_open(&cursor, &id, epoch);
        while ((more = tl_segment_table_list(table, &cursor, some, 1 + below(random, 7)))) got += more;
        CHECK_EQUAL(got, want);
    }
}

static void add_one(model *m, tl_segment_table *table, uint64_t *random, int64_t scale) {
    known *k = &m->segments[below(random, SEGMENTS_MAX)];
    tl_event_outcome outcome;
    int state;
    if (k->there) return;
    make(k, random, scale);
    tl_segment given = as_given(k);
    tl_partition_id id = partition_of(k->partition);
    CHECK_STATUS(tl_segment_table_add(table, &id, &given, &outcome, &state), TL_OK);
    CHECK_EQUAL(outcome, TL_EVENT_APPLIED);
    CHECK_EQUAL(state, -1);
}

static void change_one(model *m, tl_segment_table *table, uint64_t *random) {
    known *k = &m->segments[below(random, SEGMENTS_MAX)];
    if (!k->there) return;
    uint8_t to = (uint8_t)(1 + below(random, 3)), from = k->segment.state;
    bool may = from == to || (from == TL_COPY_STARTED && to == TL_DELETE_STARTED) || to == from + 1;
    tl_segment_change change = {.state = to,
                                .broker_id = (int32_t)next_random(random),
                                .custom = k->custom,
                                .event_timestamp_ms = (int64_t)next_random(random),
                                .custom_size = (int64_t)below(random, sizeof k->custom + 2) - 1};
    memcpy(change.id, k->segment.id, 16);
    tl_event_outcome outcome;
    int state;
    tl_partition_id id = partition_of(k->partition);
    CHECK_STATUS(tl_segment_table_change(table, &id, &change, &outcome, &state), TL_OK);
    CHECK_EQUAL(state, from);
    CHECK_EQUAL(outcome, may ? TL_EVENT_APPLIED : TL_EVENT_BAD_TRANSITION);
    if (!may) return;
    k->segment.state = to;
    k->segment.broker_id = change.broker_id;
    k->segment.event_timestamp_ms = change.event_timestamp_ms;
    k->segment.custom_size = change.custom_size;
    if (to == TL_COPY_FINISHED && from == TL_COPY_STARTED) finish_in_model(m, k);
    if (to == TL_DELETE_STARTED) memset(k->referenced, 0, sizeof k->referenced), memset(k->lost, 0, sizeof k->lost);
    if (to == TL_DELETE_FINISHED) k->there = false;
}

static void test_model(uint64_t seed, bool as_kafka, int64_t scale) {
    static model m;
    memset(&m, 0, sizeof m);
    memset(m.highest, 0xff, sizeof m.highest);
    m.as_kafka = as_kafka;
    uint64_t random = seed;
    tl_segment_table *table;
    CHECK_STATUS(tl_segment_table_create(&table, (tl_segment_table_options){seed, as_kafka}), TL_OK);
    for (int step = 0; step < 4000; step++) {
        if (below(&random, 2)) {
            add_one(&m, table, &random, scale);
        } else {
            change_one(&m, table, &random);
        }
        check_questions(&m, table, &random, scale);
        if (step % 50 == 0) check_lists(&m, table, &random);
    }
    for (int partition = 0; partition < PARTITIONS; partition++) {
        tl_partition_id id = partition_of(partition);
        tl_segment_table_forget(table, &id);
        CHECK(!tl_segment_table_forget(table, &id));
    }
    CHECK_EQUAL(tl_segment_table_figures_of(table).segments, 0);
    CHECK_EQUAL(tl_segment_table_figures_of(table).partitions, 0);
    tl_segment_table_destroy(table);
}

int main(void) {
    for (uint64_t seed = 1; seed <= 6; seed++) {
        test_model(seed, false, 1);
        test_model(seed, true, 1);
        test_model(seed, false, (int64_t)1 << 33);
    }
    return 0;
}
