/* The buffers of one batch of rows: the memory behind a tl_columns, used again batch after batch. */
#ifndef TLJ_ROW_BUFFERS_H
#define TLJ_ROW_BUFFERS_H

#include "memory.h"
#include "tierlog/decode.h"

/* The most rows of one batch, however narrow they are. */
enum { TLJ_ROWS_MAX = 1 << 20 };

/* The blocks of one binary column. `next_bytes` is how much of the data the next batch is given. */
typedef struct tlj_binary_buffers {
    tlj_block offsets, data, validity;
    int64_t next_bytes;
} tlj_binary_buffers;

typedef struct tlj_row_buffers {
    tl_columns columns; /* what the core sees; capacities may be below what is there */
    tlj_budget *budget;
    int64_t target_bytes, row_bytes, next_rows, next_headers;
    tlj_binary_buffers key, value, header_key, header_value;
    tlj_block offset, timestamp, timestamp_type, leader_epoch, header_offsets, header_validity;
} tlj_row_buffers;

/* `want`: TL_COLUMN_* but for TL_COLUMN_BATCH and TL_COLUMN_SEQUENCE, which nothing here asks for. Takes no memory. */
void tlj_row_buffers_open(tlj_row_buffers *buffers, tlj_budget *budget, uint32_t want, int64_t target_bytes);
void tlj_row_buffers_close(tlj_row_buffers *buffers);

/* Empties the columns for the next batch, in sizes that the last one taught. Statuses of tlj_reserve. */
tl_status tlj_row_buffers_next(tlj_row_buffers *buffers);

/* After TL_FULL: whether the batch is large enough to be handed over, rather than to be enlarged. */
bool tlj_row_buffers_is_full(const tlj_row_buffers *buffers);

/* After TL_FULL: enlarges the buffer that `full` says is too small.
 *   TL_BAD_SIZE  more bytes than int32 offsets reach; `full` is the fault
 *   else         statuses of tlj_reserve */
tl_status tlj_row_buffers_grow(tlj_row_buffers *buffers, tl_fault *full);

#endif
