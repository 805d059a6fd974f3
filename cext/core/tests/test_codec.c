/* A stream that Kafka reads and we do not is lost data; one that we read past its end or its limit is an attack that
 * works. Vectors: streams that Kafka's own compressors wrote. */
#include "check.h"
#include "tierlog/checksum.h"
#include "tierlog/codec.h"

#define RECORDS "26000000046b3104763104046831027804686e0110000a020104763200"
#define SNAPPY_HEADER "82534e41505059000000000100000001"
#define LZ4_RECORDS "1d000080" RECORDS /* stored */
#define LZ4_END "00000000"
static const char GZIP[] =
    "1f8b08000000000000ff5363606060c9366429336461c93064aa60c9c8631460e06262642933620000f9709d701d000000";
static const char SNAPPY[] = SNAPPY_HEADER "0000001f1d70" RECORDS;
static const char LZ4[] = "04224d18604082" LZ4_RECORDS LZ4_END;
static const char ZSTD[] = "28b52ffd0058e80000" RECORDS "010000";
/* 70000 times "a" */
static const char ZSTD_LONG[] = "28b52ffd005854000010616101006b1139c002010000";

static tl_codecs *codecs;

typedef struct answer {
    tl_status status;
    bytes out; /* exactly the capacity, so that a sanitizer sees a write past it */
    size_t size;
    tl_fault fault;
} answer;

static answer read_into(int codec, int magic, bytes in, size_t capacity, size_t limit) {
    answer a = {.out = {malloc(capacity + !capacity), capacity}};
    a.status = tl_decompress(codecs, codec, magic, in.data, in.size, capacity ? a.out.data : NULL, capacity, limit,
                             &a.size, &a.fault);
    return a;
}

static tl_status status_of(int codec, int magic, bytes in, size_t capacity, size_t limit) {
    answer a = read_into(codec, magic, in, capacity, limit);
    free(a.out.data);
    return a.status;
}

static void expect_status(int codec, int magic, const char *hex, tl_status expected) {
    bytes in = from_hex(hex);
    tl_status found = status_of(codec, magic, in, 4096, 4096);
    if (found != expected) fprintf(stderr, "codec %d of %s\n", codec, hex);
    CHECK_STATUS(found, expected);
    free(in.data);
}

static void expect_content(int codec, int magic, const char *hex, const char *content) {
    bytes in = from_hex(hex), expected = from_hex(content);
    answer a = read_into(codec, magic, in, 4096, 4096);
    if (a.status != TL_OK) fprintf(stderr, "codec %d of %s\n", codec, hex);
    CHECK_STATUS(a.status, TL_OK);
    CHECK_EQUAL(a.size, expected.size);
    CHECK(!memcmp(a.out.data, expected.data, a.size));
    free(in.data);
    free(expected.data);
    free(a.out.data);
}

/* Whatever the capacity and the limit, the answer is exact, and asking for more room comes to an end. */
static void check_capacities(int codec, const char *hex, size_t content) {
    bytes in = from_hex(hex);
    size_t step = content > 1000 ? 997 : 1, bound;
    tl_fault fault;
    CHECK_STATUS(tl_decompress_bound(codec, 2, in.data, in.size, 1 << 20, &bound, &fault), TL_OK);
    if (codec != TL_CODEC_GZIP) CHECK(bound >= content);
    for (size_t capacity = 0; capacity < content; capacity += step) {
        answer a = read_into(codec, 2, in, capacity, 1 << 20);
        for (int asked = 0; a.status == TL_NEED_SCRATCH; asked++) {
            CHECK(asked < 20 && a.fault.expected > (int64_t)a.out.size && a.fault.expected <= 1 << 20);
            free(a.out.data);
            a = read_into(codec, 2, in, (size_t)a.fault.expected, 1 << 20);
        }
        CHECK_STATUS(a.status, TL_OK);
        CHECK_EQUAL(a.size, content);
        free(a.out.data);
        CHECK_STATUS(status_of(codec, 2, in, capacity, capacity), TL_OVER_LIMIT);
    }
    CHECK_STATUS(status_of(codec, 2, in, content, content), TL_OK);
    CHECK_STATUS(status_of(codec, 2, in, content + 7, content + 7), TL_OK);
    free(in.data);
}

