/* Compaction of a log, a window of whole batches at a time: which offset is the latest of each key, and the same
 * batches without the records that are superseded.
 *
 * Source: Kafka Cleaner#buildOffsetMapForSegment and #shouldRetainRecord, MemoryRecords#filterTo (4.3). The order of
 * segments, transactions and producers are the caller's: it gives a verdict of each batch. Stricter than Kafka: records
 * that no reader of Kafka's could take apart, and offsets that do not rise, are faults. */
#ifndef TIERLOG_COMPACTION_H
#define TIERLOG_COMPACTION_H

#include "compress.h"
#include "decode.h"
#include "offset_map.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The whole batches of a window. */
typedef struct tl_window {
    size_t valid_bytes; /* of whole batches */
    size_t batches;
    int64_t next_offset; /* behind the last one's last offset */
    bool has_producers;  /* one of them has a producer id, or is a control batch: the caller has to judge them */
} tl_window;

/* Walks the headers of data[0..size), and compares the checksums.
 *   TL_OK       all that is there is whole batches
 *   TL_PARTIAL  the last one is cut off, at window->valid_bytes; fault->expected is its size, 0: not known
 *   else        the fault of the batch at fault->position */
TL_API tl_status tl_window_survey(const uint8_t *data, size_t size, tl_window *window, tl_fault *fault);

/* The caller's verdict on a batch: bits. */
enum {
    TL_VERDICT_DISCARD = 1,          /* none of its records is retained: it was aborted, or is a marker that may go */
    TL_VERDICT_RETAIN_EMPTY = 2,     /* its header is retained, even with no records */
    TL_VERDICT_EMPTY_TRANSACTION = 4 /* a marker whose transaction has no other batch left: it gets a delete horizon */
};

/* The position of an indexing, or of a compaction, in its window; all zero to begin. */
typedef struct tl_window_state {
    size_t at;    /* the next batch's position, */
    size_t batch; /* and its number */
    int64_t messages_read;
    /* of a compaction */
    size_t out_size;
    int64_t messages_retained, invalid_messages; /* the latter: without a key */
} tl_window_state;

/* Takes the keys of data[state->at..size), whole batches, into a map: those of records at or above from_offset.
 * Control batches, and batches whose verdict is TL_VERDICT_DISCARD, count as read and no more.
 *
 *   TL_OK            all is done
 *   TL_FULL          the map is full, and map->latest_offset where it became so
 *   TL_NEED_SCRATCH  fault->expected bytes of scratch are needed for the batch at state->at
 *   else             the fault of the batch at fault->position
 *
 * verdicts: one a batch of the window; NULL: all 0. */
TL_API tl_status tl_compaction_index(const uint8_t *data, size_t size, const uint8_t *verdicts, int64_t from_offset,
                                     uint64_t decompressed_limit, const tl_scratch *scratch, tl_offset_map *map,
                                     tl_window_state *state, tl_fault *fault);

typedef struct tl_compaction_options {
    size_t struct_size;
    const tl_offset_map *map;
    int64_t now_ms;
    int64_t delete_horizon_ms;     /* of batches that get one now: now and delete.retention.ms */
    int64_t retained_next_offset;  /* the batch that ends in front of this offset has TL_VERDICT_RETAIN_EMPTY */
    uint64_t decompressed_limit;   /* bytes of one batch */
    bool retain_legacy_tombstones; /* of magic 0 and 1, which have no delete horizon */
} tl_compaction_options;

/* Writes the batches of data[state->at..size) that stay behind out[0..state->out_size): as they are where all records
 * stay, else built anew as Kafka's builder does, with the batch's codec at its default level; magic 0 and 1 become 2.
 *
 *   TL_OK            all is done
 *   TL_FULL          there is no room for the batch at state->at: with fault->expected bytes there may be
 *   TL_NEED_SCRATCH  fault->expected bytes of scratch are needed for the batch at state->at
 *   TL_OVER_LIMIT    of decompressed_limit, or a batch becomes larger than a batch can be
 *   else             the fault of the batch at fault->position
 *
 * verdicts: one a batch of the window; NULL: all 0. */
TL_API tl_status tl_compaction_filter(const uint8_t *data, size_t size, const uint8_t *verdicts,
                                      const tl_compaction_options *options, const tl_scratch *scratch,
                                      tl_compressor *compressor, tl_window_state *state, uint8_t *out, size_t capacity,
                                      tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
