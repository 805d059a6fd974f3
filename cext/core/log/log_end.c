#include "tierlog/log_end.h"

#include <string.h>

tl_roll tl_roll_due(const tl_segment_end *end, const tl_index_tail *tail, const tl_roll_limits *limits, int64_t size,
                    int64_t last_offset, int64_t max_timestamp) {
    if (end->size > limits->size - size || last_offset - tail->base_offset > INT32_MAX) return TL_ROLL_NOW;
    if (tail->offset_room <= 0 || tail->time_room <= 0) return TL_ROLL_NOW;
    if (end->size == 0) return TL_ROLL_NOT;
    if (end->first_timestamp < 0) return TL_ROLL_BY_CLOCK;
    bool is_old = max_timestamp >= end->first_timestamp && max_timestamp - end->first_timestamp > limits->age_ms;
    return is_old ? TL_ROLL_NOW : TL_ROLL_NOT;
}

int32_t tl_sequence_after(int32_t sequence, int64_t count) {
    if (sequence == -1) return sequence;
    int64_t after = sequence + count;
    return (int32_t)(after > INT32_MAX ? after - INT32_MAX - 1 : after);
}

bool tl_producer_continues(const tl_producer *known, const tl_batch_header *batch) {
    bool is_transactional = batch->attributes & TL_ATTRIBUTE_TRANSACTIONAL;
    if (batch->attributes & TL_ATTRIBUTE_CONTROL || known->producer_epoch != batch->producer_epoch ||
        (known->transaction_offset >= 0) != is_transactional || !known->batch_count)
        return false;
    int32_t last = known->batches[known->batch_count - 1].last_sequence;
    return batch->base_sequence == (last == INT32_MAX ? 0 : last + 1);
}

void tl_producer_keep(tl_producer *known, const tl_producer_batch *batch) {
    if (known->batch_count == TL_PRODUCER_BATCHES)
        memmove(known->batches, known->batches + 1, sizeof *batch * --known->batch_count);
    known->batches[known->batch_count++] = *batch;
}
