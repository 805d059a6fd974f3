/* See the header. */
#include "tierlog/read_range.h"

#include <errno.h>

static int64_t read_open(tl_files files, tl_buffer_pool *pool, int64_t file, uint64_t start, uint64_t end,
                         tl_block **out) {
    int64_t size = files.ops->size(files.context, file);
    if (size < 0) return size;
    if (end > (uint64_t)size) end = (uint64_t)size;
    size_t wanted = start < end ? (size_t)(end - start) : 0;
    if (tl_buffer_take(pool, wanted, out) != TL_OK) return -ENOMEM;
    int64_t count = wanted ? files.ops->pread(files.context, file, start, (*out)->data, wanted) : 0;
    if (count < 0) {
        tl_buffer_give(*out);
        *out = NULL;
    }
    return count;
}

int64_t tl_read_range(tl_files files, tl_buffer_pool *pool, const char *path, uint64_t start, uint64_t end_exclusive,
                      tl_block **out) {
    *out = NULL;
    int64_t file = files.ops->open(files.context, path, TL_OPEN_READ);
    if (file < 0) return file;
    int64_t count = read_open(files, pool, file, start, end_exclusive, out);
    files.ops->close(files.context, file);
    return count;
}

int64_t tl_read_range_into(tl_files files, const char *path, uint64_t start, uint8_t *out, size_t size) {
    int64_t file = files.ops->open(files.context, path, TL_OPEN_READ);
    if (file < 0) return file;
    int64_t count = files.ops->size(files.context, file);
    if (count >= 0) {
        uint64_t there = start < (uint64_t)count ? (uint64_t)count - start : 0;
        if (size > there) size = (size_t)there;
        count = size ? files.ops->pread(files.context, file, start, out, size) : 0;
    }
    files.ops->close(files.context, file);
    return count;
}
