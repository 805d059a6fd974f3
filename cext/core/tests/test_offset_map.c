/* The map of a cleaner: SipHash's published vectors, keys that meet in a slot, the end of the slots, a full map. */
#include "tests/check.h"
#include "tierlog/offset_map.h"

enum { KEYS = 3000 };

static void check_vector(size_t size, const char *hex) {
    uint8_t data[64];
    uint64_t secret[2];
    bytes expected = from_hex(hex);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)i;
    memcpy(secret, data, sizeof secret); /* 00 01 … 0f */
    bytes exact = copy_of(data, size);
    tl_key_hash hash = tl_siphash128(secret[0], secret[1], exact.data, size);
    CHECK(!memcmp(&hash.low, expected.data, 8) && !memcmp(&hash.high, expected.data + 8, 8));
    free(exact.data);
    free(expected.data);
}

/* vectors_sip128 of the authors' reference implementation. */
static void test_vectors(void) {
    check_vector(0, "a3817f04ba25a8e66df67214c7550293");
    check_vector(1, "da87c1d86b99af44347659119b22fc45");
    check_vector(2, "8177228da4a45dc7fca38bdef60affe4");
    check_vector(7, "a1f1ebbed8dbc153c0b84aa61ff08239");
    check_vector(8, "3b62a9ba6258f5610f83e264f31497b4");
}

static tl_offset_map made(size_t slots, double load) {
    tl_offset_map map;
    void *memory = calloc(slots, TL_OFFSET_MAP_ENTRY_BYTES);
    CHECK_STATUS(tl_offset_map_begin(&map, memory, slots * TL_OFFSET_MAP_ENTRY_BYTES + 7, load, 1, 2), TL_OK);
    CHECK_EQUAL(map.slot_count, slots);
    return map;
}

static tl_key_hash hash_of(const tl_offset_map *map, int key) {
    return tl_offset_map_hash(map, (const uint8_t *)&key, sizeof key);
}

static void test_all_keys(void) {
    tl_offset_map map = made(KEYS + 1, 1.0);
    CHECK_EQUAL(map.latest_offset, -1);
    for (int key = 0; key < KEYS; key++) {
        CHECK_EQUAL(tl_offset_map_get(&map, hash_of(&map, key)), -1);
        CHECK_STATUS(tl_offset_map_put(&map, hash_of(&map, key), key), TL_OK);
        CHECK_EQUAL(map.latest_offset, key);
    }
    CHECK_EQUAL(map.entries, KEYS);
    for (int key = 0; key < KEYS; key++) CHECK_EQUAL(tl_offset_map_get(&map, hash_of(&map, key)), key);
    CHECK_EQUAL(tl_offset_map_get(&map, hash_of(&map, KEYS)), -1); /* no slot is empty but one */
    CHECK_STATUS(tl_offset_map_put(&map, hash_of(&map, 1), 9), TL_FULL);
    CHECK_EQUAL(map.latest_offset, KEYS - 1);
    free(map.slots);
}

static void test_an_offset_is_replaced(void) {
    tl_offset_map map = made(8, 0.9);
    CHECK_EQUAL(map.entries_max, 7);
    for (int64_t offset = 0; offset < 100; offset++)
        CHECK_STATUS(tl_offset_map_put(&map, hash_of(&map, 5), offset), TL_OK);
    CHECK_EQUAL(map.entries, 1);
    CHECK_EQUAL(tl_offset_map_get(&map, hash_of(&map, 5)), 99);
    CHECK_STATUS(tl_offset_map_put(&map, hash_of(&map, 5), INT64_MAX - 1), TL_OK);
    CHECK_EQUAL(tl_offset_map_get(&map, hash_of(&map, 5)), INT64_MAX - 1);
    free(map.slots);
}

