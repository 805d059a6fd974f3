/* Records of byte ranges as batches of rows, window after window: the state machine of the core with memory around it.
 *
 * Not JNI: its tests and fuzzers need no JVM. One thread at a time. */
#ifndef TLJ_DECODER_H
#define TLJ_DECODER_H

#include "row_buffers.h"

/* What tlj_decoder_next has for its caller. */
typedef enum tlj_step {
    TLJ_ROWS = 1,  /* a batch of rows, valid until the next call */
    TLJ_INPUT = 2, /* all input is used up: feed, or finish */
    TLJ_ENDED = 3, /* nothing that follows counts */
    TLJ_FAULT = 4, /* the bytes are wrong: status and fault; rows before them were given. Skip, or give up */
    TLJ_NO_MEMORY =
        5, /* status as of tlj_row_buffers_grow: TL_OVER_LIMIT is the budget's. Nothing more comes of the range */
} tlj_step;

/* Which records of a range count; times in ms, rows get us. */
typedef struct tlj_range {
    uint64_t base_position; /* of the first byte that is fed, for faults */
    uint64_t end_position;  /* as of tl_decode_options */
    int64_t from_offset, to_offset_exclusive, from_timestamp, to_timestamp_exclusive;
    int64_t least_offset, greatest_offset; /* of the batches of the range, whatever counts of them */
    uint64_t decompressed_limit;
    const tl_aborted *aborted; /* the caller's for as long as the range is read; NULL: read_uncommitted */
    size_t aborted_count;
    bool verify_crc;
} tlj_range;

/* The one batch that begins in one window and ends in a later one: the only bytes that are copied. */
enum { TLJ_HEADER_BYTES = TL_MAGIC_POSITION + 1 }; /* what tl_batch_parse needs to know a size */
typedef struct tlj_straddle {
    uint8_t head[TLJ_HEADER_BYTES];
    tlj_block block;
    bool active, in_block;
    size_t have, need;
    uint64_t position;
} tlj_straddle;

typedef struct tlj_input {
    const uint8_t *data; /* NULL: none */
    size_t size;
} tlj_input;

typedef struct tlj_decoder {
    tlj_row_buffers buffers;
    tl_summary summary; /* of the range under way; only where the decoder sums up */
    tl_decode_options options;
    tl_decode_state state;
    tlj_block scratch;
    tl_codecs *codecs;
    tlj_straddle straddle;
    tlj_input current, fed;
    uint64_t end_position;
    bool buffers_ready; /* columns are open for rows */
    tl_status pending;  /* a fault that waits behind the rows before it */
    tl_fault fault;
    /* counters of all ranges but the one under way */
    uint64_t batches, batches_skipped, records, decompressed_bytes, crc_ns;
} tlj_decoder;

/* TL_NO_MEMORY, or TL_OK. Close after either. */
tl_status tlj_decoder_open(tlj_decoder *decoder, tlj_budget *budget, uint32_t want, int64_t target_bytes);
void tlj_decoder_close(tlj_decoder *decoder);

/* One that gives no rows but sums up what `want`, TL_SUMMARY_*, says. */
tl_status tlj_decoder_open_summary(tlj_decoder *decoder, tlj_budget *budget, uint32_t want);

/* The next range; rows under way of the last one are lost. */
void tlj_decoder_begin(tlj_decoder *decoder, const tlj_range *range);

/* Bytes that follow those fed before, the caller's until the next TLJ_INPUT. Only after begin or TLJ_INPUT. */
void tlj_decoder_feed(tlj_decoder *decoder, const uint8_t *data, size_t size);

/* Goes on. `*status` is TL_OK but for TLJ_FAULT and TLJ_NO_MEMORY; where and what is decoder->fault. */
tlj_step tlj_decoder_next(tlj_decoder *decoder, tl_status *status);

/* No more input comes: TLJ_ROWS with what is left, then TLJ_ENDED; TLJ_FAULT with TL_TRUNCATED if the last batch is
 * not whole, unless that is allowed. Call it again after TLJ_ROWS. */
tlj_step tlj_decoder_finish(tlj_decoder *decoder, bool allow_partial, tl_status *status);

/* After TLJ_FAULT: steps over the damaged batch. TL_OK and its size; else it cannot be told where it ends. */
tl_status tlj_decoder_skip(tlj_decoder *decoder, int32_t *size_bytes);

/* Of the next byte that is not done. */
uint64_t tlj_decoder_position(const tlj_decoder *decoder);

#endif
