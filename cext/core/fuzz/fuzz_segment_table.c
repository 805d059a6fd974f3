/* Any bytes as the life of some segments, against a plain array. Input: a byte of options, then events: a byte of what
 * (2 bits: start, change, forget, ask), of which segment, and of how. */
#include "fuzz.h"
#include "tierlog/segment_table.h"

enum { SEGMENTS = 48, PARTITIONS = 2, EPOCHS = 8, BATCH = 16 };

typedef struct known {
    bool there;
    tl_segment segment;
    tl_segment_epoch epochs[3];
} known;

typedef struct state {
    tl_segment_table *table;
    known of[SEGMENTS];
    int64_t highest[PARTITIONS][EPOCHS];
    bool as_kafka;
    tl_segment_event events[BATCH];
    tl_segment_epoch epochs[BATCH][3];
    size_t waiting;
} state;

static tl_partition_id partition_of(int number) { return (tl_partition_id){{7}, number % PARTITIONS}; }

static int64_t end_of(const known *k, size_t i) {
    return i + 1 < k->segment.epoch_count ? k->epochs[i + 1].start_offset - 1 : k->segment.end_offset;
}

/* What an event does to the model; the outcome that it must have. */
static tl_event_outcome expect(state *s, const tl_segment_event *e, int number, int *found_state) {
    known *k = &s->of[number];
    int from = k->there ? k->segment.state : -1;
    *found_state = from;
    if (!e->is_change) {
        if (from > TL_COPY_STARTED) return TL_EVENT_BAD_TRANSITION;
        k->there = true;
        k->segment = e->of.segment;
        memcpy(k->epochs, e->of.segment.epochs, e->of.segment.epoch_count * sizeof *k->epochs);
        return TL_EVENT_APPLIED;
    }
    int to = e->of.change.state;
    if (from < 0) return TL_EVENT_UNKNOWN_SEGMENT;
    if (from != to && to != from + 1 && !(from == TL_COPY_STARTED && to == TL_DELETE_STARTED))
        return TL_EVENT_BAD_TRANSITION;
    k->segment.state = (uint8_t)to;
    if (to == TL_DELETE_FINISHED) k->there = false;
    for (size_t i = 0; to == TL_COPY_FINISHED && i < k->segment.epoch_count; i++) {
        int64_t *highest = &s->highest[number % PARTITIONS][k->epochs[i].epoch];
        if (end_of(k, i) > *highest) *highest = end_of(k, i);
    }
    return TL_EVENT_APPLIED;
}

static int number_of(const tl_segment_event *e) { return e->is_change ? e->of.change.id[0] : e->of.segment.id[0]; }

static void apply(state *s) {
    size_t done;
    REQUIRE(tl_segment_table_apply(s->table, s->events, s->waiting, &done) == TL_OK && done == s->waiting);
    for (size_t i = 0; i < done; i++) {
        int found_state;
        tl_event_outcome outcome = expect(s, &s->events[i], number_of(&s->events[i]), &found_state);
        REQUIRE(outcome == s->events[i].outcome && found_state == s->events[i].found_state);
    }
    s->waiting = 0;
}

static void add_event(state *s, bool is_change, int number, const uint8_t **data, size_t *size) {
    tl_segment_event *e = &s->events[s->waiting];
    tl_segment_epoch *epochs = s->epochs[s->waiting];
    uint64_t how = (uint64_t)take_number(data, size, 4);
    *e = (tl_segment_event){.partition = partition_of(number), .is_change = is_change};
    if (is_change) {
        e->of.change = (tl_segment_change){.id = {(uint8_t)number}, .state = (uint8_t)(1 + how % 3), .custom_size = -1};
    } else {
        int64_t start = (int64_t)(how >> 2 & 63), length = (int64_t)(how >> 8 & 15);
        size_t count = 1 + (how & 1) + (how >> 1 & 1);
        for (size_t i = 0; i < count; i++)
            epochs[i] = (tl_segment_epoch){(int32_t)((how >> 12 & 3) + i * (1 + (how >> 14 & 1))),
                                           start + (int64_t)i * (length / 3)};
        e->of.segment = (tl_segment){.id = {(uint8_t)number},
                                     .start_offset = start,
                                     .end_offset = start + length,
                                     .max_timestamp_ms = (int64_t)how,
                                     .epochs = epochs,
                                     .epoch_count = count,
                                     .custom_size = -1};
    }
    if (++s->waiting == BATCH) apply(s);
}

