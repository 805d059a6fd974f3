/* Snappy: the framing of snappy-java (docs/formats/log-files.md, Snappy stream), or one bare block. */
#include "codec/codec_parts.h"
#include "cursor.h"

#include <snappy-c.h>

enum { HEADER_SIZE = 16, VERSION_POSITION = 8, VERSION_MIN = 1 };
static const uint8_t MAGIC[8] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0};

/* A sound header; anything shorter than one is read as a bare block, as snappy-java does. */
static bool is_framed(tl_stream in) { return in.size >= HEADER_SIZE && !memcmp(in.data, MAGIC, sizeof MAGIC); }

/* The next block of the stream; *end when there is none. False: corrupt at c->at. */
static bool next_block(tl_cursor *c, tl_stream *block, bool *end) {
    for (;;) {
        *end = !tl_left(c);
        if (*end) return true;
        if (tl_left(c) < 4) return false;
        if (tl_load_u32(c->at) != tl_load_u32(MAGIC)) break;
        /* A header where a length should be: streams were put one behind the other. Only of such a one does snappy-java
         * look at the version. */
        if (!is_framed((tl_stream){c->at, tl_left(c)}) || tl_load_i32(c->at + VERSION_POSITION) < VERSION_MIN)
            return false;
        c->at += HEADER_SIZE;
    }
    uint32_t size = tl_load_u32(c->at);
    if (size > tl_left(c) - 4) return false;
    *block = (tl_stream){c->at + 4, size};
    c->at += 4 + (size_t)size;
    return true;
}

/* The size that a block declares, if its bytes can hold so much: 3 bytes copy 64 at most. */
static bool block_content(tl_stream block, size_t *size) {
    if (snappy_uncompressed_length((const char *)block.data, block.size, size) != SNAPPY_OK) return false;
    return *size / 64 <= block.size / 3;
}

tl_status tl_snappy_bound(tl_stream in, uint64_t *floor, uint64_t *bound, tl_fault *fault) {
    uint64_t sum = 0;
    size_t size = 0;
    if (!is_framed(in)) {
        if (!block_content(in, &size)) return tl_corrupt(fault, 0);
        sum = size;
    } else {
        tl_cursor c = {in.data + HEADER_SIZE, in.data + in.size};
        tl_stream block;
        for (bool end = false;;) {
            if (!next_block(&c, &block, &end)) return tl_corrupt(fault, (size_t)(c.at - in.data));
            if (end) break;
            if (!block_content(block, &size)) return tl_corrupt(fault, (size_t)(block.data - in.data));
            sum += size;
        }
    }
    *floor = *bound = sum;
    return TL_OK;
}

static tl_status read_block(tl_stream in, tl_stream block, tl_output *out, tl_fault *fault) {
    size_t size = 0;
    size_t position = (size_t)(block.data - in.data);
    if (!block_content(block, &size)) return tl_corrupt(fault, position);
    if (size > out->capacity - out->size) {
        uint64_t floor, bound;
        tl_status status = tl_snappy_bound(in, &floor, &bound, fault);
        return status == TL_OK ? tl_need(fault, floor, bound) : status;
    }
    char *content = (char *)out->data + out->size;
    if (snappy_uncompress((const char *)block.data, block.size, content, &size) != SNAPPY_OK)
        return tl_corrupt(fault, position);
    out->size += size;
    return TL_OK;
}

tl_status tl_snappy_read(tl_stream in, tl_output *out, tl_fault *fault) {
    if (!in.size) return tl_corrupt(fault, 0);
    if (!is_framed(in)) return read_block(in, in, out, fault);
    tl_cursor c = {in.data + HEADER_SIZE, in.data + in.size};
    tl_stream block;
    for (bool end = false;;) {
        if (!next_block(&c, &block, &end)) return tl_corrupt(fault, (size_t)(c.at - in.data));
        if (end) return TL_OK;
        tl_status status = read_block(in, block, out, fault);
        if (status != TL_OK) return status;
    }
}
