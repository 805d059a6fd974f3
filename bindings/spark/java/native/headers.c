#define _POSIX_C_SOURCE 200809L
#include "headers.h"

#include "cursor.h"
#include "local_file.h"
#include "tierlog/checksum.h"

#include <time.h>

/* The buffer is the decoder's scratch: a walk decompresses nothing. */
static uint8_t *block_of(const tlj_decoder *decoder) { return decoder->scratch.data; }

/* Bytes from a position on: at least `need` where the range has them. A read brings up to `most`. */
static tl_status look(tlj_decoder *decoder, tlj_walk *walk, int64_t position, int64_t need, int64_t most,
                      const uint8_t **data, int64_t *size) {
    int64_t at = position - walk->block_position, left = walk->read_end - position;
    if (at < 0 || at > walk->block_size || (walk->block_size - at < need && walk->block_size - at < left)) {
        int64_t wanted = left < most ? left : most;
        int64_t found = tlj_file_read(walk->file, walk->log_position + position, block_of(decoder), wanted);
        walk->requests++;
        walk->block_size = 0;
        if (found < 0) {
            walk->error = (int)-found;
            return TL_BAD_ARGUMENT;
        }
        walk->bytes += found;
        if (found < wanted) return TL_TRUNCATED;
        walk->block_position = position;
        walk->block_size = found;
        at = 0;
    }
    *data = block_of(decoder) + at;
    *size = walk->block_size - at;
    return TL_OK;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The checksum of a batch of which the header was looked at, up to the next one. */
static tl_status check(tlj_decoder *decoder, tlj_walk *walk, const uint8_t *head, int64_t position, int64_t next) {
    enum { STORED_AT = 17, SUMMED_FROM = 21, OLD_STORED_AT = 12, OLD_SUMMED_FROM = 16 };
    bool old = head[TL_MAGIC_POSITION] != 2;
    uint32_t stored = tl_load_u32(head + (old ? OLD_STORED_AT : STORED_AT)), sum = 0;
    for (int64_t at = position + (old ? OLD_SUMMED_FROM : SUMMED_FROM); at < next;) {
        const uint8_t *data = NULL;
        int64_t size = 0;
        tl_status status = look(decoder, walk, at, 1, TLJ_CHECKED_BLOCK_BYTES, &data, &size);
        if (status != TL_OK) return status;
        if (size > next - at) size = next - at;
        uint64_t start = now_ns();
        sum = old ? tl_crc32(sum, data, (size_t)size) : tl_crc32c(sum, data, (size_t)size);
        decoder->state.crc_ns += now_ns() - start;
        at += size;
    }
    return sum == stored ? TL_OK : TL_BAD_CRC;
}

/* What the batch before said counts no more: it is looked at itself. */
static void take_back(tlj_decoder *decoder, tlj_walk *walk) {
    decoder->summary = walk->before_last;
    decoder->state.batches_skipped--;
    walk->last_counted = false;
}

/* Batches up to `next` whose records are needed; with the one before them where that is asked for. */
static void need(tlj_decoder *decoder, tlj_walk *walk, int64_t position, int64_t next, bool with_last) {
    if (with_last && walk->last_counted) {
        take_back(decoder, walk);
        position = walk->last_position;
    }
    if (walk->needed_from == walk->needed_to) walk->needed_from = position;
    walk->needed_to = next;
}

/* The header at the position, and its batch where it is checked. TL_OK: *verdict, and the decoder stands behind it. */
static tl_status take(tlj_decoder *decoder, tlj_walk *walk, int64_t position, tl_header_verdict *verdict) {
    const uint8_t *head = NULL;
    int64_t size = 0;
    tl_status status = look(decoder, walk, position, TL_HEADER_SIZE_V2, TLJ_HEADER_BLOCK_BYTES, &head, &size);
    if (status != TL_OK) return status;
    status = tl_decode_header(head, (size_t)size, &decoder->options, &decoder->state, &decoder->buffers.columns,
                              walk->checked ? NULL : &walk->trust, verdict, &decoder->fault);
    int64_t next = (int64_t)(decoder->options.base_position + decoder->state.at);
    if (status == TL_OK && next > walk->end_position) status = TL_TRUNCATED;
    if (status != TL_OK || !walk->checked || *verdict != TL_HEADER_ENOUGH || decoder->state.in_batch < 0) return status;
    return check(decoder, walk, head, position, next);
}

/* Puts the batch behind which the decoder stands where its header says. False: it ends a run of needed ones. */
static bool place(tlj_decoder *decoder, tlj_walk *walk, int64_t position, tl_header_verdict verdict,
                  tl_summary before) {
    bool sums = decoder->buffers.columns.summary, in_run = walk->in_run, ends = decoder->state.in_batch < 0;
    int64_t next = (int64_t)(decoder->options.base_position + decoder->state.at);
    walk->in_run = verdict != TL_HEADER_ENOUGH;
    if (walk->in_run) {
        need(decoder, walk, position, ends ? walk->end_position : next, !sums || verdict == TL_HEADER_BREAK);
        walk->last_counted = false;
        return true;
    }
    walk->last_counted = !ends;
    walk->last_position = position;
    walk->before_last = before;
    if (in_run && !sums) need(decoder, walk, position, next, true);
    return !in_run;
}

/* At the range's end: the next batch lies behind the last one, or the offset of one of them is wrong. */
static tl_status look_behind(tlj_decoder *decoder, tlj_walk *walk) {
    const uint8_t *data = NULL;
    int64_t size = 0;
    if (walk->read_end - walk->end_position < TL_BASE_OFFSET_BYTES) return TL_OK;
    tl_status status =
        look(decoder, walk, walk->end_position, TL_BASE_OFFSET_BYTES, TL_BASE_OFFSET_BYTES, &data, &size);
    return status == TL_OK && tl_load_i64(data) < decoder->state.next_offset ? TL_BAD_OFFSET : status;
}

tl_status tlj_walk_headers(tlj_decoder *decoder, tlj_walk *walk) {
    const tl_decode_state *state = &decoder->state;
    int64_t base = (int64_t)decoder->options.base_position, bytes = walk->bytes;
    tl_status status = tlj_reserve(decoder->buffers.budget, &decoder->scratch,
                                   walk->checked ? TLJ_CHECKED_BLOCK_BYTES : TLJ_HEADER_BLOCK_BYTES, 0);
    walk->needed_from = walk->needed_to = 0;
    for (int headers = 0; status == TL_OK && headers < TLJ_HEADERS_PER_WALK; headers++) {
        int64_t position = base + (int64_t)state->at;
        if (state->in_batch >= 0 && position == walk->end_position) {
            walk->ended = true;
            return look_behind(decoder, walk);
        }
        walk->ended = state->in_batch < 0;
        if (walk->ended || walk->bytes - bytes >= TLJ_WALK_BYTES) return TL_OK;
        if (walk->headers == TLJ_HEADERS_TO_JUDGE && position - base < walk->headers * walk->worth_bytes) {
            need(decoder, walk, position, walk->end_position, true);
            walk->ended = true;
            return TL_OK;
        }
        walk->headers++;
        tl_header_verdict verdict = TL_HEADER_ENOUGH;
        tl_summary before = decoder->summary;
        status = take(decoder, walk, position, &verdict);
        if (status == TL_OK && !place(decoder, walk, position, verdict, before)) return TL_OK;
    }
    return status;
}
