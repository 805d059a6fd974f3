#include "tierlog/compress.h"

#include "codec/codec_parts.h"
#include "tierlog/codec.h"

#include <libdeflate.h>
#include <lz4.h>
#include <snappy-c.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

enum { ZSTD_LEVEL = 3, GZIP_LEVEL = 6 }; /* Kafka's, where nothing else is configured */

struct tl_compressor {
    ZSTD_CCtx *zstd;
    struct libdeflate_compressor *deflate; /* made with the first stream of gzip */
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
    libdeflate_free_compressor(compressor->deflate);
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

/* ---- streams of records -------------------------------------------------------------------------------------------
 */

static void store_le32(uint8_t *at, size_t value) {
    for (unsigned i = 0; i < 4; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* Writers of the form of the readers in codec_parts.h: TL_OK, or TL_FULL without more words. */

static tl_status write_gzip(tl_compressor *compressor, tl_stream in, tl_output *out) {
    enum { HEAD = 10, TAIL = 8 };
    static const uint8_t head[HEAD] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff}; /* no system is known */
    if (!compressor->deflate) compressor->deflate = libdeflate_alloc_compressor(GZIP_LEVEL);
    if (!compressor->deflate) return TL_NO_MEMORY;
    if (out->capacity < HEAD + TAIL) return TL_FULL;
    size_t written = libdeflate_deflate_compress(compressor->deflate, in.data, in.size, out->data + HEAD,
                                                 out->capacity - HEAD - TAIL);
    if (!written) return TL_FULL;
    memcpy(out->data, head, HEAD);
    store_le32(out->data + HEAD + written, libdeflate_crc32(0, in.data, in.size));
    store_le32(out->data + HEAD + written + 4, in.size);
    out->size = HEAD + written + TAIL;
    return TL_OK;
}

static tl_status write_snappy(tl_stream in, tl_output *out) {
    enum { HEAD = 16, BLOCK = 32 << 10 };
    static const uint8_t head[HEAD] = {0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1};
    if (out->capacity < HEAD) return TL_FULL;
    memcpy(out->data, head, HEAD);
    out->size = HEAD;
    for (size_t at = 0; at < in.size; at += BLOCK) {
        size_t block = in.size - at < BLOCK ? in.size - at : BLOCK, written = out->capacity - out->size;
        if (written < 4 + snappy_max_compressed_length(block)) return TL_FULL;
        written -= 4;
        uint8_t *to = out->data + out->size;
        if (snappy_compress((const char *)in.data + at, block, (char *)to + 4, &written) != SNAPPY_OK) return TL_FULL;
        for (unsigned i = 0; i < 4; i++) to[i] = (uint8_t)(written >> (24 - 8 * i));
        out->size += 4 + written;
    }
    return TL_OK;
}

static tl_status write_lz4(tl_stream in, tl_output *out) {
    enum { HEAD = 7, BLOCK = 64 << 10 };
    static const uint8_t head[HEAD] = {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82};
    if (out->capacity < HEAD + 4) return TL_FULL;
    memcpy(out->data, head, HEAD);
    out->size = HEAD;
    for (size_t at = 0; at < in.size; at += BLOCK) {
        size_t block = in.size - at < BLOCK ? in.size - at : BLOCK, room = out->capacity - out->size;
        if (room < 8) return TL_FULL; /* with the end mark */
        room -= 8;
        uint8_t *to = out->data + out->size;
        size_t most = room < block ? room : block - 1; /* a block that does not shrink is stored */
        size_t written =
            (size_t)LZ4_compress_default((const char *)in.data + at, (char *)to + 4, (int)block, (int)most);
        if (!written && room < block) return TL_FULL;
        store_le32(to, written ? written : block | 0x80000000u);
        if (!written) memcpy(to + 4, in.data + at, block);
        out->size += 4 + (written ? written : block);
    }
    memset(out->data + out->size, 0, 4);
    out->size += 4;
    return TL_OK;
}

static tl_status write_zstd(tl_compressor *compressor, tl_stream in, tl_output *out) {
    tl_status status = set_level(compressor, ZSTD_LEVEL);
    if (status != TL_OK) return status;
    out->size = ZSTD_compress2(compressor->zstd, out->data, out->capacity, in.data, in.size);
    if (!ZSTD_isError(out->size)) return TL_OK;
    return ZSTD_getErrorCode(out->size) == ZSTD_error_dstSize_tooSmall ? TL_FULL : TL_NO_MEMORY;
}

tl_status tl_compress_records(tl_compressor *compressor, int codec, const uint8_t *data, size_t size, uint8_t *out,
                              size_t capacity, size_t *out_size, tl_fault *fault) {
    *out_size = 0;
    *fault = (tl_fault){.base_offset = -1, .record = -1, .found = codec};
    if (size > INT32_MAX) return TL_BAD_ARGUMENT;
    tl_stream in = {data, size};
    tl_output output = {out, capacity, capacity, 0};
    tl_status status;
    switch (codec) {
    case TL_CODEC_GZIP: status = write_gzip(compressor, in, &output); break;
    case TL_CODEC_SNAPPY: status = write_snappy(in, &output); break;
    case TL_CODEC_LZ4: status = write_lz4(in, &output); break;
    case TL_CODEC_ZSTD: status = write_zstd(compressor, in, &output); break;
    default: return TL_BAD_CODEC;
    }
    /* Of no stream more: snappy's blocks may grow by a sixth. */
    if (status == TL_FULL) fault->expected = (int64_t)(size + size / 5 + (1 << 16)), fault->found = (int64_t)capacity;
    if (status == TL_OK) *out_size = output.size;
    return status;
}
