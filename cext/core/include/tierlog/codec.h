/* Decompression of record batches: gzip, snappy (raw and the Java framing), lz4 frame, zstd.
 *
 * Output goes to memory of the caller and never past it. Sizes that a stream declares are hints, never trusted:
 * tl_decompress_bound gives a size that is enough in the common case, capped by the caller's limit, and
 * tl_decompress says TL_NEED_SCRATCH when it was not. */
#ifndef TIERLOG_CODEC_H
#define TIERLOG_CODEC_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_codec {
    TL_CODEC_NONE = 0,
    TL_CODEC_GZIP = 1,
    TL_CODEC_SNAPPY = 2,
    TL_CODEC_LZ4 = 3,
    TL_CODEC_ZSTD = 4
} tl_codec;

/* Reused library contexts; one per thread at a time. */
typedef struct tl_codecs tl_codecs;
TL_API tl_status tl_codecs_create(tl_codecs **out);
TL_API void tl_codecs_destroy(tl_codecs *codecs);

/* Version of the library that reads a codec, as "1.5.7": of liblz4 and libzstd the loaded one, of libdeflate the one
 * compiled against. NULL: libsnappy has none for C, and other codecs have no library. */
TL_API const char *tl_codec_version(int codec);

/* A capacity to try first. At most `limit`; TL_OVER_LIMIT if the stream cannot fit the limit whatever it holds.
 * Walks block headers only. `magic` is the batch's: magic 0 has LZ4's wrong header checksum, magic 0/1 no zstd. */
TL_API tl_status tl_decompress_bound(int codec, int magic, const uint8_t *data, size_t size, size_t limit,
                                     size_t *bound, tl_fault *fault);

/* Whole stream into out[0..capacity). TL_NEED_SCRATCH: try again with fault->expected bytes (never above limit);
 * TL_OVER_LIMIT: the content is larger than limit. On TL_OK *out_size is the size of the content.
 * `limit` bounds the answer of TL_NEED_SCRATCH; capacity <= limit. */
TL_API tl_status tl_decompress(tl_codecs *codecs, int codec, int magic, const uint8_t *data, size_t size, uint8_t *out,
                               size_t capacity, size_t limit, size_t *out_size, tl_fault *fault);

/* Decompresses the first `wanted` bytes of a zstd frame that states its size, and little more: for a reader that
 * needs no more of a chunk. `capacity` holds the whole content, which is decoded where the frame does not state its
 * size. On TL_OK *out_size bytes are there: `wanted` or more, fewer only if the content is shorter. Bytes that are
 * not decoded are not checked. */
TL_API tl_status tl_zstd_prefix(tl_codecs *codecs, const uint8_t *data, size_t size, size_t wanted, uint8_t *out,
                                size_t capacity, size_t *out_size, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
