/* The latest offset of each key, in one bounded piece of memory: what a cleaner knows of a log.
 *
 * A key is its SipHash-2-4-128 under a random secret, so that no chosen keys erase each other; two keys of one hash are
 * taken for one, with a chance of 2^-128 a pair. Open addressing, and nothing is ever removed. */
#ifndef TIERLOG_OFFSET_MAP_H
#define TIERLOG_OFFSET_MAP_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { TL_OFFSET_MAP_ENTRY_BYTES = 24 }; /* 16 of the hash, 8 of the offset */

/* A key's hash. */
typedef struct tl_key_hash {
    uint64_t low, high;
} tl_key_hash;

/* SipHash-2-4 with 128 bits of output; the secret's two halves as little-endian numbers. */
TL_API tl_key_hash tl_siphash128(uint64_t secret_low, uint64_t secret_high, const uint8_t *data, size_t size);

typedef struct tl_offset_map_entry {
    tl_key_hash hash;
    uint64_t next_offset; /* the offset plus 1; 0: the slot is empty */
} tl_offset_map_entry;

typedef struct tl_offset_map {
    tl_offset_map_entry *slots;
    uint64_t slot_count;              /* in use: few keys lie close together */
    uint64_t entries_max;             /* with so many the map is full. Below slot_count */
    uint64_t capacity, entries_limit; /* the same of all memory */
    uint64_t entries;
    int64_t latest_offset; /* up to which the log was looked at, inclusive; -1: nothing was */
    uint64_t secret_low, secret_high;
} tl_offset_map;

/* An empty map in `size` bytes that are all zero, aligned for a uint64_t; at most `load_factor` of its slots are used.
 *   TL_BAD_ARGUMENT  the load factor is not within (0, 1], or there is no room for one entry and one empty slot */
TL_API tl_status tl_offset_map_begin(tl_offset_map *map, void *memory, size_t size, double load_factor,
                                     uint64_t secret_low, uint64_t secret_high);

/* Forgets all entries, and takes another secret. At most `keys` keys are to come: where the map has room for more, it
 * uses a part of its slots alone, so that the processor's caches hold more of them. */
TL_API void tl_offset_map_clear(tl_offset_map *map, uint64_t keys, uint64_t secret_low, uint64_t secret_high);

static inline tl_key_hash tl_offset_map_hash(const tl_offset_map *map, const uint8_t *key, size_t size) {
    return tl_siphash128(map->secret_low, map->secret_high, key, size);
}

/* Where the search for a hash begins. */
static inline uint64_t tl_offset_map_slot(const tl_offset_map *map, tl_key_hash hash) {
    /* The product's upper half, of two numbers of 32 bits and more: a slot in proportion to the hash. */
    uint64_t upper = hash.low >> 32, lower = hash.low & 0xffffffffu;
    uint64_t count_upper = map->slot_count >> 32, count_lower = map->slot_count & 0xffffffffu;
    uint64_t middle = upper * count_lower + ((lower * count_lower) >> 32);
    return upper * count_upper + (middle >> 32) + ((lower * count_upper + (middle & 0xffffffffu)) >> 32);
}

/* Sets the offset of a key, 0 or above, whatever it was, and makes it the latest offset. TL_OK, or TL_FULL: nothing is
 * taken any more, of known keys neither. */
TL_API tl_status tl_offset_map_put(tl_offset_map *map, tl_key_hash hash, int64_t offset);

/* The offset of a key; -1 if it has none. */
TL_API int64_t tl_offset_map_get(const tl_offset_map *map, tl_key_hash hash);

#ifdef __cplusplus
}
#endif
#endif