/* Hashes that begin at the last slot go on at the first; two that differ in one half are two keys. */
static void test_collisions_wrap(void) {
    tl_offset_map map = made(4, 0.75);
    tl_key_hash last = {UINT64_MAX, 1}, other = {UINT64_MAX, 2}, third = {UINT64_MAX - 1, 1}, nothing = {0, 0};
    CHECK_EQUAL(tl_offset_map_slot(&map, last), 3);
    CHECK_EQUAL(tl_offset_map_slot(&map, nothing), 0);
    CHECK_STATUS(tl_offset_map_put(&map, last, 0), TL_OK);
    CHECK_STATUS(tl_offset_map_put(&map, other, 1), TL_OK);
    CHECK_STATUS(tl_offset_map_put(&map, nothing, 2), TL_OK);
    CHECK_EQUAL(tl_offset_map_get(&map, last), 0);
    CHECK_EQUAL(tl_offset_map_get(&map, other), 1);
    CHECK_EQUAL(tl_offset_map_get(&map, nothing), 2);
    CHECK_EQUAL(tl_offset_map_get(&map, third), -1);
    CHECK_STATUS(tl_offset_map_put(&map, third, 3), TL_FULL);
    tl_offset_map_clear(&map, UINT64_MAX, 3, 4);
    CHECK_EQUAL(map.entries, 0);
    CHECK_EQUAL(map.latest_offset, -1);
    CHECK_EQUAL(tl_offset_map_get(&map, last), -1);
    free(map.slots);
}

/* Where few keys are to come, the others' slots stay out of the caches; then all of them are there again, and empty. */
static void test_few_keys_lie_close_together(void) {
    tl_offset_map map = made(KEYS, 0.5);
    tl_offset_map_clear(&map, 10, 3, 4);
    CHECK_EQUAL(map.slot_count, 22);
    for (uint64_t key = 0; key < 11; key++) {
        tl_key_hash hash = {key * (UINT64_MAX / 11), key};
        CHECK_STATUS(tl_offset_map_put(&map, hash, (int64_t)key), TL_OK);
    }
    tl_key_hash more = {77, 77};
    CHECK_STATUS(tl_offset_map_put(&map, more, 11), TL_FULL);
    for (uint64_t slot = map.slot_count; slot < map.capacity; slot++) CHECK_EQUAL(map.slots[slot].next_offset, 0);
    tl_offset_map_clear(&map, map.entries_limit / 2, 3, 4);
    CHECK_EQUAL(map.slot_count, KEYS);
    CHECK_EQUAL(map.entries_max, map.entries_limit);
    for (uint64_t slot = 0; slot < map.capacity; slot++) CHECK_EQUAL(map.slots[slot].next_offset, 0);
    free(map.slots);
}

/* Each slot is the beginning of as many hashes as any other. */
static void test_slots_are_even(void) {
    tl_offset_map map = made(KEYS, 0.5);
    uint64_t step = UINT64_MAX / KEYS;
    for (uint64_t slot = 0; slot < KEYS; slot++) {
        tl_key_hash hash = {slot * step + step / 2, 0};
        CHECK_EQUAL(tl_offset_map_slot(&map, hash), slot);
    }
    free(map.slots);
}

static void test_refusals(void) {
    tl_offset_map map;
    tl_offset_map_entry slots[2] = {{{0, 0}, 0}};
    CHECK_STATUS(tl_offset_map_begin(&map, slots, sizeof slots - 1, 0.9, 1, 2), TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_offset_map_begin(&map, slots, sizeof slots, 0, 1, 2), TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_offset_map_begin(&map, slots, sizeof slots, 1.1, 1, 2), TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_offset_map_begin(&map, slots, sizeof slots, 0.2, 1, 2), TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_offset_map_begin(&map, slots, sizeof slots, 1, 1, 2), TL_OK);
    CHECK_EQUAL(map.entries_max, 1);
}

int main(void) {
    test_vectors();
    test_all_keys();
    test_an_offset_is_replaced();
    test_collisions_wrap();
    test_few_keys_lie_close_together();
    test_slots_are_even();
    test_refusals();
    return 0;
}
