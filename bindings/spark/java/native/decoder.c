#include "decoder.h"

#include <string.h>

/* A scratch that one giant batch made is given back before the next range. */
enum { SCRATCH_KEPT_MAX = 32 << 20 };

/* Rows that are summed up at once stay in the cache. */
enum { SUMMARY_BYTES = 64 << 10 };

tl_status tlj_decoder_open(tlj_decoder *decoder, tlj_budget *budget, uint32_t want, int64_t target_bytes) {
    memset(decoder, 0, sizeof *decoder);
    tlj_row_buffers_open(&decoder->buffers, budget, want, target_bytes);
    decoder->state.in_batch = -1;
    return tl_codecs_create(&decoder->codecs);
}

tl_status tlj_decoder_open_summary(tlj_decoder *decoder, tlj_budget *budget, uint32_t want) {
    tl_status status = tlj_decoder_open(decoder, budget, tl_summary_columns(want), SUMMARY_BYTES);
    decoder->summary.want = want;
    decoder->buffers.columns.summary = &decoder->summary;
    return status;
}

static void end_input(tlj_decoder *decoder) {
    decoder->current = decoder->fed = (tlj_input){0};
    decoder->straddle.active = false;
}

void tlj_decoder_close(tlj_decoder *decoder) {
    end_input(decoder);
    tlj_release(decoder->buffers.budget, &decoder->straddle.block);
    tlj_release(decoder->buffers.budget, &decoder->scratch);
    tlj_row_buffers_close(&decoder->buffers);
    tl_codecs_destroy(decoder->codecs);
    decoder->codecs = NULL;
}

static void add_counters(tlj_decoder *decoder) {
    decoder->batches += decoder->state.batches;
    decoder->batches_skipped += decoder->state.batches_skipped;
    decoder->records += decoder->state.records;
    decoder->decompressed_bytes += decoder->state.decompressed_bytes;
    decoder->crc_ns += decoder->state.crc_ns;
}

void tlj_decoder_begin(tlj_decoder *decoder, const tlj_range *range) {
    add_counters(decoder);
    end_input(decoder);
    decoder->state = (tl_decode_state){0};
    decoder->options = (tl_decode_options){.struct_size = sizeof(tl_decode_options),
                                           .end_position = range->end_position,
                                           .from_offset = range->from_offset,
                                           .to_offset_exclusive = range->to_offset_exclusive,
                                           .least_offset = range->least_offset,
                                           .greatest_offset = range->greatest_offset,
                                           .from_timestamp = range->from_timestamp,
                                           .to_timestamp_exclusive = range->to_timestamp_exclusive,
                                           .timestamp_multiplier = 1000,
                                           .decompressed_limit = range->decompressed_limit,
                                           .aborted = range->aborted,
                                           .aborted_count = range->aborted_count,
                                           .verify_crc = range->verify_crc,
                                           .measure_crc = true};
    decoder->options.base_position = decoder->end_position = range->base_position;
    tl_summary_reset(&decoder->summary, decoder->summary.want);
    decoder->buffers_ready = false;
    decoder->pending = TL_OK;
    if (decoder->scratch.size > SCRATCH_KEPT_MAX) tlj_release(decoder->buffers.budget, &decoder->scratch);
    if (decoder->straddle.block.size > SCRATCH_KEPT_MAX) tlj_release(decoder->buffers.budget, &decoder->straddle.block);
}

void tlj_decoder_feed(tlj_decoder *decoder, const uint8_t *data, size_t size) {
    if (decoder->state.in_batch >= 0 && size) decoder->fed = (tlj_input){data, size};
}

/* ---- input ---------------------------------------------------------------------------------------------------------
 */

static void start(tlj_decoder *decoder, const uint8_t *data, size_t size, uint64_t position) {
    decoder->current = (tlj_input){data, size};
    decoder->options.base_position = position;
    decoder->state.at = 0;
}

