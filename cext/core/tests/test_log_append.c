/* A wrong answer puts a batch into a log that no reader can read, gives records offsets of others, or refuses a sound
 * producer. The vectors are Kafka's own bytes. */
#include "check.h"
#include "tierlog/checksum.h"
#include "tierlog/log_append.h"

static const char PLAIN[] =
    "00000000000000640000004e000000050298fc06fd0000000000010000018bcfe568000000018bcfe56805ffff"
    "ffffffffffffffffffffffff0000000226000000046b3104763104046831027804686e0110000a020104763200";
static const char APPEND_TIME[] =
    "00000000000000640000004e0000000502740bf3fa0008000000010000018bcfe568000000018bcfe58f0fffffff"
    "ffffffffffffffffffffff0000000226000000046b3104763104046831027804686e0110000a020104763200";
static const char TRANSACTIONAL[] =
    "00000000000000640000004e0000000502af7135160010000000010000018bcfe568000000018bcfe568050000000"
    "0000023280004000000110000000226000000046b3104763104046831027804686e0110000a020104763200";
static const char EMPTY[] =
    "00000000000000640000003100000005025a1edc82001000000004ffffffffffffffff0000018bcfe56805000000000000232"
    "80004000000110000000"
    "0";
static const char ABORT_MARKER[] =
    "0000000000000066000000420000000502b77199b10030000000000000018bcfe56be80000018bcfe56be800000000000"
    "023280004ffffffff000000012000000008000000000c00000000000700";
static const char COMMIT_MARKER[] =
    "0000000000000066000000420000000502434f4ff90030000000000000018bcfe56be80000018bcfe56be80000000000"
    "0023280004ffffffff000000012000000008000000010c00000000000700";
static const char LEADER_CHANGE[] = "0000000000000000000000540000000502e15f1b610020000000000000018bcfe56be80000018bcfe5"
                                    "6be8ffffffffffffffffffffffffffff000000014"
                                    "400000008000000023000000000000103000000010000000002000200000001000000";
static const char *const COMPRESSED[] = {
    "00000000000000640000006200000005027706c49d0001000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff"
    "0000000"
    "21f8b08000000000000ff5363606060c9366429336461c93064aa60c9c8631460e06262642933620000f9709d701d000000",
    "0000000000000064000000640000000502addbb5980002000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff"
    "0000000"
    "282534e415050590000000001000000010000001f1d7026000000046b3104763104046831027804686e0110000a020104763200",
    "00000000000000640000005d0000000502df6385970003000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff"
    "0000000"
    "204224d186040821d00008026000000046b3104763104046831027804686e0110000a02010476320000000000",
    "00000000000000640000005a0000000502696359ff0004000000010000018bcfe568000000018bcfe56805ffffffffffffffffffffffffffff"
    "0000000"
    "228b52ffd0058e8000026000000046b3104763104046831027804686e0110000a020104763200010000"};
enum { RECORDS_SIZE = 29 };
static const int64_t FIRST_TIME = 1700000000000;

