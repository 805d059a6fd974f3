/* What the limits are measured with: the plain library call a batch, the output and the context used again.
 *
 * Built by bench/bare.py; no part of the package. Every function returns the bytes written, or -1.
 */
#include <lz4.h>
#include <stdint.h>
#include <string.h>
#include <zstd.h>

typedef struct {
    int64_t position, size; /* of a piece: a block of LZ4, a frame of zstd */
} piece;

/* Blocks of LZ4 frames whose borders were found beforehand; a negative size is a stored block. Every batch begins the
 * output anew. */
int64_t bare_lz4(const uint8_t *in, const piece *pieces, const int64_t *batch_ends, int64_t batches, uint8_t *out,
                 int64_t capacity) {
    int64_t total = 0, i = 0;
    for (int64_t batch = 0; batch < batches; batch++) {
        int64_t at = 0;
        for (; i < batch_ends[batch]; i++) {
            if (pieces[i].size < 0) {
                if (-pieces[i].size > capacity - at) return -1;
                memcpy(out + at, in + pieces[i].position, (size_t)-pieces[i].size);
                at -= pieces[i].size;
                continue;
            }
            int made = LZ4_decompress_safe((const char *)in + pieces[i].position, (char *)out + at,
                                           (int)pieces[i].size, (int)(capacity - at));
            if (made < 0) return -1;
            at += made;
        }
        total += at;
    }
    return total;
}

int64_t bare_zstd(const uint8_t *in, const piece *frames, int64_t count, uint8_t *out, int64_t capacity) {
    static _Thread_local ZSTD_DCtx *context;
    if (!context && !(context = ZSTD_createDCtx())) return -1;
    int64_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t made = ZSTD_decompressDCtx(context, out, (size_t)capacity, in + frames[i].position,
                                          (size_t)frames[i].size);
        if (ZSTD_isError(made)) return -1;
        total += (int64_t)made;
    }
    return total;
}

/* The versions of the libraries, for the tables. */
const char *bare_lz4_version(void) { return LZ4_versionString(); }
const char *bare_zstd_version(void) { return ZSTD_versionString(); }
