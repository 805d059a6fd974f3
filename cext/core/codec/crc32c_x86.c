/* CRC-32C on x86-64.
 *
 * The CRC32 instruction takes 8 bytes a cycle but answers after three, so three lanes of the bytes run side by side and
 * are joined by carry-less multiplication. Where there is VPCLMULQDQ, folding 128-byte rows of a fourth region with it
 * runs in the shadow of the lanes: other ports, as many bytes a cycle. Measured on Zen 3, hot: lanes alone 25 GB/s,
 * folding alone 25, both 50; from DRAM 14, 15, 20, where prefetching by hand changes nothing. */
#include "codec/crc32c.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define LANES __attribute__((target("sse4.2,pclmul")))
#define FOLDS __attribute__((target("sse4.2,pclmul,avx2,vpclmulqdq")))
#define FOLDS_INLINE __attribute__((always_inline, target("sse4.2,pclmul,avx2,vpclmulqdq")))

/* Distances of folding, in bits: {x^(d + 31), x^(d - 33)} for the low and the high half of 128 bits. */
#define FOLD_128 0xf20c0dfe, 0x493c7d27
#define FOLD_256 0x3da6d0cb, 0xba4fc28e
#define FOLD_512 0x740eef02, 0x9e4addf8
#define FOLD_768 0xc49f4f67, 0x0715ce53
#define FOLD_1024 0x6992cea2, 0x0d3b6092

enum {
    LANE_MIN_SIZE = 96,    /* below, one lane is done sooner than three are joined */
    LONG_LANE_WORDS = 682, /* 3 lanes of 5456 bytes */
    LANE_ROW_SIZE = 32,    /* of each of four lanes, while one row of 128 bytes is folded */
    ROW_SIZE = 128,
    ROW_TOTAL = 4 * LANE_ROW_SIZE + ROW_SIZE,
};

static inline uint64_t load(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

LANES static inline uint64_t shifted(uint64_t state, uint32_t by) {
    __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)state), _mm_cvtsi32_si128((int)by), 0);
    return (uint64_t)_mm_cvtsi128_si64(product);
}

/* Three lanes of `words` each. */
LANES static inline uint32_t lanes(uint64_t a, const uint8_t *data, size_t words, uint32_t shift_a, uint32_t shift_b) {
    uint64_t b = 0, c = 0;
    const uint8_t *second = data + 8 * words, *third = second + 8 * words;
    for (size_t i = 0; i < 8 * words; i += 8) {
        a = _mm_crc32_u64(a, load(data + i));
        b = _mm_crc32_u64(b, load(second + i));
        c = _mm_crc32_u64(c, load(third + i));
    }
    return (uint32_t)(_mm_crc32_u64(0, shifted(a, shift_a) ^ shifted(b, shift_b)) ^ c);
}

/* Anything, best below a few KiB. */
LANES static uint32_t short_lanes(uint32_t state, const uint8_t *data, size_t size) {
    while (size >= LANE_MIN_SIZE) {
        size_t words = size / 24;
        if (words > TL_CRC32C_LANE_WORDS_MAX) words = TL_CRC32C_LANE_WORDS_MAX;
        state = lanes(state, data, words, TL_CRC32C_SHIFTS[2 * words], TL_CRC32C_SHIFTS[words]);
        data += 24 * words;
        size -= 24 * words;
    }
    uint64_t wide = state;
    for (; size >= 8; size -= 8, data += 8) wide = _mm_crc32_u64(wide, load(data));
    state = (uint32_t)wide;
    if (size & 4) {
        uint32_t word;
        memcpy(&word, data, 4);
        state = _mm_crc32_u32(state, word);
        data += 4;
    }
    for (size &= 3; size; size--) state = _mm_crc32_u8(state, *data++);
    return state;
}

LANES static uint32_t extend_by_lanes(uint32_t state, const uint8_t *data, size_t size) {
    for (; size >= 24 * LONG_LANE_WORDS; data += 24 * LONG_LANE_WORDS, size -= 24 * LONG_LANE_WORDS)
        state = lanes(state, data, LONG_LANE_WORDS, 0x562cc096, 0x5d4c91fc);
    return short_lanes(state, data, size);
}

FOLDS_INLINE static inline __m256i folded(__m256i row, long long low, long long high) {
    __m256i by = _mm256_set_epi64x(high, low, high, low);
    return _mm256_xor_si256(_mm256_clmulepi64_epi128(row, by, 0x00), _mm256_clmulepi64_epi128(row, by, 0x11));
}

FOLDS_INLINE static inline __m256i folded_onto(__m256i row, const uint8_t *data) {
    return _mm256_xor_si256(folded(row, FOLD_1024), _mm256_loadu_si256((const __m256i *)(const void *)data));
}