static void check_cuts(int codec, const char *hex) {
    bytes whole = from_hex(hex);
    for (size_t size = 0; size < whole.size; size++) {
        bytes cut = copy_of(whole.data, size);
        /* As in Kafka: no frame of zstd, no block behind snappy's header, is no content. */
        bool nothing = codec == TL_CODEC_ZSTD ? !size : codec == TL_CODEC_SNAPPY && size == 16;
        CHECK_STATUS(status_of(codec, 2, cut, 70000, 70000), nothing ? TL_OK : TL_BAD_COMPRESSED);
        free(cut.data);
    }
    free(whole.data);
}

static void test_vectors(void) {
    static const char *const STREAMS[] = {
        [TL_CODEC_GZIP] = GZIP, [TL_CODEC_SNAPPY] = SNAPPY, [TL_CODEC_LZ4] = LZ4, [TL_CODEC_ZSTD] = ZSTD};
    for (int codec = TL_CODEC_GZIP; codec <= TL_CODEC_ZSTD; codec++) {
        expect_content(codec, 2, STREAMS[codec], RECORDS);
        check_capacities(codec, STREAMS[codec], 29);
        check_cuts(codec, STREAMS[codec]);
    }
    check_capacities(TL_CODEC_ZSTD, ZSTD_LONG, 70000);
    check_cuts(TL_CODEC_ZSTD, ZSTD_LONG);
    expect_content(TL_CODEC_GZIP, 2, "1f8b08000000000000ff03000000000000000000", "");
    expect_content(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER, "");
    expect_content(TL_CODEC_LZ4, 2, "04224d1860408200000000", "");
    expect_content(TL_CODEC_ZSTD, 2, "28b52ffd2000010000", "");
}

static void test_codec_numbers(void) {
    size_t bound;
    tl_fault fault;
    bytes in = from_hex(ZSTD);
    for (int codec = -1; codec < 9; codec++) {
        bool known = codec >= TL_CODEC_GZIP && codec <= TL_CODEC_ZSTD;
        CHECK_EQUAL(status_of(codec, 2, in, 100, 100) == TL_BAD_CODEC, !known);
        CHECK_EQUAL(tl_decompress_bound(codec, 2, in.data, in.size, 100, &bound, &fault) == TL_BAD_CODEC, !known);
    }
    CHECK_STATUS(status_of(TL_CODEC_ZSTD, 1, in, 100, 100), TL_BAD_CODEC);
    CHECK_STATUS(tl_decompress_bound(TL_CODEC_ZSTD, 0, in.data, in.size, 100, &bound, &fault), TL_BAD_CODEC);
    free(in.data);
}

static void test_gzip(void) {
    char twice[2 * sizeof GZIP + 64];
    snprintf(twice, sizeof twice, "%s%s", GZIP, GZIP);
    expect_content(TL_CODEC_GZIP, 2, twice, RECORDS RECORDS);
    check_capacities(TL_CODEC_GZIP, twice, 58);
    snprintf(twice, sizeof twice, "%s%s", GZIP, "0000001f8b"); /* padding begins no member */
    expect_content(TL_CODEC_GZIP, 2, twice, RECORDS);
    snprintf(twice, sizeof twice, "%s%.*s", GZIP, 60, GZIP); /* a second one that is cut */
    expect_status(TL_CODEC_GZIP, 2, twice, TL_BAD_COMPRESSED);
    /* Extra field, name, comment, and the checksum of all that. */
    static const uint8_t HEAD[] = {0x1f, 0x8b, 8, 0x1e, 1, 2, 3, 4, 0, 3, 2, 0, 'x', 'y', 'n', 0, 'c', 'd', 0};
    uint32_t crc = tl_crc32(0, HEAD, sizeof HEAD);
    bytes rest = from_hex(GZIP + 20), in = {malloc(sizeof HEAD + 2 + rest.size), sizeof HEAD + 2 + rest.size};
    memcpy(in.data, HEAD, sizeof HEAD);
    in.data[sizeof HEAD] = (uint8_t)crc;
    in.data[sizeof HEAD + 1] = (uint8_t)(crc >> 8);
    memcpy(in.data + sizeof HEAD + 2, rest.data, rest.size);
    CHECK_STATUS(status_of(TL_CODEC_GZIP, 2, in, 100, 100), TL_OK);
    in.data[sizeof HEAD] ^= 1;
    CHECK_STATUS(status_of(TL_CODEC_GZIP, 2, in, 100, 100), TL_BAD_COMPRESSED);
    in.data[sizeof HEAD] ^= 1;
    for (size_t i = 1; i <= 8; i++) { /* checksum and size count */
        in.data[in.size - i] ^= 1;
        CHECK_STATUS(status_of(TL_CODEC_GZIP, 2, in, 100, 100), TL_BAD_COMPRESSED);
        in.data[in.size - i] ^= 1;
    }
    free(in.data);
    free(rest.data);
}

