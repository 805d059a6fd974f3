/* The transactions of a log, while a cleaner walks over its batches: which batches were aborted, which markers may go.
 *
 * A marker may go once no batch of its transaction is left in front of it. It first gets a delete horizon, as a
 * tombstone does, and goes when that has passed. An aborted transaction stays in the transaction index as long as its
 * marker has batches in front of it.
 *
 * Source: Kafka CleanedTransactionMetadata, Cleaner#cleanInto (4.3). */
#ifndef TIERLOG_CLEANED_TRANSACTIONS_H
#define TIERLOG_CLEANED_TRANSACTIONS_H

#include "compaction.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An entry of a transaction index. */
typedef struct tl_aborted_entry {
    int64_t producer_id;
    int64_t first_offset;
    int64_t last_offset; /* of the abort marker */
    int64_t last_stable_offset;
} tl_aborted_entry;

/* The last record of a producer: its batch stays in the log, for its sequence and its epoch. */
typedef struct tl_last_record {
    int64_t producer_id;
    int64_t last_data_offset; /* -1: no batch of data is known, but a marker */
    int16_t producer_epoch;
} tl_last_record;

/* The state in front of the next batch; grows with the producers whose transactions are open. One thread at a time. */
typedef struct tl_cleaned_transactions tl_cleaned_transactions;

/* The secret is random: producer ids are found by a keyed hash. TL_NO_MEMORY. */
TL_API tl_status tl_cleaned_transactions_create(tl_cleaned_transactions **out, uint64_t secret_low,
                                                uint64_t secret_high);
TL_API void tl_cleaned_transactions_destroy(tl_cleaned_transactions *transactions);

/* Adds an aborted transaction of the batches to come; one may be added more than once. TL_NO_MEMORY. */
TL_API tl_status tl_cleaned_transactions_add(tl_cleaned_transactions *transactions, const tl_aborted_entry *entry);

/* The last records of producers, by ascending producer id; the caller's, until others are set. */
TL_API void tl_cleaned_transactions_set_last(tl_cleaned_transactions *transactions, const tl_last_record *last,
                                             size_t count);

/* Takes the whole batches of data[0..size), in order, and gives each its verdict by the time `now_ms`. Where the
 * verdicts are for a map, TL_VERDICT_DISCARD is that of all batches and markers that may go. TL_BAD_ARGUMENT  there are
 * more than `batches_max` of them TL_NO_MEMORY, or the fault of the batch at fault->position: the state is of no use
 * any more. */
TL_API tl_status tl_cleaned_transactions_judge(tl_cleaned_transactions *transactions, const uint8_t *data, size_t size,
                                               size_t batches_max, int64_t now_ms, bool is_for_map, uint8_t *verdicts,
                                               tl_fault *fault);

/* The aborted transactions whose markers were met, and that still have batches in front of these, in the markers'
 * order; they are the core's until the next call, and are forgotten with `forget`. */
TL_API const tl_aborted_entry *tl_cleaned_transactions_retained(const tl_cleaned_transactions *transactions,
                                                                size_t *count);
TL_API void tl_cleaned_transactions_forget(tl_cleaned_transactions *transactions);

#ifdef __cplusplus
}
#endif
#endif
