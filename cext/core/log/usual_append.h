/* A leader's append of a usual batch: of no producer or the plain sequel of one, in the leader epoch that the log ends
 * with, into a segment that has room for it. Any other batch is left to the order that knows all of Kafka's steps.
 *
 * An append has two halves. The first decides and writes to the file, and changes no state of the log; the second takes
 * over what was written. A caller whose readers look at that state locks them out for the second half alone. */
#ifndef TIERLOG_USUAL_APPEND_H
#define TIERLOG_USUAL_APPEND_H

#include "tierlog/log_append.h"
#include "tierlog/log_end.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- segment */

/* Writes behind the end of a file. 0, or a negative errno; then the file is as it was. */
typedef int64_t tl_append_bytes(void *file, const uint8_t *data, size_t size);

/* The segment that is appended to, and its file. */
typedef struct tl_active_segment {
    tl_segment_end end;
    tl_index_tail *tail;     /* NULL: nobody has looked where its indexes end */
    tl_append_bytes *append; /* NULL: the file is not open */
    void *file;
} tl_active_segment;

/* What a batch adds to its segment. */
typedef struct tl_segment_growth {
    tl_index_tail tail; /* behind the batch */
    int64_t max_timestamp;
    int32_t size;
    bool has_offset_entry;
    bool has_time_entry;
    uint8_t offset_entry[TL_OFFSET_ENTRY];
    uint8_t time_entry[TL_TIME_ENTRY];
} tl_segment_growth;

/* Writes a batch, and makes out its index entries. The segment is as before: tl_segment_grow takes the batch.
 *   TL_OK   *error is 0, or what the file said: then nothing was written
 *   else    the batch does not fit the segment, as of tl_index_add: nothing was written */
tl_status tl_segment_append(const tl_active_segment *segment, const uint8_t *data, int32_t size, int64_t last_offset,
                            int64_t max_timestamp, tl_segment_growth *growth, int64_t *error, tl_fault *fault);

void tl_segment_grow(tl_active_segment *segment, const tl_segment_growth *growth);

/* ---- log */

/* The last leader epoch of a log, and its start offset; -1, -1 if there is none. */
typedef struct tl_latest_epoch {
    int64_t epoch;
    int64_t start_offset;
} tl_latest_epoch;

/* Whether a batch of this epoch at this offset begins no epoch. */
static inline bool tl_epoch_goes_on(const tl_latest_epoch *latest, int64_t epoch, int64_t offset) {
    return latest->epoch == epoch && offset >= latest->start_offset;
}

/* A log as its leader's append finds it. */
typedef struct tl_leader_log {
    const tl_leader_options *options; /* of them first_offset is the log's end */
    const tl_scratch *scratch;
    const tl_active_segment *segment; /* NULL: no batch is usual */
    const tl_producer *producer;      /* that the batch names; NULL: it names none, or more about it has to be asked */
    tl_latest_epoch latest;
    tl_roll_limits limits;
} tl_leader_log;

typedef struct tl_usual_append {
    tl_leader_batch batch; /* as of tl_leader_append */
    tl_segment_growth growth;
    int64_t error;   /* a negative errno of the file: nothing was written */
    bool is_written; /* tl_usual_append_take is next. Else, on TL_OK and without an error, the batch is not usual:
                        nothing was done but to assign it */
} tl_usual_append;

/* Checks and assigns the one batch of data[0..size), and writes it if it is usual. Answers as tl_leader_append. */
tl_status tl_usual_append_run(const tl_leader_log *log, uint8_t *data, size_t size, tl_record_errors *errors,
                              tl_usual_append *out, tl_fault *fault);

/* Takes a batch that was written; `producer` is NULL for a batch that names none. Returns the log's new end. */
int64_t tl_usual_append_take(tl_active_segment *segment, tl_producer *producer, const tl_usual_append *appended);

/* The producer that the batch of data[0..size) names; -1 if it names none, or there is no whole header of magic 2. */
int64_t tl_named_producer(const uint8_t *data, size_t size);

#ifdef __cplusplus
}
#endif
#endif