static void store(uint8_t *at, uint64_t value, int size) {
    for (int i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static void sum_anew(bytes batch) { store(batch.data + 17, tl_crc32c(0, batch.data + 21, batch.size - 21), 4); }

/* As a producer sends it: base offset 0, no leader epoch. */
static bytes produced(const char *hex) {
    bytes batch = from_hex(hex);
    store(batch.data, 0, 8);
    store(batch.data + 12, 0xffffffff, 4);
    return batch;
}

static tl_leader_options kafkas_defaults(void) {
    return (tl_leader_options){.struct_size = sizeof(tl_leader_options),
                               .first_offset = 100,
                               .now_ms = FIRST_TIME + 9999,
                               .timestamp_before_max_ms = INT64_MAX,
                               .timestamp_after_max_ms = 3600000,
                               .decompressed_limit = 1 << 20,
                               .leader_epoch = 5,
                               .max_message_bytes = 1048588,
                               .target_codec = -1};
}

static tl_codecs *codecs;
static uint8_t room[4096];
static tl_record_error error_room[4];
static tl_record_errors errors = {.entries = error_room, .capacity = 4};
static tl_leader_batch appended;
static tl_fault fault;

static tl_status append(bytes batch, tl_leader_options options) {
    tl_scratch scratch = {.data = room, .capacity = sizeof room, .codecs = codecs};
    return tl_leader_append(batch.data, batch.size, &options, &scratch, &errors, &appended, &fault);
}

/* Refused, for this reason, with nothing written. */
static void refused(bytes batch, tl_leader_options options, tl_append_rule rule, int code) {
    bytes before = copy_of(batch.data, batch.size);
    CHECK(append(batch, options) >= TL_TRUNCATED);
    CHECK_EQUAL(appended.rule, rule);
    CHECK_EQUAL(tl_append_error_code(rule), code);
    CHECK(!memcmp(before.data, batch.data, batch.size));
    free(before.data);
    free(batch.data);
}

static void becomes(bytes batch, tl_leader_options options, const char *hex) {
    bytes expected = from_hex(hex);
    CHECK_STATUS(append(batch, options), TL_OK);
    CHECK(!appended.must_rebuild && expected.size == batch.size && !memcmp(batch.data, expected.data, batch.size));
    CHECK_EQUAL(appended.header.size_bytes, batch.size);
    CHECK_EQUAL(appended.header.base_offset, options.first_offset);
    tl_batch_header header;
    CHECK_STATUS(tl_batch_parse(batch.data, batch.size, &header, &fault), TL_OK);
    CHECK(header.crc == appended.header.crc && header.max_timestamp == appended.header.max_timestamp &&
          header.attributes == appended.header.attributes && header.leader_epoch == appended.header.leader_epoch);
    free(expected.data);
    free(batch.data);
}

static void test_kafkas_bytes_come_out(void) {
    tl_leader_options options = kafkas_defaults();
    becomes(produced(PLAIN), options, PLAIN);
    becomes(produced(TRANSACTIONAL), options, TRANSACTIONAL);
    for (int i = 0; i < 4; i++) becomes(produced(COMPRESSED[i]), options, COMPRESSED[i]);
    options.log_append_time = true;
    becomes(produced(PLAIN), options, APPEND_TIME);
    options = kafkas_defaults();
    options.origin = TL_FROM_COORDINATOR;
    options.first_offset = 102;
    becomes(produced(COMMIT_MARKER), options, COMMIT_MARKER);
    options.target_codec = TL_CODEC_ZSTD; /* markers stay as they are */
    becomes(produced(ABORT_MARKER), options, ABORT_MARKER);
}

/* The checksum is right however the timestamp changed, and the way back gives the old bytes. */
static void test_stamps_of_the_leader(void) {
    for (int i = 0; i < 4; i++) {
        tl_leader_options options = kafkas_defaults();
        bytes batch = produced(COMPRESSED[i]);
        options.log_append_time = true;
        CHECK_STATUS(append(batch, options), TL_OK);
        tl_batch_header header;
        CHECK_STATUS(tl_batch_parse(batch.data, batch.size, &header, &fault), TL_OK);
        CHECK_STATUS(tl_batch_verify(batch.data, &header, &fault), TL_OK);
        CHECK(header.max_timestamp == options.now_ms && header.attributes == ((i + 1) | TL_ATTRIBUTE_LOG_APPEND_TIME));
        /* To a CreateTime topic its records have their own timestamps again: Kafka takes it too. */
        options.log_append_time = false;
        store(batch.data, 0, 8);
        CHECK_STATUS(append(batch, options), TL_OK);
        CHECK(appended.header.max_timestamp == FIRST_TIME + 9999 && appended.header.attributes == i + 1);
        CHECK_STATUS(tl_batch_verify(batch.data, &appended.header, &fault), TL_OK);
        free(batch.data);
    }
    /* A wrong greatest timestamp is put right; unknown attribute bits go with it, as in Kafka. */
    bytes batch = produced(PLAIN);
    store(batch.data + 21, 0x8000, 2);
    store(batch.data + 35, 7, 8);
    sum_anew(batch);
    becomes(batch, kafkas_defaults(), PLAIN);
}

static bytes changed(const char *hex, size_t at, uint64_t value, int size) {
    bytes batch = produced(hex);
    store(batch.data + at, value, size);
    if (at >= 21) sum_anew(batch);
    return batch;
}

static void test_refusals(void) {
    tl_leader_options options = kafkas_defaults();
    refused(changed(PLAIN, 0, 100, 8), options, TL_APPEND_BASE_OFFSET, 87);
    refused(changed(PLAIN, 8, 48, 4), options, TL_APPEND_SIZE, 2);
    refused(changed(PLAIN, 8, 13, 4), options, TL_APPEND_SIZE, 2);
    refused(changed(PLAIN, 16, 3, 1), options, TL_APPEND_MAGIC, 2);
    refused(changed(PLAIN, 17, 1, 4), options, TL_APPEND_CRC, 2);
    refused(changed(PLAIN, 21, 5, 2), options, TL_APPEND_CODEC, -1);
    refused(changed(PLAIN, 23, 0xffffffff, 4), options, TL_APPEND_OFFSET_RANGE, 87);
    refused(changed(PLAIN, 57, 0, 4), options, TL_APPEND_COUNT, 87);
    refused(changed(PLAIN, 57, 0x80000000, 4), options, TL_APPEND_COUNT, 87);
    refused(changed(PLAIN, 57, 3, 4), options, TL_APPEND_COUNT_RANGE, 87);
    refused(produced(EMPTY), options, TL_APPEND_COUNT, 87);
    refused(produced(COMMIT_MARKER), options, TL_APPEND_CONTROL, 87);
    refused(changed(TRANSACTIONAL, 53, 0xffffffff, 4), options, TL_APPEND_SEQUENCE, 87);
    options.max_message_bytes = 89;
    refused(produced(PLAIN), options, TL_APPEND_TOO_LARGE, 10);
    options = kafkas_defaults();
    options.decompressed_limit = RECORDS_SIZE - 1;
    refused(produced(COMPRESSED[0]), options, TL_APPEND_CONTENT_SIZE, 10);
    for (int i = 0; i < 4; i++)
        refused(changed(COMPRESSED[i], TL_HEADER_SIZE_V2, 0xffffffffff, 5), kafkas_defaults(), TL_APPEND_COMPRESSED,
                -1);
    CHECK_EQUAL(tl_append_error_code(TL_APPEND_SOUND), 0);
}

/* A broker's own batches have no sequences, may be markers, and begin anywhere. */
static void test_a_coordinators_batches(void) {
    tl_leader_options options = kafkas_defaults();
    options.origin = TL_FROM_COORDINATOR;
    bytes batch = changed(TRANSACTIONAL, 53, 0xffffffff, 4);
    store(batch.data, 77, 8);
    CHECK_STATUS(append(batch, options), TL_OK);
    CHECK(appended.header.base_offset == 100 && appended.header.base_sequence == -1);
    free(batch.data);
    refused(produced(EMPTY), options, TL_APPEND_COUNT, 87);
}

static void test_more_than_a_batch(void) {
    bytes one = produced(PLAIN), three = {malloc(3 * one.size), 3 * one.size};
    for (size_t i = 0; i < 3; i++) memcpy(three.data + i * one.size, one.data, one.size);
    refused(copy_of(three.data, 2 * one.size), kafkas_defaults(), TL_APPEND_BATCHES, 87);
    three.data[2 * one.size - 1] ^= 1; /* Kafka looks at all before it counts */
    refused(copy_of(three.data, three.size), kafkas_defaults(), TL_APPEND_CRC, 2);
    /* What is cut off behind the batch is no fault; nothing whole, nothing done. */
    for (size_t size = 0; size < 2 * one.size; size++) {
        bytes cut = copy_of(three.data, size);
        CHECK_STATUS(append(cut, kafkas_defaults()), TL_OK);
        CHECK_EQUAL(appended.header.size_bytes, size < one.size ? 0 : one.size);
        free(cut.data);
    }
    bytes cut = copy_of(three.data, 20);
    cut.data[16] = 0xff;
    refused(cut, kafkas_defaults(), TL_APPEND_MAGIC, 2);
    refused(from_hex("00000000000000000000001257e7496e0000000000026b31000000027631"), kafkas_defaults(),
            TL_APPEND_OLD_FORMAT, 87);
    free(one.data);
    free(three.data);
}

/* A batch of records: (timestamp delta, offset delta, has a key). */
static bytes batch_of(int64_t base_time, const int (*records)[3], int count) {
    bytes batch = {malloc(TL_HEADER_SIZE_V2 + 16 * (size_t)count), TL_HEADER_SIZE_V2};
    memset(batch.data, 0, TL_HEADER_SIZE_V2);
    for (int i = 0; i < count; i++) {
        uint8_t *at = batch.data + batch.size;
        const uint8_t record[] = {14, 0, (uint8_t)(2 * records[i][0]), (uint8_t)(2 * records[i][1]), 0, 2, 'v', 0};
        memcpy(at, record, sizeof record);
        if (!records[i][2]) at[4] = 1; /* null: -1 */
        batch.size += sizeof record;
    }
    store(batch.data + 8, batch.size - TL_LOG_OVERHEAD, 4);
    batch.data[16] = 2;
    store(batch.data + 23, (uint64_t)count - 1, 4);
    store(batch.data + 27, (uint64_t)base_time, 8);
    store(batch.data + 43, UINT64_MAX, 8);
    store(batch.data + 51, UINT64_MAX, 6);
    store(batch.data + 57, (uint64_t)count, 4);
    sum_anew(batch);
    return batch;
}

static void test_every_record_is_told(void) {
    static const int records[][3] = {{0, 0, 1}, {1, 1, 0}, {9, 2, 1}, {2, 3, 0}, {10, 4, 1}, {3, 5, 0}, {4, 6, 0}};
    tl_leader_options options = kafkas_defaults();
    options.compacted = true;
    refused(batch_of(FIRST_TIME, records, 7), options, TL_APPEND_RECORDS, 87);
    CHECK(errors.count == 4 && error_room[0].record == 1 && error_room[1].record == 3 && error_room[3].record == 6);
    CHECK(error_room[2].rule == TL_RECORD_NO_KEY && error_room[2].timestamp == FIRST_TIME + 3);
    options.now_ms = FIRST_TIME;
    options.timestamp_after_max_ms = 8; /* 9 is too far, 8 is not */
    refused(batch_of(FIRST_TIME, records, 7), options, TL_APPEND_TIMESTAMPS, 32);
    CHECK_EQUAL(errors.count, 6); /* of which four were kept */
    CHECK(error_room[1].record == 2 && error_room[1].rule == TL_RECORD_TIMESTAMP);
    options.compacted = false;
    refused(batch_of(FIRST_TIME, records, 7), options, TL_APPEND_TIMESTAMPS, 32);
    CHECK(errors.count == 2 && error_room[1].record == 4 && error_room[1].timestamp == FIRST_TIME + 10);
    options.timestamp_after_max_ms = 10;
    bytes batch = batch_of(FIRST_TIME, records, 7);
    CHECK_STATUS(append(batch, options), TL_OK);
    CHECK_EQUAL(appended.header.max_timestamp, FIRST_TIME + 10);
    free(batch.data);
    options.now_ms = FIRST_TIME + 11;
    options.timestamp_before_max_ms = 10; /* 0 is too old, 1 is not */
    refused(batch_of(FIRST_TIME, records, 7), options, TL_APPEND_TIMESTAMPS, 32);
    CHECK(errors.count == 1 && error_room[0].record == 0);
}

static void test_timestamps_at_the_ends(void) {
    static const int one[][3] = {{0, 0, 1}};
    tl_leader_options options = kafkas_defaults();
    options.timestamp_before_max_ms = 0;
    options.timestamp_after_max_ms = 0;
    bytes batch = batch_of(-1, one, 1); /* none: in every topic */
    CHECK_STATUS(append(batch, options), TL_OK);
    CHECK_EQUAL(appended.header.max_timestamp, -1);
    free(batch.data);
    refused(batch_of(INT64_MIN, one, 1), options, TL_APPEND_TIMESTAMPS, 32);
    refused(batch_of(INT64_MAX, one, 1), options, TL_APPEND_TIMESTAMPS, 32);
    batch = batch_of(options.now_ms, one, 1);
    CHECK_STATUS(append(batch, options), TL_OK);
    free(batch.data);
    options.log_append_time = true; /* any timestamp is replaced, but a producer may not say that it is the broker's */
    batch = batch_of(INT64_MAX, one, 1);
    CHECK_STATUS(append(batch, options), TL_OK);
    CHECK_EQUAL(appended.header.max_timestamp, options.now_ms);
    free(batch.data);
    batch = batch_of(0, one, 1);
    store(batch.data + 21, TL_ATTRIBUTE_LOG_APPEND_TIME, 2);
    sum_anew(batch);
    refused(batch, options, TL_APPEND_TIMESTAMPS, 32);
    CHECK(errors.count == 1 && error_room[0].rule == TL_RECORD_APPEND_TIME_SET);
}

static void test_another_codec(void) {
    static const int sound[][3] = {{0, 0, 1}, {0, 1, 1}};
    tl_leader_options options = kafkas_defaults();
    bytes batch = batch_of(FIRST_TIME, sound, 2), before = copy_of(batch.data, batch.size);
    options.target_codec = TL_CODEC_ZSTD;
    CHECK_STATUS(append(batch, options), TL_OK);
    CHECK(appended.must_rebuild && !memcmp(batch.data, before.data, batch.size));
    options.target_codec = TL_CODEC_NONE;
    CHECK_STATUS(append(batch, options), TL_OK);
    CHECK(!appended.must_rebuild && appended.header.base_offset == 100);
    free(before.data);
    free(batch.data);
}

static void test_offsets_of_records(void) {
    static const int wrong[][3][3] = {
        {{0, 0, 1}, {0, 0, 1}, {0, 2, 1}}, {{0, 1, 1}, {0, 2, 1}, {0, 3, 1}}, {{0, 0, 1}, {0, 1, 1}, {0, 3, 1}}};
    for (int i = 0; i < 3; i++) {
        refused(batch_of(FIRST_TIME, wrong[i], 3), kafkas_defaults(), TL_APPEND_RECORD_OFFSETS, 87);
        CHECK_EQUAL(fault.record, i == 0 ? 1 : i == 1 ? 0 : 2);
    }
}

static void test_malformed_records(void) {
    static const int two[][3] = {{0, 0, 0}, {0, 1, 1}};
    tl_leader_options options = kafkas_defaults();
    options.compacted = true; /* what is malformed comes before what may not be here */
    for (size_t at = TL_HEADER_SIZE_V2; at < TL_HEADER_SIZE_V2 + 16; at++) {
        bytes batch = batch_of(FIRST_TIME, two, 2);
        size_t field = (at - TL_HEADER_SIZE_V2) % 8;
        bool is_size = field != 1 && field != 2 && field != 3 && field != 6;
        batch.data[at] = 0x7e;
        sum_anew(batch);
        if (is_size) {
            refused(batch, options, TL_APPEND_RECORD, 87);
            CHECK_EQUAL(fault.record, at >= TL_HEADER_SIZE_V2 + 8);
            CHECK_EQUAL(errors.count, 0);
        } else {
            refused(batch, options, TL_APPEND_RECORDS, 87);
        }
    }
    bytes batch = batch_of(FIRST_TIME, two, 2), longer = {malloc(batch.size + 1), batch.size + 1};
    memcpy(longer.data, batch.data, batch.size);
    longer.data[batch.size] = 0;
    store(longer.data + 8, longer.size - TL_LOG_OVERHEAD, 4);
    sum_anew(longer);
    refused(longer, kafkas_defaults(), TL_APPEND_RECORD, 87);
    free(batch.data);
}

static void test_scratch_is_asked_for(void) {
    tl_leader_options options = kafkas_defaults();
    for (int i = 0; i < 4; i++) {
        bytes batch = produced(COMPRESSED[i]), before = copy_of(batch.data, batch.size);
        tl_scratch scratch = {.codecs = codecs};
        tl_status status;
        int asked = 0;
        while ((status = tl_leader_append(batch.data, batch.size, &options, &scratch, &errors, &appended, &fault)) ==
               TL_NEED_SCRATCH) {
            CHECK(++asked < 20 && fault.expected > (int64_t)scratch.capacity && fault.expected <= 1 << 20);
            CHECK(!memcmp(batch.data, before.data, batch.size));
            free(scratch.data);
            scratch.capacity = (size_t)fault.expected;
            scratch.data = malloc(scratch.capacity);
        }
        CHECK_STATUS(status, TL_OK);
        CHECK(asked && appended.header.base_offset == 100);
        free(scratch.data);
        free(before.data);
        free(batch.data);
    }
}

static void test_the_last_offset_there_is(void) {
    tl_leader_options options = kafkas_defaults();
    options.first_offset = INT64_MAX - 1; /* two records: the log would end past the greatest offset */
    bytes batch = produced(PLAIN), before = copy_of(batch.data, batch.size);
    CHECK_STATUS(append(batch, options), TL_BAD_OFFSET);
    CHECK(appended.rule == TL_APPEND_LOG_END && !memcmp(batch.data, before.data, batch.size));
    free(before.data);
    options.first_offset = INT64_MAX - 2;
    CHECK_STATUS(append(batch, options), TL_OK);
    CHECK(appended.header.base_offset + appended.header.last_offset_delta == INT64_MAX - 1);
    free(batch.data);
}

/* ---- follower ---- */

static int64_t base_offset[8], last_offset[8], position[8];
static tl_batch_table table = {.struct_size = sizeof(tl_batch_table),
                               .capacity = 8,
                               .base_offset = base_offset,
                               .last_offset = last_offset,
                               .position = position};

/* Batches of two records each, by base offset and epoch. */
static bytes sent(const int (*batches)[2], int count) {
    bytes one = from_hex(PLAIN), all = {malloc((size_t)count * one.size + !count), (size_t)count * one.size};
    for (int i = 0; i < count; i++) {
        store(one.data, (uint64_t)batches[i][0], 8);
        store(one.data + 12, (uint64_t)batches[i][1], 4);
        memcpy(all.data + (size_t)i * one.size, one.data, one.size);
    }
    free(one.data);
    return all;
}

static tl_status follow(tl_follower_check *check, bytes data, int64_t next_offset, int32_t epoch) {
    size_t at = 0;
    table.count = 0;
    tl_follower_begin(check, next_offset, epoch);
    return tl_follower_append(check, data.data, data.size, &at, &table, &fault);
}

static void test_a_follower(void) {
    static const int rising[][2] = {{100, 3}, {102, 3}, {110, 4}, {112, 5}, {114, 4}};
    bytes data = sent(rising, 5), before = copy_of(data.data, data.size);
    tl_follower_check check;
    CHECK_STATUS(follow(&check, data, 100, 9), TL_OK);
    CHECK(table.count == 5 && check.valid_bytes == data.size && check.first_offset == 100 && check.last_offset == 115);
    CHECK(base_offset[3] == 112 && last_offset[3] == 113 && position[3] == 270);
    /* From the first batch of an epoch that it does not know, all is passed over: even what was sound. */
    CHECK_STATUS(follow(&check, data, 100, 4), TL_OK);
    CHECK(table.count == 3 && check.valid_bytes == 270 && check.last_offset == 111);
    CHECK_STATUS(follow(&check, data, 100, 2), TL_OK);
    CHECK(table.count == 0 && check.valid_bytes == 0 && check.first_offset == -1);
    CHECK_STATUS(follow(&check, data, 101, 9), TL_BAD_OFFSET);
    CHECK(check.rule == TL_APPEND_NEXT_OFFSET && fault.expected == 101 && fault.found == 100);
    for (size_t size = 0; size <= data.size; size++) {
        bytes cut = copy_of(data.data, size);
        CHECK_STATUS(follow(&check, cut, 100, 9), TL_OK);
        CHECK(table.count == size / 90 && check.valid_bytes == size / 90 * 90);
        free(cut.data);
    }
    data.data[4 * 90 + 80] ^= 1; /* passed over unseen, but not looked over */
    CHECK_STATUS(follow(&check, data, 100, 4), TL_OK);
    CHECK_STATUS(follow(&check, data, 100, 9), TL_BAD_CRC);
    CHECK(check.rule == TL_APPEND_CRC && fault.position == 360 && table.count == 4);
    data.data[4 * 90 + 80] ^= 1;
    CHECK(!memcmp(data.data, before.data, data.size));
    free(data.data);
    free(before.data);
}

static void test_a_followers_order(void) {
    static const int wrong[][2][2] = {{{100, 1}, {101, 1}}, {{100, 1}, {100, 1}}, {{100, 1}, {50, 1}}};
    tl_follower_check check;
    for (int i = 0; i < 3; i++) {
        bytes data = sent(wrong[i], 2);
        CHECK_STATUS(follow(&check, data, 0, 1), TL_BAD_OFFSET);
        CHECK(check.rule == TL_APPEND_ORDER && fault.position == 90 && fault.expected == 102);
        CHECK_EQUAL(tl_append_error_code(check.rule), -1);
        free(data.data);
    }
    bytes data = sent(wrong[0], 1);
    store(data.data, (uint64_t)INT64_MAX - 1, 8); /* the end of the log would have no number */
    CHECK_STATUS(follow(&check, data, 0, 5), TL_BAD_OFFSET);
    store(data.data, (uint64_t)INT64_MAX - 2, 8);
    CHECK_STATUS(follow(&check, data, 0, 5), TL_OK);
    store(data.data, UINT64_MAX, 8);
    CHECK_STATUS(follow(&check, data, 0, 5), TL_BAD_OFFSET);
    free(data.data);
}

static void test_a_follower_with_little_room(void) {
    static const int rising[][2] = {{100, 3}, {102, 3}, {104, 3}, {106, 3}, {108, 9}};
    bytes data = sent(rising, 5);
    tl_follower_check check;
    size_t at = 0;
    table.capacity = 1;
    tl_follower_begin(&check, 100, 3);
    for (int i = 0; i < 4; i++) {
        table.count = 0;
        CHECK_STATUS(tl_follower_append(&check, data.data, data.size, &at, &table, &fault), i < 3 ? TL_FULL : TL_OK);
        CHECK_EQUAL(base_offset[0], 100 + 2 * i);
    }
    CHECK(check.valid_bytes == 360 && at == data.size);
    table.capacity = 8;
    free(data.data);
}

static tl_status marker_of(bytes batch, tl_marker *marker, bool *found) {
    tl_batch_header header;
    CHECK_STATUS(tl_batch_parse(batch.data, batch.size, &header, &fault), TL_OK);
    tl_status status = tl_marker_parse(batch.data, &header, marker, found, &fault);
    free(batch.data);
    return status;
}

static void test_markers(void) {
    tl_marker marker;
    bool found;
    CHECK_STATUS(marker_of(from_hex(COMMIT_MARKER), &marker, &found), TL_OK);
    CHECK(found && marker.is_commit && marker.coordinator_epoch == 7 && marker.timestamp == FIRST_TIME + 1000);
    CHECK_STATUS(marker_of(from_hex(ABORT_MARKER), &marker, &found), TL_OK);
    CHECK(found && !marker.is_commit);
    CHECK_STATUS(marker_of(from_hex(LEADER_CHANGE), &marker, &found), TL_OK);
    CHECK(!found);
    CHECK_STATUS(marker_of(from_hex(EMPTY), &marker, &found), TL_OK);
    CHECK(!found);
    CHECK_STATUS(marker_of(changed(ABORT_MARKER, 66, 0xffff, 2), &marker, &found), TL_BAD_CONTROL); /* key version */
    CHECK_STATUS(marker_of(changed(ABORT_MARKER, 71, 0xffff, 2), &marker, &found), TL_BAD_CONTROL); /* value version */
    CHECK_STATUS(marker_of(changed(ABORT_MARKER, 65, 4, 1), &marker, &found), TL_BAD_RECORD_LENGTH);
    CHECK_STATUS(marker_of(changed(ABORT_MARKER, 21, 0x31, 2), &marker, &found), TL_BAD_CODEC);
}

int main(void) {
    CHECK_STATUS(tl_codecs_create(&codecs), TL_OK);
    test_kafkas_bytes_come_out();
    test_stamps_of_the_leader();
    test_refusals();
    test_a_coordinators_batches();
    test_more_than_a_batch();
    test_every_record_is_told();
    test_timestamps_at_the_ends();
    test_another_codec();
    test_offsets_of_records();
    test_malformed_records();
    test_scratch_is_asked_for();
    test_the_last_offset_there_is();
    test_a_follower();
    test_a_followers_order();
    test_a_follower_with_little_room();
    test_markers();
    tl_codecs_destroy(codecs);
    return 0;
}
