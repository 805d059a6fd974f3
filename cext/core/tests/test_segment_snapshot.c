/* A table that was written and loaded answers as the one that it was written from, and goes on as it does. A wrong
 * answer here is history that a broker loses at every restart. */
#include "check.h"
#include "tierlog/segment_snapshot.h"

enum { PARTITIONS = 5, SEGMENTS = 300, EPOCHS_MAX = 12, EPOCHS = 24, OFFSETS = 380, SECTIONS_MAX = 64 };

typedef struct snapshot {
    bytes sections[SECTIONS_MAX];
    size_t count;
} snapshot;

static tl_partition_id partition_of(int number) {
    tl_partition_id id = {.partition = number};
    memset(id.topic_id, 7, 16);
    return id;
}

static uint64_t below(uint64_t *random, uint64_t bound) { return next_random(random) % bound; }

typedef struct made {
    tl_partition_id partition;
    tl_segment segment;
    tl_segment_epoch epochs[EPOCHS_MAX];
    uint8_t custom[40];
} made;

static void make(made *m, uint64_t *random, int64_t scale) {
    memset(m, 0, sizeof *m);
    m->partition = partition_of((int)below(random, PARTITIONS));
    tl_segment *s = &m->segment;
    for (int i = 0; i < 16; i++) s->id[i] = (uint8_t)next_random(random);
    s->start_offset = (int64_t)below(random, 300) * scale;
    s->end_offset = s->start_offset + (int64_t)below(random, 60) * scale;
    s->max_timestamp_ms = below(random, 8) ? (int64_t)below(random, 1u << 30) - 5 : INT64_MAX - 3;
    s->event_timestamp_ms = (int64_t)next_random(random);
    s->broker_id = (int32_t)next_random(random);
    s->size_bytes = (int32_t)below(random, 1u << 30);
    s->txn_index_empty = below(random, 2);
    s->epoch_count = 1 + below(random, below(random, 10) ? 3 : EPOCHS_MAX);
    int32_t epoch = (int32_t)below(random, 6);
    int64_t start = s->start_offset + (below(random, 9) ? 0 : 2);
    for (size_t i = 0; i < s->epoch_count; i++) {
        m->epochs[i] = (tl_segment_epoch){epoch, start};
        epoch += 1 + (int32_t)below(random, 2);
        start += (int64_t)below(random, 12) * scale;
    }
    s->custom_size = (int64_t)below(random, 3) - 1;
    if (s->custom_size > 0) s->custom_size = (int64_t)below(random, sizeof m->custom + 1);
    for (size_t i = 0; i < sizeof m->custom; i++) m->custom[i] = (uint8_t)next_random(random);
    s->epochs = m->epochs;
    s->custom = m->custom;
}

/* Some events, the same for each of `tables` if they begin with the same numbers. */
static void live(tl_segment_table *const *tables, size_t count, made *segments, uint64_t *random, int64_t scale,
                 int events) {
    for (int i = 0; i < events; i++) {
        made *m = &segments[below(random, SEGMENTS)];
        int to = (int)below(random, 4), first_state = -1;
        tl_event_outcome first = TL_EVENT_APPLIED;
        if (to == 0) make(m, random, scale);
        if (!m->segment.epoch_count) continue;
        m->segment.epochs = m->epochs;
        m->segment.custom = m->custom;
        tl_segment_change change = {.state = (uint8_t)to,
                                    .broker_id = (int32_t)next_random(random),
                                    .custom = m->custom,
                                    .event_timestamp_ms = (int64_t)next_random(random),
                                    .custom_size = (int64_t)below(random, sizeof m->custom + 2) - 1};
        memcpy(change.id, m->segment.id, 16);
        for (size_t t = 0; t < count; t++) {
            tl_event_outcome outcome;
            int state;
            CHECK_STATUS(to == 0 ? tl_segment_table_add(tables[t], &m->partition, &m->segment, &outcome, &state)
                                 : tl_segment_table_change(tables[t], &m->partition, &change, &outcome, &state),
                         TL_OK);
            if (t == 0) first = outcome, first_state = state;
            CHECK_EQUAL(outcome, first);
            CHECK_EQUAL(state, first_state);
        }
    }
}

static const char name[] = "orders";

