/* The segment table in C over the files of bench/metadata_table.py, one round a line of stdin.
 *
 * Built by bench/metadata_table.py; no part of the package. EVENTS QUESTIONS PARTITIONS FIRST: as its peer
 * (bench/peers/MetadataCache.java), and the same sums come out. */
#define _GNU_SOURCE 1
#include "tierlog/metadata_events.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PARTITIONS_EACH_TOPIC = 100, AT_ONCE = 1024, LISTED_AT_ONCE = 4096 };

typedef struct question {
    int32_t partition, epoch;
    int64_t offset;
} question;

static const void *map_file(const char *path, size_t *size) {
    struct stat about;
    int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &about)) exit(2);
    *size = (size_t)about.st_size;
    const void *at = mmap(NULL, *size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (at == MAP_FAILED) exit(2);
    close(file);
    return at;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int64_t resident(void) {
    FILE *file = fopen("/proc/self/statm", "r");
    long all, pages;
    if (!file || fscanf(file, "%ld %ld", &all, &pages) != 2) exit(2);
    fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

static tl_partition_id name_of(int32_t index) {
    tl_partition_id id = {.partition = index % PARTITIONS_EACH_TOPIC};
    for (int i = 0; i < 8; i++) id.topic_id[15 - i] = (uint8_t)((uint64_t)(index / PARTITIONS_EACH_TOPIC) >> (8 * i));
    return id;
}

static uint64_t sum_of(const tl_segment_copy *copy) {
    uint64_t low = 0;
    for (int i = 8; i < 16; i++) low = low << 8 | copy->id[i];
    return low + (uint64_t)copy->end_offset;
}

static void must(bool holds) {
    if (!holds) exit(3);
}

static uint64_t apply(tl_metadata_feed *feed, const uint8_t *events, size_t size) {
    static tl_metadata_refusal refusals[1];
    static tl_metadata_removal removals[1];
    tl_metadata_report report = {
        .struct_size = sizeof(tl_metadata_report), .refusals = refusals, .refusals_capacity = 1, .removals = removals, .removals_capacity = 1};
    tl_fault fault;
    tl_metadata_feed_begin(feed, 0);
    must(tl_metadata_feed_batches(feed, events, size, &report, &fault) == TL_OK && !report.refused);
    return report.applied + report.passed_over;
}

int main(int count, char **arguments) {
    size_t size, asked_size;
    must(count == 5);
    const uint8_t *events = map_file(arguments[1], &size);
    const question *asked = map_file(arguments[2], &asked_size);
    size_t questions = asked_size / sizeof *asked, first = (size_t)atol(arguments[4]);
    int32_t partitions = atoi(arguments[3]);
    tl_segment_question *names = malloc(questions * sizeof *names);
    tl_segment_copy *out = malloc(LISTED_AT_ONCE * sizeof *out);
    uint8_t *is_found = malloc(AT_ONCE);
    int64_t *highest_out = malloc(AT_ONCE * sizeof *highest_out);
    for (size_t i = 0; i < questions; i++)
        names[i] = (tl_segment_question){name_of(asked[i].partition), asked[i].epoch, asked[i].offset};
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        tl_segment_table *table, *none;
        tl_metadata_partitions *known, *nobody;
        tl_metadata_feed *feed, *idle;
        tl_segment_table_options options = {.struct_size = sizeof(tl_segment_table_options), .hash_seed = 77};
        must(tl_segment_table_create(&none, &options) == TL_OK && tl_metadata_partitions_create(&nobody, 1) == TL_OK);
        must(tl_metadata_feed_create(&idle, none, nobody, false) == TL_OK);
        double start = now();
        uint64_t passed = apply(idle, events, size);
        double passing = now() - start;
        int64_t before = resident();
        must(tl_segment_table_create(&table, &options) == TL_OK && tl_metadata_partitions_create(&known, 1) == TL_OK);
        must(tl_metadata_feed_create(&feed, table, known, true) == TL_OK);
        start = now();
        uint64_t applied = apply(feed, events, size);
        double applying = now() - start;
        int64_t held = resident() - before;
        uint64_t check = 0, check_first = 0, many_check = 0, found = 0;
        start = now();
        for (size_t i = 0; i < questions; i++) {
            bool is_there;
            if (i == first) check_first = check;
            must(tl_segment_table_find(table, &names[i].partition, names[i].epoch, names[i].offset, NULL, out,
                                       &is_there) == TL_OK);
            if (!is_there) continue;
            found++;
            check += sum_of(out);
        }
        if (questions <= first) check_first = check;
        double finding = now() - start;
        start = now();
        for (size_t at = 0; at < questions; at += AT_ONCE) {
            size_t n = questions - at < AT_ONCE ? questions - at : AT_ONCE;
            tl_segment_table_find_many(table, names + at, n, out, is_found);
            for (size_t i = 0; i < n; i++) many_check += is_found[i] ? sum_of(&out[i]) : 0;
        }
        double finding_many = now() - start;
        must(many_check == check);
        int64_t highest_check = 0;
        start = now();
        for (size_t i = 0; i < questions; i++)
            highest_check += tl_segment_table_highest(table, &names[i].partition, names[i].epoch);
        double highest = now() - start;
        int64_t highest_of_many = 0;
        start = now();
        for (size_t at = 0; at < questions; at += AT_ONCE) {
            size_t n = questions - at < AT_ONCE ? questions - at : AT_ONCE;
            tl_segment_table_highest_many(table, names + at, n, highest_out);
            for (size_t i = 0; i < n; i++) highest_of_many += highest_out[i];
        }
        double highest_many = now() - start;
        must(highest_of_many == highest_check);
        uint64_t listed = 0, list_check = 0;
        start = now();
        for (int32_t p = 0; p < partitions; p++) {
            tl_partition_id id = name_of(p);
            tl_segment_cursor cursor;
            tl_segment_cursor_open(&cursor, &id, -1);
            for (size_t n; (n = tl_segment_table_list(table, &cursor, out, LISTED_AT_ONCE)) > 0; listed += n)
                for (size_t i = 0; i < n; i++)
                    list_check += (uint64_t)out[i].start_offset + (uint64_t)out[i].size_bytes;
        }
        double listing = now() - start;
        printf("{\"seconds\": %f, \"events\": %" PRIu64 ", \"parse\": %f, \"parsed\": %" PRIu64 ", \"find\": %f, "
               "\"found\": %" PRIu64 ", \"check\": %" PRId64 ", \"check_first\": %" PRId64 ", \"find_many\": %f, "
               "\"highest\": %f, \"highest_many\": %f, \"highest_check\": %" PRId64
               ", \"list\": %f, \"listed\": %" PRIu64 ", \"list_check\": %" PRIu64 ", \"held\": %" PRId64 "}\n",
               applying, applied, passing, passed, finding, found, (int64_t)check, (int64_t)check_first, finding_many,
               highest, highest_many, highest_check, listing, listed, list_check, held);
        fflush(stdout);
        tl_metadata_feed_destroy(feed);
        tl_metadata_partitions_destroy(known);
        tl_segment_table_destroy(table);
        tl_metadata_feed_destroy(idle);
        tl_metadata_partitions_destroy(nobody);
        tl_segment_table_destroy(none);
    }
    return 0;
}
