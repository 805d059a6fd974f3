/* Gzip: RFC 1952 members through libdeflate, which wants whole streams, as batches are.
 *
 * As java.util.zip.GZIPInputStream: any flags, any operating system, several members, and bytes behind a member that
 * begin no other one are ignored. Stricter: a member's checksum and size always count. */
#include "codec/codec_parts.h"
#include "cursor.h"

#include <libdeflate.h>

enum { FLAG_HEADER_CRC = 2, FLAG_EXTRA = 4, FLAG_NAME = 8, FLAG_COMMENT = 16, FIXED_SIZE = 10, TRAILER_SIZE = 8 };
enum { RATIO_MAX = 1032, FIRST_GUESS = 1 << 16 }; /* deflate: 258 bytes a match of two bits */

static bool skip(tl_cursor *c, size_t size) {
    const uint8_t *ignored;
    return tl_take(c, size, &ignored) == TL_OK;
}

static bool skip_text(tl_cursor *c) {
    const uint8_t *end = tl_left(c) ? memchr(c->at, 0, tl_left(c)) : NULL;
    if (end) c->at = end + 1;
    return end != NULL;
}

static bool skip_header(tl_cursor *c) {
    const uint8_t *start;
    if (tl_take(c, FIXED_SIZE, &start) != TL_OK) return false;
    if (start[0] != 0x1f || start[1] != 0x8b || start[2] != 8) return false;
    unsigned flags = start[3];
    if (flags & FLAG_EXTRA) {
        const uint8_t *length;
        if (tl_take(c, 2, &length) != TL_OK || !skip(c, length[0] | (size_t)length[1] << 8)) return false;
    }
    if (flags & FLAG_NAME && !skip_text(c)) return false;
    if (flags & FLAG_COMMENT && !skip_text(c)) return false;
    if (flags & FLAG_HEADER_CRC) {
        uint32_t crc = libdeflate_crc32(0, start, (size_t)(c->at - start)) & 0xffff;
        const uint8_t *stored;
        if (tl_take(c, 2, &stored) != TL_OK || crc != (stored[0] | (uint32_t)stored[1] << 8)) return false;
    }
    return true;
}

tl_status tl_gzip_bound(tl_stream in, uint64_t *floor, uint64_t *bound, tl_fault *fault) {
    *floor = 0;
    if (in.size < FIXED_SIZE + TRAILER_SIZE) return tl_corrupt(fault, 0);
    uint64_t declared = tl_load_le32(in.data + in.size - 4); /* of the last member */
    uint64_t most = (uint64_t)in.size * RATIO_MAX;
    *bound = declared < in.size ? in.size : declared < most ? declared : most;
    return TL_OK;
}

static tl_status need_more(tl_stream in, size_t capacity, tl_fault *fault) {
    uint64_t floor, hint;
    tl_status status = tl_gzip_bound(in, &floor, &hint, fault);
    if (status != TL_OK) return status;
    uint64_t twice = capacity > FIRST_GUESS / 2 ? 2 * (uint64_t)capacity : FIRST_GUESS;
    return tl_need(fault, capacity, hint > capacity ? hint : twice);
}

tl_status tl_gzip_read(struct libdeflate_decompressor *context, tl_stream in, tl_output *out, tl_fault *fault) {
    tl_cursor c = {in.data, in.data + in.size};
    for (bool first = true;; first = false) {
        size_t member = (size_t)(c.at - in.data);
        if (!first && !tl_left(&c)) return TL_OK;
        if (!skip_header(&c)) return first ? tl_corrupt(fault, member) : TL_OK;
        size_t used = 0, written = 0;
        uint8_t *content = out->data + out->size;
        enum libdeflate_result result = libdeflate_deflate_decompress_ex(context, c.at, tl_left(&c), content,
                                                                         out->capacity - out->size, &used, &written);
        if (result == LIBDEFLATE_INSUFFICIENT_SPACE) return need_more(in, out->capacity, fault);
        if (result != LIBDEFLATE_SUCCESS) return tl_corrupt(fault, member);
        c.at += used;
        const uint8_t *trailer;
        if (tl_take(&c, TRAILER_SIZE, &trailer) != TL_OK) return tl_corrupt(fault, (size_t)(c.at - in.data));
        if (tl_load_le32(trailer) != libdeflate_crc32(0, content, written) ||
            tl_load_le32(trailer + 4) != (uint32_t)written)
            return tl_corrupt(fault, (size_t)(trailer - in.data));
        out->size += written;
    }
}