static void test_snappy(void) {
#define BLOCK "0000001f1d70" RECORDS
    expect_content(TL_CODEC_SNAPPY, 2, "1d70" RECORDS, RECORDS); /* a bare block */
    expect_content(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER BLOCK BLOCK, RECORDS RECORDS);
    expect_content(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER BLOCK SNAPPY_HEADER BLOCK, RECORDS RECORDS);
    expect_content(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER SNAPPY_HEADER BLOCK, RECORDS);
    expect_status(TL_CODEC_SNAPPY, 2, "", TL_BAD_COMPRESSED);
    expect_status(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER BLOCK "000000", TL_BAD_COMPRESSED);
    expect_status(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER "00000000", TL_BAD_COMPRESSED);
    expect_status(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER "ffffffff1d70" RECORDS, TL_BAD_COMPRESSED);
    expect_status(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER "7fffffff1d70" RECORDS, TL_BAD_COMPRESSED);
    expect_status(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER BLOCK "82534e4150505900", TL_BAD_COMPRESSED);
    expect_status(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER BLOCK "82534e410000000000000001000000010000000000",
                  TL_BAD_COMPRESSED);
    expect_status(TL_CODEC_SNAPPY, 2, SNAPPY_HEADER "00000006ffffffff0f70", TL_BAD_COMPRESSED); /* 4 GiB in 6 bytes */
    check_capacities(TL_CODEC_SNAPPY, SNAPPY_HEADER BLOCK BLOCK, 58);
#undef BLOCK
}

/* A frame of these blocks; the header's check byte is right but for `spoil`. */
static char *lz4_frame(unsigned flags, unsigned sizes, const char *blocks, uint8_t spoil) {
    static char hex[1024];
    uint8_t descriptor[10] = {(uint8_t)flags, (uint8_t)sizes, 9, 9, 9, 9, 9, 9, 9, 9};
    size_t size = flags & 8 ? 10 : 2;
    uint8_t check = (uint8_t)(tl_xxhash32(descriptor, size, 0) >> 8) ^ spoil;
    int length = snprintf(hex, sizeof hex, "04224d18%02x%02x", flags, sizes);
    if (flags & 8) length += snprintf(hex + length, sizeof hex - (size_t)length, "0909090909090909");
    snprintf(hex + length, sizeof hex - (size_t)length, "%02x%s", check, blocks);
    return hex;
}

