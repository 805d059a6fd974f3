/* SipHash by Aumasson and Bernstein; the map by hash, searched slot by slot from the place of the hash on. */
#include "tierlog/offset_map.h"

#include <string.h>

static uint64_t rotated(uint64_t value, unsigned bits) { return value << bits | value >> (64 - bits); }

static uint64_t load_le64(const uint8_t *at) {
    uint64_t value;
    memcpy(&value, at, 8); /* the host is little-endian: cursor.h */
    return value;
}

typedef struct sip {
    uint64_t a, b, c, d;
} sip;

static inline void sip_round(sip *v) {
    v->a += v->b;
    v->b = rotated(v->b, 13) ^ v->a;
    v->a = rotated(v->a, 32);
    v->c += v->d;
    v->d = rotated(v->d, 16) ^ v->c;
    v->a += v->d;
    v->d = rotated(v->d, 21) ^ v->a;
    v->c += v->b;
    v->b = rotated(v->b, 17) ^ v->c;
    v->c = rotated(v->c, 32);
}

static uint64_t sip_end(sip *v) {
    for (int i = 0; i < 4; i++) sip_round(v);
    return v->a ^ v->b ^ v->c ^ v->d;
}

tl_key_hash tl_siphash128(uint64_t secret_low, uint64_t secret_high, const uint8_t *data, size_t size) {
    sip v = {secret_low ^ 0x736f6d6570736575u, secret_high ^ 0x646f72616e646f6du ^ 0xee,
             secret_low ^ 0x6c7967656e657261u, secret_high ^ 0x7465646279746573u};
    size_t whole = size & ~(size_t)7;
    for (size_t at = 0; at < whole; at += 8) {
        uint64_t word = load_le64(data + at);
        v.d ^= word;
        sip_round(&v);
        sip_round(&v);
        v.a ^= word;
    }
    uint64_t last = (uint64_t)size << 56;
    for (size_t i = whole; i < size; i++) last |= (uint64_t)data[i] << (8 * (i - whole));
    v.d ^= last;
    sip_round(&v);
    sip_round(&v);
    v.a ^= last;
    tl_key_hash hash;
    v.c ^= 0xee;
    hash.low = sip_end(&v);
    v.b ^= 0xdd;
    hash.high = sip_end(&v);
    return hash;
}

tl_status tl_offset_map_begin(tl_offset_map *map, void *memory, size_t size, double load_factor, uint64_t secret_low,
                              uint64_t secret_high) {
    uint64_t slot_count = size / TL_OFFSET_MAP_ENTRY_BYTES;
    if (!(load_factor > 0 && load_factor <= 1) || slot_count < 2) return TL_BAD_ARGUMENT;
    uint64_t entries_max = (uint64_t)((double)slot_count * load_factor);
    if (!entries_max) return TL_BAD_ARGUMENT;
    if (entries_max == slot_count) entries_max--;
    *map = (tl_offset_map){.slots = memory,
                           .slot_count = slot_count,
                           .entries_max = entries_max,
                           .capacity = slot_count,
                           .entries_limit = entries_max,
                           .latest_offset = -1,
                           .secret_low = secret_low,
                           .secret_high = secret_high};
    return TL_OK;
}

void tl_offset_map_clear(tl_offset_map *map, uint64_t keys, uint64_t secret_low, uint64_t secret_high) {
    if (map->entries) memset(map->slots, 0, map->slot_count * sizeof *map->slots);
    map->slot_count = map->capacity;
    map->entries_max = map->entries_limit;
    if (keys < map->entries_limit / 2) { /* half of these slots are empty, and the map never gets full */
        map->slot_count = 2 * keys + 2;
        map->entries_max = keys + 1;
    }
    map->entries = 0;
    map->latest_offset = -1;
    map->secret_low = secret_low;
    map->secret_high = secret_high;
}

/* The slot of a hash, or the empty one where it belongs: there is always one. */
static tl_offset_map_entry *find_slot(const tl_offset_map *map, tl_key_hash hash) {
    tl_offset_map_entry *slot = map->slots + tl_offset_map_slot(map, hash), *end = map->slots + map->slot_count;
    while (slot->next_offset && (slot->hash.low != hash.low || slot->hash.high != hash.high))
        if (++slot == end) slot = map->slots;
    return slot;
}

tl_status tl_offset_map_put(tl_offset_map *map, tl_key_hash hash, int64_t offset) {
    if (map->entries >= map->entries_max) return TL_FULL;
    tl_offset_map_entry *slot = find_slot(map, hash);
    if (!slot->next_offset) {
        map->entries++;
        slot->hash = hash;
    }
    slot->next_offset = (uint64_t)offset + 1;
    map->latest_offset = offset;
    return TL_OK;
}

int64_t tl_offset_map_get(const tl_offset_map *map, tl_key_hash hash) {
    return (int64_t)(find_slot(map, hash)->next_offset - 1);
}
