/* A log through a decoder in windows of any size, as the JVM drives it, and what came of it as one number. */
#ifndef TLJ_TESTS_READING_H
#define TLJ_TESTS_READING_H

#include "decoder.h"
#include "tierlog/checksum.h"

#include <stdlib.h>
#include <string.h>

enum { ALL_COLUMNS = (1 << 7) - 1, STEPS_MAX = 1 << 22 };

/* How a log is read. */
typedef struct reading {
    size_t window; /* bytes of one, at least 1 */
    uint32_t want;
    int64_t target_bytes, budget_bytes;
    bool skip; /* past damaged batches, as failOnDataLoss=false */
    tlj_range range;
} reading;

/* What came of it. */
typedef struct outcome {
    uint32_t digest; /* of all rows, and of all faults with where and what */
    int64_t rows, batches_of_rows, faults, high_bytes;
    bool out_of_memory, cut_short; /* gave up before the end */
} outcome;

static inline void digest(outcome *o, const void *data, size_t size) { o->digest = tl_crc32c(o->digest, data, size); }

static inline void digest_binary(outcome *o, const tl_binary *b, bool nullable, int64_t i) {
    int32_t from = b->offsets[i], to = b->offsets[i + 1];
    bool there = !nullable || b->validity[i / 8] >> (i % 8) & 1;
    if (from < 0 || from > to || to > b->data_capacity || (!there && from != to)) abort();
    digest(o, &there, 1);
    digest(o, b->data + from, (size_t)(to - from));
}

static inline void digest_headers(outcome *o, const tl_columns *c, int64_t row) {
    bool there = c->header_validity[row / 8] >> (row % 8) & 1;
    digest(o, &there, 1);
    for (int32_t h = c->header_offsets[row]; h < c->header_offsets[row + 1]; h++) {
        digest_binary(o, &c->header_key, false, h);
        digest_binary(o, &c->header_value, true, h);
    }
}

static inline void digest_rows(outcome *o, const tl_columns *c) {
    if (c->rows < 1 || c->rows > c->row_capacity) abort();
    for (int64_t row = 0; row < c->rows; row++) {
        if (c->want & TL_COLUMN_KEY) digest_binary(o, &c->key, true, row);
        if (c->want & TL_COLUMN_VALUE) digest_binary(o, &c->value, true, row);
        if (c->want & TL_COLUMN_OFFSET) digest(o, &c->offset[row], sizeof *c->offset);
        if (c->want & TL_COLUMN_TIMESTAMP) digest(o, &c->timestamp[row], sizeof *c->timestamp);
        if (c->want & TL_COLUMN_TIMESTAMP_TYPE) digest(o, &c->timestamp_type[row], sizeof *c->timestamp_type);
        if (c->want & TL_COLUMN_LEADER_EPOCH) digest(o, &c->leader_epoch[row], sizeof *c->leader_epoch);
        if (c->want & TL_COLUMN_HEADERS) digest_headers(o, c, row);
    }
    o->rows += c->rows;
    o->batches_of_rows++;
}

/* Whether reading goes on behind a fault. */
static inline bool take_fault(outcome *o, tlj_decoder *decoder, tl_status status, bool skip) {
    int32_t size;
    int64_t position = (int64_t)tlj_decoder_position(decoder);
    const tl_fault *f = &decoder->fault;
    int64_t told[] = {status, (int64_t)f->position, f->base_offset, f->record, f->expected, f->found, position};
    digest(o, told, sizeof told);
    o->faults++;
    return skip && tlj_decoder_skip(decoder, &size) == TL_OK;
}

/* What is left at the end. */
static inline void finish(outcome *o, tlj_decoder *decoder, bool allow_partial) {
    tl_status status;
    tlj_step step;
    while ((step = tlj_decoder_finish(decoder, allow_partial, &status)) == TLJ_ROWS)
        digest_rows(o, &decoder->buffers.columns);
    if (step == TLJ_FAULT) take_fault(o, decoder, status, false);
}

/* One range. A window is memory of its own, of exactly its size, that is gone before the next one comes. */
static inline void read_range(outcome *o, tlj_decoder *decoder, const reading *how, const uint8_t *log, size_t size) {
    uint8_t *window = NULL;
    size_t at = 0;
    tlj_decoder_begin(decoder, &how->range);
    for (int step = 0; step < STEPS_MAX; step++) {
        tl_status status;
        switch (tlj_decoder_next(decoder, &status)) {
        case TLJ_ROWS: digest_rows(o, &decoder->buffers.columns); continue;
        case TLJ_INPUT: {
            size_t more = size - at < how->window ? size - at : how->window;
            free(window);
            window = NULL;
            if (!more) break;
            window = malloc(more);
            if (!window) abort();
            memcpy(window, log + at, more);
            tlj_decoder_feed(decoder, window, more);
            at += more;
            continue;
        }
        case TLJ_FAULT:
            if (take_fault(o, decoder, status, how->skip)) continue;
            o->cut_short = true;
            break;
        case TLJ_NO_MEMORY: o->out_of_memory = o->cut_short = true; break;
        case TLJ_ENDED: break;
        }
        break;
    }
    if (!o->out_of_memory) finish(o, decoder, how->skip || o->cut_short);
    free(window);
}

/* Reads the log `times` times with one decoder; aborts where memory is above the budget or left behind. */
static inline outcome read_log(const uint8_t *log, size_t size, const reading *how, int times) {
    int64_t before = tlj_live_bytes();
    tlj_budget budget = {.limit = how->budget_bytes};
    tlj_decoder decoder;
    outcome o = {0};
    if (tlj_decoder_open(&decoder, &budget, how->want, how->target_bytes) != TL_OK) abort();
    for (int time = 0; time < times && !o.out_of_memory; time++) read_range(&o, &decoder, how, log, size);
    tlj_decoder_close(&decoder);
    o.high_bytes = atomic_load(&budget.high);
    if (o.high_bytes > how->budget_bytes || atomic_load(&budget.live) || tlj_live_bytes() != before) abort();
    return o;
}

#endif
