/* The segment table against an array that is searched from end to end, in both ways of answering. A wrong answer here
 * is a fetch of the wrong segment, or history that a broker no longer finds. */
#include "check.h"
#include "tierlog/segment_table.h"

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
    if (to == TL_COPY_FINISHED) finish_in_model(m, k);
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
    CHECK_STATUS(
        tl_segment_table_create(&table, &(tl_segment_table_options){sizeof(tl_segment_table_options), seed, as_kafka}),
        TL_OK);
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

/* ---- many at once: the same as one by one ---- */

enum { POOL = 300, EVENTS_MAX = 1000 };

typedef struct planned {
    tl_segment_event event;
    tl_segment_epoch epochs[EPOCHS_MAX];
    uint8_t custom[40];
} planned;

/* Any event of one of few segments: starts again and again, changes of what is not there, states that cannot follow. */
static void plan(planned *p, uint64_t *random, int64_t scale) {
    uint64_t number = below(random, POOL), its = number + 1;
    known k;
    make(&k, below(random, 3) ? &its : random, scale); /* mostly with the same epochs as before */
    memset(p, 0, sizeof *p);
    memcpy(p->epochs, k.epochs, sizeof p->epochs);
    memcpy(p->custom, k.custom, sizeof p->custom);
    p->event.partition = partition_of((int)(number % PARTITIONS));
    p->event.is_change = below(random, 3);
    if (p->event.is_change) {
        p->event.of.change = (tl_segment_change){.state = (uint8_t)(1 + below(random, 3)),
                                                 .broker_id = (int32_t)next_random(random),
                                                 .event_timestamp_ms = (int64_t)next_random(random),
                                                 .custom = p->custom,
                                                 .custom_size = (int64_t)below(random, sizeof p->custom + 2) - 1};
        memset(p->event.of.change.id, (int)number, 16);
        p->event.of.change.id[0] = (uint8_t)(number >> 8);
    } else {
        p->event.of.segment = k.segment;
        p->event.of.segment.epochs = p->epochs;
        p->event.of.segment.custom = p->custom;
        memset(p->event.of.segment.id, (int)number, 16);
        p->event.of.segment.id[0] = (uint8_t)(number >> 8);
    }
}

static void check_same_copy(const tl_segment_copy *a, const tl_segment_copy *b) {
    CHECK(!memcmp(a->id, b->id, 16));
    CHECK_EQUAL(a->start_offset, b->start_offset);
    CHECK_EQUAL(a->end_offset, b->end_offset);
    CHECK_EQUAL(a->event_timestamp_ms, b->event_timestamp_ms);
    CHECK_EQUAL(a->broker_id, b->broker_id);
    CHECK_EQUAL(a->state, b->state);
    CHECK_EQUAL(a->epoch_count, b->epoch_count);
    CHECK_EQUAL(a->custom_size, b->custom_size);
}

/* Questions of one table together, of the other one by one. */
static void check_together(const tl_segment_table *together, const tl_segment_table *alone, uint64_t *random,
                           int64_t scale) {
    enum { QUESTIONS = 100 };
    tl_segment_question questions[QUESTIONS];
    tl_segment_copy copies[QUESTIONS], copy;
    int64_t highest[QUESTIONS];
    uint8_t found[QUESTIONS];
    bool is_there;
    size_t count = 1 + below(random, QUESTIONS);
    for (size_t i = 0; i < count; i++) /* a partition that there is not, among them */
        questions[i] = (tl_segment_question){partition_of((int)below(random, PARTITIONS + 1)),
                                             (int32_t)below(random, 14), (int64_t)below(random, 380) * scale};
    tl_segment_table_find_many(together, questions, count, copies, found);
    tl_segment_table_highest_many(together, questions, count, highest);
    for (size_t i = 0; i < count; i++) {
        const tl_segment_question *q = &questions[i];
        CHECK_STATUS(tl_segment_table_find(alone, &q->partition, q->epoch, q->offset, NULL, &copy, &is_there), TL_OK);
        CHECK_EQUAL(found[i], is_there);
        if (is_there) check_same_copy(&copies[i], &copy);
        CHECK_EQUAL(highest[i], tl_segment_table_highest(alone, &q->partition, q->epoch));
    }
    for (int number = 0; number < POOL; number++) {
        tl_partition_id id = partition_of(number % PARTITIONS);
        uint8_t segment_id[16];
        bool also;
        memset(segment_id, number, 16);
        segment_id[0] = (uint8_t)(number >> 8);
        CHECK_STATUS(tl_segment_table_get(together, &id, segment_id, NULL, &copies[0], &is_there), TL_OK);
        CHECK_STATUS(tl_segment_table_get(alone, &id, segment_id, NULL, &copy, &also), TL_OK);
        CHECK_EQUAL(is_there, also);
        if (also) check_same_copy(&copies[0], &copy);
    }
}

