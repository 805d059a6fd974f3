#include "tierlog/log_append.h"
#include "struct_size.h"

#include "batch/columns.h"
#include "batch/record.h"
#include "cursor.h"
#include "tierlog/checksum.h"

enum {
    LEADER_EPOCH_AT = 12,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21, /* where the checksum begins */
    MAX_TIMESTAMP_AT = 35,
    STAMPED_END = 43,        /* behind the greatest timestamp: what a leader may rewrite ends here */
    KNOWN_ATTRIBUTES = 0x7f, /* Kafka keeps no other bit of those that it rewrites */
    NO_TIMESTAMP = -1
};

int16_t tl_append_error_code(tl_append_rule rule) {
    switch (rule) {
    case TL_APPEND_SOUND: return 0;
    case TL_APPEND_SIZE:
    case TL_APPEND_MAGIC:
    case TL_APPEND_CRC: return 2;
    case TL_APPEND_TOO_LARGE:
    case TL_APPEND_CONTENT_SIZE: return 10;
    case TL_APPEND_TIMESTAMPS: return 32;
    case TL_APPEND_BASE_OFFSET:
    case TL_APPEND_BATCHES:
    case TL_APPEND_OLD_FORMAT:
    case TL_APPEND_OFFSET_RANGE:
    case TL_APPEND_COUNT:
    case TL_APPEND_COUNT_RANGE:
    case TL_APPEND_CONTROL:
    case TL_APPEND_SEQUENCE:
    case TL_APPEND_RECORD:
    case TL_APPEND_RECORDS:
    case TL_APPEND_RECORD_OFFSETS: return 87;
    case TL_APPEND_CODEC:
    case TL_APPEND_COMPRESSED:
    case TL_APPEND_ORDER:
    case TL_APPEND_NEXT_OFFSET:
    case TL_APPEND_LOG_END:
    case TL_APPEND_EPOCH: return -1;
    }
    return -1;
}

const char *tl_append_rule_name(tl_append_rule rule) {
    switch (rule) {
    case TL_APPEND_SOUND: return "sound";
    case TL_APPEND_SIZE: return "size";
    case TL_APPEND_MAGIC: return "magic";
    case TL_APPEND_CRC: return "crc";
    case TL_APPEND_CODEC: return "codec";
    case TL_APPEND_TOO_LARGE: return "too_large";
    case TL_APPEND_BASE_OFFSET: return "base_offset";
    case TL_APPEND_BATCHES: return "batches";
    case TL_APPEND_OLD_FORMAT: return "old_format";
    case TL_APPEND_OFFSET_RANGE: return "offset_range";
    case TL_APPEND_COUNT: return "count";
    case TL_APPEND_COUNT_RANGE: return "count_range";
    case TL_APPEND_CONTROL: return "control";
    case TL_APPEND_SEQUENCE: return "sequence";
    case TL_APPEND_COMPRESSED: return "compressed";
    case TL_APPEND_CONTENT_SIZE: return "content_size";
    case TL_APPEND_RECORD: return "record";
    case TL_APPEND_RECORDS: return "records";
    case TL_APPEND_TIMESTAMPS: return "timestamps";
    case TL_APPEND_ORDER: return "order";
    case TL_APPEND_NEXT_OFFSET: return "next_offset";
    case TL_APPEND_RECORD_OFFSETS: return "record_offsets";
    case TL_APPEND_LOG_END: return "log_end";
    case TL_APPEND_EPOCH: return "epoch";
    }
    return "unknown";
}

const char *tl_record_rule_name(tl_record_rule rule) {
    switch (rule) {
    case TL_RECORD_NO_KEY: return "no_key";
    case TL_RECORD_TIMESTAMP: return "timestamp";
    case TL_RECORD_APPEND_TIME_SET: return "append_time_set";
    }
    return "unknown";
}

