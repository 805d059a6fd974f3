/* Any bytes to a cleaner: what it writes is whole batches with right checksums and rising offsets, none of them new;
 * cleaned once more at the same time they stay as they are, but for keys that are superseded; nothing else is read.
 * Input: flags, 2 bytes of the map's size, a byte of the output's, the seed of the verdicts or of the aborted
 * transactions, the batches, whose checksums are put right first. */
#include "fuzz.h"

enum { LIMIT = 1 << 16, ROOM = 1 << 20, NOW = 1000 };

static void sum_anew(uint8_t *log, size_t size) {
    tl_batch_header header;
    tl_fault fault;
    for (size_t at = 0; at < size && tl_batch_parse(log + at, size - at, &header, &fault) == TL_OK;) {
        uint32_t sum = header.magic == 2 ? tl_crc32c(0, log + at + 21, (size_t)header.size_bytes - 21)
                                         : tl_crc32(0, log + at + 16, (size_t)header.size_bytes - 16);
        uint8_t *at_sum = log + at + (header.magic == 2 ? 17 : 12);
        for (int i = 0; i < 4; i++) at_sum[i] = (uint8_t)(sum >> (24 - 8 * i));
        at += (size_t)header.size_bytes;
    }
}

typedef struct cleaner {
    tl_offset_map map;
    tl_scratch scratch;
    tl_compressor *compressor;
} cleaner;

static bool grow(cleaner *c, const tl_fault *fault) {
    REQUIRE(fault->expected > 0 && (uint64_t)fault->expected <= 64 * (uint64_t)LIMIT + ROOM);
    REQUIRE((size_t)fault->expected > c->scratch.capacity);
    free(c->scratch.data);
    c->scratch.capacity = (size_t)fault->expected;
    c->scratch.data = malloc(c->scratch.capacity);
    REQUIRE(c->scratch.data);
    return true;
}

static void check_written(const uint8_t *out, size_t size, size_t batches_max) {
    tl_window window;
    tl_fault fault;
    REQUIRE(tl_window_survey(out, size, &window, &fault) == TL_OK);
    REQUIRE(window.valid_bytes == size && window.batches <= batches_max);
}

static void filter(cleaner *c, const uint8_t *log, const tl_window *window, const uint8_t *verdicts, size_t room) {
    tl_compaction_options options = {.struct_size = sizeof options,
                                     .map = &c->map,
                                     .now_ms = NOW,
                                     .delete_horizon_ms = 2 * NOW,
                                     .retained_next_offset = window->next_offset,
                                     .decompressed_limit = LIMIT};
    uint8_t *out = malloc(room + !room);
    tl_window_state state = {0};
    tl_fault fault;
    tl_status status;
    REQUIRE(out);
    for (;;) {
        tl_window_state before = state;
        status = tl_compaction_filter(log, window->valid_bytes, verdicts, &options, &c->scratch, c->compressor, &state,
                                      out, room, &fault);
        REQUIRE(state.out_size <= room && state.at <= window->valid_bytes && state.batch <= window->batches);
        if (status == TL_NEED_SCRATCH) {
            REQUIRE(state.at >= before.at);
            grow(c, &fault);
            continue;
        }
        if (status != TL_FULL) break;
        check_written(out, state.out_size, state.batch);
        if (!state.out_size) {
            if (room >= ROOM) break;
            free(out);
            room = (size_t)fault.expected > 2 * room ? (size_t)fault.expected : 2 * room + 1;
            if (room > 4 * ROOM) room = 4 * ROOM;
            out = malloc(room);
            REQUIRE(out);
        }
        state.out_size = 0;
    }
    if (status == TL_OK) check_written(out, state.out_size, window->batches);
    free(out);
}

/* Verdicts of transactions, of which some are aborted: the same for the map but for what the filter alone is told. */
static void judge(const uint8_t *log, const tl_window *window, uint32_t seed, uint8_t *verdicts) {
    uint8_t *for_map = malloc(window->batches + 1);
    tl_status statuses[2];
    REQUIRE(for_map);
    for (int is_for_map = 0; is_for_map < 2; is_for_map++) {
        tl_cleaned_transactions *t;
        tl_last_record last = {.producer_id = seed & 7, .last_data_offset = seed & 31};
        tl_fault fault;
        REQUIRE(tl_cleaned_transactions_create(&t, 3, 5) == TL_OK);
        for (uint32_t i = 0, from = seed; i < 8; i++, from = from * 69069 + 1) {
            tl_aborted_entry entry = {from >> 29, from >> 24 & 31, 0, 0};
            REQUIRE(tl_cleaned_transactions_add(t, &entry) == TL_OK);
        }
        tl_cleaned_transactions_set_last(t, &last, 1);
        statuses[is_for_map] = tl_cleaned_transactions_judge(t, log, window->valid_bytes, window->batches, NOW,
                                                             is_for_map, is_for_map ? for_map : verdicts, &fault);
        REQUIRE(statuses[is_for_map] == TL_OK || fault.position < window->valid_bytes);
        tl_cleaned_transactions_destroy(t);
    }
    REQUIRE(statuses[0] == statuses[1]);
    for (size_t i = 0; i < window->batches && statuses[0] == TL_OK; i++)
        REQUIRE(!for_map[i] == !(verdicts[i] & (TL_VERDICT_DISCARD | TL_VERDICT_EMPTY_TRANSACTION)));
    if (statuses[0] != TL_OK) memset(verdicts, 0, window->batches);
    free(for_map);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int64_t flags = take_number(&data, &size, 1);
    size_t slots = 2 + (size_t)take_number(&data, &size, 2) % 500;
    size_t room = (size_t)take_number(&data, &size, 1) * 16;
    uint32_t seed = (uint32_t)take_number(&data, &size, 1);
    uint8_t *log = exact_copy(data, size), *verdicts = NULL;
    void *memory = calloc(slots, TL_OFFSET_MAP_ENTRY_BYTES);
    cleaner c = {.scratch = {.data = NULL}};
    tl_window window;
    tl_fault fault;
    sum_anew(log, size);
    REQUIRE(memory && tl_codecs_create(&c.scratch.codecs) == TL_OK && tl_compressor_create(&c.compressor) == TL_OK);
    REQUIRE(tl_offset_map_begin(&c.map, memory, slots * TL_OFFSET_MAP_ENTRY_BYTES, 1, 3, 5) == TL_OK);
    tl_status status = tl_window_survey(log, size, &window, &fault);
    if (status == TL_OK || status == TL_PARTIAL) {
        if (flags & 1) {
            verdicts = malloc(window.batches + 1);
            REQUIRE(verdicts);
            if (flags & 2) judge(log, &window, seed, verdicts);
            for (size_t i = 0; i < window.batches && !(flags & 2); i++)
                verdicts[i] = (uint8_t)((seed = seed * 69069 + 1) >> 29);
        }
        tl_window_state state = {0};
        do {
            status =
                tl_compaction_index(log, window.valid_bytes, verdicts, 0, LIMIT, &c.scratch, &c.map, &state, &fault);
        } while (status == TL_NEED_SCRATCH && grow(&c, &fault));
        REQUIRE(c.map.entries <= c.map.entries_max && c.map.entries < slots);
        if (status == TL_OK || status == TL_FULL) filter(&c, log, &window, verdicts, room);
    }
    free(verdicts);
    free(memory);
    free(log);
    free(c.scratch.data);
    tl_codecs_destroy(c.scratch.codecs);
    tl_compressor_destroy(c.compressor);
    return 0;
}
