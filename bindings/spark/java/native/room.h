/* Room for one batch of rows: the memory behind a tl_columns, used again batch after batch. */
#ifndef TLJ_ROOM_H
#define TLJ_ROOM_H

#include "decode.h"
#include "memory.h"

/* More rows are never in one batch, however narrow they are. */
enum { TLJ_ROWS_MAX = 1 << 20 };

/* The blocks of one binary column. `next_bytes` is how much of the data the next batch is given. */
typedef struct tlj_binary_room {
    tlj_block offsets, data, validity;
    int64_t next_bytes;
} tlj_binary_room;

typedef struct tlj_room {
    tl_columns columns; /* what the core sees; capacities may be below what is there */
    tlj_budget *budget;
    int64_t target_bytes, row_bytes, next_rows, next_headers;
    tlj_binary_room key, value, header_key, header_value;
    tlj_block offset, timestamp, timestamp_type, leader_epoch, header_offsets, header_validity;
} tlj_room;

/* `want`: TL_COLUMN_* but for TL_COLUMN_BATCH and TL_COLUMN_SEQUENCE, which no one here asks for. Takes no memory. */
void tlj_room_open(tlj_room *room, tlj_budget *budget, uint32_t want, int64_t target_bytes);
void tlj_room_close(tlj_room *room);

/* Empties the columns for the next batch, in sizes that the last one taught. Statuses of tlj_reserve. */
tl_status tlj_room_next(tlj_room *room);

/* After TL_FULL: whether it is time to hand over rather than to grow. */
bool tlj_room_is_full(const tlj_room *room);

/* After TL_FULL: room for what `full` says is short.
 *   TL_BAD_SIZE  more bytes than int32 offsets reach; `full` is the fault
 *   else         statuses of tlj_reserve */
tl_status tlj_room_grow(tlj_room *room, tl_fault *full);

#endif
