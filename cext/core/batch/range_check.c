#include "tierlog/range_check.h"

#include <errno.h>
#include <string.h>

enum { ROWS = 64 };

const char *tl_range_rule_name(tl_range_rule rule) {
    switch (rule) {
    case TL_RULE_NONE: return "none";
    case TL_RULE_HEADER: return "header";
    case TL_RULE_CRC: return "crc";
    case TL_RULE_ORDER: return "order";
    case TL_RULE_SIZE: return "size";
    }
    return "unknown";
}

void tl_range_check_begin(tl_range_check *check, uint64_t position, int64_t first_offset, int64_t last_offset,
                          uint64_t size_bytes) {
    memset(check, 0, sizeof *check);
    tl_batch_stream_begin(&check->stream, position, true);
    check->first_offset = check->next_offset = first_offset;
    check->last_offset = last_offset;
    check->size_bytes = size_bytes;
    check->position = position;
    check->is_border = position == 0;
}

/* A fault, or the end of the check where the range had not begun at a border. */
static tl_status broken(tl_range_check *check, tl_range_rule rule, tl_status status) {
    if (!check->is_border) {
        check->is_off = true;
        return TL_OK;
    }
    check->rule = rule;
    return status;
}

static tl_status check_row(tl_range_check *check, const tl_batch_table *table, size_t row, tl_fault *fault) {
    int64_t base = table->base_offset[row], last = table->last_offset[row];
    bool is_sound = table->crc_ok[row] != 0;
    bool in_order = tl_offsets_fit(base, last, check->next_offset, check->last_offset);
    *fault = (tl_fault){.position = (uint64_t)table->position[row], .base_offset = base, .record = -1};
    if (!is_sound) return broken(check, TL_RULE_CRC, TL_BAD_CRC);
    if (!in_order) {
        fault->expected = check->next_offset;
        fault->found = last;
        return broken(check, TL_RULE_ORDER, TL_BAD_ENTRY);
    }
    check->is_border = true; /* one sound batch within the segment proves it; what follows must be sound then */
    if (last == INT64_MAX)
        check->last_offset = INT64_MIN; /* nothing can follow */
    else
        check->next_offset = last + 1;
    return TL_OK;
}

/* A range that did not begin at a border cannot be judged. */
static tl_status pass_over(tl_range_check *check, size_t size, size_t *at) {
    check->position += size - *at;
    *at = size;
    return TL_OK;
}

tl_status tl_range_check_collect(tl_range_check *check, const uint8_t *data, size_t size, size_t *at,
                                 tl_batch_table *table, tl_fault *fault) {
    if (check->is_off) return pass_over(check, size, at);
    tl_fault header;
    size_t before = *at, row = table->count;
    tl_status status = tl_batch_stream_feed(&check->stream, data, size, at, table, &header);
    check->position += *at - before;
    for (; row < table->count && !check->is_off; row++) {
        tl_status wrong = check_row(check, table, row, fault);
        if (wrong != TL_OK) {
            table->count = row;
            return wrong;
        }
    }
    if (check->is_off) return pass_over(check, size, at);
    if (status == TL_FULL) return status;
    if (status != TL_OK) {
        *fault = header;
        return broken(check, TL_RULE_HEADER, status);
    }
    if (check->position + check->stream.left > check->size_bytes) {
        *fault = (tl_fault){.position = check->stream.position, .base_offset = -1, .record = -1};
        return broken(check, TL_RULE_SIZE, TL_BAD_SIZE);
    }
    return TL_OK;
}

tl_status tl_range_check_feed(tl_range_check *check, const uint8_t *data, size_t size, tl_fault *fault) {
    int64_t base_offset[ROWS], last_offset[ROWS], position[ROWS];
    uint8_t crc_ok[ROWS];
    tl_batch_table table = {.struct_size = sizeof(tl_batch_table),
                            .capacity = ROWS,
                            .base_offset = base_offset,
                            .last_offset = last_offset,
                            .position = position,
                            .crc_ok = crc_ok};
    size_t at = 0;
    tl_status status;
    do {
        table.count = 0;
        status = tl_range_check_collect(check, data, size, &at, &table, fault);
    } while (status == TL_FULL);
    return status;
}

tl_status tl_range_check_feed_file(tl_range_check *check, tl_files files, int64_t file, uint64_t position,
                                   uint64_t size, bool waits, uint8_t *room, size_t room_size, int64_t *error,
                                   tl_fault *fault) {
    *error = 0;
    while (size) {
        size_t wanted = size < room_size ? (size_t)size : room_size;
        int64_t count = waits ? files.ops->pread(files.context, file, position, room, wanted)
                              : files.ops->pread_ready(files.context, file, position, room, wanted);
        if (count <= 0) {
            *error = count ? count : -ENODATA;
            return TL_OK;
        }
        tl_status status = tl_range_check_feed(check, room, (size_t)count, fault);
        if (status != TL_OK) return status;
        position += (uint64_t)count;
        size -= (uint64_t)count;
    }
    return TL_OK;
}
