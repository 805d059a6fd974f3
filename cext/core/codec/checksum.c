/* CRC-32C by tables and its arithmetic, the choice of the implementation, CRC-32, xxHash32. */
#include "tierlog/checksum.h"

#include "codec/crc32c.h"
#include "cursor.h"

#include <libdeflate.h>
#include <stdatomic.h>

/* A checksum is linear, so an entry is the sum of the entries of its bits: 8 constants make a table of 256. */
#define ENTRY(i, a, b, c, d, e, f, g, h)                                                                               \
    (((i)&1 ? a : 0) ^ ((i)&2 ? b : 0) ^ ((i)&4 ? c : 0) ^ ((i)&8 ? d : 0) ^ ((i)&16 ? e : 0) ^ ((i)&32 ? f : 0) ^     \
     ((i)&64 ? g : 0) ^ ((i)&128 ? h : 0))
#define ENTRIES_4(i, ...)                                                                                              \
    ENTRY(i, __VA_ARGS__), ENTRY((i) + 1, __VA_ARGS__), ENTRY((i) + 2, __VA_ARGS__), ENTRY((i) + 3, __VA_ARGS__)
#define ENTRIES_16(i, ...)                                                                                             \
    ENTRIES_4(i, __VA_ARGS__), ENTRIES_4((i) + 4, __VA_ARGS__), ENTRIES_4((i) + 8, __VA_ARGS__),                       \
        ENTRIES_4((i) + 12, __VA_ARGS__)
#define ENTRIES_64(i, ...)                                                                                             \
    ENTRIES_16(i, __VA_ARGS__), ENTRIES_16((i) + 16, __VA_ARGS__), ENTRIES_16((i) + 32, __VA_ARGS__),                  \
        ENTRIES_16((i) + 48, __VA_ARGS__)
#define TABLE(...)                                                                                                     \
    {                                                                                                                  \
        ENTRIES_64(0, __VA_ARGS__), ENTRIES_64(64, __VA_ARGS__), ENTRIES_64(128, __VA_ARGS__),                         \
            ENTRIES_64(192, __VA_ARGS__)                                                                               \
    }

/* CRC32C[k][b]: the checksum register after byte b and k zero bytes. */
static const uint32_t CRC32C[8][256] = {
    TABLE(0xf26b8303u, 0xe13b70f7u, 0xc79a971fu, 0x8ad958cfu, 0x105ec76fu, 0x20bd8edeu, 0x417b1dbcu, 0x82f63b78u),
    TABLE(0x13a29877u, 0x274530eeu, 0x4e8a61dcu, 0x9d14c3b8u, 0x3fc5f181u, 0x7f8be302u, 0xff17c604u, 0xfbc3faf9u),
    TABLE(0xa541927eu, 0x4f6f520du, 0x9edea41au, 0x38513ec5u, 0x70a27d8au, 0xe144fb14u, 0xc76580d9u, 0x8b277743u),
    TABLE(0xdd45aab8u, 0xbf672381u, 0x7b2231f3u, 0xf64463e6u, 0xe964b13du, 0xd725148bu, 0xaba65fe7u, 0x52a0c93fu),
    TABLE(0x38116facu, 0x7022df58u, 0xe045beb0u, 0xc5670b91u, 0x8f2261d3u, 0x1ba8b557u, 0x37516aaeu, 0x6ea2d55cu),
    TABLE(0xef306b19u, 0xdb8ca0c3u, 0xb2f53777u, 0x6006181fu, 0xc00c303eu, 0x85f4168du, 0x0e045bebu, 0x1c08b7d6u),
    TABLE(0x68032cc8u, 0xd0065990u, 0xa5e0c5d1u, 0x4e2dfd53u, 0x9c5bfaa6u, 0x3d5b83bdu, 0x7ab7077au, 0xf56e0ef4u),
    TABLE(0x493c7d27u, 0x9278fa4eu, 0x211d826du, 0x423b04dau, 0x847609b4u, 0x0d006599u, 0x1a00cb32u, 0x34019664u),
};

