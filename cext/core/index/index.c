/* Searches and checks over index files as they lie on disk.
 *
 * Kafka searches the last 8 KiB first, to spare page faults of a long-lived mapping. Our bytes are in memory already:
 * near the end of 131072 entries that took 55 ns instead of 60, elsewhere nothing; not worth a second path. */
#include "tierlog/index.h"

#include "cursor.h"

static tl_status fault_at(tl_fault *fault, tl_status status, size_t position, int64_t base_offset, int64_t expected,
                          int64_t found) {
    *fault = (tl_fault){position, base_offset, -1, expected, found};
    return status;
}

static bool is_zero(const uint8_t *entry, size_t size) {
    uint8_t any = 0;
    for (size_t i = 0; i < size; i++) any |= entry[i];
    return !any;
}

/* Whole entries without the zeros of preallocation. A lone zero entry is one: a log whose first record is of 1970. */
static size_t entries_in_use(const uint8_t *data, size_t size, size_t entry_size) {
    size_t count = size / entry_size;
    if (count == 1) return 1;
    while (count && is_zero(data + (count - 1) * entry_size, entry_size)) count--;
    return count;
}

size_t tl_offset_index_entries(const uint8_t *data, size_t size) { return entries_in_use(data, size, TL_OFFSET_ENTRY); }
size_t tl_time_index_entries(const uint8_t *data, size_t size) { return entries_in_use(data, size, TL_TIME_ENTRY); }

static int32_t relative_offset(const uint8_t *data, size_t i) { return tl_load_i32(data + i * TL_OFFSET_ENTRY); }
static int32_t file_position(const uint8_t *data, size_t i) { return tl_load_i32(data + i * TL_OFFSET_ENTRY + 4); }
static int64_t timestamp_of(const uint8_t *data, size_t i) { return tl_load_i64(data + i * TL_TIME_ENTRY); }
static int64_t time_relative_offset(const uint8_t *data, size_t i) { return tl_load_i32(data + i * TL_TIME_ENTRY + 8); }

/* Offsets of hostile files may not fit 64 bits; they wrap, as in Kafka, and the checks below refuse them. */
static int64_t absolute(int64_t base_offset, int64_t relative) {
    return (int64_t)((uint64_t)base_offset + (uint64_t)relative);
}

/* The value that an entry would hold for this offset: -1 below the base, INT32_MAX for all that no entry reaches. */
static int32_t relative_target(int64_t base_offset, int64_t target) {
    if (target < base_offset) return -1;
    uint64_t relative = (uint64_t)target - (uint64_t)base_offset;
    return relative < INT32_MAX ? (int32_t)relative : INT32_MAX;
}

/* Number of leading entries for which `below` holds. Compilers make a branch of it, and shall: a guess goes on to load
 * what comes next, where a move waits. Without one a lookup in 10 MiB took 2.5 times as long. */
#define COUNT_LEADING(entries, i, below)                                                                               \
    size_t low = 0;                                                                                                    \
    for (size_t left = (entries); left;) {                                                                             \
        size_t half = left - left / 2, i = low + half - 1;                                                             \
        bool is_below = (below);                                                                                       \
        low = is_below ? low + half : low;                                                                             \
        left = is_below ? left - half : half - 1;                                                                      \
    }                                                                                                                  \
    return low

static size_t count_up_to_offset(const uint8_t *data, size_t entries, int32_t relative) {
    COUNT_LEADING(entries, i, relative_offset(data, i) <= relative);
}
static size_t count_below_position(const uint8_t *data, size_t entries, int64_t position) {
    COUNT_LEADING(entries, i, file_position(data, i) < position);
}
static size_t count_up_to_timestamp(const uint8_t *data, size_t entries, int64_t timestamp) {
    COUNT_LEADING(entries, i, timestamp_of(data, i) <= timestamp);
}

