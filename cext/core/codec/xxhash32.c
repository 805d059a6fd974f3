/* xxHash32, of LZ4 frames: the header's check byte and the block checksums. */
#include "cursor.h"
#include "tierlog/checksum.h"

enum { STRIPE = 16 };

static const uint32_t P1 = 0x9e3779b1u, P2 = 0x85ebca77u, P3 = 0xc2b2ae3du, P4 = 0x27d4eb2fu, P5 = 0x165667b1u;

static inline uint32_t rotate(uint32_t v, unsigned bits) { return v << bits | v >> (32 - bits); }
static inline uint32_t mix(uint32_t lane, uint32_t input) { return rotate(lane + input * P2, 13) * P1; }

uint32_t tl_xxhash32(const uint8_t *data, size_t size, uint32_t seed) {
    size_t left = size;
    uint32_t hash = seed + P5;
    if (left >= STRIPE) {
        uint32_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; left >= STRIPE; left -= STRIPE, data += STRIPE) {
            a = mix(a, tl_load_le32(data));
            b = mix(b, tl_load_le32(data + 4));
            c = mix(c, tl_load_le32(data + 8));
            d = mix(d, tl_load_le32(data + 12));
        }
        hash = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18);
    }
    hash += (uint32_t)size;
    for (; left >= 4; left -= 4, data += 4) hash = rotate(hash + tl_load_le32(data) * P3, 17) * P4;
    for (; left; left--, data++) hash = rotate(hash + *data * P5, 11) * P1;
    hash = (hash ^ hash >> 15) * P2;
    hash = (hash ^ hash >> 13) * P3;
    return hash ^ hash >> 16;
}