static void write(const tl_segment_table *table, snapshot *out) {
    uint8_t *room = malloc(TL_SNAPSHOT_SECTION_MAX);
    tl_snapshot_partition partitions[PARTITIONS];
    for (int i = 0; i < PARTITIONS; i++)
        partitions[i] = (tl_snapshot_partition){partition_of(i), i - 1, i * 100 - 1, name, strlen(name)};
    size_t size;
    tl_snapshot_writer *writer;
    out->count = 0;
    CHECK_STATUS(tl_snapshot_writer_create(&writer, table, partitions, PARTITIONS), TL_OK);
    CHECK_EQUAL(tl_snapshot_writer_segments(writer), tl_segment_table_figures_of(table).segments);
    bool segments = false;
    for (;;) {
        CHECK_STATUS(segments ? tl_snapshot_put_segments(writer, (uint32_t)out->count, room, &size)
                              : tl_snapshot_put_partitions(writer, (uint32_t)out->count, room, &size),
                     TL_OK);
        if (!size && segments) break;
        if (!size) {
            segments = true;
            continue;
        }
        CHECK(size % 8 == 0 && out->count < SECTIONS_MAX);
        out->sections[out->count++] = copy_of(room, size);
    }
    tl_snapshot_writer_destroy(writer);
    free(room);
}

static void drop(snapshot *s) {
    while (s->count) free(s->sections[--s->count].data);
}

static tl_status load(const snapshot *from, bool as_kafka, uint64_t segments, tl_metadata_partitions *known,
                      tl_segment_table **out, tl_fault *fault) {
    tl_snapshot_loader *loader;
    CHECK_STATUS(
        tl_segment_table_create(out, &(tl_segment_table_options){sizeof(tl_segment_table_options), 99, as_kafka}),
        TL_OK);
    CHECK_STATUS(tl_snapshot_loader_create(&loader, *out, segments), TL_OK);
    tl_status status = TL_OK;
    for (size_t i = 0; i < from->count && status == TL_OK; i++) {
        tl_snapshot_head head;
        bytes section = from->sections[i];
        status = tl_snapshot_check(section.data, section.size, &head, fault);
        if (status != TL_OK) break;
        status = head.kind == TL_SNAPSHOT_PARTITIONS
                     ? tl_snapshot_load_partitions(loader, known, section.data, section.size, fault)
                     : tl_snapshot_load_segments(loader, section.data, section.size, fault);
    }
    if (status == TL_OK) status = tl_snapshot_load_end(loader, fault);
    tl_snapshot_loader_destroy(loader);
    return status;
}

static void check_same_copy(const tl_segment_copy *a, const tl_segment_copy *b) {
    CHECK(!memcmp(a->id, b->id, 16));
    CHECK_EQUAL(a->start_offset, b->start_offset);
    CHECK_EQUAL(a->end_offset, b->end_offset);
    CHECK_EQUAL(a->max_timestamp_ms, b->max_timestamp_ms);
    CHECK_EQUAL(a->event_timestamp_ms, b->event_timestamp_ms);
    CHECK_EQUAL(a->broker_id, b->broker_id);
    CHECK_EQUAL(a->size_bytes, b->size_bytes);
    CHECK_EQUAL(a->state, b->state);
    CHECK_EQUAL(a->txn_index_empty, b->txn_index_empty);
    CHECK_EQUAL(a->epoch_count, b->epoch_count);
    CHECK_EQUAL(a->custom_size, b->custom_size);
}

static void check_same_segment(const tl_segment_table *a, const tl_segment_table *b, const tl_partition_id *partition,
                               const uint8_t id[16]) {
    tl_segment_epoch epochs[2][EPOCHS_MAX];
    uint8_t custom[2][40];
    tl_segment_room rooms[2] = {{epochs[0], EPOCHS_MAX, custom[0], 40}, {epochs[1], EPOCHS_MAX, custom[1], 40}};
    tl_segment_copy copies[2];
    bool found[2];
    CHECK_STATUS(tl_segment_table_get(a, partition, id, &rooms[0], &copies[0], &found[0]), TL_OK);
    CHECK_STATUS(tl_segment_table_get(b, partition, id, &rooms[1], &copies[1], &found[1]), TL_OK);
    CHECK_EQUAL(found[0], found[1]);
    if (!found[0]) return;
    check_same_copy(&copies[0], &copies[1]);
    for (uint32_t i = 0; i < copies[0].epoch_count; i++) {
        CHECK_EQUAL(epochs[0][i].epoch, epochs[1][i].epoch);
        CHECK_EQUAL(epochs[0][i].start_offset, epochs[1][i].start_offset);
    }
    if (copies[0].custom_size > 0) CHECK(!memcmp(custom[0], custom[1], (size_t)copies[0].custom_size));
}

