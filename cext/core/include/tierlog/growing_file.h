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

    /* To what size room is reserved ahead of the writes; 0: it is not. A write into room that is there costs a tenth
     * less (ext4: 1.2 of 11 us for 16 KiB). At most an eighth of the file and 4 MiB are ahead, and nothing of a file
     * below 1 MiB. */
    uint64_t reserve_limit;
    uint64_t reserved; /* up to here, as far as is known */
} tl_growing_file;

/* Writes behind the end. 0, or a negative errno: then the size is as it was, and what of the bytes came into the file
 * is cut off again, if that works. One thread at a time. */
TL_API int64_t tl_growing_file_append(tl_growing_file *growing, const uint8_t *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
