#include "tierlog/batch_search.h"

/* Bytes that are read at once: a header or a few at first, and more where batches are small. A header that is not in
 * the processor's cache costs more than the call. */
enum { PIECE = 256, PIECE_MAX = 16384 };

void tl_batch_search_begin(tl_batch_search *search, int64_t position, int64_t end_position, int64_t least_last_offset,
                           int64_t least_max_timestamp) {
    *search = (tl_batch_search){.least_last_offset = least_last_offset,
                                .least_max_timestamp = least_max_timestamp,
                                .end_position = end_position,
                                .position = position,
                                .passed_last_offset = -1,
                                .greatest_timestamp = -1,
                                .greatest_timestamp_offset = -1,
                                .is_done = position >= end_position};
}

static void pass(tl_batch_search *search, const tl_batch_header *header, int64_t last_offset) {
    search->passed++;
    search->passed_last_offset = last_offset;
    search->position += header->size_bytes;
    if (header->max_timestamp > search->greatest_timestamp) {
        search->greatest_timestamp = header->max_timestamp;
        search->greatest_timestamp_offset = last_offset;
    }
}

tl_status tl_batch_search_feed(tl_batch_search *search, const uint8_t *data, size_t size, tl_fault *fault) {
    tl_batch_header *header = &search->header;
    for (size_t at = 0; at < size && !search->is_done; at += (size_t)header->size_bytes) {
        int64_t left = search->end_position - search->position;
        size_t known = (uint64_t)left < size - at ? (size_t)left : size - at;
        tl_status status = tl_batch_parse_header(data + at, known, header, fault);
        if (status == TL_PARTIAL || (status == TL_OK && header->size_bytes > left)) {
            search->is_done = status == TL_OK || known == (uint64_t)left; /* torn */
            return TL_OK;
        }
        if (status != TL_OK) {
            fault->position = (uint64_t)search->position;
            return status;
        }
        /* Wraps like Java where a hostile header overflows. */
        int64_t last = (int64_t)((uint64_t)header->base_offset + (uint64_t)(int64_t)header->last_offset_delta);
        if (last >= search->least_last_offset && header->max_timestamp >= search->least_max_timestamp) {
            search->last_offset = last;
            search->is_found = search->is_done = true;
            return TL_OK;
        }
        pass(search, header, last);
        search->is_done = search->position >= search->end_position;
    }
    return TL_OK;
}

tl_status tl_batch_search_run(tl_batch_search *search, tl_files files, int64_t file, int64_t *error, tl_fault *fault) {
    uint8_t data[PIECE_MAX];
    size_t piece = PIECE;
    *error = 0;
    while (!search->is_done) {
        int64_t before = search->position, left = search->end_position - before;
        size_t wanted = (uint64_t)left < piece ? (size_t)left : piece;
        int64_t count = files.ops->pread(files.context, file, (uint64_t)before, data, wanted);
        if (count < 0) {
            *error = count;
            return TL_OK;
        }
        tl_status status = tl_batch_search_feed(search, data, (size_t)count, fault);
        if (status != TL_OK) return status;
        if (search->position == before && !search->is_done) {
            *fault = (tl_fault){(uint64_t)(before + count), -1, -1, left, count};
            return TL_PARTIAL;
        }
        if (piece < PIECE_MAX && (size_t)(search->position - before) < 2 * piece) piece *= 4;
    }
    return TL_OK;
}