void tl_offset_index_lookup(const uint8_t *data, size_t entries, int64_t base_offset, int64_t target, int64_t *offset,
                            int32_t *position) {
    size_t count = count_up_to_offset(data, entries, relative_target(base_offset, target));
    *offset = count ? absolute(base_offset, relative_offset(data, count - 1)) : base_offset;
    *position = count ? file_position(data, count - 1) : 0;
}

/* Number of searches whose loads a core has pending at once. */
enum { SIDE_BY_SIDE = 16 };

/* COUNT_LEADING of all lanes, into low[lane]. The count of steps depends on no data, so that the lanes stay in step;
 * nor does a branch: a core does the loads of the other lanes while one waits. */
#define COUNT_SIDE_BY_SIDE(entries, low, lane, i, below)                                                               \
    for (size_t left = (entries); left;) {                                                                             \
        size_t half = left - left / 2;                                                                                 \
        for (size_t lane = 0; lane < SIDE_BY_SIDE; lane++) {                                                           \
            size_t i = low[lane] + half - 1;                                                                           \
            low[lane] += half & (0 - (size_t)(below));                                                                 \
        }                                                                                                              \
        left -= half;                                                                                                  \
    }

void tl_offset_index_lookup_many(const uint8_t *data, size_t entries, int64_t base_offset, const int64_t *targets,
                                 size_t count, int64_t *offsets, int32_t *positions) {
    for (size_t at = 0; at < count; at += SIDE_BY_SIDE) {
        size_t lanes = count - at < SIDE_BY_SIDE ? count - at : SIDE_BY_SIDE, low[SIDE_BY_SIDE] = {0};
        int32_t relative[SIDE_BY_SIDE] = {0};
        for (size_t lane = 0; lane < lanes; lane++) relative[lane] = relative_target(base_offset, targets[at + lane]);
        COUNT_SIDE_BY_SIDE(entries, low, lane, i, relative_offset(data, i) <= relative[lane])
        for (size_t lane = 0; lane < lanes; lane++) {
            size_t found = low[lane];
            offsets[at + lane] = found ? absolute(base_offset, relative_offset(data, found - 1)) : base_offset;
            positions[at + lane] = found ? file_position(data, found - 1) : 0;
        }
    }
}

int64_t tl_offset_index_upper_bound(const uint8_t *data, size_t entries, int64_t base_offset, int64_t position,
                                    int64_t size_bytes) {
    int64_t end;
    if (__builtin_add_overflow(position, size_bytes, &end)) return -1;
    size_t below = count_below_position(data, entries, end);
    return below < entries ? absolute(base_offset, relative_offset(data, below)) : -1;
}

void tl_time_index_lookup(const uint8_t *data, size_t entries, int64_t base_offset, int64_t target, int64_t *timestamp,
                          int64_t *offset) {
    size_t count = count_up_to_timestamp(data, entries, target);
    *timestamp = count ? timestamp_of(data, count - 1) : -1;
    *offset = count ? absolute(base_offset, time_relative_offset(data, count - 1)) : base_offset;
}

void tl_time_index_lookup_many(const uint8_t *data, size_t entries, int64_t base_offset, const int64_t *targets,
                               size_t count, int64_t *timestamps, int64_t *offsets) {
    for (size_t at = 0; at < count; at += SIDE_BY_SIDE) {
        size_t lanes = count - at < SIDE_BY_SIDE ? count - at : SIDE_BY_SIDE, low[SIDE_BY_SIDE] = {0};
        int64_t timestamp[SIDE_BY_SIDE] = {0};
        for (size_t lane = 0; lane < lanes; lane++) timestamp[lane] = targets[at + lane];
        COUNT_SIDE_BY_SIDE(entries, low, lane, i, timestamp_of(data, i) <= timestamp[lane])
        for (size_t lane = 0; lane < lanes; lane++) {
            size_t found = low[lane];
            timestamps[at + lane] = found ? timestamp_of(data, found - 1) : -1;
            offsets[at + lane] = found ? absolute(base_offset, time_relative_offset(data, found - 1)) : base_offset;
        }
    }
}

