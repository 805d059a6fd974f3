#include "log/usual_append.h"

#include "cursor.h"

enum { MAGIC_V2 = 2, PRODUCER_ID_AT = 43 };

/* ---- segment ------------------------------------------------------------------------------------------------------
 */

tl_status tl_segment_append(const tl_active_segment *segment, const uint8_t *data, int32_t size, int64_t last_offset,
                            int64_t max_timestamp, tl_segment_growth *growth, int64_t *error, tl_fault *fault) {
    growth->tail = *segment->tail;
    growth->max_timestamp = max_timestamp;
    growth->size = size;
    tl_batch_table row = {.struct_size = sizeof row,
                          .count = 1,
                          .capacity = 1,
                          .last_offset = &last_offset,
                          .max_timestamp = &max_timestamp,
                          .size_bytes = &size};
    tl_index_entries entries = {.offsets = growth->offset_entry, .times = growth->time_entry};
    tl_status status = tl_index_add(&growth->tail, &row, 0, segment->end.size, &entries, fault);
    if (status != TL_OK) return status;
    growth->has_offset_entry = entries.offset_count > 0;
    growth->has_time_entry = entries.time_count > 0;
    *error = segment->append(segment->file, data, (size_t)size);
    return TL_OK;
}

void tl_segment_grow(tl_active_segment *segment, const tl_segment_growth *growth) {
    *segment->tail = growth->tail;
    if (segment->end.size == 0) segment->end.first_timestamp = growth->max_timestamp;
    segment->end.size += growth->size;
}

/* ---- log ----------------------------------------------------------------------------------------------------------
 */

static bool is_usual(const tl_leader_log *log, const tl_leader_batch *batch) {
    const tl_active_segment *segment = log->segment;
    const tl_batch_header *header = &batch->header;
    if (header->size_bytes == 0 || batch->must_rebuild) return false;
    if (!segment || !segment->tail || !segment->append) return false;
    if (header->producer_id >= 0 && !(log->producer && log->producer->producer_id == header->producer_id &&
                                      tl_producer_continues(log->producer, header)))
        return false;
    return tl_epoch_goes_on(&log->latest, header->leader_epoch, header->base_offset) &&
           tl_roll_due(&segment->end, segment->tail, &log->limits, header->size_bytes,
                       header->base_offset + header->last_offset_delta, header->max_timestamp) == TL_ROLL_NOT;
}

tl_status tl_usual_append_run(const tl_leader_log *log, uint8_t *data, size_t size, tl_record_errors *errors,
                              tl_usual_append *out, tl_fault *fault) {
    const tl_batch_header *header = &out->batch.header;
    tl_fault no_fit; /* the other order finds it again, and tells it */
    out->error = 0;
    out->is_written = false;
    tl_status status = tl_leader_append(data, size, log->options, log->scratch, errors, &out->batch, fault);
    if (status != TL_OK || !is_usual(log, &out->batch)) return status;
    int64_t last_offset = header->base_offset + header->last_offset_delta;
    out->is_written = tl_segment_append(log->segment, data, header->size_bytes, last_offset, header->max_timestamp,
                                        &out->growth, &out->error, &no_fit) == TL_OK &&
                      !out->error;
    return TL_OK;
}

int64_t tl_usual_append_take(tl_active_segment *segment, tl_producer *producer, const tl_usual_append *appended) {
    const tl_batch_header *header = &appended->batch.header;
    int64_t last_offset = header->base_offset + header->last_offset_delta;
    tl_segment_grow(segment, &appended->growth);
    if (producer) {
        tl_producer_batch sequel = {.last_offset = last_offset,
                                    .max_timestamp = header->max_timestamp,
                                    .last_sequence =
                                        tl_sequence_after(header->base_sequence, header->last_offset_delta),
                                    .last_offset_delta = header->last_offset_delta};
        tl_producer_keep(producer, &sequel);
        producer->last_timestamp = header->max_timestamp;
    }
    return last_offset + 1;
}

int64_t tl_named_producer(const uint8_t *data, size_t size) {
    if (size < TL_HEADER_SIZE_V2 || data[TL_MAGIC_POSITION] != MAGIC_V2) return -1;
    return tl_load_i64(data + PRODUCER_ID_AT);
}
