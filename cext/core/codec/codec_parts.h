/* One reader a codec; codec.c chooses between them. Internal to the core.
 *
 * All have one form. `out` holds `capacity` bytes and content never goes past it. When it does not fit, the answer is
 * TL_NEED_SCRATCH with fault->expected > capacity: an upper bound of the content where the stream shows one, else a
 * guess that grows; and fault->found, a lower bound. codec.c holds both against the limit. Faults are TL_BAD_COMPRESSED
 * with fault->position in `data`. */
#ifndef TIERLOG_CODEC_PARTS_H
#define TIERLOG_CODEC_PARTS_H

#include "tierlog/status.h"

struct libdeflate_decompressor;
struct ZSTD_DCtx_s;

typedef struct tl_stream {
    const uint8_t *data;
    size_t size;
} tl_stream;

typedef struct tl_output {
    uint8_t *data;
    size_t capacity;
    size_t limit; /* more capacity than this will never be had */
    size_t size;  /* bytes that are content */
} tl_output;

/* Upper bounds of the content. *floor is a lower bound: content that is there whatever the blocks hold. They saturate
 * instead of overflowing. */
tl_status tl_gzip_bound(tl_stream in, uint64_t *floor, uint64_t *bound, tl_fault *fault); /* a hint: ISIZE, bounded */
tl_status tl_snappy_bound(tl_stream in, uint64_t *floor, uint64_t *bound, tl_fault *fault);
tl_status tl_lz4_bound(tl_stream in, bool check_header, uint64_t *floor, uint64_t *bound, tl_fault *fault);
tl_status tl_zstd_bound(tl_stream in, uint64_t *floor, uint64_t *bound, tl_fault *fault);

tl_status tl_gzip_read(struct libdeflate_decompressor *context, tl_stream in, tl_output *out, tl_fault *fault);
tl_status tl_snappy_read(tl_stream in, tl_output *out, tl_fault *fault);
tl_status tl_lz4_read(tl_stream in, bool check_header, tl_output *out, tl_fault *fault);
tl_status tl_zstd_read(struct ZSTD_DCtx_s *context, tl_stream in, tl_output *out, tl_fault *fault);
tl_status tl_zstd_read_prefix(struct ZSTD_DCtx_s *context, tl_stream in, size_t wanted, tl_output *out,
                              tl_fault *fault);

/* A corrupt stream, at a position of it. */
static inline tl_status tl_corrupt(tl_fault *fault, size_t position) {
    *fault = (tl_fault){.position = position, .base_offset = -1, .record = -1};
    return TL_BAD_COMPRESSED;
}

/* More room, please: the content has `floor` bytes for sure, and `bound` at most or as a guess. */
static inline tl_status tl_need(tl_fault *fault, uint64_t floor, uint64_t bound) {
    *fault = (tl_fault){.base_offset = -1,
                        .record = -1,
                        .expected = (int64_t)(bound < INT64_MAX ? bound : INT64_MAX),
                        .found = (int64_t)(floor < INT64_MAX ? floor : INT64_MAX)};
    return TL_NEED_SCRATCH;
}

#endif