/* Every answer that there is. */
static void check_same(const tl_segment_table *a, const tl_segment_table *b, int64_t scale) {
    CHECK_EQUAL(tl_segment_table_figures_of(a).segments, tl_segment_table_figures_of(b).segments);
    for (int p = 0; p < PARTITIONS; p++) {
        tl_partition_id id = partition_of(p);
        for (int32_t epoch = -1; epoch < EPOCHS; epoch++) {
            tl_segment_cursor cursors[2];
            tl_segment_copy copies[2];
            tl_segment_cursor_open(&cursors[0], &id, epoch);
            tl_segment_cursor_open(&cursors[1], &id, epoch);
            for (;;) {
                size_t more = tl_segment_table_list(a, &cursors[0], &copies[0], 1);
                CHECK_EQUAL(tl_segment_table_list(b, &cursors[1], &copies[1], 1), more);
                if (!more) break;
                check_same_copy(&copies[0], &copies[1]);
                check_same_segment(a, b, &id, copies[0].id);
            }
            if (epoch < 0) continue;
            CHECK_EQUAL(tl_segment_table_highest(a, &id, epoch), tl_segment_table_highest(b, &id, epoch));
            for (int64_t offset = 0; offset < OFFSETS; offset += 3) {
                bool found[2];
                CHECK_STATUS(tl_segment_table_find(a, &id, epoch, offset * scale, NULL, &copies[0], &found[0]), TL_OK);
                CHECK_STATUS(tl_segment_table_find(b, &id, epoch, offset * scale, NULL, &copies[1], &found[1]), TL_OK);
                CHECK_EQUAL(found[0], found[1]);
                if (found[0]) check_same_copy(&copies[0], &copies[1]);
            }
        }
    }
}

static void test_round_trip(uint64_t seed, bool as_kafka, int64_t scale, int events) {
    static made segments[SEGMENTS];
    memset(segments, 0, sizeof segments);
    uint64_t random = seed;
    tl_segment_table *tables[2];
    CHECK_STATUS(tl_segment_table_create(&tables[0],
                                         &(tl_segment_table_options){sizeof(tl_segment_table_options), seed, as_kafka}),
                 TL_OK);
    live(tables, 1, segments, &random, scale, events);
    snapshot first, second;
    tl_fault fault;
    write(tables[0], &first);
    uint64_t count = tl_segment_table_figures_of(tables[0]).segments;
    tl_metadata_partitions *known;
    CHECK_STATUS(tl_metadata_partitions_create(&known, 99), TL_OK);
    CHECK_STATUS(load(&first, as_kafka, count, known, &tables[1], &fault), TL_OK);
    for (int i = 0; i < PARTITIONS; i++) {
        tl_partition_id id = partition_of(i);
        const tl_metadata_partition *p = tl_metadata_partitions_find(known, &id);
        CHECK(p && p->place == i - 1 && p->applied == i * 100 - 1);
        CHECK(p->topic->name_size == strlen(name) && !memcmp(p->topic->name, name, strlen(name)));
    }
    tl_metadata_partitions_destroy(known);
    check_same(tables[0], tables[1], scale);
    write(tables[1], &second);
    CHECK_EQUAL(second.count, first.count);
    for (size_t i = 0; i < first.count; i++) {
        CHECK_EQUAL(second.sections[i].size, first.sections[i].size);
        CHECK(!memcmp(second.sections[i].data, first.sections[i].data, first.sections[i].size));
    }
    live(tables, 2, segments, &random, scale, 600); /* what comes later means the same to both */
    check_same(tables[0], tables[1], scale);
    drop(&first);
    drop(&second);
    tl_segment_table_destroy(tables[0]);
    tl_segment_table_destroy(tables[1]);
}

