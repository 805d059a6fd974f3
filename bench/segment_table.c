/* What the segment table costs: bytes a segment, events, lookups, highest offsets and listed segments a second.
 *
 * cc -O3 -std=c11 -Icext/core bench/segment_table.c build/core/libtierlog_core.a -o build/segment_table
 * build/segment_table PARTITIONS SEGMENTS_EACH topic|random [worst]
 *
 * All times are CPU time of the process, of calls alone: what makes events and questions is not counted. Segments have
 * one to three epochs; a segment mostly goes on with the epoch of the one before. `topic`: STARTED and FINISHED of each
 * segment in its partition's order, the partitions interleaved at random. `random`: segments in random order. `worst`
 * takes the time of every single event. UNSETTLED=1: lookups on usual pages. */
#define _GNU_SOURCE 1
#include "tierlog/segment_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { AT_ONCE = 512, EPOCHS_MAX = 3, SEGMENT_OFFSETS = 1000, QUESTIONS = 1 << 20 };

typedef struct shape {
    uint32_t partitions, each;
    int32_t *first_epoch; /* of the segments of any partition */
    uint8_t *epoch_count;
} shape;

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static double cpu_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double resident_bytes(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long all = 0, resident = 0;
    if (!file || fscanf(file, "%lu %lu", &all, &resident) != 2) exit(2);
    fclose(file);
    return (double)resident * (double)sysconf(_SC_PAGESIZE);
}

static void *must(void *made) {
    if (!made) exit(2);
    return made;
}

/* Memory that this machine never used before is slow at its first touch where it is a virtual one: the hypervisor has
 * to find it, up to 10 ms for a huge page. That is no part of the table's cost. */
static void warm_memory(size_t bytes) {
    void *of = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (of == MAP_FAILED) exit(2);
    madvise(of, bytes, MADV_HUGEPAGE);
    memset(of, 1, bytes);
    munmap(of, bytes);
}

static shape make_shape(uint32_t partitions, uint32_t each) {
    shape s = {partitions, each, must(malloc(each * sizeof(int32_t))), must(malloc(each))};
    uint64_t random = 7;
    int32_t epoch = 0;
    for (uint32_t i = 0; i < each; i++) {
        s.epoch_count[i] = (uint8_t)(1 + next_random(&random) % EPOCHS_MAX);
        s.first_epoch[i] = epoch;
        epoch += s.epoch_count[i] - (next_random(&random) % 8 != 0);
    }
    return s;
}

static tl_partition_id partition_of(uint32_t number) {
    tl_partition_id id = {.partition = (int32_t)(number % 16)};
    uint64_t random = number / 16, words[2];
    words[0] = next_random(&random);
    words[1] = next_random(&random);
    memcpy(id.topic_id, words, 16);
    return id;
}

static void id_of(uint32_t partition, uint32_t number, uint8_t out[16]) {
    uint64_t random = (uint64_t)partition << 32 | number, words[2];
    words[0] = next_random(&random);
    words[1] = next_random(&random);
    memcpy(out, words, 16);
}

static void make_event(const shape *s, uint32_t partition, uint32_t number, bool finished, tl_segment_event *event,
                       tl_segment_epoch epochs[EPOCHS_MAX]) {
    memset(event, 0, sizeof *event);
    event->partition = partition_of(partition);
    event->is_change = finished;
    if (finished) {
        event->of.change = (tl_segment_change){
            .state = TL_COPY_FINISHED, .broker_id = 2, .event_timestamp_ms = 1700000000000, .custom_size = -1};
        id_of(partition, number, event->of.change.id);
        return;
    }
    int64_t start = (int64_t)number * SEGMENT_OFFSETS;
    for (int i = 0; i < s->epoch_count[number]; i++)
        epochs[i] = (tl_segment_epoch){s->first_epoch[number] + i, start + 300 * i};
    event->of.segment = (tl_segment){.start_offset = start,
                                     .end_offset = start + SEGMENT_OFFSETS - 1,
                                     .max_timestamp_ms = 1700000000000 + number,
                                     .event_timestamp_ms = 1700000000000,
                                     .broker_id = 1,
                                     .size_bytes = 1 << 30,
                                     .epochs = epochs,
                                     .epoch_count = s->epoch_count[number],
                                     .custom_size = -1};
    id_of(partition, number, event->of.segment.id);
}

static void shuffle(uint32_t *of, size_t count) {
    uint64_t random = 3;
    for (size_t i = count; i > 1; i--) {
        size_t j = next_random(&random) % i;
        uint32_t kept = of[i - 1];
        of[i - 1] = of[j];
        of[j] = kept;
    }
}

