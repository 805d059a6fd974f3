#include "batch/summary.h"

uint32_t tl_summary_columns(uint32_t want) {
    uint32_t columns = 0;
    if (want & TL_SUMMARY_OFFSETS) columns |= TL_COLUMN_OFFSET;
    if (want & (TL_SUMMARY_LEAST_TIMESTAMP | TL_SUMMARY_GREATEST_TIMESTAMP)) columns |= TL_COLUMN_TIMESTAMP;
    return columns;
}

void tl_summary_reset(tl_summary *summary, uint32_t want) {
    *summary = (tl_summary){.want = want,
                            .least_offset = INT64_MAX,
                            .greatest_offset = INT64_MIN,
                            .least_timestamp = INT64_MAX,
                            .greatest_timestamp = INT64_MIN};
}

static void add_extremes(int64_t *least, int64_t *greatest, int64_t low, int64_t high) {
    if (low < *least) *least = low;
    if (high > *greatest) *greatest = high;
}

/* Whether the header suffices, of a magic 2 batch with records, between `first` and `last`, where all records count
 * alike. */
static bool is_enough(uint32_t want, const tl_batch_header *header, const tl_decode_options *options, bool inside) {
    /* Compaction takes records away and leaves the batch its offsets: which ones are gone no header says. */
    bool dense = (int64_t)header->record_count == (int64_t)header->last_offset_delta + 1;
    bool one_time = header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME;
    bool bound_in_time = options->from_timestamp != INT64_MIN || options->to_timestamp_exclusive != INT64_MAX;
    if (!dense && (!inside || (want & TL_SUMMARY_OFFSETS))) return false;
    if (one_time) return true;
    if (bound_in_time || (want & TL_SUMMARY_LEAST_TIMESTAMP)) return false;
    return inside || !(want & TL_SUMMARY_GREATEST_TIMESTAMP);
}

bool tl_summary_take(tl_summary *summary, const tl_batch_header *header, const tl_decode_options *options) {
    int64_t count = header->record_count, first = header->base_offset, time;
    int64_t last = first + header->last_offset_delta; /* tl_decode has checked that it fits */
    if (header->magic != 2) return false;
    if (count == 0) return true; /* all compacted away */
    if (count < 0 || count > (int64_t)header->last_offset_delta + 1) return false;
    bool inside = first >= options->from_offset && last < options->to_offset_exclusive;
    if (!is_enough(summary->want, header, options, inside)) return false;
    bool timed = tl_summary_columns(summary->want) & TL_COLUMN_TIMESTAMP;
    if (__builtin_mul_overflow(header->max_timestamp, options->timestamp_multiplier, &time) && timed) return false;
    if (!inside) {
        if (first < options->from_offset) first = options->from_offset;
        if (last >= options->to_offset_exclusive) last = options->to_offset_exclusive - 1;
        count = last - first + 1;
    }
    summary->records += count;
    add_extremes(&summary->least_offset, &summary->greatest_offset, first, last);
    if (timed) add_extremes(&summary->least_timestamp, &summary->greatest_timestamp, time, time);
    return true;
}

static void fold(const int64_t *values, int64_t rows, int64_t *least, int64_t *greatest) {
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (int64_t row = 0; row < rows; row++) {
        low = values[row] < low ? values[row] : low;
        high = values[row] > high ? values[row] : high;
    }
    add_extremes(least, greatest, low, high);
}

void tl_summary_fold(tl_summary *summary, tl_columns *columns) {
    uint32_t wanted = tl_summary_columns(summary->want);
    summary->records += columns->rows;
    if (wanted & TL_COLUMN_OFFSET)
        fold(columns->offset, columns->rows, &summary->least_offset, &summary->greatest_offset);
    if (wanted & TL_COLUMN_TIMESTAMP)
        fold(columns->timestamp, columns->rows, &summary->least_timestamp, &summary->greatest_timestamp);
    columns->rows = 0;
}
