#include "tierlog/compress.h"

#include <stdlib.h>
#include <zstd.h>
#include <zstd_errors.h>

struct tl_compressor {
    ZSTD_CCtx *zstd;
    int level;
};

tl_status tl_compressor_create(tl_compressor **out) {
    tl_compressor *compressor = calloc(1, sizeof *compressor);
    *out = compressor;
    if (!compressor) return TL_NO_MEMORY;
    compressor->zstd = ZSTD_createCCtx();
    if (compressor->zstd) return TL_OK;
    tl_compressor_destroy(compressor);
    *out = NULL;
    return TL_NO_MEMORY;
}

void tl_compressor_destroy(tl_compressor *compressor) {
    if (!compressor) return;
    ZSTD_freeCCtx(compressor->zstd);
    free(compressor);
}

int tl_compression_level_min(void) { return ZSTD_minCLevel(); }
int tl_compression_level_max(void) { return ZSTD_maxCLevel(); }

size_t tl_compress_bound(size_t size) {
    size_t bound = ZSTD_compressBound(size);
    return ZSTD_isError(bound) ? 0 : bound;
}

/* libzstd clamps levels; a typo must not compress at another one. Its other parameters are what we want by default. */
static tl_status set_level(tl_compressor *compressor, int level) {
    if (level < ZSTD_minCLevel() || level > ZSTD_maxCLevel()) return TL_BAD_ARGUMENT;
    if (level == compressor->level) return TL_OK;
    if (ZSTD_isError(ZSTD_CCtx_setParameter(compressor->zstd, ZSTD_c_compressionLevel, level))) return TL_BAD_ARGUMENT;
    compressor->level = level;
    return TL_OK;
}

tl_status tl_compress(tl_compressor *compressor, int level, const uint8_t *data, size_t size, uint8_t *out,
                      size_t capacity, size_t *out_size, tl_fault *fault) {
    size_t bound = tl_compress_bound(size);
    *out_size = 0;
    *fault = (tl_fault){.base_offset = -1, .record = -1, .expected = (int64_t)bound, .found = (int64_t)capacity};
    if (!bound) return TL_BAD_ARGUMENT;
    if (capacity < bound) return TL_FULL;
    tl_status status = set_level(compressor, level);
    if (status != TL_OK) return status;
    size_t written = ZSTD_compress2(compressor->zstd, out, capacity, data, size);
    /* With room for the bound nothing else can go wrong. */
    if (ZSTD_isError(written)) return TL_NO_MEMORY;
    *out_size = written;
    return TL_OK;
}