static void apply_alone(tl_segment_table *table, const tl_segment_event *e, tl_status status,
                        const tl_segment_event *done) {
    tl_event_outcome outcome = TL_EVENT_APPLIED;
    int state = -1;
    CHECK_STATUS(e->is_change ? tl_segment_table_change(table, &e->partition, &e->of.change, &outcome, &state)
                              : tl_segment_table_add(table, &e->partition, &e->of.segment, &outcome, &state),
                 status);
    if (status != TL_OK) return;
    CHECK_EQUAL(done->outcome, outcome);
    CHECK_EQUAL(done->found_state, state);
}

static void test_batches(uint64_t seed, bool as_kafka, int64_t scale) {
    static planned plans[EVENTS_MAX];
    static tl_segment_event events[EVENTS_MAX];
    static const size_t sizes[] = {1, 7, 64, EVENTS_MAX};
    uint64_t random = seed;
    tl_segment_table *together, *alone;
    CHECK_STATUS(tl_segment_table_create(&together,
                                         &(tl_segment_table_options){sizeof(tl_segment_table_options), seed, as_kafka}),
                 TL_OK);
    CHECK_STATUS(tl_segment_table_create(
                     &alone, &(tl_segment_table_options){sizeof(tl_segment_table_options), seed + 1, as_kafka}),
                 TL_OK);
    for (int round = 0; round < 60; round++) {
        size_t count = sizes[round % 4], done, bad = below(&random, 3) ? count : below(&random, count);
        for (size_t i = 0; i < count; i++) {
            plan(&plans[i], &random, scale);
            if (i == bad && plans[i].event.is_change) plans[i].event.of.change.state = TL_COPY_STARTED;
            if (i == bad && !plans[i].event.is_change) plans[i].event.of.segment.end_offset = -1;
            events[i] = plans[i].event;
        }
        CHECK_STATUS(tl_segment_table_apply(together, events, count, &done), bad < count ? TL_BAD_ARGUMENT : TL_OK);
        CHECK_EQUAL(done, bad);
        for (size_t i = 0; i < done; i++) apply_alone(alone, &events[i], TL_OK, &events[i]);
        if (bad < count) apply_alone(alone, &events[bad], TL_BAD_ARGUMENT, NULL);
        check_together(together, alone, &random, scale);
        CHECK_EQUAL(tl_segment_table_figures_of(together).segments, tl_segment_table_figures_of(alone).segments);
        if (round % 5 == 4) {
            tl_partition_id id = partition_of((int)below(&random, PARTITIONS));
            CHECK_EQUAL(tl_segment_table_forget(together, &id), tl_segment_table_forget(alone, &id));
        }
        if (round % 20 == 0) tl_segment_table_settle(together, 1);
    }
    tl_segment_table_destroy(together);
    tl_segment_table_destroy(alone);
}

/* ---- one partition of many segments: nodes upon nodes ---- */

enum { MANY = 6000, LENGTH = 100 };

