/* Any bytes at any level: the frame fits its bound, and holds them. Input: level, the bytes, repeated up to 64 times.
 */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int level = (int)(int8_t)take_number(&data, &size, 1) % 12;
    size_t times = 1 + (size_t)(take_number(&data, &size, 1) & 63), total = size * times, written, content;
    tl_compressor *compressor;
    tl_codecs *codecs;
    tl_fault fault;
    REQUIRE(tl_compressor_create(&compressor) == TL_OK && tl_codecs_create(&codecs) == TL_OK);
    uint8_t *all = malloc(total + 1), *again = malloc(total + 1);
    size_t bound = tl_compress_bound(total);
    uint8_t *out = malloc(bound);
    REQUIRE(all && again && out);
    for (size_t i = 0; i < total; i++) all[i] = data[i % size];
    for (int turn = 0; turn < 2; turn++) { /* with the context that was used */
        REQUIRE(tl_compress(compressor, level, all, total, out, bound, &written, &fault) == TL_OK && written <= bound);
        uint8_t *frame = exact_copy(out, written);
        REQUIRE(tl_decompress(codecs, TL_CODEC_ZSTD, 2, frame, written, again, total, total, &content, &fault) ==
                TL_OK);
        REQUIRE(content == total && !memcmp(all, again, total));
        free(frame);
    }
    free(all);
    free(again);
    free(out);
    tl_codecs_destroy(codecs);
    tl_compressor_destroy(compressor);
    return 0;
}
