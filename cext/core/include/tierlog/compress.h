/* Compression: of the chunks of a segment, one zstd frame each, with its content size declared
 * (docs/formats/objects.md, Compression of chunks); and of the records of a batch that a cleaner builds anew. All other
 * batches stay as their producers made them. */
#ifndef TIERLOG_COMPRESS_H
#define TIERLOG_COMPRESS_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reused contexts of libzstd and libdeflate; one per thread at a time. Earlier use changes no byte. */
typedef struct tl_compressor tl_compressor;
TL_API tl_status tl_compressor_create(tl_compressor **out);
TL_API void tl_compressor_destroy(tl_compressor *compressor); /* NULL is fine */

/* The least and the greatest level that libzstd knows. */
TL_API int tl_compression_level_min(void);
TL_API int tl_compression_level_max(void);

/* The most bytes that the frame of `size` bytes can take; rises with it. 0: more than one frame can be asked to hold.
 */
TL_API size_t tl_compress_bound(size_t size);

/* All of data as one frame: no dictionary, no checksum, content size declared. No memory is allocated once the
 * compressor has done as much at the same level. TL_FULL          capacity is below the bound, which is fault->expected
 *   TL_BAD_ARGUMENT  a level that libzstd does not know, or too much data
 *   TL_NO_MEMORY     the level needs more than there is */
TL_API tl_status tl_compress(tl_compressor *compressor, int level, const uint8_t *data, size_t size, uint8_t *out,
                             size_t capacity, size_t *out_size, tl_fault *fault);

/* The records of one batch of magic 2 as one stream, of the form and at the level that Kafka has by default
 * (docs/formats/log-files.md, Compression framings): zstd declares the content size, which Kafka's streams do not.
 *   TL_FULL          there is no room: with fault->expected bytes there is
 *   TL_BAD_CODEC     1 gzip, 2 snappy, 3 lz4 and 4 zstd are known
 *   TL_BAD_ARGUMENT  too much data for one stream
 *   TL_NO_MEMORY */
TL_API tl_status tl_compress_records(tl_compressor *compressor, int codec, const uint8_t *data, size_t size,
                                     uint8_t *out, size_t capacity, size_t *out_size, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