/* The last 16 bytes that four folded rows stand for. */
FOLDS_INLINE static inline __m128i joined(__m256i a, __m256i b, __m256i c, __m256i d) {
    d = _mm256_xor_si256(_mm256_xor_si256(d, folded(a, FOLD_768)),
                         _mm256_xor_si256(folded(b, FOLD_512), folded(c, FOLD_256)));
    __m256i product = folded(d, FOLD_128); /* its high half is not looked at */
    return _mm_xor_si128(_mm256_extracti128_si256(d, 1), _mm256_castsi256_si128(product));
}

/* Compilers sort by latency and would put all folding of a row before all lanes; then they do not overlap, which costs
 * a fifth. An empty asm that claims to change a value keeps it in its place. */
#define KEEP_VECTOR(v) __asm__ volatile("" : "+x"(v))
#define KEEP_LANES(a, b, c, d) __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d))

#define STEP(v, i)                                                                                                     \
    v = folded_onto(v, row + 32 * (i));                                                                                \
    KEEP_VECTOR(v);                                                                                                    \
    a = _mm_crc32_u64(a, load(data + 8 * (i)));                                                                        \
    b = _mm_crc32_u64(b, load(data + 8 * (i) + lane));                                                                 \
    c = _mm_crc32_u64(c, load(data + 8 * (i) + 2 * lane));                                                             \
    d = _mm_crc32_u64(d, load(data + 8 * (i) + 3 * lane));                                                             \
    KEEP_LANES(a, b, c, d)

/* One block: four lanes of 32 * rows bytes (four, so that the instruction's three cycles leave slack), then `rows`
 * folded rows. Nothing in it waits for `state`, which comes in at the end, so that neighbouring blocks overlap.
 * shifts: over the whole block, and over what follows each lane. */
FOLDS_INLINE static inline uint32_t block(uint32_t state, const uint8_t *data, size_t rows, const uint32_t shifts[5]) {
    const size_t lane = rows * LANE_ROW_SIZE;
    const uint8_t *row = data + 4 * lane, *end = row + rows * ROW_SIZE;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    __m256i w = _mm256_setzero_si256(), x = w, y = w, z = w;
    do {
        STEP(w, 0);
        STEP(x, 1);
        STEP(y, 2);
        STEP(z, 3);
        data += LANE_ROW_SIZE;
        row += ROW_SIZE;
    } while (row < end);
    uint64_t before = shifted(state, shifts[0]) ^ shifted(a, shifts[1]) ^ shifted(b, shifts[2]) ^
                      shifted(c, shifts[3]) ^ shifted(d, shifts[4]);
    __m128i last = joined(w, x, y, z);
    uint64_t sum = _mm_crc32_u64(0, (uint64_t)_mm_cvtsi128_si64(last));
    return (uint32_t)_mm_crc32_u64(sum, (uint64_t)_mm_extract_epi64(last, 1) ^ before);
}

FOLDS static uint32_t extend_by_folding(uint32_t state, const uint8_t *data, size_t size) {
    static const uint32_t SHIFTS_500[5] = {0xbbda981f, 0xd2daa140, 0x3c9d6cd1, 0x580f8557, 0xcc81f730};
    static const uint32_t SHIFTS_62[5] = {0xe620257d, 0xc52f9912, 0x361dcba9, 0xbca448b9, 0xf11494b6};
    static const uint32_t SHIFTS_15[5] = {0x23d5e7e5, 0xaeb3e622, 0x465a4eee, 0xd6c3a807, 0xf48642e9};
    static const uint32_t SHIFTS_3[5] = {0xd7a4825c, 0xcec3662e, 0x271d9844, 0xb3e32c28, 0xd270f1a2};
    if (size < 3 * ROW_TOTAL) return short_lanes(state, data, size);
    for (; size >= 500 * ROW_TOTAL; data += 500 * ROW_TOTAL, size -= 500 * ROW_TOTAL)
        state = block(state, data, 500, SHIFTS_500);
    for (; size >= 62 * ROW_TOTAL; data += 62 * ROW_TOTAL, size -= 62 * ROW_TOTAL)
        state = block(state, data, 62, SHIFTS_62);
    for (; size >= 15 * ROW_TOTAL; data += 15 * ROW_TOTAL, size -= 15 * ROW_TOTAL)
        state = block(state, data, 15, SHIFTS_15);
    for (; size >= 3 * ROW_TOTAL; data += 3 * ROW_TOTAL, size -= 3 * ROW_TOTAL) state = block(state, data, 3, SHIFTS_3);
    _mm256_zeroupper(); /* the rest is SSE: gcc 12 does not clear before a tail call, which cost 100 ns */
    return short_lanes(state, data, size);
}

tl_crc32c_kernel tl_crc32c_native(unsigned rank, const char **name) {
    if (!__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul")) return NULL;
    bool folds = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq");
    if (folds && rank == 0) {
        *name = "sse42-vpclmul";
        return extend_by_folding;
    }
    if (rank > folds) return NULL;
    *name = "sse42-pclmul";
    return extend_by_lanes;
}

#elif !defined(__aarch64__)

tl_crc32c_kernel tl_crc32c_native(unsigned rank, const char **name) {
    (void)rank;
    (void)name;
    return NULL;
}

#endif
