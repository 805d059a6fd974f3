/* The batches of a range of a log that lies in pieces of memory, by their headers alone: where the one begins that
 * holds an offset, and up to where the batches behind it may be handed out. */
#ifndef TIERLOG_BATCH_WALK_H
#define TIERLOG_BATCH_WALK_H

#include "batch.h"
#include "file_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes that lie behind those of the piece before. */
typedef struct tl_piece {
    const uint8_t *data;
    size_t size;
} tl_piece;

/* A walk: the wanted range, and the progress. */
typedef struct tl_batch_walk {
    int64_t wanted_offset;     /* the first batch that counts is the first with this last offset or a later one */
    int64_t end_offset;        /* a batch that begins here or later does not count, nor does any behind it */
    int64_t least_offset;      /* no batch may begin below; behind each batch it is the offset behind its last one */
    int64_t greatest_offset;   /* no batch may end above */
    int64_t log_size;          /* no batch may end behind it */
    int64_t max_bytes;         /* wanted from the first batch that counts on; that one is wanted whole */
    int64_t position;          /* of the next header to look at */
    int64_t first_position;    /* of the first batch that counts */
    int64_t first_last_offset; /* of it */
    int64_t whole_position;    /* behind the last batch that counts and lies in the bytes as a whole */
    int64_t whole_offset;      /* behind its last offset */
    int64_t last_position;     /* of the last batch that was walked over; -1 before any */
    int64_t last_least_offset; /* `least_offset` in front of it; so are the next two */
    int64_t last_whole_position;
    int64_t last_whole_offset;
    tl_batch_header first; /* of the first batch that counts */
    bool is_found;         /* whether there is one so far */
    bool is_ended;         /* nothing counts from `position` on: the end offset, or the log's end */
} tl_batch_walk;

/* A walk from `position` on, where a batch begins. The fields of the wanted range are the caller's to set. */
TL_API void tl_batch_walk_begin(tl_batch_walk *walk, int64_t position);

/* Walks over the pieces, which begin at `start` <= walk->position of the log, as far as they go, or as much is wanted.
 * No checksum is compared and no record looked at. To go on, call again with bytes from walk->position on. The base
 * offset behind the last batch is compared too, where the pieces have the header: no checksum covers base offsets.
 *   TL_OK            so far all is right
 *   TL_BAD_OFFSET    the batch's offsets do not rise, or lie outside; fault->expected = the least, found = its base.
 *                    Where they do not rise the batch in front may be the wrong one: it does not count, and the walk
 *                    ends in front of it
 *   TL_BAD_SIZE      and the log ends inside the batch; or as tl_batch_parse_header
 *   else             the fault of the batch at walk->position; what was found before it counts */
TL_API tl_status tl_batch_walk_run(tl_batch_walk *walk, const tl_piece *pieces, size_t count, int64_t start,
                                   tl_fault *fault);

/* The same walk over an open file that has the log from its position `log` >= 0 on; the log's bytes below `end` may be
 * handed out. Headers alone are read, and only where they are in memory: a disk is not waited for.
 *   as tl_batch_walk_run. *error is 0, or a negative errno: -EAGAIN where a header is not in memory, or the file has
 *   none there. */
TL_API tl_status tl_batch_walk_run_ready(tl_batch_walk *walk, tl_files files, int64_t file, int64_t log, int64_t end,
                                         int64_t *error, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
