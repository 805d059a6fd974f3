/* LZ4 frames as Kafka reads them (docs/formats/log-files.md, LZ4 frame), block by block.
 *
 * The frame API of liblz4 cannot be used: it refuses the header checksum of magic 0, fails on a content checksum that
 * Kafka does not look at, and takes linked blocks, which Kafka refuses. */
#include "codec/codec_parts.h"
#include "cursor.h"
#include "tierlog/checksum.h"

#include <lz4.h>

enum {
    FLAG_RESERVED = 0x03, /* with the dictionary id, which Kafka does not know */
    FLAG_CONTENT_CHECKSUM = 0x04,
    FLAG_CONTENT_SIZE = 0x08,
    FLAG_BLOCK_CHECKSUM = 0x10,
    FLAG_INDEPENDENT = 0x20,
    VERSION_1 = 1,
    BLOCK_RESERVED = 0x8f,
    BLOCK_SIZE_MIN = 4, /* 64 KiB, then times four up to 4 MiB */
    EXPANSION_MAX = 255 /* one byte of a length stands for 255 of content */
};
static const uint32_t FRAME_MAGIC = 0x184d2204u, STORED = 0x80000000u;

typedef struct frame {
    tl_cursor at;
    size_t block_size_max;
    bool block_checksums, content_checksum;
} frame;

typedef struct block {
    const uint8_t *data;
    size_t size; /* 0 = the end mark */
    bool stored;
} block;

static bool open_frame(tl_stream in, bool check_header, frame *f) {
    f->at = (tl_cursor){in.data, in.data + in.size};
    const uint8_t *start, *content_size, *check;
    if (tl_take(&f->at, 6, &start) != TL_OK || tl_load_le32(start) != FRAME_MAGIC) return false;
    unsigned flags = start[4], sizes = start[5];
    if (flags >> 6 != VERSION_1 || !(flags & FLAG_INDEPENDENT) || flags & FLAG_RESERVED) return false;
    if (sizes & BLOCK_RESERVED || sizes >> 4 < BLOCK_SIZE_MIN) return false;
    if (flags & FLAG_CONTENT_SIZE && tl_take(&f->at, 8, &content_size) != TL_OK) return false;
    size_t descriptor_size = (size_t)(f->at.at - start) - 4;
    if (tl_take(&f->at, 1, &check) != TL_OK) return false;
    if (check_header && *check != (tl_xxhash32(start + 4, descriptor_size, 0) >> 8 & 0xff)) return false;
    f->block_size_max = (size_t)1 << (8 + 2 * (sizes >> 4));
    f->block_checksums = flags & FLAG_BLOCK_CHECKSUM;
    f->content_checksum = flags & FLAG_CONTENT_CHECKSUM;
    return true;
}

static bool next_block(frame *f, block *b, bool verify) {
    const uint8_t *field;
    if (tl_take(&f->at, 4, &field) != TL_OK) return false;
    uint32_t word = tl_load_le32(field);
    b->stored = word & STORED;
    b->size = word & ~STORED;
    if (!b->size) return !f->content_checksum || tl_take(&f->at, 4, &field) == TL_OK;
    if (b->size > f->block_size_max || tl_take(&f->at, b->size, &b->data) != TL_OK) return false;
    if (!f->block_checksums) return true;
    if (tl_take(&f->at, 4, &field) != TL_OK) return false;
    return !verify || tl_load_le32(field) == tl_xxhash32(b->data, b->size, 0);
}

tl_status tl_lz4_bound(tl_stream in, bool check_header, uint64_t *floor, uint64_t *bound, tl_fault *fault) {
    frame f;
    block b;
    *floor = *bound = 0;
    if (!open_frame(in, check_header, &f)) return tl_corrupt(fault, 0);
    for (;;) {
        size_t position = (size_t)(f.at.at - in.data);
        if (!next_block(&f, &b, false)) return tl_corrupt(fault, position);
        if (!b.size) return TL_OK;
        size_t most = b.size < f.block_size_max / EXPANSION_MAX ? b.size * EXPANSION_MAX : f.block_size_max;
        *floor += b.stored ? b.size : 0;
        *bound += b.stored ? b.size : most;
    }
}

/* The content size of a compressed block by its tokens alone; false where they run past its end. */
static bool measure_block(const block *b, uint64_t *size) {
    tl_cursor c = {b->data, b->data + b->size};
    const uint8_t *field;
    *size = 0;
    for (;;) {
        if (tl_take(&c, 1, &field) != TL_OK) return false;
        size_t literals = *field >> 4, match = *field & 15;
        if (literals == 15) {
            do {
                if (tl_take(&c, 1, &field) != TL_OK) return false;
                literals += *field;
            } while (*field == 255);
        }
        if (tl_take(&c, literals, &field) != TL_OK) return false;
        *size += literals;
        if (!tl_left(&c)) return true; /* the last sequence has no match */
        if (tl_take(&c, 2, &field) != TL_OK) return false;
        if (match == 15) {
            do {
                if (tl_take(&c, 1, &field) != TL_OK) return false;
                match += *field;
            } while (*field == 255);
        }
        *size += match + 4;
    }
}

/* A block that liblz4 refused is corrupt, or its content does not fit: liblz4 does not say which. It also wants the
 * last match to begin 12 bytes before the end of its room, where the end of the content should be; a block that breaks
 * this rule does read in room for a whole block, which Kafka always gives, so the answer may not depend on less. */
static tl_status refused(tl_stream in, bool check_header, const frame *f, const block *b, const tl_output *out,
                         tl_fault *fault) {
    size_t room = out->capacity - out->size;
    uint64_t size, floor, bound;
    bool possible = measure_block(b, &size) && size <= f->block_size_max && room < f->block_size_max;
    if (!possible || (size <= room && out->capacity == out->limit))
        return tl_corrupt(fault, (size_t)(b->data - in.data));
    if (size <= room) return tl_need(fault, 0, (uint64_t)out->size + f->block_size_max);
    tl_status status = tl_lz4_bound(in, check_header, &floor, &bound, fault);
    return status == TL_OK ? tl_need(fault, floor, bound) : status;
}

tl_status tl_lz4_read(tl_stream in, bool check_header, tl_output *out, tl_fault *fault) {
    frame f;
    block b;
    if (!open_frame(in, check_header, &f)) return tl_corrupt(fault, 0);
    for (;;) {
        size_t position = (size_t)(f.at.at - in.data);
        if (!next_block(&f, &b, true)) return tl_corrupt(fault, position);
        if (!b.size) return TL_OK;
        size_t room = out->capacity - out->size;
        uint8_t *content = out->data + out->size;
        if (b.stored) {
            if (b.size > room) {
                uint64_t floor, bound;
                tl_status status = tl_lz4_bound(in, check_header, &floor, &bound, fault);
                return status == TL_OK ? tl_need(fault, floor, bound) : status;
            }
            memcpy(content, b.data, b.size);
            out->size += b.size;
            continue;
        }
        int most = (int)(room < f.block_size_max ? room : f.block_size_max);
        int written = LZ4_decompress_safe((const char *)b.data, (char *)content, (int)b.size, most);
        if (written < 0) return refused(in, check_header, &f, &b, out, fault);
        out->size += (size_t)written;
    }
}
