#include "growing_file.h"

int64_t tl_growing_file_append(tl_growing_file *growing, const uint8_t *data, size_t size) {
    tl_files files = growing->files;
    int64_t error = files.ops->pwrite(files.context, growing->file, growing->size, data, size);
    if (error)
        files.ops->truncate(files.context, growing->file, growing->size); /* a full disk: its part counts for nobody */
    else
        growing->size += size;
    return error;
}