/* A file of whole entries, whose offsets fit 64 bits. */
static tl_status check_file(size_t size, size_t entry_size, int64_t base_offset, tl_fault *fault) {
    size_t whole = size / entry_size * entry_size;
    if (size != whole) return fault_at(fault, TL_BAD_SIZE, whole, base_offset, (int64_t)whole, (int64_t)size);
    if (base_offset < 0 || base_offset > INT64_MAX - INT32_MAX)
        return fault_at(fault, TL_BAD_ARGUMENT, 0, base_offset, 0, base_offset);
    return TL_OK;
}

tl_status tl_offset_index_check(const uint8_t *data, size_t size, int64_t base_offset, int64_t segment_size,
                                tl_fault *fault) {
    tl_status status = check_file(size, TL_OFFSET_ENTRY, base_offset, fault);
    if (status != TL_OK) return status;
    size_t entries = tl_offset_index_entries(data, size);
    int64_t last_offset = -1, last_position = -1;
    for (size_t i = 0; i < entries; i++) {
        int64_t relative = relative_offset(data, i), position = file_position(data, i);
        size_t at = i * TL_OFFSET_ENTRY;
        if (relative < 0) return fault_at(fault, TL_BAD_ENTRY, at, -1, 0, relative);
        int64_t offset = base_offset + relative;
        if (position < 0) return fault_at(fault, TL_BAD_ENTRY, at, offset, 0, position);
        if (relative <= last_offset)
            return fault_at(fault, TL_BAD_ORDER, at, offset, base_offset + last_offset + 1, offset);
        if (position >= segment_size) return fault_at(fault, TL_BAD_ENTRY, at, offset, segment_size - 1, position);
        if (position <= last_position) return fault_at(fault, TL_BAD_ORDER, at, offset, last_position + 1, position);
        last_offset = relative;
        last_position = position;
    }
    return TL_OK;
}

tl_status tl_time_index_check(const uint8_t *data, size_t size, int64_t base_offset, tl_fault *fault) {
    tl_status status = check_file(size, TL_TIME_ENTRY, base_offset, fault);
    if (status != TL_OK) return status;
    size_t entries = tl_time_index_entries(data, size);
    int64_t last_timestamp = -1, last_offset = 0;
    for (size_t i = 0; i < entries; i++) {
        int64_t timestamp = timestamp_of(data, i), relative = time_relative_offset(data, i);
        size_t at = i * TL_TIME_ENTRY;
        if (relative < 0) return fault_at(fault, TL_BAD_ENTRY, at, -1, 0, relative);
        int64_t offset = base_offset + relative;
        if (timestamp < 0) return fault_at(fault, TL_BAD_ENTRY, at, offset, 0, timestamp);
        if (timestamp <= last_timestamp)
            return fault_at(fault, TL_BAD_ORDER, at, offset, tl_above(last_timestamp), timestamp);
        if (relative < last_offset) return fault_at(fault, TL_BAD_ORDER, at, offset, base_offset + last_offset, offset);
        last_timestamp = timestamp;
        last_offset = relative;
    }
    return TL_OK;
}

void tl_offset_index_read(const uint8_t *data, size_t entries, int64_t base_offset, int64_t *offset,
                          int32_t *position) {
    if (offset)
        for (size_t i = 0; i < entries; i++) offset[i] = absolute(base_offset, relative_offset(data, i));
    if (position)
        for (size_t i = 0; i < entries; i++) position[i] = file_position(data, i);
}

void tl_time_index_read(const uint8_t *data, size_t entries, int64_t base_offset, int64_t *timestamp, int64_t *offset) {
    if (timestamp)
        for (size_t i = 0; i < entries; i++) timestamp[i] = timestamp_of(data, i);
    if (offset)
        for (size_t i = 0; i < entries; i++) offset[i] = absolute(base_offset, time_relative_offset(data, i));
}