static void test_lz4(void) {
    char checked[512];
    bytes records = from_hex(RECORDS);
    uint32_t hash = __builtin_bswap32(tl_xxhash32(records.data, records.size, 0));
    snprintf(checked, sizeof checked, LZ4_RECORDS "%08x" LZ4_END, hash);
    free(records.data);
    expect_content(TL_CODEC_LZ4, 2, lz4_frame(0x70, 0x40, checked, 0), RECORDS);
    snprintf(checked, sizeof checked, LZ4_RECORDS "%08x" LZ4_END, hash ^ 1);
    expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x70, 0x40, checked, 0), TL_BAD_COMPRESSED);
    const char *plain = LZ4_RECORDS LZ4_END;
    for (unsigned sizes = 0; sizes < 256; sizes++) { /* 64 KiB to 4 MiB, and nothing else in that byte */
        bool known = sizes == 0x40 || sizes == 0x50 || sizes == 0x60 || sizes == 0x70;
        expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x60, sizes, plain, 0), known ? TL_OK : TL_BAD_COMPRESSED);
    }
    expect_content(TL_CODEC_LZ4, 2, lz4_frame(0x68, 0x40, plain, 0), RECORDS); /* a content size that lies */
    expect_content(TL_CODEC_LZ4, 2, lz4_frame(0x64, 0x40, LZ4_RECORDS LZ4_END "deadbeef", 0), RECORDS);
    expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x64, 0x40, LZ4_RECORDS LZ4_END "deadbe", 0), TL_BAD_COMPRESSED);
    expect_content(TL_CODEC_LZ4, 2, lz4_frame(0x60, 0x40, LZ4_RECORDS LZ4_END "ff00ff", 0), RECORDS);
    expect_content(TL_CODEC_LZ4, 2, lz4_frame(0x60, 0x40, LZ4_RECORDS "00000080", 0), RECORDS);
    expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x40, 0x40, plain, 0), TL_BAD_COMPRESSED);              /* linked blocks */
    expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x20, 0x40, plain, 0), TL_BAD_COMPRESSED);              /* version 0 */
    expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x61, 0x40, plain, 0), TL_BAD_COMPRESSED);              /* dictionary */
    expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x62, 0x40, plain, 0), TL_BAD_COMPRESSED);              /* reserved */
    expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x60, 0x40, "01000100" RECORDS, 0), TL_BAD_COMPRESSED); /* 64 KiB + 1 */
    for (int magic = 0; magic <= 2; magic++) /* only the old code wrote a wrong check byte */
        expect_status(TL_CODEC_LZ4, magic, lz4_frame(0x60, 0x40, plain, 0x98), magic ? TL_BAD_COMPRESSED : TL_OK);
    expect_content(TL_CODEC_LZ4, 0, "04224d1860401a" LZ4_RECORDS LZ4_END, RECORDS);
    /* The last match begins 9 bytes before the end, not 12: read where there is room for a whole block, as in Kafka. */
    bytes ending = from_hex(lz4_frame(0x60, 0x40, "0f00000060616263646566030050767778797a" LZ4_END, 0));
    answer a = read_into(TL_CODEC_LZ4, 2, ending, 15, 1 << 20);
    CHECK_STATUS(a.status, TL_NEED_SCRATCH);
    CHECK_EQUAL(a.fault.expected, 1 << 16);
    free(a.out.data);
    CHECK_STATUS(status_of(TL_CODEC_LZ4, 2, ending, 1 << 16, 1 << 20), TL_OK);
    free(ending.data);
    /* 19 + 255 + 0 bytes of a match behind one literal, then five literals: 280 of content. */
    check_capacities(TL_CODEC_LZ4, lz4_frame(0x60, 0x40, "0c0000001f610100ff00506161616161" LZ4_END, 0), 280);
    expect_status(TL_CODEC_LZ4, 2, lz4_frame(0x60, 0x40, "0c0000001f610200ff00506161616161" LZ4_END, 0),
                  TL_BAD_COMPRESSED);
}