/* Segments of two epochs, the second of which goes on in the next one; some are of a dead branch far away. */
static void numbered(int number, tl_segment *segment, tl_segment_epoch epochs[2]) {
    int64_t start = (int64_t)number * LENGTH + (number % 97 ? 0 : 3);
    epochs[0] = (tl_segment_epoch){number, start};
    epochs[1] = (tl_segment_epoch){number + 1, start + LENGTH / 2};
    *segment = (tl_segment){.start_offset = start,
                            .end_offset = (int64_t)number * LENGTH + LENGTH - 1,
                            .epochs = epochs,
                            .epoch_count = 2,
                            .custom_size = -1};
    memcpy(segment->id, &number, sizeof number);
}

/* At which place of an order is segment i: rising, falling, rising from two places by turns, any. */
static int placed(int way, int i) {
    switch (way) {
    case 0: return i;
    case 1: return MANY - 1 - i;
    case 2: return i % 2 ? MANY / 2 + i / 2 : i / 2;
    default: return (int)((int64_t)i * 7919 % MANY);
    }
}

static void check_many(const tl_segment_table *table, const bool *there) {
    enum { SOME = 64 };
    tl_partition_id id = partition_of(0);
    tl_segment_question questions[SOME];
    tl_segment_copy copies[SOME];
    uint8_t found[SOME];
    int64_t highest[SOME];
    for (int first = 0; first < MANY; first += SOME / 2) {
        size_t count = 0;
        for (int n = first; n < MANY && n < first + SOME / 2; n++) {
            questions[count++] = (tl_segment_question){id, n, (int64_t)n * LENGTH + 49};
            questions[count++] = (tl_segment_question){id, n + 1, (int64_t)n * LENGTH + 99};
        }
        tl_segment_table_find_many(table, questions, count, copies, found);
        tl_segment_table_highest_many(table, questions, count, highest);
        for (size_t i = 0; i < count; i++) {
            int number = first + (int)i / 2;
            CHECK_EQUAL(found[i], there[number]);
            if (found[i]) CHECK(!memcmp(copies[i].id, &number, sizeof number));
            CHECK_EQUAL(highest[i], tl_segment_table_highest(table, &id, questions[i].epoch));
            /* Of the first half of the segment that begins with the epoch, also when that has gone. */
            int first_of = number + (int)i % 2;
            int64_t half = (int64_t)first_of * LENGTH + LENGTH / 2 - 1 + (first_of % 97 ? 0 : 3);
            CHECK_EQUAL(highest[i], first_of < MANY ? half : questions[i].offset);
        }
    }
    tl_segment_cursor cursor;
    int next = 0;
    tl_segment_cursor_open(&cursor, &id, -1);
    for (size_t count; (count = tl_segment_table_list(table, &cursor, copies, SOME));)
        for (size_t i = 0; i < count; i++, next++) {
            while (next < MANY && !there[next]) next++;
            CHECK(!memcmp(copies[i].id, &next, sizeof next));
        }
    while (next < MANY && !there[next]) next++;
    CHECK_EQUAL(next, MANY);
}

static void test_many_in_one_partition(int way) {
    static bool there[MANY + 1];
    tl_segment_table *table;
    tl_partition_id id = partition_of(0);
    tl_event_outcome outcome;
    int state;
    memset(there, 0, sizeof there);
    CHECK_STATUS(
        tl_segment_table_create(
            &table, &(tl_segment_table_options){.struct_size = sizeof(tl_segment_table_options), .hash_seed = 4}),
        TL_OK);
    for (int i = 0; i < MANY; i++) {
        tl_segment segment;
        tl_segment_epoch epochs[2];
        numbered(placed(way, i), &segment, epochs);
        tl_segment_change change = {.state = TL_COPY_FINISHED, .custom_size = -1};
        memcpy(change.id, segment.id, 16);
        CHECK_STATUS(tl_segment_table_add(table, &id, &segment, &outcome, &state), TL_OK);
        CHECK_STATUS(tl_segment_table_change(table, &id, &change, &outcome, &state), TL_OK);
        CHECK_EQUAL(outcome, TL_EVENT_APPLIED);
        there[placed(way, i)] = true;
    }
    check_many(table, there);
    for (int i = 0; i < MANY - MANY / 8; i++) {
        int number = placed(3 - way, i);
        tl_segment_change change = {.state = TL_DELETE_STARTED, .custom_size = -1};
        memcpy(change.id, &number, sizeof number);
        for (; change.state <= TL_DELETE_FINISHED; change.state++) {
            CHECK_STATUS(tl_segment_table_change(table, &id, &change, &outcome, &state), TL_OK);
            CHECK_EQUAL(outcome, TL_EVENT_APPLIED);
        }
        there[number] = false;
        if (i % 2000 == 0) check_many(table, there);
    }
    check_many(table, there);
    CHECK_EQUAL(tl_segment_table_figures_of(table).segments, MANY / 8);
    CHECK(tl_segment_table_forget(table, &id));
    CHECK(tl_segment_table_figures_of(table).held_bytes < 20000); /* of the directories */
    tl_segment_table_destroy(table);
}