static void store(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

static tl_status broken(tl_append_rule *rule, tl_append_rule which, tl_status status, tl_fault *fault, size_t position,
                        int64_t base_offset, int64_t expected, int64_t found) {
    *rule = which;
    *fault = (tl_fault){
        .position = position, .base_offset = base_offset, .record = -1, .expected = expected, .found = found};
    return status;
}

/* The header at data[at..size). TL_PARTIAL: the bytes end before the batch does, and nothing is wrong with it so far.
 */
static tl_status take_header(const uint8_t *data, size_t size, size_t at, tl_batch_header *header, tl_append_rule *rule,
                             tl_fault *fault) {
    tl_status status = tl_batch_parse(data + at, size - at, header, fault);
    fault->position = at;
    if (status == TL_OK) return status;
    if (status == TL_PARTIAL) {
        /* Kafka looks at the magic as soon as it is there. */
        if (size - at <= TL_MAGIC_POSITION || data[at + TL_MAGIC_POSITION] <= 2) return status;
        return broken(rule, TL_APPEND_MAGIC, TL_BAD_MAGIC, fault, at, tl_load_i64(data + at), 2,
                      (int8_t)data[at + TL_MAGIC_POSITION]);
    }
    *rule = status == TL_BAD_MAGIC ? TL_APPEND_MAGIC : TL_APPEND_SIZE;
    return status;
}

/* Checksum and codec: what every batch that comes in must have right. */
static tl_status check_batch(const uint8_t *data, size_t at, const tl_batch_header *header, tl_append_rule *rule,
                             tl_fault *fault) {
    tl_status status = tl_batch_verify(data + at, header, fault);
    fault->position = at;
    if (status != TL_OK) {
        *rule = TL_APPEND_CRC;
        return status;
    }
    int codec = header->attributes & TL_ATTRIBUTE_CODEC;
    if (codec > TL_CODEC_ZSTD)
        return broken(rule, TL_APPEND_CODEC, TL_BAD_CODEC, fault, at, header->base_offset, TL_CODEC_ZSTD, codec);
    return TL_OK;
}

/* ---- leader -------------------------------------------------------------------------------------------------------
 */

/* The only batch of the bytes into out->header; size_bytes 0 if there is none. */
static tl_status take_only_batch(const uint8_t *data, size_t size, const tl_leader_options *options,
                                 tl_leader_batch *out, tl_fault *fault) {
    size_t batches = 0;
    for (size_t at = 0; at < size;) {
        tl_batch_header header;
        tl_status status = take_header(data, size, at, &header, &out->rule, fault);
        if (status == TL_PARTIAL) break;
        if (status != TL_OK) return status;
        if (options->origin == TL_FROM_CLIENT && header.magic == 2 && header.base_offset != 0)
            return broken(&out->rule, TL_APPEND_BASE_OFFSET, TL_BAD_OFFSET, fault, at, header.base_offset, 0,
                          header.base_offset);
        if (header.size_bytes > options->max_message_bytes)
            return broken(&out->rule, TL_APPEND_TOO_LARGE, TL_BAD_SIZE, fault, at, header.base_offset,
                          options->max_message_bytes, header.size_bytes);
        status = check_batch(data, at, &header, &out->rule, fault);
        if (status != TL_OK) return status;
        if (batches++ == 0) out->header = header;
        at += (size_t)header.size_bytes;
    }
    if (batches > 1)
        return broken(&out->rule, TL_APPEND_BATCHES, TL_BAD_ENTRY, fault, 0, out->header.base_offset, 1,
                      (int64_t)batches);
    return TL_OK;
}

/* LogValidator#validateBatch. The counts of a broker's own batches are checked too: offsets are assigned by them. */
static tl_status check_header(const tl_batch_header *header, const tl_leader_options *options, tl_append_rule *rule,
                              tl_fault *fault) {
    bool from_client = options->origin == TL_FROM_CLIENT;
    int64_t base = header->base_offset, range = (int64_t)header->last_offset_delta + 1, count = header->record_count;
    if (header->magic != 2) return broken(rule, TL_APPEND_OLD_FORMAT, TL_BAD_MAGIC, fault, 0, base, 2, header->magic);
    if (range <= 0) return broken(rule, TL_APPEND_OFFSET_RANGE, TL_BAD_OFFSET, fault, 0, base, 0, range - 1);
    if (count <= 0) return broken(rule, TL_APPEND_COUNT, TL_BAD_COUNT, fault, 0, base, range, count);
    if (count != range) return broken(rule, TL_APPEND_COUNT_RANGE, TL_BAD_COUNT, fault, 0, base, range, count);
    if (from_client && (header->attributes & TL_ATTRIBUTE_CONTROL))
        return broken(rule, TL_APPEND_CONTROL, TL_BAD_ENTRY, fault, 0, base, 0, header->attributes);
    if (from_client && header->producer_id > -1 && header->base_sequence < 0)
        return broken(rule, TL_APPEND_SEQUENCE, TL_BAD_ENTRY, fault, 0, base, 0, header->base_sequence);
    return TL_OK;
}

/* The uncompressed records: in place, or inflated into the scratch. */
static tl_status take_content(const uint8_t *data, const tl_leader_options *options, const tl_scratch *scratch,
                              tl_leader_batch *out, const uint8_t **content, size_t *content_size, tl_fault *fault) {
    const tl_batch_header *header = &out->header;
    const uint8_t *payload = data + TL_HEADER_SIZE_V2;
    size_t size = (size_t)header->size_bytes - TL_HEADER_SIZE_V2, limit = (size_t)options->decompressed_limit, bound;
    int codec = header->attributes & TL_ATTRIBUTE_CODEC;
    *content = payload;
    *content_size = size;
    if (codec == TL_CODEC_NONE) return TL_OK;
    tl_fault inner = {.record = -1};
    tl_status status = tl_decompress_bound(codec, 2, payload, size, limit, &bound, &inner);
    if (status == TL_OK && bound + !bound > scratch->capacity) {
        *fault = (tl_fault){
            .base_offset = header->base_offset, .record = -1, .expected = (int64_t)(bound + !bound), .found = 0};
        return TL_NEED_SCRATCH;
    }
    size_t capacity = scratch->capacity < limit ? scratch->capacity : limit;
    if (status == TL_OK)
        status = tl_decompress(scratch->codecs, codec, 2, payload, size, scratch->data, capacity, limit, content_size,
                               &inner);
    *content = scratch->data;
    if (status == TL_OK) return TL_OK;
    tl_append_rule rule = status == TL_OVER_LIMIT ? TL_APPEND_CONTENT_SIZE : TL_APPEND_COMPRESSED;
    if (status == TL_NEED_SCRATCH || status == TL_NO_MEMORY) rule = TL_APPEND_SOUND;
    return broken(&out->rule, rule, status, fault, 0, header->base_offset, inner.expected, inner.found);
}

/* As Java's subtraction, which wraps. */
static int64_t wrapped(uint64_t value) { return (int64_t)value; }

static bool is_out_of_range(const tl_leader_options *options, int64_t timestamp) {
    int64_t behind = wrapped((uint64_t)options->now_ms - (uint64_t)timestamp);
    return behind > options->timestamp_before_max_ms || wrapped(0 - (uint64_t)behind) > options->timestamp_after_max_ms;
}

/* LogValidator#validateRecord; 0 if nothing is wrong. */
static int record_rule(const tl_leader_options *options, bool append_time, int32_t key_length, int64_t timestamp) {
    if (options->compacted && key_length < 0) return TL_RECORD_NO_KEY;
    if (!options->log_append_time && timestamp != NO_TIMESTAMP)
        return is_out_of_range(options, timestamp) ? TL_RECORD_TIMESTAMP : 0;
    return append_time ? TL_RECORD_APPEND_TIME_SET : 0;
}

/* What was seen of the records. */
typedef struct records_seen {
    int64_t max_timestamp;
    bool has_timestamp_error;
    int64_t first_wrong_offset; /* index of the first record whose offset is not that; -1 if there is none */
} records_seen;

static tl_status check_records(const uint8_t *content, size_t size, const tl_leader_options *options,
                               tl_leader_batch *out, tl_record_errors *errors, records_seen *seen, tl_fault *fault) {
    const tl_batch_header *header = &out->header;
    const uint8_t *at = content, *end = content + size;
    bool append_time = header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME;
    *seen = (records_seen){.max_timestamp = NO_TIMESTAMP, .first_wrong_offset = -1};
    for (int64_t index = 0; index < header->record_count; index++) {
        tl_record record;
        tl_fault inner = {.record = index};
        tl_status status = tl_record_parse(at, end, &record, &at, &inner);
        if (status != TL_OK) {
            broken(&out->rule, TL_APPEND_RECORD, status, fault, 0, header->base_offset, inner.expected, inner.found);
            fault->record = index;
            errors->count = 0; /* Kafka tells nothing of the records before */
            return status;
        }
        int64_t timestamp = append_time ? header->max_timestamp
                                        : wrapped((uint64_t)header->base_timestamp + (uint64_t)record.timestamp);
        if (record.offset != index && seen->first_wrong_offset < 0) seen->first_wrong_offset = index;
        if (timestamp > seen->max_timestamp) seen->max_timestamp = timestamp;
        int rule = record_rule(options, append_time, record.key_length, timestamp);
        if (!rule) continue;
        seen->has_timestamp_error |= rule != TL_RECORD_NO_KEY;
        if ((uint64_t)errors->count < errors->capacity)
            errors->entries[errors->count] =
                (tl_record_error){.record = index, .timestamp = timestamp, .rule = (tl_record_rule)rule};
        errors->count++;
    }
    if (at != end) {
        errors->count = 0;
        return broken(&out->rule, TL_APPEND_RECORD, TL_TRAILING_BYTES, fault, 0, header->base_offset, 0, end - at);
    }
    return TL_OK;
}

/* DefaultRecordBatch#setMaxTimestamp. The checksum of the bytes that follow is taken out of the one that is stored,
 * which was compared with all bytes before: they are not read again. */
static void stamp(uint8_t *data, tl_batch_header *header, bool log_append_time, int64_t max_timestamp) {
    bool same_type = log_append_time == ((header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME) != 0);
    if (same_type && header->max_timestamp == max_timestamp) return;
    uint64_t rest_size = (uint64_t)header->size_bytes - STAMPED_END;
    uint32_t before = tl_crc32c(0, data + ATTRIBUTES_AT, STAMPED_END - ATTRIBUTES_AT);
    uint32_t rest = tl_crc32c_combine(before, header->crc, rest_size); /* a sum taken away is a sum added */
    int kept = header->attributes & KNOWN_ATTRIBUTES & ~TL_ATTRIBUTE_LOG_APPEND_TIME;
    header->attributes = (int16_t)(kept | (log_append_time ? TL_ATTRIBUTE_LOG_APPEND_TIME : 0));
    header->max_timestamp = max_timestamp;
    store(data + ATTRIBUTES_AT, (uint64_t)header->attributes, 2);
    store(data + MAX_TIMESTAMP_AT, (uint64_t)max_timestamp, 8);
    uint32_t after = tl_crc32c(0, data + ATTRIBUTES_AT, STAMPED_END - ATTRIBUTES_AT);
    header->crc = tl_crc32c_combine(after, rest, rest_size);
    store(data + CRC_AT, header->crc, 4);
}

tl_status tl_leader_append(uint8_t *data, size_t size, const tl_leader_options *options, const tl_scratch *scratch,
                           tl_record_errors *errors, tl_leader_batch *out, tl_fault *fault) {
    TL_REQUIRE_WHOLE(options);
    const uint8_t *content;
    size_t content_size;
    records_seen seen;
    *out = (tl_leader_batch){0};
    errors->count = 0;
    tl_status status = take_only_batch(data, size, options, out, fault);
    if (status != TL_OK || out->header.size_bytes == 0) return status;
    tl_batch_header *header = &out->header;
    status = check_header(header, options, &out->rule, fault);
    if (status != TL_OK) return status;
    if (options->first_offset < 0)
        return broken(&out->rule, TL_APPEND_SOUND, TL_BAD_ARGUMENT, fault, 0, header->base_offset, 0,
                      options->first_offset);
    status = take_content(data, options, scratch, out, &content, &content_size, fault);
    if (status != TL_OK) return status;
    status = check_records(content, content_size, options, out, errors, &seen, fault);
    if (status != TL_OK) return status;
    if (errors->count)
        return broken(&out->rule, seen.has_timestamp_error ? TL_APPEND_TIMESTAMPS : TL_APPEND_RECORDS, TL_BAD_ENTRY,
                      fault, 0, header->base_offset, 0, errors->count);
    if (seen.first_wrong_offset >= 0) {
        broken(&out->rule, TL_APPEND_RECORD_OFFSETS, TL_BAD_OFFSET, fault, 0, header->base_offset,
               seen.first_wrong_offset, 0);
        fault->record = seen.first_wrong_offset;
        return TL_BAD_OFFSET;
    }
    if (options->first_offset > INT64_MAX - 1 - header->last_offset_delta)
        return broken(&out->rule, TL_APPEND_LOG_END, TL_BAD_OFFSET, fault, 0, header->base_offset, INT64_MAX,
                      options->first_offset);
    if (options->leader_epoch < 0)
        return broken(&out->rule, TL_APPEND_EPOCH, TL_BAD_ENTRY, fault, 0, header->base_offset, 0,
                      options->leader_epoch);
    int codec = header->attributes & TL_ATTRIBUTE_CODEC;
    bool as_it_is = options->target_codec < 0 || options->target_codec == codec ||
                    (codec == TL_CODEC_NONE && (header->attributes & TL_ATTRIBUTE_CONTROL));
    out->must_rebuild = !as_it_is;
    if (out->must_rebuild) return TL_OK;
    stamp(data, header, options->log_append_time, options->log_append_time ? options->now_ms : seen.max_timestamp);
    header->base_offset = options->first_offset;
    header->leader_epoch = options->leader_epoch;
    store(data, (uint64_t)header->base_offset, 8);
    store(data + LEADER_EPOCH_AT, (uint32_t)header->leader_epoch, 4);
    return TL_OK;
}

/* ---- follower -----------------------------------------------------------------------------------------------------
 */

void tl_follower_begin(tl_follower_check *check, int64_t next_offset, int32_t leader_epoch) {
    *check = (tl_follower_check){.next_offset = next_offset,
                                 .leader_epoch = leader_epoch,
                                 .first_offset = -1,
                                 .last_offset = -1,
                                 .without_epoch_at = -1};
}

tl_status tl_follower_append(tl_follower_check *check, const uint8_t *data, size_t size, size_t *at,
                             tl_batch_table *table, tl_fault *fault) {
    TL_REQUIRE_WHOLE(table);
    tl_batch_header header;
    while (*at < size) {
        tl_status status = take_header(data, size, *at, &header, &check->rule, fault);
        if (status == TL_PARTIAL) break;
        if (status != TL_OK) return status;
        if (header.leader_epoch > check->leader_epoch) check->is_passing_over = true;
        if (check->is_passing_over) { /* Kafka goes on to look at sizes, and at nothing else */
            *at += (size_t)header.size_bytes;
            continue;
        }
        if (table->count == table->capacity) return TL_FULL;
        status = check_batch(data, *at, &header, &check->rule, fault);
        if (status != TL_OK) return status;
        int64_t base = header.base_offset, delta = header.last_offset_delta;
        if (base <= check->last_offset || delta < 0 || base > INT64_MAX - 1 - delta)
            return broken(&check->rule, TL_APPEND_ORDER, TL_BAD_OFFSET, fault, *at, base, check->last_offset + 1,
                          wrapped((uint64_t)base + (uint64_t)delta));
        tl_batch_table_append(table, &header, (int64_t)*at, true);
        if (header.magic == 2 && header.leader_epoch < 0 && check->without_epoch_at < 0)
            check->without_epoch_at = (int64_t)*at;
        if (check->first_offset < 0) check->first_offset = base;
        check->last_offset = base + delta;
        *at += (size_t)header.size_bytes;
        check->valid_bytes = *at;
    }
    if (check->first_offset >= 0 && check->first_offset < check->next_offset)
        return broken(&check->rule, TL_APPEND_NEXT_OFFSET, TL_BAD_OFFSET, fault, 0, check->first_offset,
                      check->next_offset, check->first_offset);
    if (check->without_epoch_at >= 0)
        return broken(&check->rule, TL_APPEND_EPOCH, TL_BAD_ENTRY, fault, (size_t)check->without_epoch_at,
                      tl_load_i64(data + check->without_epoch_at), 0,
                      (int32_t)tl_load_i32(data + check->without_epoch_at + LEADER_EPOCH_AT));
    return TL_OK;
}

/* ---- markers ------------------------------------------------------------------------------------------------------
 */

tl_status tl_marker_parse(const uint8_t *data, const tl_batch_header *header, tl_marker *marker, bool *found,
                          tl_fault *fault) {
    enum { KEY_SIZE = 4, VALUE_SIZE = 6, ABORT = 0, COMMIT = 1 };
    tl_record record;
    tl_append_rule ignored;
    const uint8_t *next;
    tl_fault inner = {.record = 0};
    int64_t base = header->base_offset;
    *found = false;
    if (header->magic != 2 || header->record_count == 0) return TL_OK;
    if (header->record_count < 0)
        return broken(&ignored, TL_APPEND_SOUND, TL_BAD_COUNT, fault, 0, base, 0, header->record_count);
    if (header->attributes & TL_ATTRIBUTE_CODEC)
        return broken(&ignored, TL_APPEND_SOUND, TL_BAD_CODEC, fault, 0, base, 0,
                      header->attributes & TL_ATTRIBUTE_CODEC);
    tl_status status = tl_record_parse(data + TL_HEADER_SIZE_V2, data + header->size_bytes, &record, &next, &inner);
    if (status != TL_OK) return broken(&ignored, TL_APPEND_SOUND, status, fault, 0, base, inner.expected, inner.found);
    if (record.key_length < 0)
        return broken(&ignored, TL_APPEND_SOUND, TL_BAD_ENTRY, fault, 0, base, KEY_SIZE, record.key_length);
    if (record.key_length < KEY_SIZE || tl_load_i16(record.key) < 0)
        return broken(&ignored, TL_APPEND_SOUND, TL_BAD_CONTROL, fault, 0, base, KEY_SIZE, record.key_length);
    int16_t type = tl_load_i16(record.key + 2);
    if (type != ABORT && type != COMMIT) return TL_OK;
    if (record.value_length >= 2 && tl_load_i16(record.value) < 0)
        return broken(&ignored, TL_APPEND_SOUND, TL_BAD_CONTROL, fault, 0, base, 0, tl_load_i16(record.value));
    if (record.value_length < VALUE_SIZE)
        return broken(&ignored, TL_APPEND_SOUND, TL_BAD_ENTRY, fault, 0, base, VALUE_SIZE, record.value_length);
    marker->is_commit = type == COMMIT;
    marker->coordinator_epoch = tl_load_i32(record.value + 2);
    marker->timestamp = header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME
                            ? header->max_timestamp
                            : wrapped((uint64_t)header->base_timestamp + (uint64_t)record.timestamp);
    *found = true;
    return TL_OK;
}