static void test_zstd(void) {
    char twice[256];
    snprintf(twice, sizeof twice, "%s502a4d1803000000abcdef%s", ZSTD, ZSTD); /* and a skippable frame between */
    expect_content(TL_CODEC_ZSTD, 2, twice, RECORDS RECORDS);
    check_capacities(TL_CODEC_ZSTD, twice, 58);
    expect_content(TL_CODEC_ZSTD, 2, "28b52ffd00584b000061", "616161616161616161"); /* one byte, nine times */
    expect_status(TL_CODEC_ZSTD, 2, "28b52ffd0058e60000", TL_BAD_COMPRESSED);       /* cut */
    expect_status(TL_CODEC_ZSTD, 2, "28b52ffd0058070000", TL_BAD_COMPRESSED);       /* a reserved kind of block */
    expect_status(TL_CODEC_ZSTD, 2, "28b52ffd0858010000", TL_BAD_COMPRESSED);       /* a reserved bit */
    expect_status(TL_CODEC_ZSTD, 2, "28b52ffd0158aa010000", TL_BAD_COMPRESSED);     /* a dictionary */
    expect_content(TL_CODEC_ZSTD, 2, "28b52ffd0088010000", "");                     /* a window of 128 MiB */
    expect_status(TL_CODEC_ZSTD, 2, "28b52ffd0089010000", TL_BAD_COMPRESSED);       /* of 144 MiB */
    expect_status(TL_CODEC_ZSTD, 2, "28b52ffd00ff010000", TL_BAD_COMPRESSED);
    expect_status(TL_CODEC_ZSTD, 2,
                  "28b52ffd0058"
                  "0b001061",
                  TL_BAD_COMPRESSED);                                           /* a block of 131073 */
    expect_status(TL_CODEC_ZSTD, 2, "28b52ffd20024b000061", TL_BAD_COMPRESSED); /* says 2, holds 9 */
    expect_status(TL_CODEC_ZSTD, 2,
                  "28b52ffde00000000000010000"
                  "4b000061",
                  TL_BAD_COMPRESSED);                                         /* says 1 TiB */
    expect_status(TL_CODEC_ZSTD, 2, "27b52ffd0058010000", TL_BAD_COMPRESSED); /* the format of 2015 */
    expect_status(TL_CODEC_ZSTD, 2, "28b52f", TL_BAD_COMPRESSED);
    /* What must be there is known before any of it is read: 100 × 128 KiB of one byte. */
    bytes bomb = from_hex("28b52ffd0058");
    bomb.data = realloc(bomb.data, 6 + 100 * 4);
    for (size_t i = 0; i < 100; i++, bomb.size += 4)
        memcpy(bomb.data + bomb.size, i < 99 ? "\x02\x00\x10" : "\x03\x00\x10", 4);
    size_t bound;
    tl_fault fault;
    CHECK_STATUS(tl_decompress_bound(TL_CODEC_ZSTD, 2, bomb.data, bomb.size, 1 << 20, &bound, &fault), TL_OVER_LIMIT);
    CHECK_EQUAL(fault.expected, 1 << 20);
    CHECK_STATUS(tl_decompress_bound(TL_CODEC_ZSTD, 2, bomb.data, bomb.size, 1 << 24, &bound, &fault), TL_OK);
    CHECK_EQUAL(bound, 100 << 17);
    CHECK_STATUS(status_of(TL_CODEC_ZSTD, 2, bomb, 1000, 1 << 20), TL_OVER_LIMIT);
    free(bomb.data);
}

static void test_zstd_prefix(void) {
    /* A window, no size: all of it. Then a frame that tells 9, cut short, and one that tells 9 and holds 9. */
    uint8_t out[16];
    size_t size;
    tl_fault fault;
    bytes untold = from_hex("28b52ffd00584b000061"), told = from_hex("28b52ffd20094b000061");
    CHECK_STATUS(tl_zstd_prefix(codecs, untold.data, untold.size, 2, out, sizeof out, &size, &fault), TL_OK);
    CHECK_EQUAL(size, 9);
    for (size_t wanted = 0; wanted < 12; wanted++) {
        memset(out, 0, sizeof out);
        CHECK_STATUS(tl_zstd_prefix(codecs, told.data, told.size, wanted, out, sizeof out, &size, &fault), TL_OK);
        CHECK_EQUAL(size >= (wanted < 9 ? wanted : 9) && size <= 9, true);
        for (size_t i = 0; i < size; i++) CHECK_EQUAL(out[i], 'a');
    }
    CHECK_STATUS(tl_zstd_prefix(codecs, told.data, told.size - 1, 2, out, sizeof out, &size, &fault),
                 TL_BAD_COMPRESSED);
    CHECK_STATUS(tl_zstd_prefix(codecs, told.data, told.size, 2, out, 8, &size, &fault), TL_OVER_LIMIT);
    CHECK_STATUS(tl_zstd_prefix(codecs, told.data, 0, 2, out, sizeof out, &size, &fault), TL_OK);
    CHECK_EQUAL(size, 0);
    free(untold.data);
    free(told.data);
}

int main(void) {
    CHECK_STATUS(tl_codecs_create(&codecs), TL_OK);
    test_vectors();
    test_codec_numbers();
    test_gzip();
    test_snappy();
    test_lz4();
    test_zstd();
    test_zstd_prefix();
    tl_codecs_destroy(codecs);
    tl_codecs_destroy(NULL);
    return 0;
}
