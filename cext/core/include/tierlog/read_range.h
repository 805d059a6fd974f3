/* A range of a file into memory, in one call: opened, read, closed. */
#ifndef TIERLOG_READ_RANGE_H
#define TIERLOG_READ_RANGE_H

#include "buffer_pool.h"
#include "file_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the bytes of [start, end_exclusive) that the file has: returns their number, in a block that the caller
 * frees, or a negative errno (TL_NOT_REGULAR for no regular file), and no block. */
TL_API int64_t tl_read_range(tl_files files, tl_buffer_pool *pool, const char *path, uint64_t start,
                             uint64_t end_exclusive, tl_block **out);

/* The same into memory of the caller's, `size` bytes at most: how many, or a negative errno, and then any of them may
 * have been written. */
TL_API int64_t tl_read_range_into(tl_files files, const char *path, uint64_t start, uint8_t *out, size_t size);

#ifdef __cplusplus
}
#endif
#endif