/* One entry; the only version is 0. Kafka looks at the first byte of the two only; a wrong second one is as wrong. */
static tl_status read_entry(const uint8_t *data, size_t i, tl_txn_entry *out, tl_fault *fault) {
    const uint8_t *entry = data + i * TL_TXN_ENTRY;
    int16_t version = tl_load_i16(entry);
    if (version) return fault_at(fault, TL_BAD_VERSION, i * TL_TXN_ENTRY, -1, 0, version);
    *out = (tl_txn_entry){tl_load_i64(entry + 2), tl_load_i64(entry + 10), tl_load_i64(entry + 18),
                          tl_load_i64(entry + 26)};
    return TL_OK;
}

tl_status tl_txn_index_read(const uint8_t *data, size_t size, tl_txn_entry *out, size_t *count, tl_fault *fault) {
    size_t entries = size / TL_TXN_ENTRY;
    for (*count = 0; *count < entries; ++*count) {
        size_t i = *count;
        tl_status status = read_entry(data, i, &out[i], fault);
        if (status != TL_OK) return status;
        if (i && out[i].last_offset <= out[i - 1].last_offset)
            return fault_at(fault, TL_BAD_ORDER, i * TL_TXN_ENTRY, out[i].last_offset, tl_above(out[i - 1].last_offset),
                            out[i].last_offset);
    }
    return TL_OK;
}

tl_status tl_txn_index_check(const uint8_t *data, size_t size, int64_t base_offset, tl_fault *fault) {
    size_t entries = size / TL_TXN_ENTRY;
    tl_txn_entry entry, last = {.last_offset = -1};
    for (size_t i = 0; i < entries; i++, last = entry) {
        size_t at = i * TL_TXN_ENTRY;
        tl_status status = read_entry(data, i, &entry, fault);
        if (status != TL_OK) return status;
        if (entry.last_offset <= last.last_offset && i)
            return fault_at(fault, TL_BAD_ORDER, at, entry.last_offset, tl_above(last.last_offset), entry.last_offset);
        if (entry.last_offset < base_offset)
            return fault_at(fault, TL_BAD_ENTRY, at, entry.last_offset, base_offset, entry.last_offset);
        if (entry.producer_id < 0) return fault_at(fault, TL_BAD_ENTRY, at, entry.last_offset, 0, entry.producer_id);
        if (entry.first_offset < 0 || entry.first_offset > entry.last_offset)
            return fault_at(fault, TL_BAD_ENTRY, at, entry.last_offset, entry.last_offset, entry.first_offset);
        /* No upper bound: a follower that writes it may know of a transaction that begins behind the marker. */
        if (entry.last_stable_offset < 0)
            return fault_at(fault, TL_BAD_ENTRY, at, entry.last_offset, 0, entry.last_stable_offset);
    }
    size_t whole = entries * TL_TXN_ENTRY;
    if (size != whole) return fault_at(fault, TL_BAD_SIZE, whole, -1, (int64_t)whole, (int64_t)size);
    return TL_OK;
}

tl_status tl_txn_index_collect(const uint8_t *data, size_t size, int64_t fetch_offset, int64_t upper_bound_exclusive,
                               tl_aborted *out, size_t *count, bool *complete, tl_fault *fault) {
    int64_t last_wanted = upper_bound_exclusive == INT64_MIN ? INT64_MIN : upper_bound_exclusive - 1;
    *count = 0;
    *complete = false;
    for (size_t i = 0; i < size / TL_TXN_ENTRY; i++) {
        tl_txn_entry entry;
        tl_status status = read_entry(data, i, &entry, fault);
        if (status != TL_OK) return status;
        if (entry.last_offset >= fetch_offset && entry.first_offset < upper_bound_exclusive)
            out[(*count)++] = (tl_aborted){entry.producer_id, entry.first_offset, entry.last_offset};
        /* Not by the stable offset alone: a follower's may lie behind the begin of a later transaction. */
        *complete = entry.last_stable_offset >= upper_bound_exclusive && entry.last_offset >= last_wanted;
        if (*complete) return TL_OK;
    }
    return TL_OK;
}