/* What the table is filled with, a batch at a time. `order`: in topic order partitions, one an event; else segments. */
typedef struct filling {
    const shape *s;
    bool topic;
    uint32_t *order, *next;
    size_t at, events;
} filling;

static filling make_filling(const shape *s, bool topic) {
    size_t segments = (size_t)s->partitions * s->each, entries = topic ? 2 * segments : segments;
    filling f = {s, topic, must(malloc(entries * 4)), must(malloc(s->partitions * 4)), 0, 2 * segments};
    memset(f.next, 0, s->partitions * 4);
    for (size_t i = 0; i < entries; i++) f.order[i] = (uint32_t)(topic ? i % s->partitions : i);
    shuffle(f.order, entries);
    return f;
}

static size_t next_events(filling *f, tl_segment_event *events, tl_segment_epoch (*epochs)[EPOCHS_MAX], size_t most) {
    size_t count = 0;
    for (; count < most && f->at < f->events; f->at++, count++) {
        uint32_t partition, number, finished;
        if (f->topic) {
            partition = f->order[f->at];
            number = f->next[partition] / 2;
            finished = f->next[partition]++ & 1;
        } else {
            partition = f->order[f->at / 2] / f->s->each;
            number = f->order[f->at / 2] % f->s->each;
            finished = f->at & 1;
        }
        make_event(f->s, partition, number, finished, &events[count], epochs[count]);
    }
    return count;
}

static tl_segment_event events[AT_ONCE];
static tl_segment_epoch epochs_of[AT_ONCE][EPOCHS_MAX];

static void fill(const shape *s, tl_segment_table *table, bool topic, bool worst) {
    filling f = make_filling(s, topic);
    double before = resident_bytes(), spent = 0, last_tenth = 0, most = 0;
    size_t count, done = 0;
    while ((count = next_events(&f, events, epochs_of, AT_ONCE))) {
        size_t each = worst ? 1 : count;
        for (size_t i = 0; i < count; i += each) {
            size_t applied;
            double begin = cpu_seconds();
            if (tl_segment_table_apply(table, events + i, each, &applied) != TL_OK || applied != each) exit(3);
            double took = cpu_seconds() - begin;
            spent += took;
            if (took > most) most = took;
            if (done * 10 >= f.events * 9) last_tenth += took;
            done += each;
        }
        for (size_t i = 0; i < count; i++)
            if (events[i].outcome != TL_EVENT_APPLIED) exit(3);
    }
    double segments = (double)s->partitions * s->each, bytes = resident_bytes() - before;
    tl_segment_table_figures figures = tl_segment_table_figures_of(table);
    printf("events                 %8.2f M/s, the last tenth %.2f M/s\n", 2 * segments / spent / 1e6,
           2 * segments / 10 / last_tenth / 1e6);
    if (worst) printf("worst single apply     %8.1f us\n", most * 1e6);
    printf("resident               %8.1f bytes a segment (cells in use %.1f)\n", bytes / segments,
           (double)figures.held_bytes / segments);
    free(f.order);
    free(f.next);
}

static tl_segment_question questions[AT_ONCE];
static tl_segment_copy copies[4096];
static uint8_t found[AT_ONCE];

static uint32_t make_questions(const shape *s, uint64_t *random, bool last_epoch) {
    for (size_t i = 0; i < AT_ONCE; i++) {
        uint32_t partition = (uint32_t)(next_random(random) % s->partitions);
        uint32_t number = last_epoch ? s->each - 1 : (uint32_t)(next_random(random) % s->each);
        int ordinal = (int)(next_random(random) % s->epoch_count[number]);
        int64_t offset = (int64_t)number * SEGMENT_OFFSETS + 300 * ordinal + (int64_t)(next_random(random) % 300);
        questions[i] = (tl_segment_question){partition_of(partition), s->first_epoch[number] + ordinal, offset};
    }
    return AT_ONCE;
}

static void check_answers(size_t count) {
    for (size_t i = 0; i < count; i++)
        if (!found[i] || copies[i].start_offset != questions[i].offset / SEGMENT_OFFSETS * SEGMENT_OFFSETS) exit(4);
}

