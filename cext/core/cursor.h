/* A read position over borrowed bytes, big-endian loads, and varints.
 *
 * Invariant of tl_cursor: at <= end; nothing at or past end is ever read. The bytes left are compared, never
 * position + need, which can overflow. */
#ifndef TIERLOG_CURSOR_H
#define TIERLOG_CURSOR_H

#include "tierlog/status.h"

#include <assert.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "loads and bit positions are those of a little-endian host");

typedef struct tl_cursor {
    const uint8_t *at, *end;
} tl_cursor;

static inline size_t tl_left(const tl_cursor *c) {
    assert(c->at <= c->end);
    return (size_t)(c->end - c->at);
}

static inline uint16_t tl_load_u16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}
static inline uint32_t tl_load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
static inline uint64_t tl_load_u64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}
/* Little-endian, as LZ4 and gzip have it; the host is little-endian. */
static inline uint32_t tl_load_le32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static inline int16_t tl_load_i16(const uint8_t *p) { return (int16_t)tl_load_u16(p); }
static inline int32_t tl_load_i32(const uint8_t *p) { return (int32_t)tl_load_u32(p); }
static inline int64_t tl_load_i64(const uint8_t *p) { return (int64_t)tl_load_u64(p); }

/* The least number above v, for faults of order; hostile numbers go up to the last one. */
static inline int64_t tl_above(int64_t v) { return v < INT64_MAX ? v + 1 : v; }

static inline tl_status tl_take(tl_cursor *c, size_t need, const uint8_t **out) {
    if (tl_left(c) < need) return TL_TRUNCATED;
    *out = c->at;
    c->at += need;
    return TL_OK;
}

static inline int32_t tl_unzigzag32(uint32_t v) { return (int32_t)((v >> 1) ^ (0u - (v & 1u))); }
static inline int64_t tl_unzigzag64(uint64_t v) { return (int64_t)((v >> 1) ^ (0ull - (v & 1ull))); }

/* Unsigned varint of at most 5 bytes. As Kafka's ByteUtils: bits above 32 of the fifth byte are dropped. */
static inline tl_status tl_take_uvarint(tl_cursor *c, uint32_t *out) {
    uint32_t value = 0;
    for (unsigned shift = 0; shift <= 28; shift += 7) {
        if (c->at == c->end) return TL_TRUNCATED;
        uint32_t byte = *c->at++;
        value |= (byte & 0x7fu) << shift;
        if (byte < 0x80u) {
            *out = value;
            return TL_OK;
        }
    }
    return TL_BAD_VARINT;
}

/* Unsigned varint of at most 10 bytes; bits above 64 of the tenth byte are dropped, as in Kafka. */
static inline tl_status tl_take_uvarlong(tl_cursor *c, uint64_t *out) {
    uint64_t value = 0;
    for (unsigned shift = 0; shift <= 63; shift += 7) {
        if (c->at == c->end) return TL_TRUNCATED;
        uint64_t byte = *c->at++;
        value |= (byte & 0x7fu) << shift;
        if (byte < 0x80u) {
            *out = value;
            return TL_OK;
        }
    }
    return TL_BAD_VARINT;
}

static inline tl_status tl_take_varint(tl_cursor *c, int32_t *out) {
    uint32_t value;
    tl_status status = tl_take_uvarint(c, &value);
    if (status == TL_OK) *out = tl_unzigzag32(value);
    return status;
}

static inline tl_status tl_take_varlong(tl_cursor *c, int64_t *out) {
    uint64_t value;
    tl_status status = tl_take_uvarlong(c, &value);
    if (status == TL_OK) *out = tl_unzigzag64(value);
    return status;
}

#endif
