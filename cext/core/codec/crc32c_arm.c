/* CRC-32C on ARMv8: three lanes of CRC32CX, joined by PMULL. */
#include "codec/crc32c.h"

#if defined(__aarch64__)

#include <arm_neon.h>
#include <string.h>
#include <sys/auxv.h>

/* Clang declares arm_acle.h's names only when the whole file is compiled for them. */
#if defined(__clang__)
#define LANES __attribute__((target("crc,aes")))
#define CRC_8 __builtin_arm_crc32cb
#define CRC_64 __builtin_arm_crc32cd
#else
#include <arm_acle.h>
#define LANES __attribute__((target("+crc+crypto")))
#define CRC_8 __crc32cb
#define CRC_64 __crc32cd
#endif

enum { LANE_MIN_SIZE = 96, LONG_LANE_WORDS = 682, HAS_PMULL = 1 << 4, HAS_CRC32 = 1 << 7 }; /* as in asm/hwcap.h */

static inline uint64_t load(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

LANES static inline uint64_t shifted(uint32_t state, uint32_t by) {
    return vgetq_lane_u64(vreinterpretq_u64_p128(vmull_p64(state, by)), 0);
}

LANES static inline uint32_t lanes(uint32_t a, const uint8_t *data, size_t words, uint32_t shift_a, uint32_t shift_b) {
    uint32_t b = 0, c = 0;
    const uint8_t *second = data + 8 * words, *third = second + 8 * words;
    for (size_t i = 0; i < 8 * words; i += 8) {
        a = CRC_64(a, load(data + i));
        b = CRC_64(b, load(second + i));
        c = CRC_64(c, load(third + i));
    }
    return CRC_64(0, shifted(a, shift_a) ^ shifted(b, shift_b)) ^ c;
}

LANES static uint32_t extend_by_lanes(uint32_t state, const uint8_t *data, size_t size) {
    for (; size >= 24 * LONG_LANE_WORDS; data += 24 * LONG_LANE_WORDS, size -= 24 * LONG_LANE_WORDS)
        state = lanes(state, data, LONG_LANE_WORDS, 0x562cc096, 0x5d4c91fc);
    while (size >= LANE_MIN_SIZE) {
        size_t words = size / 24;
        if (words > TL_CRC32C_LANE_WORDS_MAX) words = TL_CRC32C_LANE_WORDS_MAX;
        state = lanes(state, data, words, TL_CRC32C_SHIFTS[2 * words], TL_CRC32C_SHIFTS[words]);
        data += 24 * words;
        size -= 24 * words;
    }
    for (; size >= 8; size -= 8, data += 8) state = CRC_64(state, load(data));
    for (; size; size--) state = CRC_8(state, *data++);
    return state;
}

tl_crc32c_kernel tl_crc32c_native(unsigned rank, const char **name) {
    unsigned long has = getauxval(AT_HWCAP);
    if (rank || !(has & HAS_CRC32) || !(has & HAS_PMULL)) return NULL;
    *name = "armv8";
    return extend_by_lanes;
}

#endif