static void look_up(const shape *s, const tl_segment_table *table) {
    uint64_t random = 11;
    double spent = 0;
    for (size_t done = 0; done < QUESTIONS; done += AT_ONCE) {
        make_questions(s, &random, false);
        double begin = cpu_seconds();
        tl_segment_table_find_many(table, questions, AT_ONCE, copies, found);
        spent += cpu_seconds() - begin;
        check_answers(AT_ONCE);
    }
    printf("find_many              %8.2f M/s\n", QUESTIONS / spent / 1e6);
    spent = 0;
    for (size_t done = 0; done < QUESTIONS; done += AT_ONCE) {
        make_questions(s, &random, false);
        double begin = cpu_seconds();
        for (size_t i = 0; i < AT_ONCE; i++) {
            bool is_there = false;
            const tl_segment_question *q = &questions[i];
            tl_segment_table_find(table, &q->partition, q->epoch, q->offset, NULL, &copies[i], &is_there);
            found[i] = is_there;
        }
        spent += cpu_seconds() - begin;
        check_answers(AT_ONCE);
    }
    printf("find                   %8.2f M/s\n", QUESTIONS / spent / 1e6);
    for (int last_epoch = 0; last_epoch < 2; last_epoch++) {
        spent = 0;
        for (size_t done = 0; done < QUESTIONS; done += AT_ONCE) {
            int64_t sum = 0;
            make_questions(s, &random, last_epoch);
            double begin = cpu_seconds();
            for (size_t i = 0; i < AT_ONCE; i++)
                sum |= tl_segment_table_highest(table, &questions[i].partition, questions[i].epoch);
            spent += cpu_seconds() - begin;
            if (sum < 0) exit(4);
        }
        printf("highest, %s    %8.2f M/s\n", last_epoch ? "newest    " : "any epoch ", QUESTIONS / spent / 1e6);
        spent = 0;
        for (size_t done = 0; done < QUESTIONS; done += AT_ONCE) {
            int64_t highest[AT_ONCE], sum = 0;
            make_questions(s, &random, last_epoch);
            double begin = cpu_seconds();
            tl_segment_table_highest_many(table, questions, AT_ONCE, highest);
            spent += cpu_seconds() - begin;
            for (size_t i = 0; i < AT_ONCE; i++) sum |= highest[i];
            if (sum < 0) exit(4);
        }
        printf("highest_many, the same %8.2f M/s\n", QUESTIONS / spent / 1e6);
    }
}

static void list(const shape *s, const tl_segment_table *table) {
    size_t listed = 0, count;
    double begin = cpu_seconds();
    for (uint32_t i = 0; i < s->partitions; i++) {
        tl_partition_id id = partition_of(i);
        tl_segment_cursor cursor;
        tl_segment_cursor_open(&cursor, &id, -1);
        while ((count = tl_segment_table_list(table, &cursor, copies, 1024))) listed += count;
    }
    double spent = cpu_seconds() - begin;
    if (listed != (size_t)s->partitions * s->each) exit(5);
    printf("list                   %8.2f M segments/s\n", (double)listed / spent / 1e6);
}

/* Nanoseconds of a random gather of 8 bytes over a table of so many bytes, on huge pages as the cells are. */
static void gather(size_t bytes) {
    size_t words = bytes / 8;
    uint64_t *of = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), random = 1, sum = 0;
    if (of == MAP_FAILED) exit(2);
    madvise(of, bytes, MADV_HUGEPAGE);
    for (size_t i = 0; i < words; i++) of[i] = i;
    double begin = cpu_seconds();
    for (size_t i = 0; i < (size_t)8 * QUESTIONS; i++) sum += of[next_random(&random) % words];
    printf("gather                 %8.2f ns over %zu MB%s\n", (cpu_seconds() - begin) * 1e9 / 8 / QUESTIONS,
           bytes >> 20, sum ? "" : " ");
    munmap(of, bytes);
}

int main(int count, char **of) {
    if (count < 4) return 1;
    bool topic = !strcmp(of[3], "topic"), worst = count > 4;
    shape s = make_shape((uint32_t)strtoul(of[1], NULL, 10), (uint32_t)strtoul(of[2], NULL, 10));
    warm_memory((size_t)s.partitions * s.each * 150);
    tl_segment_table *table;
    if (tl_segment_table_create(&table, &(tl_segment_table_options){.struct_size = sizeof(tl_segment_table_options), .hash_seed = 12345}) != TL_OK) return 2;
    printf("%u partitions of %u segments, %s order\n", s.partitions, s.each, of[3]);
    fill(&s, table, topic, worst);
    double begin = cpu_seconds();
    if (!getenv("UNSETTLED")) tl_segment_table_settle(table, SIZE_MAX);
    printf("settle                 %8.2f s\n", cpu_seconds() - begin);
    look_up(&s, table);
    list(&s, table);
    gather((size_t)tl_segment_table_figures_of(table).held_bytes);
    tl_segment_table_destroy(table);
    free(s.first_epoch);
    free(s.epoch_count);
    return 0;
}
