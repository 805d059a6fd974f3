/* The first batch of a log that reaches an offset and a timestamp, by its headers alone: pieces of a file are looked
 * at where headers lie, and what lies between is passed over. */
#ifndef TIERLOG_BATCH_SEARCH_H
#define TIERLOG_BATCH_SEARCH_H

#include "batch.h"
#include "file_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A search, and the batches that it has passed over. */
typedef struct tl_batch_search {
    int64_t least_last_offset;         /* wanted: a batch with this last offset or a later one */
    int64_t least_max_timestamp;       /* and with this max timestamp or a later one */
    int64_t end_position;              /* of the log: a batch that does not end here is none */
    int64_t position;                  /* of the batch that was found, or of the next header to look at */
    tl_batch_header header;            /* of the batch that was found */
    int64_t last_offset;               /* of it */
    int64_t passed;                    /* batches that were passed over */
    int64_t passed_last_offset;        /* of the last of them */
    int64_t greatest_timestamp;        /* of all of them, -1 if there is none */
    int64_t greatest_timestamp_offset; /* last offset of the first of them that has it */
    bool is_found;
    bool is_done; /* found, or there is no further batch */
} tl_batch_search;

/* A search from `position` of a log on, where a batch begins. */
TL_API void tl_batch_search_begin(tl_batch_search *search, int64_t position, int64_t end_position,
                                  int64_t least_last_offset, int64_t least_max_timestamp);

/* Looks at the headers in data, which begins at search->position of the log; no checksum is compared. Unless the search
 * is done then, it is to go on at search->position, with TL_HEADER_SIZE_V2 bytes at least.
 *   TL_OK        as far as the bytes go
 *   else         the fault of the batch at search->position */
TL_API tl_status tl_batch_search_feed(tl_batch_search *search, const uint8_t *data, size_t size, tl_fault *fault);

/* The search over an open file, to its end.
 *   TL_PARTIAL   the file ends before the log does
 *   else         as tl_batch_search_feed. *error is 0, or a negative errno, and then the search is not done. */
TL_API tl_status tl_batch_search_run(tl_batch_search *search, tl_files files, int64_t file, int64_t *error,
                                     tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