/* The header is there: room for the whole batch. A header that cannot be, or of a batch above the limit, stays as it
 * is: decoding names what is wrong, behind the rows that came before. */
static tl_status enlarge(tlj_decoder *decoder) {
    tlj_straddle *s = &decoder->straddle;
    tl_batch_header header;
    tl_fault fault;
    if (tl_batch_parse(s->head, TLJ_HEADER_BYTES, &header, &fault) != TL_PARTIAL || fault.expected <= 0) return TL_OK;
    if ((uint64_t)fault.expected > decoder->options.decompressed_limit) return TL_OK;
    tl_status status = tlj_reserve(decoder->buffers.budget, &s->block, (size_t)fault.expected, 0);
    if (status != TL_OK) return status;
    memcpy(s->block.data, s->head, TLJ_HEADER_BYTES);
    s->need = (size_t)fault.expected;
    s->in_block = true;
    return TL_OK;
}

/* Takes from `input` what the straddling batch still needs. */
static tl_status add_to_straddle(tlj_decoder *decoder, tlj_input *input) {
    tlj_straddle *s = &decoder->straddle;
    tl_status status = TL_OK;
    while (status == TL_OK && s->have < s->need && input->size) {
        size_t left = s->need - s->have, more = left < input->size ? left : input->size;
        memcpy((s->in_block ? s->block.data : s->head) + s->have, input->data, more);
        s->have += more;
        input->data += more;
        input->size -= more;
        if (s->have == TLJ_HEADER_BYTES && !s->in_block) status = enlarge(decoder);
    }
    return status;
}

/* The current input ends inside a batch: what is left waits for the next one. It never lies in the straddle's own
 * memory: a batch that was completed there is whole. */
static tl_status keep_rest(tlj_decoder *decoder) {
    size_t at = (size_t)decoder->state.at;
    tlj_input rest = {decoder->current.data + at, decoder->current.size - at};
    tlj_straddle *s = &decoder->straddle;
    s->active = true;
    s->in_block = false;
    s->have = 0;
    s->need = TLJ_HEADER_BYTES;
    s->position = decoder->options.base_position + at;
    decoder->current = (tlj_input){0};
    return add_to_straddle(decoder, &rest);
}

/* Makes what was fed, or the batch that straddles, the current input; none: all is used up. */
static tl_status next_input(tlj_decoder *decoder) {
    tlj_straddle *s = &decoder->straddle;
    tlj_input *fed = &decoder->fed;
    if (s->active && fed->data) {
        size_t before = fed->size;
        tl_status status = add_to_straddle(decoder, fed);
        decoder->end_position += before - fed->size;
        if (status != TL_OK) return status;
        if (s->have == s->need) {
            s->active = false;
            start(decoder, s->in_block ? s->block.data : s->head, s->need, s->position);
        }
    } else if (fed->data) {
        start(decoder, fed->data, fed->size, decoder->end_position);
        decoder->end_position += fed->size;
        fed->size = 0;
    }
    if (!fed->size) fed->data = NULL;
    return TL_OK;
}

/* ---- output --------------------------------------------------------------------------------------------------------
 */

static tlj_step hand_over(tlj_decoder *decoder) {
    decoder->buffers_ready = false;
    return TLJ_ROWS;
}

static bool has_rows(const tlj_decoder *decoder) { return decoder->buffers_ready && decoder->buffers.columns.rows; }

/* Content is decompressed anew, so nothing need be kept. */
static tl_status grow_scratch(tlj_decoder *decoder, int64_t need) {
    size_t limit = (size_t)decoder->options.decompressed_limit, wanted = (size_t)need + ((size_t)need >> 3);
    if (wanted > limit) wanted = limit;
    return tlj_reserve_generous(decoder->buffers.budget, &decoder->scratch, (size_t)need, wanted, 0);
}

