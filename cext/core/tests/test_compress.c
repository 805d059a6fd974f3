/* A frame that is a byte longer than its bound is written over the next chunk of the part. */
#include "check.h"
#include "tierlog/codec.h"
#include "tierlog/compress.h"

static const int LEVELS[] = {-7, 1, 3, 5, 19};

static void round_trip(tl_compressor *compressor, tl_codecs *codecs, int level, bytes data) {
    tl_fault fault;
    size_t bound = tl_compress_bound(data.size), size, content;
    CHECK(bound > data.size);
    bytes frame = {malloc(bound), bound}, again = {malloc(data.size + 1), data.size};
    CHECK_STATUS(tl_compress(compressor, level, data.data, data.size, frame.data, bound - 1, &size, &fault), TL_FULL);
    CHECK_EQUAL(fault.expected, bound);
    CHECK_STATUS(tl_compress(compressor, level, data.data, data.size, frame.data, bound, &size, &fault), TL_OK);
    CHECK(size > 0 && size <= bound);
    bytes exact = copy_of(frame.data, size);
    CHECK_STATUS(
        tl_decompress(codecs, TL_CODEC_ZSTD, 2, exact.data, size, again.data, data.size, data.size, &content, &fault),
        TL_OK);
    CHECK_EQUAL(content, data.size);
    CHECK(!memcmp(again.data, data.data, data.size));
    free(frame.data);
    free(again.data);
    free(exact.data);
}

int main(void) {
    static const size_t SIZES[] = {0, 1, 255, 256, 65791, 65792, 131072, 131073, 300000};
    tl_compressor *compressor;
    tl_codecs *codecs;
    CHECK_STATUS(tl_compressor_create(&compressor), TL_OK);
    CHECK_STATUS(tl_codecs_create(&codecs), TL_OK);
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        bytes noise = random_bytes(SIZES[i], i), text = copy_of(noise.data, noise.size);
        for (size_t j = 0; j < text.size; j++) text.data[j] &= 3;
        for (size_t j = 0; j < sizeof LEVELS / sizeof *LEVELS; j++) {
            round_trip(compressor, codecs, LEVELS[j], noise);
            round_trip(compressor, codecs, LEVELS[j], text);
        }
        free(noise.data);
        free(text.data);
    }
    uint8_t out[64], byte = 0;
    tl_fault fault;
    size_t size;
    CHECK_STATUS(tl_compress(compressor, tl_compression_level_max() + 1, &byte, 0, out, 64, &size, &fault),
                 TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_compress(compressor, tl_compression_level_min() - 1, &byte, 0, out, 64, &size, &fault),
                 TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_compress(compressor, 3, &byte, SIZE_MAX, out, 64, &size, &fault), TL_BAD_ARGUMENT);
    CHECK_EQUAL(tl_compress_bound(SIZE_MAX), 0);
    tl_compressor_destroy(compressor);
    tl_compressor_destroy(NULL);
    tl_codecs_destroy(codecs);
    return 0;
}