/* Damage that the checksum hides: some status, and no byte outside of what is there. */
static void test_resealed_damage(uint64_t seed, bool as_kafka) {
    static made segments[SEGMENTS];
    memset(segments, 0, sizeof segments);
    uint64_t random = seed;
    tl_segment_table *table, *loaded;
    snapshot whole;
    tl_fault fault;
    CHECK_STATUS(
        tl_segment_table_create(&table, &(tl_segment_table_options){sizeof(tl_segment_table_options), seed, as_kafka}),
        TL_OK);
    live(&table, 1, segments, &random, 1, 60);
    write(table, &whole);
    tl_segment_table_destroy(table);
    int refused = 0;
    for (int round = 0; round < 1500; round++) {
        snapshot damaged = {.count = whole.count};
        for (size_t i = 0; i < whole.count; i++)
            damaged.sections[i] = copy_of(whole.sections[i].data, whole.sections[i].size);
        bytes *section = &damaged.sections[below(&random, damaged.count)];
        section->data[below(&random, section->size)] ^= (uint8_t)(1u << below(&random, 8));
        tl_snapshot_head head;
        tl_status status = tl_snapshot_check(section->data, section->size, &head, &fault);
        CHECK(status != TL_OK);
        if (status == TL_BAD_CRC) {
            tl_snapshot_seal(section->data, head);
            tl_metadata_partitions *known;
            CHECK_STATUS(tl_metadata_partitions_create(&known, 99), TL_OK);
            status = load(&damaged, as_kafka, 1 << 10, known, &loaded, &fault);
            tl_metadata_partitions_destroy(known);
            refused += status != TL_OK;
            tl_segment_table_destroy(loaded);
        }
        drop(&damaged);
    }
    CHECK(refused > 100);
    drop(&whole);
}

/* Two segments of one id: the second would be found by nobody. */
static void test_same_id_twice(void) {
    uint64_t random = 5;
    made m;
    tl_segment_table *table, *loaded;
    snapshot whole;
    tl_event_outcome outcome;
    int state;
    tl_fault fault;
    CHECK_STATUS(
        tl_segment_table_create(&table, &(tl_segment_table_options){sizeof(tl_segment_table_options), 1, false}),
        TL_OK);
    for (int i = 0; i < 2; i++) {
        make(&m, &random, 1);
        m.partition = partition_of(0);
        CHECK_STATUS(tl_segment_table_add(table, &m.partition, &m.segment, &outcome, &state), TL_OK);
    }
    write(table, &whole);
    uint8_t *ids = whole.sections[1].data + TL_SNAPSHOT_HEAD_BYTES;
    memcpy(ids + 16, ids, 16);
    tl_snapshot_head head;
    CHECK_STATUS(tl_snapshot_check(whole.sections[1].data, whole.sections[1].size, &head, &fault), TL_BAD_CRC);
    tl_snapshot_seal(whole.sections[1].data, head);
    CHECK_STATUS(load(&whole, false, 2, NULL, &loaded, &fault), TL_BAD_ENTRY);
    drop(&whole);
    tl_segment_table_destroy(table);
    tl_segment_table_destroy(loaded);
}

/* An event between two sections: the snapshot would be of no moment. */
static void test_changed_meanwhile(void) {
    static made segments[SEGMENTS];
    uint64_t random = 3;
    tl_segment_table *table;
    uint8_t *room = malloc(TL_SNAPSHOT_SECTION_MAX);
    size_t size;
    CHECK_STATUS(
        tl_segment_table_create(&table, &(tl_segment_table_options){sizeof(tl_segment_table_options), 1, false}),
        TL_OK);
    live(&table, 1, segments, &random, 1, 60);
    for (int gone = 0; gone < 2; gone++) {
        tl_snapshot_partition partitions[2] = {{.id = partition_of(0)}, {.id = partition_of(gone ? 0 : 77)}};
        tl_snapshot_writer *writer;
        made m;
        tl_event_outcome outcome;
        int state;
        CHECK_STATUS(tl_snapshot_writer_create(&writer, table, partitions, 2), TL_OK);
        make(&m, &random, 1);
        if (gone) {
            tl_segment_table_forget(table, &partitions[0].id);
        } else {
            CHECK_STATUS(tl_segment_table_add(table, &partitions[1].id, &m.segment, &outcome, &state), TL_OK);
        }
        CHECK_STATUS(tl_snapshot_put_partitions(writer, 0, room, &size), TL_BAD_ARGUMENT);
        CHECK_STATUS(tl_snapshot_put_segments(writer, 0, room, &size), TL_BAD_ARGUMENT);
        tl_snapshot_writer_destroy(writer);
    }
    free(room);
    tl_segment_table_destroy(table);
}

int main(void) {
    test_changed_meanwhile();
    for (uint64_t seed = 1; seed <= 2; seed++) {
        for (int events = 0; events < 1500; events += 499) {
            test_round_trip(seed, false, 1, events);
            test_round_trip(seed, true, 1, events);
        }
        test_round_trip(seed, false, (int64_t)1 << 33, 1200);
        test_resealed_damage(seed, seed % 2);
    }
    test_same_id_twice();
    return 0;
}