static tlj_step no_memory(tlj_decoder *decoder, tl_status *status, tl_status why) {
    decoder->buffers_ready = false;
    decoder->state.in_batch = -1;
    *status = why;
    return TLJ_NO_MEMORY;
}

static tlj_step give_fault(tlj_decoder *decoder, tl_status *status) {
    *status = decoder->pending;
    decoder->pending = TL_OK;
    return TLJ_FAULT;
}

/* One call of the core, and what it asks for. TL_OK: go on; TL_FULL: hand over; else the fault of the bytes. */
static tl_status decode(tlj_decoder *decoder, tl_status *memory) {
    tl_scratch scratch = {decoder->scratch.data, decoder->scratch.size, decoder->codecs};
    decoder->fault = (tl_fault){.record = -1};
    tl_status status = tl_decode(decoder->current.data, decoder->current.size, &decoder->options, &decoder->state,
                                 &scratch, &decoder->buffers.columns, &decoder->fault);
    switch (status) {
    case TL_OK: decoder->current = (tlj_input){0}; return TL_OK;
    case TL_PARTIAL: *memory = keep_rest(decoder); return TL_OK;
    case TL_NEED_SCRATCH: *memory = grow_scratch(decoder, decoder->fault.expected); return TL_OK;
    case TL_FULL:
        if (tlj_row_buffers_is_full(&decoder->buffers)) return TL_FULL;
        *memory = tlj_row_buffers_grow(&decoder->buffers, &decoder->fault);
        return TL_OK;
    default: return status;
    }
}

tlj_step tlj_decoder_next(tlj_decoder *decoder, tl_status *status) {
    *status = TL_OK;
    if (decoder->pending != TL_OK) return give_fault(decoder, status);
    while (decoder->state.in_batch >= 0) {
        tl_status memory = TL_OK;
        if (!decoder->current.data) memory = next_input(decoder);
        if (memory == TL_OK && !decoder->current.data) return TLJ_INPUT;
        if (memory == TL_OK && !decoder->buffers_ready) memory = tlj_row_buffers_next(&decoder->buffers);
        if (memory != TL_OK) return no_memory(decoder, status, memory);
        decoder->buffers_ready = true;
        tl_status done = decode(decoder, &memory);
        if (memory != TL_OK) return no_memory(decoder, status, memory);
        if (done == TL_FULL) return hand_over(decoder);
        if (done == TL_OK) continue;
        decoder->pending = done;
        return has_rows(decoder) ? hand_over(decoder) : give_fault(decoder, status);
    }
    if (decoder->current.data) decoder->end_position = tlj_decoder_position(decoder);
    end_input(decoder);
    return TLJ_ENDED;
}

tlj_step tlj_decoder_finish(tlj_decoder *decoder, bool allow_partial, tl_status *status) {
    tlj_straddle *s = &decoder->straddle;
    tl_batch_header header;
    *status = TL_OK;
    if (decoder->pending != TL_OK) return give_fault(decoder, status);
    if (has_rows(decoder)) return hand_over(decoder);
    if (!s->active || allow_partial) return TLJ_ENDED;
    decoder->fault = (tl_fault){.base_offset = -1, .record = -1};
    tl_batch_parse(s->in_block ? s->block.data : s->head, s->have, &header, &decoder->fault);
    decoder->fault.position = s->position;
    *status = TL_TRUNCATED;
    return TLJ_FAULT;
}

tl_status tlj_decoder_skip(tlj_decoder *decoder, int32_t *size_bytes) {
    if (!decoder->current.data) return TL_BAD_ARGUMENT;
    return tl_decode_skip(decoder->current.data, decoder->current.size, &decoder->options, &decoder->state, size_bytes,
                          &decoder->fault);
}

uint64_t tlj_decoder_position(const tlj_decoder *decoder) {
    if (decoder->current.data) return decoder->options.base_position + decoder->state.at;
    return decoder->straddle.active ? decoder->straddle.position : decoder->end_position;
}