static uint32_t extend_by_tables(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low = crc ^ tl_load_le32(data);
        uint32_t high = tl_load_le32(data + 4);
        crc = CRC32C[7][low & 0xff] ^ CRC32C[6][low >> 8 & 0xff] ^ CRC32C[5][low >> 16 & 0xff] ^ CRC32C[4][low >> 24] ^
              CRC32C[3][high & 0xff] ^ CRC32C[2][high >> 8 & 0xff] ^ CRC32C[1][high >> 16 & 0xff] ^
              CRC32C[0][high >> 24];
    }
    while (size--) crc = CRC32C[0][(crc ^ *data++) & 0xff] ^ crc >> 8;
    return crc;
}

uint32_t tl_crc32c_table(uint32_t crc, const uint8_t *data, size_t size) { return ~extend_by_tables(~crc, data, size); }

static tl_crc32c_kernel choose(const char **name) {
    *name = "table";
    tl_crc32c_kernel native = tl_crc32c_native(0, name);
    return native ? native : extend_by_tables;
}

static uint32_t extend_first(uint32_t crc, const uint8_t *data, size_t size);

/* The processor is asked once; whoever asks finds the same, so a race stores the same pointer twice. */
static _Atomic(tl_crc32c_kernel) kernel = extend_first;

static uint32_t extend_first(uint32_t crc, const uint8_t *data, size_t size) {
    const char *name;
    tl_crc32c_kernel chosen = choose(&name);
    atomic_store_explicit(&kernel, chosen, memory_order_relaxed);
    return chosen(crc, data, size);
}

uint32_t tl_crc32c(uint32_t crc, const uint8_t *data, size_t size) {
    return ~atomic_load_explicit(&kernel, memory_order_relaxed)(~crc, data, size);
}

const char *tl_crc32c_implementation(void) {
    const char *name;
    choose(&name);
    return name;
}

/* x^(2^k) modulo the polynomial, bit-reversed: x^0 is the top bit. x^(2^31) is x again, so 31 entries are all. */
static const uint32_t POWERS[31] = {
    0x40000000u, 0x20000000u, 0x08000000u, 0x00800000u, 0x00008000u, 0x82f63b78u, 0x6ea2d55cu, 0x18b8ea18u,
    0x510ac59au, 0xb82be955u, 0xb8fdb1e7u, 0x88e56f72u, 0x74c360a4u, 0xe4172b16u, 0x0d65762au, 0x35d73a62u,
    0x28461564u, 0xbf455269u, 0xe2ea32dcu, 0xfe7740e6u, 0xf946610bu, 0x3c204f8fu, 0x538586e3u, 0x59726915u,
    0x734d5309u, 0xbc1ac763u, 0x7d0722ccu, 0xd289cabeu, 0xe94ca9bcu, 0x05b74f3fu, 0xa51e1f42u,
};

/* a * b modulo the polynomial, bit-reversed; carry-less, without branches on the bits. */
static uint32_t multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (unsigned i = 0; i < 32; i++) {
        product ^= b & (0u - (a >> 31));
        a <<= 1;
        b = b >> 1 ^ (0x82f63b78u & (0u - (b & 1u)));
    }
    return product;
}

uint32_t tl_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b) {
    /* crc(AB) = crc(A) * x^(8 * size_b) + crc(B) */
    for (unsigned k = 3; size_b; size_b >>= 1, k = k == 30 ? 0 : k + 1) {
        if (size_b & 1) crc_a = multiply(POWERS[k], crc_a);
    }
    return crc_a ^ crc_b;
}

uint32_t tl_crc32(uint32_t crc, const uint8_t *data, size_t size) {
    return size ? libdeflate_crc32(crc, data, size) : crc; /* libdeflate takes a NULL buffer for "initial value" */
}
