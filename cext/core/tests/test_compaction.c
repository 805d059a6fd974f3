/* The filter of a cleaner over batches spelled out here: what stays as it is, what is built anew, what is asked for. */
#include "tests/check.h"
#include "tierlog/checksum.h"
#include "tierlog/compaction.h"

enum { ROOM = 1 << 16, NOW = 1000, HORIZON = 5000 };

static void store(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static uint64_t load(const uint8_t *at, unsigned size) {
    uint64_t value = 0;
    for (unsigned i = 0; i < size; i++) value = value << 8 | at[i];
    return value;
}

/* One record of a key and a value of one byte each; a value below 0 is a tombstone, a key below 0 none. */
typedef struct given {
    int key, value;
} given;

/* Writes a batch of records at timestamps base + 2 * index; its size. */
static size_t put_batch(uint8_t *out, int64_t base_offset, const given *records, int count, int attributes) {
    uint8_t *at = out + TL_HEADER_SIZE_V2;
    for (int i = 0; i < count; i++) {
        uint8_t body[16], *end = body;
        *end++ = 0;
        *end++ = (uint8_t)(4 * i); /* zigzag of the timestamp delta, */
        *end++ = (uint8_t)(2 * i); /* and of the offset delta */
        *end++ = records[i].key < 0 ? 1 : 2;
        if (records[i].key >= 0) *end++ = (uint8_t)records[i].key;
        *end++ = records[i].value < 0 ? 1 : 2;
        if (records[i].value >= 0) *end++ = (uint8_t)records[i].value;
        *end++ = 0;
        *at++ = (uint8_t)(2 * (end - body));
        memcpy(at, body, (size_t)(end - body));
        at += end - body;
    }
    size_t size = (size_t)(at - out);
    store(out, (uint64_t)base_offset, 8);
    store(out + 8, size - 12, 4);
    store(out + 12, 7, 4);
    out[16] = 2;
    store(out + 21, (uint64_t)attributes, 2);
    store(out + 23, (uint64_t)(count - 1), 4);
    store(out + 27, 100, 8);
    store(out + 35, (uint64_t)(100 + 2 * (count - 1)), 8);
    store(out + 43, UINT64_MAX, 8);
    store(out + 51, 0xffff, 2);
    store(out + 53, 0xffffffff, 4);
    store(out + 57, (uint64_t)count, 4);
    store(out + 17, tl_crc32c(0, out + 21, size - 21), 4);
    return size;
}

/* A cleaner, its memory, and a log of one window. */
typedef struct rig {
    tl_offset_map map;
    tl_scratch scratch;
    tl_compressor *compressor;
    uint8_t log[ROOM], out[ROOM];
    size_t size;
    tl_window_state state;
    tl_fault fault;
} rig;

static void begin(rig *r) {
    memset(r, 0, sizeof *r);
    void *memory = calloc(100, TL_OFFSET_MAP_ENTRY_BYTES);
    CHECK_STATUS(tl_offset_map_begin(&r->map, memory, 100 * TL_OFFSET_MAP_ENTRY_BYTES, 0.9, 1, 2), TL_OK);
    CHECK_STATUS(tl_codecs_create(&r->scratch.codecs), TL_OK);
    CHECK_STATUS(tl_compressor_create(&r->compressor), TL_OK);
}

static void end(rig *r) {
    free(r->map.slots);
    free(r->scratch.data);
    tl_codecs_destroy(r->scratch.codecs);
    tl_compressor_destroy(r->compressor);
}

static void grow(rig *r) {
    free(r->scratch.data);
    r->scratch.capacity = (size_t)r->fault.expected;
    r->scratch.data = malloc(r->scratch.capacity);
}

static tl_status index_log(rig *r, const uint8_t *verdicts) {
    tl_status status;
    r->state = (tl_window_state){0};
    do {
        status = tl_compaction_index(r->log, r->size, verdicts, 0, ROOM, &r->scratch, &r->map, &r->state, &r->fault);
        if (status == TL_NEED_SCRATCH) grow(r);
    } while (status == TL_NEED_SCRATCH);
    return status;
}

static tl_status filter_into(rig *r, const uint8_t *verdicts, size_t capacity) {
    tl_compaction_options options = {.struct_size = sizeof options,
                                     .map = &r->map,
                                     .now_ms = NOW,
                                     .delete_horizon_ms = HORIZON,
                                     .retained_next_offset = -1,
                                     .decompressed_limit = ROOM};
    tl_status status;
    r->state = (tl_window_state){0};
    do {
        status = tl_compaction_filter(r->log, r->size, verdicts, &options, &r->scratch, r->compressor, &r->state,
                                      r->out, capacity, &r->fault);
        if (status == TL_NEED_SCRATCH) grow(r);
    } while (status == TL_NEED_SCRATCH);
    return status;
}

static void test_what_is_superseded_goes(void) {
    rig r;
    begin(&r);
    size_t first = put_batch(r.log, 10, (given[]){{1, 1}, {2, 2}, {3, 3}}, 3, 0);
    size_t second = put_batch(r.log + first, 13, (given[]){{2, 4}}, 1, 0);
    r.size = first + second;
    CHECK_STATUS(index_log(&r, NULL), TL_OK);
    CHECK_EQUAL(r.map.latest_offset, 13);
    CHECK_EQUAL(r.state.messages_read, 4);
    CHECK_STATUS(filter_into(&r, NULL, ROOM), TL_OK);
    CHECK_EQUAL(r.state.messages_retained, 3);
    tl_batch_header header;
    CHECK_STATUS(tl_batch_parse(r.out, r.state.out_size, &header, &r.fault), TL_OK);
    CHECK_STATUS(tl_batch_verify(r.out, &header, &r.fault), TL_OK);
    CHECK_EQUAL(header.base_offset, 10);
    CHECK_EQUAL(header.last_offset_delta, 2);
    CHECK_EQUAL(header.record_count, 2);
    CHECK_EQUAL(header.base_timestamp, 100);
    CHECK_EQUAL(header.max_timestamp, 104);
    CHECK_EQUAL(header.leader_epoch, 7);
    CHECK(!memcmp(r.out + header.size_bytes, r.log + first, second)); /* as it was */
    CHECK_EQUAL(r.state.out_size, (size_t)header.size_bytes + second);
    end(&r);
}

static void test_a_tombstone_gets_a_horizon_and_goes_behind_it(void) {
    rig r;
    begin(&r);
    r.size = put_batch(r.log, 0, (given[]){{1, -1}, {2, 2}}, 2, 0);
    CHECK_STATUS(index_log(&r, NULL), TL_OK);
    CHECK_STATUS(filter_into(&r, NULL, ROOM), TL_OK);
    CHECK_EQUAL(load(r.out + 21, 2), TL_ATTRIBUTE_DELETE_HORIZON);
    CHECK_EQUAL(load(r.out + 27, 8), HORIZON);
    CHECK_EQUAL(load(r.out + 35, 8), 102);
    CHECK_EQUAL(r.state.messages_retained, 2);
    memcpy(r.log, r.out, r.state.out_size);
    r.size = r.state.out_size;
    CHECK_STATUS(filter_into(&r, NULL, ROOM), TL_OK); /* the horizon lies ahead */
    CHECK(r.state.out_size == r.size && !memcmp(r.out, r.log, r.size));
    store(r.log + 27, NOW, 8);
    store(r.log + 17, tl_crc32c(0, r.log + 21, r.size - 21), 4);
    CHECK_STATUS(filter_into(&r, NULL, ROOM), TL_OK);
    CHECK_EQUAL(r.state.messages_retained, 1);
    CHECK_EQUAL(load(r.out + 21, 2), TL_ATTRIBUTE_DELETE_HORIZON);
    end(&r);
}

static void test_verdicts(void) {
    rig r;
    begin(&r);
    for (int i = 0; i < 3; i++) r.size += put_batch(r.log + r.size, i, (given[]){{i, i}}, 1, 0x10);
    uint8_t verdicts[] = {TL_VERDICT_DISCARD, TL_VERDICT_DISCARD | TL_VERDICT_RETAIN_EMPTY, 0};
    CHECK_STATUS(index_log(&r, verdicts), TL_OK);
    CHECK_EQUAL(r.map.entries, 1);
    CHECK_STATUS(filter_into(&r, verdicts, ROOM), TL_OK);
    CHECK_EQUAL(load(r.out, 8), 1);
    CHECK_EQUAL(load(r.out + 8, 4), 49);
    CHECK_EQUAL(load(r.out + 57, 4), 0);
    CHECK_EQUAL((int64_t)load(r.out + 27, 8), -1);
    CHECK_EQUAL(load(r.out + 61, 8), 2);
    CHECK_EQUAL(r.state.messages_read, 2);
    end(&r);
}

static void test_too_little_room_is_said_and_the_rest_follows(void) {
    rig r;
    begin(&r);
    for (int i = 0; i < 4; i++) r.size += put_batch(r.log + r.size, 2 * i, (given[]){{7, 1}, {i, i}}, 2, 0);
    CHECK_STATUS(index_log(&r, NULL), TL_OK);
    CHECK_STATUS(filter_into(&r, NULL, 10), TL_FULL);
    CHECK_EQUAL(r.state.at, 0);
    CHECK(r.fault.expected >= TL_HEADER_SIZE_V2);
    size_t whole = 0;
    CHECK_STATUS(filter_into(&r, NULL, ROOM), TL_OK);
    whole = r.state.out_size;
    for (size_t capacity = 0; capacity < whole; capacity++) {
        CHECK_STATUS(filter_into(&r, NULL, capacity), TL_FULL);
        CHECK(r.state.out_size <= capacity && r.state.at < r.size);
    }
    end(&r);
}

static void test_streams_keep_their_codec(void) {
    for (int codec = TL_CODEC_GZIP; codec <= TL_CODEC_ZSTD; codec++) {
        rig r;
        begin(&r);
        uint8_t plain[ROOM];
        size_t size = put_batch(plain, 0, (given[]){{1, 1}, {2, 2}, {1, 3}}, 3, codec), stream = 0;
        memcpy(r.log, plain, TL_HEADER_SIZE_V2);
        CHECK_STATUS(
            tl_compress_records(r.compressor, codec, plain + 61, size - 61, r.log + 61, ROOM - 61, &stream, &r.fault),
            TL_OK);
        r.size = 61 + stream;
        store(r.log + 8, r.size - 12, 4);
        store(r.log + 17, tl_crc32c(0, r.log + 21, r.size - 21), 4);
        CHECK_STATUS(index_log(&r, NULL), TL_OK);
        CHECK_STATUS(filter_into(&r, NULL, ROOM), TL_OK);
        CHECK_EQUAL(load(r.out + 21, 2), codec);
        CHECK_EQUAL(load(r.out + 57, 4), 2);
        uint8_t content[ROOM];
        CHECK_STATUS(tl_decompress(r.scratch.codecs, codec, 2, r.out + 61, r.state.out_size - 61, content, ROOM, ROOM,
                                   &size, &r.fault),
                     TL_OK);
        CHECK_EQUAL(size, 18);
        end(&r);
    }
}

static void test_windows(void) {
    rig r;
    begin(&r);
    tl_window window;
    size_t first = put_batch(r.log, 5, (given[]){{1, 1}}, 1, 0);
    r.size = first + put_batch(r.log + first, 6, (given[]){{1, 1}}, 1, TL_ATTRIBUTE_CONTROL);
    for (size_t size = 0; size <= r.size; size++) {
        bytes exact = copy_of(r.log, size);
        tl_status status = tl_window_survey(exact.data, size, &window, &r.fault);
        CHECK_STATUS(status, size == 0 || size == first || size == r.size ? TL_OK : TL_PARTIAL);
        CHECK_EQUAL(window.batches, size == r.size ? 2 : size >= first);
        CHECK_EQUAL(window.has_producers, size == r.size);
        free(exact.data);
    }
    r.log[first - 1] ^= 1;
    CHECK_STATUS(tl_window_survey(r.log, r.size, &window, &r.fault), TL_BAD_CRC);
    end(&r);
}

int main(void) {
    test_what_is_superseded_goes();
    test_a_tombstone_gets_a_horizon_and_goes_behind_it();
    test_verdicts();
    test_too_little_room_is_said_and_the_rest_follows();
    test_streams_keep_their_codec();
    test_windows();
    return 0;
}