static void forget(state *s, int partition) {
    tl_partition_id id = partition_of(partition);
    bool known_one = false;
    for (int i = partition; i < SEGMENTS; i += PARTITIONS) s->of[i].there = false;
    for (int i = 0; i < EPOCHS; i++) {
        known_one |= s->highest[partition][i] >= 0;
        s->highest[partition][i] = -1;
    }
    bool was_there = tl_segment_table_forget(s->table, &id);
    REQUIRE(was_there || !known_one);
}

static void ask(const state *s, int partition) {
    enum { OFFSETS = 80 };
    tl_segment_question questions[OFFSETS];
    tl_segment_copy copies[OFFSETS];
    uint8_t found[OFFSETS];
    for (int32_t epoch = 0; epoch < EPOCHS; epoch++) {
        for (int i = 0; i < OFFSETS; i++) questions[i] = (tl_segment_question){partition_of(partition), epoch, i};
        tl_segment_table_find_many(s->table, questions, OFFSETS, copies, found);
        REQUIRE(tl_segment_table_highest(s->table, &questions[0].partition, epoch) == s->highest[partition][epoch]);
        for (int offset = 0; offset < OFFSETS && !s->as_kafka; offset++) {
            int64_t best = -1;
            for (int i = partition; i < SEGMENTS; i += PARTITIONS)
                for (size_t j = 0; s->of[i].there && j < s->of[i].segment.epoch_count; j++)
                    if (s->of[i].segment.state == TL_COPY_FINISHED && s->of[i].epochs[j].epoch == epoch &&
                        s->of[i].epochs[j].start_offset <= offset && end_of(&s->of[i], j) >= offset &&
                        end_of(&s->of[i], j) > best)
                        best = end_of(&s->of[i], j);
            REQUIRE(found[offset] == (best >= 0));
            if (!found[offset]) continue;
            const known *k = &s->of[copies[offset].id[0]];
            REQUIRE(k->there && k->segment.start_offset == copies[offset].start_offset);
        }
    }
    size_t listed = 0, wanted = 0, count;
    tl_segment_cursor cursor;
    tl_partition_id id = partition_of(partition);
    tl_segment_cursor_open(&cursor, &id, -1);
    while ((count = tl_segment_table_list(s->table, &cursor, copies, 5))) listed += count;
    for (int i = partition; i < SEGMENTS; i += PARTITIONS) {
        tl_segment_copy copy;
        bool is_there;
        uint8_t name[16] = {(uint8_t)i};
        wanted += s->of[i].there;
        REQUIRE(tl_segment_table_get(s->table, &id, name, NULL, &copy, &is_there) == TL_OK);
        REQUIRE(is_there == s->of[i].there && (!is_there || copy.state == s->of[i].segment.state));
    }
    REQUIRE(listed == wanted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    state s;
    memset(&s, 0, sizeof s);
    memset(s.highest, 0xff, sizeof s.highest);
    s.as_kafka = take_number(&data, &size, 1) & 1;
    REQUIRE(tl_segment_table_create(
                &s.table, &(tl_segment_table_options){sizeof(tl_segment_table_options), 5, s.as_kafka}) == TL_OK);
    while (size) {
        int64_t what = take_number(&data, &size, 1), number = take_number(&data, &size, 1) % SEGMENTS;
        if (what % 8 < 6) {
            add_event(&s, what % 8 > 2, (int)number, &data, &size);
            continue;
        }
        apply(&s);
        if (what % 64 == 7) forget(&s, (int)number % PARTITIONS);
        if (what % 8 == 6) ask(&s, (int)number % PARTITIONS);
    }
    apply(&s);
    for (int partition = 0; partition < PARTITIONS; partition++) ask(&s, partition);
    tl_segment_table_destroy(s.table);
    return 0;
}
