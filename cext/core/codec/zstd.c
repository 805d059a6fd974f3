/* Zstandard: one-shot through libzstd, after a walk over frame and block headers.
 *
 * The walk is what makes one-shot safe: Kafka's frames carry no content size, so it finds the bound; it refuses what
 * Kafka's streaming reader refuses and one-shot would not (windows above 128 MiB, blocks above the window), and the
 * formats before 1.0. It costs a few loads a block of 128 KiB. */
#include "codec/codec_parts.h"
#include "cursor.h"

#include <zstd.h>
#include <zstd_errors.h>

enum { BLOCK_RAW = 0, BLOCK_RLE = 1, BLOCK_COMPRESSED = 2, BLOCK_SIZE_MAX = 1 << 17 };
static const uint32_t FRAME_MAGIC = 0xfd2fb528u, SKIPPABLE_MAGIC = 0x184d2a50u;
static const uint64_t WINDOW_MAX = (1ull << 27) + 1; /* ZSTD_WINDOWLOG_LIMIT_DEFAULT, as libzstd's streams have it */

typedef struct frame {
    uint64_t block_size_max;
    uint64_t content_size;
    bool has_content_size, has_checksum;
} frame;

static bool take_little_endian(tl_cursor *c, size_t size, uint64_t *out) {
    const uint8_t *bytes;
    if (tl_take(c, size, &bytes) != TL_OK) return false;
    *out = 0;
    for (size_t i = 0; i < size; i++) *out |= (uint64_t)bytes[i] << 8 * i;
    return true;
}

static bool open_frame(tl_cursor *c, frame *f) {
    static const uint8_t DICTIONARY_SIZES[4] = {0, 1, 2, 4}, CONTENT_SIZES[4] = {0, 2, 4, 8};
    const uint8_t *descriptor, *window;
    if (tl_take(c, 1, &descriptor) != TL_OK || *descriptor & 0x08) return false;
    bool single_segment = *descriptor & 0x20;
    uint64_t window_size = 0, dictionary;
    if (!single_segment) {
        if (tl_take(c, 1, &window) != TL_OK) return false;
        window_size = 1ull << (10 + (*window >> 3));
        window_size += window_size / 8 * (*window & 7);
        if (window_size > WINDOW_MAX) return false;
    }
    if (!take_little_endian(c, DICTIONARY_SIZES[*descriptor & 3], &dictionary)) return false;
    unsigned size_flag = *descriptor >> 6;
    size_t field = size_flag ? CONTENT_SIZES[size_flag] : single_segment;
    if (!take_little_endian(c, field, &f->content_size)) return false;
    f->content_size += field == 2 ? 256 : 0;
    f->has_content_size = field != 0;
    f->has_checksum = *descriptor & 0x04;
    if (single_segment) window_size = f->content_size;
    f->block_size_max = window_size < BLOCK_SIZE_MAX ? window_size : BLOCK_SIZE_MAX;
    return true;
}

/* Walks the blocks of one frame: the least and the greatest possible size of its content. */
static bool walk_frame(tl_cursor *c, uint64_t *floor, uint64_t *bound) {
    frame f;
    if (!open_frame(c, &f)) return false;
    uint64_t least = 0, most = 0, header = 0;
    const uint8_t *ignored;
    do {
        if (!take_little_endian(c, 3, &header)) return false;
        unsigned type = header >> 1 & 3;
        uint64_t size = header >> 3;
        uint64_t size_max = type == BLOCK_COMPRESSED ? BLOCK_SIZE_MAX : f.block_size_max;
        if (type > BLOCK_COMPRESSED || size > size_max) return false;
        if (tl_take(c, type == BLOCK_RLE ? 1 : size, &ignored) != TL_OK) return false;
        least += type == BLOCK_COMPRESSED ? 0 : size;
        most += type == BLOCK_COMPRESSED ? f.block_size_max : size;
    } while (!(header & 1));
    if (f.has_checksum && tl_take(c, 4, &ignored) != TL_OK) return false;
    if (f.has_content_size) {
        if (f.content_size < least || f.content_size > most) return false; /* it lies */
        least = most = f.content_size;
    }
    *floor += least;
    *bound += most;
    return true;
}

tl_status tl_zstd_bound(tl_stream in, uint64_t *floor, uint64_t *bound, tl_fault *fault) {
    tl_cursor c = {in.data, in.data + in.size};
    *floor = *bound = 0;
    while (tl_left(&c)) {
        size_t position = (size_t)(c.at - in.data);
        const uint8_t *ignored;
        uint64_t magic, size;
        if (!take_little_endian(&c, 4, &magic)) return tl_corrupt(fault, position);
        if (magic == FRAME_MAGIC) {
            if (!walk_frame(&c, floor, bound)) return tl_corrupt(fault, position);
        } else if ((magic & ~0xfull) != SKIPPABLE_MAGIC || !take_little_endian(&c, 4, &size) ||
                   tl_take(&c, size, &ignored) != TL_OK) {
            return tl_corrupt(fault, position);
        }
    }
    return TL_OK;
}

tl_status tl_zstd_read(ZSTD_DCtx *context, tl_stream in, tl_output *out, tl_fault *fault) {
    uint64_t floor, bound;
    tl_status status = tl_zstd_bound(in, &floor, &bound, fault);
    if (status != TL_OK || !in.size) return status;
    if (floor > out->capacity) return tl_need(fault, floor, bound);
    size_t written = ZSTD_decompressDCtx(context, out->data, out->capacity, in.data, in.size);
    if (!ZSTD_isError(written)) {
        out->size = written;
        return TL_OK;
    }
    /* With room for all that there can be, "too small" means that a block says more than it may. */
    if (ZSTD_getErrorCode(written) == ZSTD_error_dstSize_tooSmall && out->capacity < bound)
        return tl_need(fault, floor, bound);
    return tl_corrupt(fault, 0);
}

tl_status tl_zstd_read_prefix(ZSTD_DCtx *context, tl_stream in, size_t wanted, tl_output *out, tl_fault *fault) {
    enum { INPUT_STEP = 1 << 16 }; /* bytes that are decoded beyond `wanted` at most come from so many */
    uint64_t floor, bound;
    tl_status status = tl_zstd_bound(in, &floor, &bound, fault);
    if (status != TL_OK) return status;
    /* Straight into the caller's memory, which has room for all of a frame that states its size. */
    if (floor != bound || bound > out->capacity || wanted >= bound ||
        ZSTD_isError(ZSTD_DCtx_setParameter(context, ZSTD_d_experimentalParam2 /* a stable output */, 1)))
        return tl_zstd_read(context, in, out, fault);
    ZSTD_inBuffer source = {in.data, 0, 0};
    ZSTD_outBuffer target = {out->data, out->capacity, 0};
    size_t left = 1;
    while (target.pos < wanted && left != 0 && !ZSTD_isError(left)) {
        if (source.pos == source.size) {
            if (source.size == in.size) break;
            source.size = in.size - source.size < INPUT_STEP ? in.size : source.size + INPUT_STEP;
        }
        left = ZSTD_decompressStream(context, &target, &source);
    }
    ZSTD_DCtx_reset(context, ZSTD_reset_session_and_parameters);
    if (ZSTD_isError(left)) return tl_corrupt(fault, source.pos);
    if (target.pos < wanted) return tl_zstd_read(context, in, out, fault); /* several frames, or a wrong size */
    out->size = target.pos;
    return TL_OK;
}
