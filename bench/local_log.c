/* What the core does of a local log, as a side of bench/local_log.py: one round for each line of stdin.
 *
 * Built by bench/local_log.py; no part of the package. Questions, words of a line:
 *   append DATA FOLDER SEGMENT_BYTES   a leader's appends of a file's batches: checked, assigned, indexed, written
 *   write DATA FOLDER SEGMENT_BYTES    write(2) of the same bytes, batch by batch, into files that are cut alike
 *   lookup INDEX BASE QUESTIONS AT_ONCE ANSWERS   offsets of a file of int64; ANSWERS "-": none are written
 *   checksum FILE                      pread by 1 MiB, and CRC-32C over it */
#define _GNU_SOURCE 1
#include "tierlog/tierlog.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LEADER_EPOCH = 3, INTERVAL_BYTES = 4096, INDEX_BYTES = 10 << 20, PIECE = 1 << 20, PATH_SIZE = 4096 };

static void must(bool holds) {
    if (!holds) exit(3);
}

static double by(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double now(void) { return by(CLOCK_MONOTONIC); }
static double cpu(void) { return by(CLOCK_THREAD_CPUTIME_ID); }

static uint8_t *read_file(const char *path, size_t *size) {
    struct stat about;
    int file = open(path, O_RDONLY);
    must(file >= 0 && !fstat(file, &about));
    *size = (size_t)about.st_size;
    uint8_t *data = malloc(*size);
    must(data);
    for (size_t done = 0; done < *size;) {
        ssize_t count = read(file, data + done, *size - done);
        must(count > 0);
        done += (size_t)count;
    }
    close(file);
    return data;
}

static const char *path_of(const char *folder, int64_t base_offset, const char *suffix) {
    static char path[PATH_SIZE];
    must((size_t)snprintf(path, sizeof path, "%s/%020" PRId64 "%s", folder, base_offset, suffix) < sizeof path);
    return path;
}

static size_t batch_size(const uint8_t *batch) {
    uint32_t length;
    memcpy(&length, batch + 8, sizeof length);
    return 12 + __builtin_bswap32(length);
}

/* ---- append */

typedef struct segment {
    tl_files files;
    tl_growing_file log;
    int64_t offsets, times; /* open files */
    uint64_t offsets_size, times_size;
    tl_index_tail tail;
} segment;

static int64_t made(tl_files files, const char *folder, int64_t base_offset, const char *suffix) {
    int64_t file = files.ops->open(files.context, path_of(folder, base_offset, suffix), TL_OPEN_NEW);
    must(file >= 0);
    return file;
}

static void begin(segment *segment, const char *folder, int64_t base_offset, uint64_t limit) {
    tl_files files = segment->files;
    segment->log =
        (tl_growing_file){.files = files, .file = made(files, folder, base_offset, ".log"), .reserve_limit = limit};
    segment->offsets = made(files, folder, base_offset, ".index");
    segment->times = made(files, folder, base_offset, ".timeindex");
    segment->offsets_size = segment->times_size = 0;
    tl_index_begin(&segment->tail, base_offset, INTERVAL_BYTES, INDEX_BYTES / TL_OFFSET_ENTRY,
                   INDEX_BYTES / TL_TIME_ENTRY - 1);
}

static void write_at(tl_files files, int64_t file, uint64_t *end, const uint8_t *data, size_t size) {
    if (!size) return;
    must(files.ops->pwrite(files.context, file, *end, data, size) >= 0);
    *end += size;
}

static void write_entries(segment *segment, const tl_index_entries *entries) {
    write_at(segment->files, segment->offsets, &segment->offsets_size, entries->offsets,
             entries->offset_count * TL_OFFSET_ENTRY);
    write_at(segment->files, segment->times, &segment->times_size, entries->times, entries->time_count * TL_TIME_ENTRY);
}

static void end(segment *segment) {
    uint8_t time[TL_TIME_ENTRY];
    tl_index_entries entries = {.times = time};
    tl_index_close(&segment->tail, &entries);
    write_entries(segment, &entries);
    must(segment->files.ops->truncate(segment->files.context, segment->log.file, segment->log.size) == 0);
    segment->files.ops->close(segment->files.context, segment->log.file);
    segment->files.ops->close(segment->files.context, segment->offsets);
    segment->files.ops->close(segment->files.context, segment->times);
}

static void append(char **asked) {
    size_t size, batches = 0, segments = 1;
    uint64_t limit = strtoull(asked[3], NULL, 10);
    int64_t next = 0, check = 0;
    uint8_t *data = read_file(asked[1], &size);
    tl_leader_options options = {.struct_size = sizeof(tl_leader_options), .now_ms = (int64_t)time(NULL) * 1000,
                                 .timestamp_before_max_ms = INT64_MAX,
                                 .timestamp_after_max_ms = 3600000,
                                 .decompressed_limit = 256 << 20,
                                 .leader_epoch = LEADER_EPOCH,
                                 .max_message_bytes = 1048588,
                                 .target_codec = -1};
    tl_scratch scratch = {0};
    tl_record_errors errors = {0};
    segment segment = {.files = tl_posix_files()};
    double start = now(), begun = cpu();
    begin(&segment, asked[2], 0, limit);
    for (size_t at = 0; at < size; batches++) {
        uint8_t offset_entry[TL_OFFSET_ENTRY], time_entry[TL_TIME_ENTRY];
        tl_index_entries entries = {.offsets = offset_entry, .times = time_entry};
        tl_leader_batch batch;
        tl_fault fault;
        size_t bytes = batch_size(data + at);
        options.first_offset = next;
        must(tl_leader_append(data + at, bytes, &options, &scratch, &errors, &batch, &fault) == TL_OK);
        if (segment.log.size + bytes > limit) {
            end(&segment);
            begin(&segment, asked[2], next, limit);
            segments++;
        }
        int64_t last = next + batch.header.last_offset_delta;
        int32_t batch_bytes = batch.header.size_bytes;
        tl_batch_table row = {.struct_size = sizeof(tl_batch_table), .capacity = 1,
                              .count = 1,
                              .last_offset = &last,
                              .max_timestamp = &batch.header.max_timestamp,
                              .size_bytes = &batch_bytes};
        must(tl_index_add(&segment.tail, &row, 0, (int64_t)segment.log.size, &entries, &fault) == TL_OK);
        must(tl_growing_file_append(&segment.log, data + at, bytes) == 0);
        write_entries(&segment, &entries);
        at += bytes;
        next = last + 1;
        check += last;
    }
    end(&segment);
    double seconds = now() - start, used = cpu() - begun;
    printf("{\"seconds\": %f, \"cpu\": %f, \"batches\": %zu, \"end\": %" PRId64 ", \"segments\": %zu, "
           "\"check\": %" PRId64 "}\n",
           seconds, used, batches, next, segments, check);
    free(data);
}

/* ---- peers of ours */

static void write_bare(char **asked) {
    size_t size, batches = 0;
    uint64_t limit = strtoull(asked[3], NULL, 10), written = 0;
    uint8_t *data = read_file(asked[1], &size);
    double start = now(), begun = cpu();
    int file = open(path_of(asked[2], 0, ".log"), O_WRONLY | O_CREAT | O_EXCL, 0644);
    for (size_t at = 0; at < size; batches++) {
        size_t bytes = batch_size(data + at);
        if (written + bytes > limit) {
            close(file);
            file = open(path_of(asked[2], (int64_t)batches, ".log"), O_WRONLY | O_CREAT | O_EXCL, 0644);
            written = 0;
        }
        must(write(file, data + at, bytes) == (ssize_t)bytes);
        written += bytes;
        at += bytes;
    }
    close(file);
    printf("{\"seconds\": %f, \"cpu\": %f, \"batches\": %zu}\n", now() - start, cpu() - begun, batches);
    free(data);
}

static void checksum(char **asked) {
    uint8_t *piece = malloc(PIECE);
    int file = open(asked[1], O_RDONLY);
    uint32_t crc = 0;
    uint64_t at = 0;
    must(piece && file >= 0);
    memset(piece, 0, PIECE);
    double start = now();
    for (ssize_t count; (count = pread(file, piece, PIECE, (off_t)at)) > 0; at += (uint64_t)count)
        crc = tl_crc32c(crc, piece, (size_t)count);
    printf("{\"seconds\": %f, \"bytes\": %" PRIu64 ", \"check\": %" PRIu32 "}\n", now() - start, at, crc);
    close(file);
    free(piece);
}

/* ---- lookups */

static void lookup(char **asked) {
    size_t size, asked_size, at_once = strtoull(asked[4], NULL, 10);
    int64_t base = strtoll(asked[2], NULL, 10);
    uint8_t *index = read_file(asked[1], &size), *questions = read_file(asked[3], &asked_size);
    const int64_t *targets = (const int64_t *)(const void *)questions;
    size_t count = asked_size / sizeof *targets, entries = tl_offset_index_entries(index, size);
    int64_t *offsets = malloc(at_once * sizeof *offsets), check = 0;
    int32_t *positions = malloc(at_once * sizeof *positions);
    FILE *answers = strcmp(asked[5], "-") ? fopen(asked[5], "wb") : NULL;
    must(offsets && positions);
    double start = now();
    for (size_t at = 0; at < count; at += at_once) {
        size_t n = count - at < at_once ? count - at : at_once;
        if (n == 1)
            tl_offset_index_lookup(index, entries, base, targets[at], offsets, positions);
        else
            tl_offset_index_lookup_many(index, entries, base, targets + at, n, offsets, positions);
        for (size_t i = 0; i < n; i++) check += offsets[i] + positions[i];
        for (size_t i = 0; answers && i < n; i++) {
            int64_t pair[2] = {offsets[i], positions[i]};
            must(fwrite(pair, sizeof pair, 1, answers) == 1);
        }
    }
    printf("{\"seconds\": %f, \"lookups\": %zu, \"check\": %" PRId64 "}\n", now() - start, count, check);
    if (answers) must(!fclose(answers));
    free(index);
    free(questions);
    free(offsets);
    free(positions);
}

int main(void) {
    static char line[4 * PATH_SIZE];
    while (fgets(line, sizeof line, stdin)) {
        char *asked[6] = {0}, *rest = line;
        for (size_t i = 0; i < 6; i++) asked[i] = strtok_r(rest, " \n", &rest);
        if (!strcmp(asked[0], "append")) append(asked);
        if (!strcmp(asked[0], "write")) write_bare(asked);
        if (!strcmp(asked[0], "checksum")) checksum(asked);
        if (!strcmp(asked[0], "lookup")) lookup(asked);
        fflush(stdout);
    }
    return 0;
}
