/* A batch that is taken for usual, and is not, loses a roll, an epoch or a duplicate; one that is written twice, or
 * half taken over, leaves indexes that point past the log. */
#define _XOPEN_SOURCE 700
#include "check.h"
#include "folder.h"
#include "log/usual_append.h"
#include "tierlog/checksum.h"
#include "tierlog/growing_file.h"

#include <errno.h>

static const char PLAIN[] =
    "00000000000000000000004effffffff0298fc06fd0000000000010000018bcfe568000000018bcfe56805ffff"
    "ffffffffffffffffffffffff0000000226000000046b3104763104046831027804686e0110000a020104763200";
enum { BATCH_SIZE = 90, LOG_END = 1000, EPOCH = 5, PRODUCER = 7 };
static const int64_t MAX_TIMESTAMP = 1700000000005;

static void store(uint8_t *at, uint64_t value, int size) {
    for (int i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static bytes batch_of(int64_t producer_id, int32_t sequence) {
    bytes batch = from_hex(PLAIN);
    store(batch.data + 43, (uint64_t)producer_id, 8);
    store(batch.data + 51, producer_id < 0 ? 0xffff : 0, 2);
    store(batch.data + 53, (uint32_t)sequence, 4);
    store(batch.data + 17, tl_crc32c(0, batch.data + 21, batch.size - 21), 4);
    return batch;
}

/* A disk with room for so many bytes of a file. */
static uint64_t capacity;
static int64_t pwrite_within(void *context, int64_t file, uint64_t position, const uint8_t *data, size_t size) {
    return position + size > capacity ? -ENOSPC : tl_posix_files().ops->pwrite(context, file, position, data, size);
}

/* A log over a file. */
typedef struct life {
    folder root;
    tl_file_ops ops;
    tl_growing_file file;
    tl_leader_options options;
    tl_scratch scratch;
    tl_index_tail tail;
    tl_active_segment segment;
    tl_producer producer;
    tl_leader_log log;
    tl_usual_append out;
    tl_fault fault;
} life;

static int64_t append_bytes(void *file, const uint8_t *data, size_t size) {
    return tl_growing_file_append(file, data, size);
}

static void begin(life *life, uint64_t room) {
    *life = (struct life){.options = {.struct_size = sizeof(tl_leader_options),
                                      .first_offset = LOG_END,
                                      .now_ms = MAX_TIMESTAMP,
                                      .timestamp_before_max_ms = INT64_MAX,
                                      .timestamp_after_max_ms = 3600000,
                                      .decompressed_limit = 1 << 20,
                                      .leader_epoch = EPOCH,
                                      .max_message_bytes = 1048588,
                                      .target_codec = -1},
                          .producer = {.producer_id = PRODUCER, .transaction_offset = -1}};
    capacity = room;
    life->root = new_folder();
    life->ops = *tl_posix_files().ops;
    life->ops.pwrite = pwrite_within;
    life->file = (tl_growing_file){.files = {&life->ops, NULL},
                                   .file = life->ops.open(NULL, PATH_IN(&life->root, "log"), TL_OPEN_NEW)};
    CHECK(life->file.file >= 0);
    tl_index_begin(&life->tail, LOG_END, 0, 2, 2);
    life->segment = (tl_active_segment){.tail = &life->tail, .append = append_bytes, .file = &life->file};
    life->segment.end.first_timestamp = TL_NO_TIMESTAMP_KNOWN;
    life->log = (tl_leader_log){.options = &life->options,
                                .scratch = &life->scratch,
                                .segment = &life->segment,
                                .latest = {.epoch = EPOCH, .start_offset = 10},
                                .limits = {.size = 1 << 20, .age_ms = 1000}};
}

static void end(life *life) {
    life->file.files.ops->close(life->file.files.context, life->file.file);
    remove_folder(&life->root);
}

static tl_status run(life *life, bytes batch) {
    tl_record_errors errors = {0};
    tl_status status = tl_usual_append_run(&life->log, batch.data, batch.size, &errors, &life->out, &life->fault);
    free(batch.data);
    return status;
}

static void take(life *life, tl_producer *producer) {
    CHECK(life->out.is_written);
    CHECK_EQUAL(tl_usual_append_take(&life->segment, producer, &life->out), life->options.first_offset + 2);
    life->options.first_offset += 2;
}

static void is_left(life *life, bytes batch) {
    uint64_t size = life->file.size;
    tl_index_tail tail = life->tail;
    tl_producer producer = life->producer;
    CHECK_STATUS(run(life, batch), TL_OK);
    CHECK(!life->out.is_written);
    CHECK_EQUAL(life->out.error, 0);
    CHECK_EQUAL(life->out.batch.header.base_offset, life->options.first_offset); /* assigned, for the other order */
    CHECK_EQUAL(life->file.size, size);
    CHECK(!memcmp(&tail, &life->tail, sizeof tail) && !memcmp(&producer, &life->producer, sizeof producer));
}

static void test_a_usual_batch_is_written(void) {
    life life;
    begin(&life, 1 << 20);
    CHECK_STATUS(run(&life, batch_of(-1, -1)), TL_OK);
    CHECK_EQUAL(life.file.size, BATCH_SIZE);
    CHECK_EQUAL(life.segment.end.size, 0); /* the second half takes it */
    CHECK_EQUAL(life.tail.max_timestamp, -1);
    CHECK(!life.out.growth.has_offset_entry && !life.out.growth.has_time_entry);
    take(&life, NULL);
    CHECK_EQUAL(life.segment.end.size, BATCH_SIZE);
    CHECK_EQUAL(life.segment.end.first_timestamp, MAX_TIMESTAMP);
    CHECK_EQUAL(life.tail.max_timestamp, MAX_TIMESTAMP);
    uint8_t found[BATCH_SIZE];
    CHECK_EQUAL(life.file.files.ops->pread(life.file.files.context, life.file.file, 0, found, BATCH_SIZE), BATCH_SIZE);
    bytes expected = batch_of(-1, -1);
    store(expected.data, LOG_END, 8);
    store(expected.data + 12, EPOCH, 4);
    CHECK(!memcmp(found, expected.data, BATCH_SIZE));
    free(expected.data);
    CHECK_STATUS(run(&life, batch_of(-1, -1)), TL_OK);
    CHECK(life.out.growth.has_offset_entry && life.out.growth.has_time_entry);
    static const uint8_t ENTRY[TL_OFFSET_ENTRY] = {0, 0, 0, 3, 0, 0, 0, BATCH_SIZE};
    CHECK(!memcmp(life.out.growth.offset_entry, ENTRY, sizeof ENTRY));
    take(&life, NULL);
    CHECK_EQUAL(life.segment.end.size, 2 * BATCH_SIZE);
    end(&life);
}

static void test_a_sequel_is_taken(void) {
    life life;
    begin(&life, 1 << 20);
    is_left(&life, batch_of(PRODUCER, 0)); /* nothing is known of it */
    life.log.producer = &life.producer;
    is_left(&life, batch_of(PRODUCER, 0)); /* no batch of it is known */
    tl_producer_keep(&life.producer, &(tl_producer_batch){.last_sequence = 9});
    is_left(&life, batch_of(PRODUCER, 8)); /* a duplicate, or out of order */
    is_left(&life, batch_of(PRODUCER + 1, 10));
    CHECK_STATUS(run(&life, batch_of(PRODUCER, 10)), TL_OK);
    CHECK_EQUAL(life.producer.batch_count, 1);
    take(&life, &life.producer);
    CHECK_EQUAL(life.producer.batch_count, 2);
    CHECK_EQUAL(life.producer.batches[1].last_sequence, 11);
    CHECK_EQUAL(life.producer.batches[1].last_offset, LOG_END + 1);
    CHECK_EQUAL(life.producer.batches[1].last_offset_delta, 1);
    CHECK_EQUAL(life.producer.last_timestamp, MAX_TIMESTAMP);
    end(&life);
}

static void test_what_is_left_to_the_other_order(void) {
    life life;
    begin(&life, 1 << 20);
    life.log.latest.epoch = EPOCH - 1;
    is_left(&life, batch_of(-1, -1));
    life.log.latest = (tl_latest_epoch){.epoch = EPOCH, .start_offset = LOG_END + 1};
    is_left(&life, batch_of(-1, -1));
    life.log.latest.start_offset = LOG_END;
    life.log.limits.size = BATCH_SIZE - 1;
    is_left(&life, batch_of(-1, -1));
    life.log.limits.size = BATCH_SIZE;
    life.options.target_codec = TL_CODEC_ZSTD;
    CHECK_STATUS(run(&life, batch_of(-1, -1)), TL_OK);
    CHECK(life.out.batch.must_rebuild && !life.out.is_written);
    life.options.target_codec = -1;
    life.segment.append = NULL;
    is_left(&life, batch_of(-1, -1));
    life.segment.append = append_bytes;
    life.segment.tail = NULL;
    is_left(&life, batch_of(-1, -1));
    life.log.segment = NULL;
    is_left(&life, batch_of(-1, -1));
    life.log.segment = &life.segment;
    life.segment.tail = &life.tail;
    life.tail.last_offset = LOG_END + 1; /* its own end is behind the log's: the other order says so */
    is_left(&life, batch_of(-1, -1));
    life.tail.last_offset = LOG_END - 1;
    bytes none = batch_of(-1, -1);
    none.size--;
    CHECK_STATUS(run(&life, none), TL_OK);
    CHECK(!life.out.is_written && life.out.batch.header.size_bytes == 0);
    CHECK_STATUS(run(&life, batch_of(-1, -1)), TL_OK); /* with nothing in its way it is usual */
    take(&life, NULL);
    end(&life);
}

static void test_a_batch_that_is_refused(void) {
    life life;
    begin(&life, 1 << 20);
    life.options.max_message_bytes = BATCH_SIZE - 1;
    CHECK_STATUS(run(&life, batch_of(-1, -1)), TL_BAD_SIZE);
    CHECK_EQUAL(life.out.batch.rule, TL_APPEND_TOO_LARGE);
    CHECK(!life.out.is_written && !life.out.error && !life.file.size);
    end(&life);
}

static void test_a_full_disk(void) {
    life life;
    begin(&life, BATCH_SIZE);
    CHECK_STATUS(run(&life, batch_of(-1, -1)), TL_OK);
    take(&life, NULL);
    CHECK_STATUS(run(&life, batch_of(-1, -1)), TL_OK);
    CHECK_EQUAL(life.out.error, -ENOSPC);
    CHECK(!life.out.is_written);
    CHECK_EQUAL(life.file.size, BATCH_SIZE);
    CHECK_EQUAL(life.segment.end.size, BATCH_SIZE);
    CHECK_EQUAL(life.tail.bytes_since_entry, BATCH_SIZE);
    end(&life);
}

static void test_which_producer_is_named(void) {
    bytes batch = batch_of(PRODUCER, 0);
    CHECK_EQUAL(tl_named_producer(batch.data, batch.size), PRODUCER);
    CHECK_EQUAL(tl_named_producer(batch.data, TL_HEADER_SIZE_V2), PRODUCER);
    CHECK_EQUAL(tl_named_producer(batch.data, TL_HEADER_SIZE_V2 - 1), -1);
    batch.data[TL_MAGIC_POSITION] = 1;
    CHECK_EQUAL(tl_named_producer(batch.data, batch.size), -1);
    free(batch.data);
    batch = batch_of(-1, -1);
    CHECK_EQUAL(tl_named_producer(batch.data, batch.size), -1);
    free(batch.data);
}

int main(void) {
    test_a_usual_batch_is_written();
    test_a_sequel_is_taken();
    test_what_is_left_to_the_other_order();
    test_a_batch_that_is_refused();
    test_a_full_disk();
    test_which_producer_is_named();
    return 0;
}