/* ---- segments of as many epochs as there may be: what is remembered of those that went is bounded too ---- */

static void test_many_epochs(bool as_kafka) {
    enum { GONE = 3 };
    static tl_segment_epoch epochs[TL_SEGMENT_EPOCHS_MAX + 1];
    tl_segment_table *table;
    tl_partition_id id = partition_of(0);
    tl_event_outcome outcome;
    int state;
    CHECK_STATUS(
        tl_segment_table_create(&table, &(tl_segment_table_options){sizeof(tl_segment_table_options), 4, as_kafka}),
        TL_OK);
    for (uint8_t n = 0; n < GONE; n++) {
        for (int32_t i = 0; i <= TL_SEGMENT_EPOCHS_MAX; i++)
            epochs[i] = (tl_segment_epoch){n * TL_SEGMENT_EPOCHS_MAX + i, 2 * i};
        tl_segment segment = {.id = {n},
                              .end_offset = 2 * TL_SEGMENT_EPOCHS_MAX,
                              .epochs = epochs,
                              .epoch_count = TL_SEGMENT_EPOCHS_MAX + 1,
                              .custom_size = -1};
        CHECK_STATUS(tl_segment_table_add(table, &id, &segment, &outcome, &state), TL_BAD_ARGUMENT);
        segment.epoch_count--;
        CHECK_STATUS(tl_segment_table_add(table, &id, &segment, &outcome, &state), TL_OK);
        tl_segment_change change = {.id = {n}, .state = TL_COPY_FINISHED, .custom_size = -1};
        for (; change.state <= TL_DELETE_FINISHED; change.state++) {
            CHECK_STATUS(tl_segment_table_change(table, &id, &change, &outcome, &state), TL_OK);
            CHECK_EQUAL(outcome, TL_EVENT_APPLIED);
        }
        CHECK_EQUAL(tl_segment_table_highest(table, &id, n * TL_SEGMENT_EPOCHS_MAX + 7), 15);
    }
    CHECK_EQUAL(tl_segment_table_highest(table, &id, 7), -1);
    CHECK_EQUAL(tl_segment_table_highest(table, &id, TL_SEGMENT_EPOCHS_MAX), 1);
    CHECK_EQUAL(tl_segment_table_highest(table, &id, TL_SEGMENT_EPOCHS_MAX - 1), -1);
    tl_segment_table_destroy(table);
}

int main(void) {
    test_many_epochs(false);
    test_many_epochs(true);
    for (int way = 0; way < 4; way++) test_many_in_one_partition(way);
    for (uint64_t seed = 1; seed <= 4; seed++) {
        test_batches(seed, false, 1);
        test_batches(seed, true, 1);
        test_batches(seed, false, (int64_t)1 << 33);
    }
    for (uint64_t seed = 1; seed <= 6; seed++) {
        test_model(seed, false, 1);
        test_model(seed, true, 1);
        test_model(seed, false, (int64_t)1 << 33);
    }
    return 0;
}
