/* A wrong checksum makes good data look corrupt, or corrupt data look good. */
#include "check.h"
#include "codec/crc32c.h"
#include "tierlog/checksum.h"

/* The definition, a bit at a time. */
static uint32_t by_bits(uint32_t state, const uint8_t *data, size_t size) {
    for (; size; size--) {
        state ^= *data++;
        for (int bit = 0; bit < 8; bit++) state = state >> 1 ^ (0x82f63b78u & (0u - (state & 1u)));
    }
    return state;
}

static uint32_t by_table(uint32_t state, const uint8_t *data, size_t size) {
    return ~tl_crc32c_table(~state, data, size);
}

/* Every size up to 4200 covers each tail and each number of words a lane; then the borders of the long blocks. */
static void check_kernel(tl_crc32c_kernel kernel, const bytes *noise) {
    uint32_t expected = 0x12345678, seen = 0;
    for (size_t size = 0; size <= 4200; size++) {
        const uint8_t *data = noise->data + size % 9;
        CHECK_EQUAL(kernel(0x12345678, data, size), by_bits(0x12345678, data, size));
    }
    static const size_t BORDERS[] = {3 * 256, 15 * 256, 62 * 256, 500 * 256, 24 * 682, 2 * 500 * 256 + 63 * 256};
    for (size_t i = 0; i < sizeof BORDERS / sizeof *BORDERS; i++) {
        for (size_t size = BORDERS[i] - 9; size <= BORDERS[i] + 9; size++) {
            expected = by_bits(7, noise->data + 1, size);
            seen = kernel(7, noise->data + 1, size);
            CHECK_EQUAL(seen, expected);
        }
    }
}

static void test_kernels(void) {
    bytes noise = random_bytes(300000, 1);
    check_kernel(by_table, &noise);
    const char *name = "";
    for (unsigned rank = 0;; rank++) {
        tl_crc32c_kernel kernel = tl_crc32c_native(rank, &name);
        if (!kernel) break;
        printf("kernel %s\n", name);
        check_kernel(kernel, &noise);
    }
    CHECK_EQUAL(tl_crc32c(0, noise.data, noise.size), ~by_bits(~0u, noise.data, noise.size));
    free(noise.data);
}

static void test_vectors(void) {
    uint8_t zeros[32] = {0}, ones[32], rising[32]; /* RFC 3720, B.4 */
    memset(ones, 0xff, sizeof ones);
    for (uint8_t i = 0; i < 32; i++) rising[i] = i;
    CHECK_EQUAL(tl_crc32c(0, zeros, 32), 0x8a9136aa);
    CHECK_EQUAL(tl_crc32c(0, ones, 32), 0x62a8ab43);
    CHECK_EQUAL(tl_crc32c(0, rising, 32), 0x46dd794e);
    CHECK_EQUAL(tl_crc32c(0, NULL, 0), 0);
    CHECK_EQUAL(tl_crc32c(0, (const uint8_t *)"123456789", 9), 0xe3069283);
    CHECK_EQUAL(tl_crc32c_table(0, (const uint8_t *)"123456789", 9), 0xe3069283);
    CHECK_EQUAL(tl_crc32(0, (const uint8_t *)"123456789", 9), 0xcbf43926);
    CHECK_EQUAL(tl_crc32(5, NULL, 0), 5);
    CHECK_EQUAL(tl_crc32(tl_crc32(0, (const uint8_t *)"1234", 4), (const uint8_t *)"56789", 5), 0xcbf43926);
    CHECK_EQUAL(tl_xxhash32((const uint8_t *)"", 0, 0), 0x02cc5d05);
    CHECK_EQUAL(tl_xxhash32((const uint8_t *)"a", 1, 0), 0x550d7456);
    CHECK_EQUAL(tl_xxhash32((const uint8_t *)"Nobody inspects the spammish repetition", 39, 0), 0xe2293b2f);
}

static void test_combine(void) {
    bytes noise = random_bytes(70000, 2);
    for (size_t cut = 0; cut <= noise.size; cut += cut < 300 ? 1 : 977) {
        uint32_t a = tl_crc32c(0, noise.data, cut), b = tl_crc32c(0, noise.data + cut, noise.size - cut);
        CHECK_EQUAL(tl_crc32c_combine(a, b, noise.size - cut), tl_crc32c(0, noise.data, noise.size));
    }
    /* Too long to compute: two steps of m and n bytes are one of m + n. */
    uint64_t seed = 3;
    for (int i = 0; i < 1000; i++) {
        uint64_t m = next_random(&seed) >> 2, n = next_random(&seed) >> 2;
        uint32_t crc = (uint32_t)next_random(&seed);
        CHECK_EQUAL(tl_crc32c_combine(tl_crc32c_combine(crc, 0, m), 0, n), tl_crc32c_combine(crc, 0, m + n));
    }
    free(noise.data);
}

/* Each shift is 8 zero bytes more than the one before. */
static void test_shifts(void) {
    uint8_t zeros[8] = {0};
    for (size_t n = 2; n <= 2 * TL_CRC32C_LANE_WORDS_MAX; n++)
        CHECK_EQUAL(TL_CRC32C_SHIFTS[n], by_bits(TL_CRC32C_SHIFTS[n - 1], zeros, 8));
}

int main(void) {
    CHECK(strlen(tl_crc32c_implementation()) > 0);
    test_vectors();
    test_kernels();
    test_combine();
    test_shifts();
    return 0;
}
