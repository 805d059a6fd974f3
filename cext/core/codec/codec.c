/* The codec that reads a stream, the contexts it reuses, and the caller's limit. */
#include "tierlog/codec.h"

#include "codec/codec_parts.h"

#include <assert.h>
#include <libdeflate.h>
#include <lz4.h>
#include <stdlib.h>
#include <zstd.h>

struct tl_codecs {
    struct libdeflate_decompressor *deflate;
    ZSTD_DCtx *zstd;
};

tl_status tl_codecs_create(tl_codecs **out) {
    *out = NULL;
    tl_codecs *codecs = calloc(1, sizeof *codecs);
    if (!codecs) return TL_NO_MEMORY;
    codecs->deflate = libdeflate_alloc_decompressor();
    codecs->zstd = ZSTD_createDCtx();
    if (!codecs->deflate || !codecs->zstd) {
        tl_codecs_destroy(codecs);
        return TL_NO_MEMORY;
    }
    *out = codecs;
    return TL_OK;
}

void tl_codecs_destroy(tl_codecs *codecs) {
    if (!codecs) return;
    libdeflate_free_decompressor(codecs->deflate);
    ZSTD_freeDCtx(codecs->zstd);
    free(codecs);
}

const char *tl_codec_version(int codec) {
    switch (codec) {
    case TL_CODEC_GZIP: return LIBDEFLATE_VERSION_STRING;
    case TL_CODEC_LZ4: return LZ4_versionString();
    case TL_CODEC_ZSTD: return ZSTD_versionString();
    default: return NULL;
    }
}

static tl_status fault_of(tl_fault *fault, tl_status status, int64_t expected, int64_t found) {
    *fault = (tl_fault){.base_offset = -1, .record = -1, .expected = expected, .found = found};
    return status;
}

static tl_status over_limit(tl_fault *fault, size_t limit, uint64_t found) {
    uint64_t most = INT64_MAX;
    return fault_of(fault, TL_OVER_LIMIT, (int64_t)(limit < most ? limit : most),
                    (int64_t)(found < most ? found : most));
}

/* Zstd came with magic 2; in older batches its number stands for nothing. */
static bool known(int codec, int magic) {
    return codec >= TL_CODEC_GZIP && codec <= TL_CODEC_ZSTD && !(codec == TL_CODEC_ZSTD && magic < 2);
}

tl_status tl_decompress_bound(int codec, int magic, const uint8_t *data, size_t size, size_t limit, size_t *bound,
                              tl_fault *fault) {
    *bound = 0;
    if (!known(codec, magic)) return fault_of(fault, TL_BAD_CODEC, 0, codec);
    tl_stream in = {data, size};
    uint64_t least = 0, most = 0;
    tl_status status;
    switch ((tl_codec)codec) {
    case TL_CODEC_GZIP: status = tl_gzip_bound(in, &least, &most, fault); break;
    case TL_CODEC_SNAPPY: status = tl_snappy_bound(in, &least, &most, fault); break;
    case TL_CODEC_LZ4: status = tl_lz4_bound(in, magic != 0, &least, &most, fault); break;
    default: status = tl_zstd_bound(in, &least, &most, fault); break;
    }
    if (status != TL_OK) return status;
    if (least > limit) return over_limit(fault, limit, least);
    *bound = most < limit ? (size_t)most : limit;
    return TL_OK;
}

tl_status tl_decompress(tl_codecs *codecs, int codec, int magic, const uint8_t *data, size_t size, uint8_t *out,
                        size_t capacity, size_t limit, size_t *out_size, tl_fault *fault) {
    *out_size = 0;
    if (!known(codec, magic)) return fault_of(fault, TL_BAD_CODEC, 0, codec);
    tl_stream in = {data, size};
    uint8_t nothing = 0; /* the codecs want a place, even for no bytes */
    tl_output output = {out ? out : &nothing, capacity < limit ? capacity : limit, limit, 0};
    tl_status status;
    switch ((tl_codec)codec) {
    case TL_CODEC_GZIP: status = tl_gzip_read(codecs->deflate, in, &output, fault); break;
    case TL_CODEC_SNAPPY: status = tl_snappy_read(in, &output, fault); break;
    case TL_CODEC_LZ4: status = tl_lz4_read(in, magic != 0, &output, fault); break;
    default: status = tl_zstd_read(codecs->zstd, in, &output, fault); break;
    }
    if (status == TL_NEED_SCRATCH) {
        if (output.capacity == limit || (uint64_t)fault->found > limit)
            return over_limit(fault, limit, (uint64_t)fault->found);
        if ((uint64_t)fault->expected > limit) fault->expected = (int64_t)limit;
    }
    assert(output.size <= output.capacity);
    if (status == TL_OK) *out_size = output.size;
    return status;
}

tl_status tl_zstd_prefix(tl_codecs *codecs, const uint8_t *data, size_t size, size_t wanted, uint8_t *out,
                         size_t capacity, size_t *out_size, tl_fault *fault) {
    *out_size = 0;
    uint8_t nothing = 0;
    tl_output output = {out ? out : &nothing, capacity, capacity, 0};
    tl_status status = tl_zstd_read_prefix(codecs->zstd, (tl_stream){data, size}, wanted, &output, fault);
    if (status == TL_NEED_SCRATCH) return over_limit(fault, capacity, (uint64_t)fault->found);
    assert(output.size <= output.capacity);
    if (status == TL_OK) *out_size = output.size;
    return status;
}
