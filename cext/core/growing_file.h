/* A file that is written at its end alone: a log, to which its writer appends. */
#ifndef TIERLOG_GROWING_FILE_H
#define TIERLOG_GROWING_FILE_H

#include "file_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_growing_file {
    tl_files files;
    int64_t file;  /* open to write; not closed here */
    uint64_t size; /* where the next byte goes */
} tl_growing_file;

/* Writes behind the end. 0, or a negative errno: then the size is as it was, and what of the bytes came into the file
 * is cut off again, if that works. One thread at a time. */
TL_API int64_t tl_growing_file_append(tl_growing_file *growing, const uint8_t *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
