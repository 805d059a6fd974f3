/* Chunks of a remote segment: which chunks a byte range of the original file needs, where they lie in the object, and
 * which part of each belongs to the range. Nothing is joined: the answer is a list of views. 64-bit throughout. */
#ifndef TIERLOG_CHUNKS_H
#define TIERLOG_CHUNKS_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A chunk index in one form for both kinds: fixed (transformed_sizes NULL) and variable. */
typedef struct tl_chunk_index {
    int64_t original_chunk_size;
    int64_t original_file_size;
    int64_t transformed_chunk_size;       /* fixed: of all chunks but the last */
    int64_t final_transformed_chunk_size; /* fixed: of the last */
    const int32_t *transformed_sizes;     /* variable: [chunk_count], else NULL */
    const int64_t *transformed_positions; /* variable: prefix sums, [chunk_count + 1] */
    int64_t chunk_count;
} tl_chunk_index;

/* One chunk's part of a range. */
typedef struct tl_chunk_view {
    int64_t chunk;                /* number, from 0 */
    int64_t original_size;        /* of the whole chunk, untransformed */
    int64_t from, to;             /* the part wanted, within the untransformed chunk; to is exclusive */
    int64_t transformed_position; /* of the chunk in the object */
    int64_t transformed_size;
} tl_chunk_view;

/* Checks the numbers against each other: sizes positive, count = ceil(file / chunk), prefix sums rising.
 * TL_BAD_SIZE or TL_BAD_COUNT with expected and found. */
TL_API tl_status tl_chunk_index_check(const tl_chunk_index *index, tl_fault *fault);

/* Size of the object that the index describes, in bytes. */
TL_API int64_t tl_chunk_index_object_size(const tl_chunk_index *index);

/* Number of chunks that [start, end_exclusive) touches. TL_BAD_ARGUMENT outside 0 <= start < end <= file size. */
TL_API tl_status tl_chunk_count(const tl_chunk_index *index, int64_t start, int64_t end_exclusive, int64_t *count);

/* The views of the range, ascending; `capacity` as tl_chunk_count says (TL_FULL if less). */
TL_API tl_status tl_chunk_views(const tl_chunk_index *index, int64_t start, int64_t end_exclusive, tl_chunk_view *out,
                                size_t capacity, size_t *count);

/* The plugin's binary list of chunk sizes (docs/formats/objects.md, Chunk index), after base64 and zstd.
 * tl_chunk_sizes_count reads the count (checked against the bytes); tl_chunk_sizes_decode fills sizes[count]. */
TL_API tl_status tl_chunk_sizes_count(const uint8_t *data, size_t size, int64_t *count, tl_fault *fault);
TL_API tl_status tl_chunk_sizes_decode(const uint8_t *data, size_t size, int32_t *sizes, size_t capacity,
                                       tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
