#include "tierlog/growing_file.h"

enum { RESERVED_FROM = 1 << 20, AHEAD_SHARE = 8, AHEAD_MAX = 4 << 20 };

/* Reserves room for bytes to come and some more, where that is due. */
static void reserve(tl_growing_file *growing, uint64_t size) {
    uint64_t end = growing->size + size, ahead = growing->size / AHEAD_SHARE, limit = growing->reserve_limit;
    if (end <= growing->reserved || end > limit || growing->size < RESERVED_FROM) return;
    if (ahead > AHEAD_MAX) ahead = AHEAD_MAX;
    uint64_t target = limit - end < ahead ? limit : end + ahead;
    tl_files files = growing->files;
    /* Refused once, by a full disk or by a file system without it, space is not reserved again. */
    int64_t error = files.ops->reserve(files.context, growing->file, growing->size, target - growing->size);
    growing->reserved = error ? limit : target;
}

int64_t tl_growing_file_append(tl_growing_file *growing, const uint8_t *data, size_t size) {
    tl_files files = growing->files;
    reserve(growing, size);
    int64_t error = files.ops->pwrite(files.context, growing->file, growing->size, data, size);
    if (error)
        files.ops->truncate(files.context, growing->file, growing->size); /* a full disk: a part does not count */
    else
        growing->size += size;
    return error;
}
