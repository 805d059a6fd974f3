#include "tierlog/compaction.h"
#include "struct_size.h"

#include "batch/columns.h"
#include "batch/record.h"
#include "cursor.h"
#include "tierlog/checksum.h"

enum {
    LENGTH_AT = 8,
    LEADER_EPOCH_AT = 12,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21, /* where the checksum begins */
    LAST_OFFSET_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35,
    PRODUCER_ID_AT = 43,
    PRODUCER_EPOCH_AT = 51,
    BASE_SEQUENCE_AT = 53,
    RECORD_COUNT_AT = 57,
    NO_TIMESTAMP = -1,
    AHEAD = 16,         /* keys whose slots are fetched while others are hashed */
    RECORD_GROWTH = 16, /* of a record whose timestamp delta and length take more bytes than before */
    LEGACY_GROWTH = 32  /* of a record that was one of magic 0 or 1 */
};

/* As Java's sums and differences, which wrap. */
static int64_t wrapped(uint64_t value) { return (int64_t)value; }

static bool is_control(const tl_batch_header *header) {
    return header->magic == 2 && (header->attributes & TL_ATTRIBUTE_CONTROL);
}

static int64_t last_offset_of(const tl_batch_header *header) {
    return wrapped((uint64_t)header->base_offset + (uint64_t)(int64_t)header->last_offset_delta);
}

/* ---- one batch and its records ------------------------------------------------------------------------------------
 */

/* A batch under way, with its records as bytes that are not compressed. */
typedef struct batch {
    const uint8_t *data; /* all of it */
    size_t position;
    tl_batch_header header;
    const uint8_t *content, *end;
    size_t scratch_used; /* by the content */
    int64_t count;       /* of records */
    int64_t legacy_base; /* to be added to inner offsets */
} batch;

static tl_status fail(const batch *b, tl_fault *fault, tl_status status, int64_t expected, int64_t found) {
    *fault = (tl_fault){.position = b->position,
                        .base_offset = b->header.base_offset,
                        .record = -1,
                        .expected = expected,
                        .found = found};
    return status;
}

/* The header at data[at..size): the batch is whole, its offsets can be. */
static tl_status take_batch(const uint8_t *data, size_t size, size_t at, batch *b, tl_fault *fault) {
    *b = (batch){.data = data + at, .position = at};
    tl_status status = tl_batch_parse(data + at, size - at, &b->header, fault);
    fault->position = at;
    if (status != TL_OK) return status;
    const tl_batch_header *header = &b->header;
    if (header->base_offset < 0 || header->last_offset_delta < 0 || last_offset_of(header) < 0 ||
        last_offset_of(header) == INT64_MAX)
        return fail(b, fault, TL_BAD_OFFSET, 0, header->base_offset);
    return TL_OK;
}

static tl_status inflate(batch *b, const uint8_t *payload, size_t size, uint64_t limit, const tl_scratch *scratch,
                         tl_fault *fault) {
    size_t bound = 0, content_size = 0;
    int codec = b->header.attributes & TL_ATTRIBUTE_CODEC;
    tl_fault inner = {.record = -1};
    tl_status status = tl_decompress_bound(codec, b->header.magic, payload, size, (size_t)limit, &bound, &inner);
    if (status == TL_OK && bound + !bound > scratch->capacity)
        return fail(b, fault, TL_NEED_SCRATCH, (int64_t)(bound + !bound), 0);
    size_t capacity = scratch->capacity < limit ? scratch->capacity : (size_t)limit;
    if (status == TL_OK)
        status = tl_decompress(scratch->codecs, codec, b->header.magic, payload, size, scratch->data, capacity,
                               (size_t)limit, &content_size, &inner);
    if (status != TL_OK) return fail(b, fault, status, inner.expected, inner.found);
    b->content = scratch->data;
    b->end = scratch->data + content_size;
    b->scratch_used = content_size;
    return TL_OK;
}

static tl_status open_legacy(batch *b, uint64_t limit, const tl_scratch *scratch, tl_fault *fault) {
    const tl_batch_header *header = &b->header;
    int codec = header->attributes & TL_ATTRIBUTE_CODEC;
    b->content = b->data;
    b->end = b->data + header->size_bytes;
    b->count = 1;
    if (codec == TL_CODEC_NONE) return TL_OK;
    if (codec > TL_CODEC_LZ4) return fail(b, fault, TL_BAD_CODEC, TL_CODEC_LZ4, codec);
    tl_record wrapper;
    tl_status status = tl_legacy_parse(b->data, header, &wrapper, fault);
    if (status != TL_OK) return fail(b, fault, status, fault->expected, fault->found);
    if (wrapper.value_length < 0) return fail(b, fault, TL_BAD_LEGACY, 0, wrapper.value_length);
    status = inflate(b, wrapper.value, (size_t)wrapper.value_length, limit, scratch, fault);
    if (status != TL_OK) return status;
    status = tl_legacy_survey(b->content, b->scratch_used, header, true, &b->count, &b->legacy_base, fault);
    return status == TL_OK ? TL_OK : fail(b, fault, status, fault->expected, fault->found);
}

/* The records, decompressed into the scratch where they have to be. */
static tl_status open_batch(batch *b, uint64_t limit, const tl_scratch *scratch, tl_fault *fault) {
    const tl_batch_header *header = &b->header;
    if (header->magic != 2) return open_legacy(b, limit, scratch, fault);
    int codec = header->attributes & TL_ATTRIBUTE_CODEC;
    const uint8_t *payload = b->data + TL_HEADER_SIZE_V2;
    size_t size = (size_t)header->size_bytes - TL_HEADER_SIZE_V2;
    b->count = header->record_count;
    b->content = payload;
    b->end = payload + size;
    if (b->count < 0) return fail(b, fault, TL_BAD_COUNT, 0, b->count);
    if (codec > TL_CODEC_ZSTD) return fail(b, fault, TL_BAD_CODEC, TL_CODEC_ZSTD, codec);
    if (codec != TL_CODEC_NONE && (size || b->count)) {
        tl_status status = inflate(b, payload, size, limit, scratch, fault);
        if (status != TL_OK) return status;
    }
    size_t most = (size_t)(b->end - b->content) / TL_RECORD_MINIMUM;
    if ((uint64_t)b->count > most) return fail(b, fault, TL_BAD_COUNT, (int64_t)most, b->count);
    return TL_OK;
}

/* The place in a batch's records. */
typedef struct reader {
    const uint8_t *at;
    int64_t index;
    int64_t least_offset;
} reader;

static reader reader_of(const batch *b) {
    return (reader){.at = b->content, .least_offset = b->header.magic == 2 ? b->header.base_offset : 0};
}

static tl_status parse_legacy(const batch *b, reader *r, tl_record *record, tl_fault *fault) {
    tl_batch_header inner;
    tl_status status = tl_batch_parse(r->at, (size_t)(b->end - r->at), &inner, fault);
    if (status == TL_OK) status = tl_legacy_parse(r->at, &inner, record, fault);
    if (status != TL_OK) return status == TL_PARTIAL ? TL_TRUNCATED : status;
    record->offset = wrapped((uint64_t)record->offset + (uint64_t)b->legacy_base);
    r->at += inner.size_bytes;
    return TL_OK;
}

/* The next record, with its offset and its timestamp. */
static tl_status next_record(const batch *b, reader *r, tl_record *record, tl_fault *fault) {
    const tl_batch_header *header = &b->header;
    tl_status status;
    bool is_legacy = header->magic != 2;
    if (is_legacy) {
        status = parse_legacy(b, r, record, fault);
    } else {
        status = tl_record_parse(r->at, b->end, record, &r->at, fault);
        if (status == TL_OK) {
            record->offset = wrapped((uint64_t)header->base_offset + (uint64_t)record->offset);
            record->timestamp = wrapped((uint64_t)header->base_timestamp + (uint64_t)record->timestamp);
        }
    }
    int64_t expected = fault->expected, found = fault->found;
    /* Old wrappers of offset 0 say nothing of the offsets in them. */
    if (status == TL_OK && (record->offset < r->least_offset || record->offset == INT64_MAX ||
                            (!is_legacy && record->offset > last_offset_of(header))))
        status = TL_BAD_OFFSET, expected = r->least_offset, found = record->offset;
    if (status != TL_OK) {
        fail(b, fault, status, expected, found);
        fault->record = r->index;
        return status;
    }
    if (header->magic != 0 && (header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME))
        record->timestamp = header->max_timestamp;
    r->least_offset = record->offset + 1;
    r->index++;
    return TL_OK;
}

static tl_status end_of_records(const batch *b, const reader *r, tl_fault *fault) {
    return r->at == b->end ? TL_OK : fail(b, fault, TL_TRAILING_BYTES, 0, b->end - r->at);
}

/* ---- the window ---------------------------------------------------------------------------------------------------
 */

tl_status tl_window_survey(const uint8_t *data, size_t size, tl_window *window, tl_fault *fault) {
    *window = (tl_window){0};
    while (window->valid_bytes < size) {
        batch b;
        tl_status status = take_batch(data, size, window->valid_bytes, &b, fault);
        if (status == TL_OK) {
            status = tl_batch_verify(b.data, &b.header, fault);
            fault->position = b.position;
        }
        if (status != TL_OK) return status;
        window->has_producers |= b.header.producer_id >= 0 || is_control(&b.header);
        window->next_offset = last_offset_of(&b.header) + 1;
        window->valid_bytes += (size_t)b.header.size_bytes;
        window->batches++;
    }
    return TL_OK;
}

/* A key whose slot is on its way from memory. */
typedef struct awaited {
    tl_key_hash hash;
    int64_t offset, index;
    bool has_value;
} awaited;

typedef struct queue {
    awaited keys[AHEAD];
    unsigned count;
} queue;

static void await(queue *q, const tl_offset_map *map, const tl_record *record, int64_t index) {
    awaited *key = &q->keys[q->count++];
    key->hash = tl_offset_map_hash(map, record->key, (size_t)record->key_length);
    key->offset = record->offset;
    key->index = index;
    key->has_value = record->value_length >= 0;
    __builtin_prefetch(map->slots + tl_offset_map_slot(map, key->hash));
}

/* ---- indexing -----------------------------------------------------------------------------------------------------
 */

/* TL_FULL with *read = records that were looked at before the one that did not fit. */
static tl_status put_all(queue *q, tl_offset_map *map, int64_t *read) {
    for (unsigned i = 0; i < q->count; i++) {
        if (tl_offset_map_put(map, q->keys[i].hash, q->keys[i].offset) == TL_OK) continue;
        *read = q->keys[i].index;
        return TL_FULL;
    }
    q->count = 0;
    return TL_OK;
}

static tl_status index_batch(batch *b, int64_t from_offset, tl_offset_map *map, int64_t *read, tl_fault *fault) {
    reader r = reader_of(b);
    queue q = {.count = 0};
    *read = b->count;
    for (int64_t index = 0; index < b->count; index++) {
        tl_record record;
        tl_status status = next_record(b, &r, &record, fault);
        if (status != TL_OK) return status;
        if (record.key_length < 0 || record.offset < from_offset) continue;
        await(&q, map, &record, index);
        if (q.count == AHEAD && put_all(&q, map, read) != TL_OK) return TL_FULL;
    }
    tl_status status = end_of_records(b, &r, fault);
    return status == TL_OK ? put_all(&q, map, read) : status;
}

tl_status tl_compaction_index(const uint8_t *data, size_t size, const uint8_t *verdicts, int64_t from_offset,
                              uint64_t decompressed_limit, const tl_scratch *scratch, tl_offset_map *map,
                              tl_window_state *state, tl_fault *fault) {
    while (state->at < size) {
        batch b;
        int64_t read = 1;
        tl_status status = take_batch(data, size, state->at, &b, fault);
        if (status != TL_OK) return status;
        if (verdicts && verdicts[state->batch] & TL_VERDICT_DISCARD) {
            read = is_control(&b.header) ? 1 : b.header.record_count;
        } else if (!is_control(&b.header)) {
            status = open_batch(&b, decompressed_limit, scratch, fault);
            if (status == TL_OK) status = index_batch(&b, from_offset, map, &read, fault);
            if (status == TL_FULL) state->messages_read += read;
            if (status != TL_OK) return status;
        }
        if (last_offset_of(&b.header) >= from_offset) map->latest_offset = last_offset_of(&b.header);
        state->messages_read += read;
        state->at += (size_t)b.header.size_bytes;
        state->batch++;
    }
    return TL_OK;
}

/* ---- filtering ----------------------------------------------------------------------------------------------------
 */

/* The records of a batch that stay. */
typedef struct retained {
    uint8_t *bits; /* one a record */
    int64_t count, invalid;
    bool has_tombstone;
} retained;

static bool has_horizon(const tl_batch_header *header) {
    return header->magic == 2 && (header->attributes & TL_ATTRIBUTE_DELETE_HORIZON);
}

static bool tombstones_stay(const tl_compaction_options *options, const tl_batch_header *header) {
    if (header->magic != 2) return options->retain_legacy_tombstones;
    return !has_horizon(header) || options->now_ms < header->base_timestamp;
}

static void retain(retained *kept, int64_t index, bool has_value) {
    kept->bits[index >> 3] |= (uint8_t)(1u << (index & 7));
    kept->count++;
    kept->has_tombstone |= !has_value;
}

static bool is_retained(const retained *kept, int64_t index) { return kept->bits[index >> 3] >> (index & 7) & 1; }

static void judge_all(queue *q, const tl_offset_map *map, bool tombstones, retained *kept) {
    for (unsigned i = 0; i < q->count; i++) {
        const awaited *key = &q->keys[i];
        if ((key->has_value || tombstones) && key->offset >= tl_offset_map_get(map, key->hash))
            retain(kept, key->index, key->has_value);
    }
    q->count = 0;
}

/* Which records stay: of a control batch all, of another those that the map knows of no later offset for. */
static tl_status judge(const batch *b, const tl_compaction_options *options, retained *kept, tl_fault *fault) {
    const tl_offset_map *map = options->map;
    reader r = reader_of(b);
    queue q = {.count = 0};
    bool tombstones = tombstones_stay(options, &b->header), all = is_control(&b->header);
    for (int64_t index = 0; index < b->count; index++) {
        tl_record record;
        tl_status status = next_record(b, &r, &record, fault);
        if (status != TL_OK) return status;
        if (all || record.offset > map->latest_offset)
            retain(kept, index, record.value_length >= 0);
        else if (record.key_length < 0)
            kept->invalid++;
        else
            await(&q, map, &record, index);
        if (q.count == AHEAD) judge_all(&q, map, tombstones, kept);
    }
    judge_all(&q, map, tombstones, kept);
    return end_of_records(b, &r, fault);
}

static void store(uint8_t *at, uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; i++) at[i] = (uint8_t)(value >> (8 * (size - 1 - i)));
}

/* Writes a batch's header in front of its payload, which is there, and sums it up. */
static void write_header(uint8_t *out, const tl_batch_header *header) {
    store(out, (uint64_t)header->base_offset, 8);
    store(out + LENGTH_AT, (uint32_t)(header->size_bytes - TL_LOG_OVERHEAD), 4);
    store(out + LEADER_EPOCH_AT, (uint32_t)header->leader_epoch, 4);
    out[TL_MAGIC_POSITION] = 2;
    store(out + ATTRIBUTES_AT, (uint16_t)header->attributes, 2);
    store(out + LAST_OFFSET_DELTA_AT, (uint32_t)header->last_offset_delta, 4);
    store(out + BASE_TIMESTAMP_AT, (uint64_t)header->base_timestamp, 8);
    store(out + MAX_TIMESTAMP_AT, (uint64_t)header->max_timestamp, 8);
    store(out + PRODUCER_ID_AT, (uint64_t)header->producer_id, 8);
    store(out + PRODUCER_EPOCH_AT, (uint16_t)header->producer_epoch, 2);
    store(out + BASE_SEQUENCE_AT, (uint32_t)header->base_sequence, 4);
    store(out + RECORD_COUNT_AT, (uint32_t)header->record_count, 4);
    store(out + CRC_AT, tl_crc32c(0, out + ATTRIBUTES_AT, (size_t)header->size_bytes - ATTRIBUTES_AT), 4);
}

/* The attributes that a batch keeps when it is built anew. */
static int16_t kept_attributes(const tl_batch_header *header) {
    int kept = TL_ATTRIBUTE_CODEC | (header->magic != 0 ? TL_ATTRIBUTE_LOG_APPEND_TIME : 0);
    if (header->magic == 2) kept |= TL_ATTRIBUTE_TRANSACTIONAL | TL_ATTRIBUTE_CONTROL;
    return (int16_t)(header->attributes & kept);
}

/* As DefaultRecordBatch#writeEmptyHeader. */
static void write_empty(uint8_t *out, const tl_batch_header *header) {
    tl_batch_header empty = *header;
    empty.attributes = (int16_t)(kept_attributes(header) & ~TL_ATTRIBUTE_CODEC);
    empty.base_timestamp = NO_TIMESTAMP;
    empty.record_count = 0;
    empty.size_bytes = TL_HEADER_SIZE_V2;
    write_header(out, &empty);
}

static uint8_t *put_varlong(uint8_t *at, int64_t value) {
    uint64_t rest = (uint64_t)value << 1 ^ (uint64_t)(value >> 63);
    while (rest > 0x7f) {
        *at++ = (uint8_t)(rest | 0x80);
        rest >>= 7;
    }
    *at++ = (uint8_t)rest;
    return at;
}

/* What of a record follows its offset delta: pieces to be copied, with the lengths of the old formats in front. */
typedef struct rest {
    const uint8_t *data, *value;
    size_t size, value_size;
    uint8_t key_length[5], value_length[6];
    size_t key_length_size, value_length_size;
} rest;

static rest rest_of(const batch *b, const uint8_t *start, const tl_record *record) {
    rest tail = {0};
    if (b->header.magic == 2) { /* behind the length, the attributes and the two deltas, which were parsed before */
        tl_cursor cursor = {start, record->end};
        uint32_t length;
        uint64_t delta;
        tl_take_uvarint(&cursor, &length);
        cursor.at++;
        tl_take_uvarlong(&cursor, &delta);
        tl_take_uvarint(&cursor, &length);
        tail.data = cursor.at;
        tail.size = (size_t)(record->end - cursor.at);
        return tail;
    }
    tail.data = record->key;
    tail.size = record->key_length > 0 ? (size_t)record->key_length : 0;
    tail.value = record->value;
    tail.value_size = record->value_length > 0 ? (size_t)record->value_length : 0;
    tail.key_length_size = (size_t)(put_varlong(tail.key_length, record->key_length) - tail.key_length);
    tail.value_length_size = (size_t)(put_varlong(tail.value_length, record->value_length) - tail.value_length);
    return tail;
}

static uint8_t *copy(uint8_t *to, const void *from, size_t size) {
    if (size) memcpy(to, from, size);
    return to + size;
}

/* Writes a record; NULL: there is no room for it. */
static uint8_t *put_record(uint8_t *at, const uint8_t *end, const batch *b, const rest *tail, int64_t timestamp_delta,
                           int64_t offset_delta) {
    uint8_t head[1 + 10 + 5], *head_end = head;
    *head_end++ = 0; /* attributes: no bit is defined */
    head_end = put_varlong(head_end, timestamp_delta);
    head_end = put_varlong(head_end, offset_delta);
    size_t head_size = (size_t)(head_end - head);
    size_t size = head_size + tail->key_length_size + tail->size + tail->value_length_size + tail->value_size +
                  (b->header.magic != 2); /* the number of headers */
    if (size > INT32_MAX || (size_t)(end - at) < size + 5) return NULL;
    at = copy(put_varlong(at, (int64_t)size), head, head_size);
    at = copy(at, tail->key_length, tail->key_length_size);
    at = copy(at, tail->data, tail->size);
    if (b->header.magic == 2) return at;
    at = copy(at, tail->value_length, tail->value_length_size);
    at = copy(at, tail->value, tail->value_size);
    *at++ = 0;
    return at;
}

/* The retained records into [to, end), and the header of their batch but for its size. NULL in *written: no room. */
static tl_status put_records(const batch *b, const retained *kept, int64_t horizon, tl_batch_header *header,
                             uint8_t *to, const uint8_t *end, uint8_t **written, tl_fault *fault) {
    reader r = reader_of(b);
    int64_t last_offset = 0;
    bool is_first = true;
    header->attributes = (int16_t)(kept_attributes(&b->header) | (horizon >= 0 ? TL_ATTRIBUTE_DELETE_HORIZON : 0));
    header->record_count = (int32_t)kept->count;
    header->base_timestamp = horizon;
    header->max_timestamp = NO_TIMESTAMP;
    for (int64_t index = 0; index < b->count && to; index++) {
        tl_record record;
        const uint8_t *start = r.at;
        tl_status status = next_record(b, &r, &record, fault);
        if (status != TL_OK) return status;
        if (!is_retained(kept, index)) continue;
        if (is_first && horizon < 0) header->base_timestamp = record.timestamp;
        if (is_first && b->header.magic != 2) header->base_offset = record.offset;
        is_first = false;
        if (record.timestamp > header->max_timestamp) header->max_timestamp = record.timestamp;
        last_offset = record.offset;
        int64_t delta = wrapped((uint64_t)last_offset - (uint64_t)header->base_offset);
        if (delta > INT32_MAX) return fail(b, fault, TL_BAD_OFFSET, INT32_MAX, delta);
        rest tail = rest_of(b, start, &record);
        to = put_record(to, end, b, &tail, wrapped((uint64_t)record.timestamp - (uint64_t)header->base_timestamp),
                        delta);
    }
    if (b->header.magic != 2) header->last_offset_delta = (int32_t)(last_offset - header->base_offset);
    if (header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME) header->max_timestamp = b->header.max_timestamp;
    *written = to;
    return TL_OK;
}

/* A filtering under way. */
typedef struct filter {
    const tl_compaction_options *options;
    const tl_scratch *scratch;
    tl_compressor *compressor;
    uint8_t *out;
    size_t capacity; /* of what is left of it */
    size_t written;
} filter;

/* The batch of the retained records into the output. */
static tl_status rebuild(filter *f, const batch *b, const retained *kept, size_t scratch_used, int64_t horizon,
                         tl_fault *fault) {
    tl_batch_header header = b->header;
    int codec = header.attributes & TL_ATTRIBUTE_CODEC;
    size_t growth = (size_t)b->count * (b->header.magic == 2 ? RECORD_GROWTH : LEGACY_GROWTH);
    size_t bound = (size_t)(b->end - b->content) + growth, size;
    if (f->capacity < TL_HEADER_SIZE_V2)
        return fail(b, fault, TL_FULL, (int64_t)(bound + TL_HEADER_SIZE_V2), (int64_t)f->capacity);
    uint8_t *payload = f->out + TL_HEADER_SIZE_V2, *end = f->out + f->capacity, *written;
    uint8_t *to = codec ? f->scratch->data + scratch_used : payload;
    tl_status status = put_records(b, kept, horizon, &header, to, codec ? to + bound : end, &written, fault);
    if (status != TL_OK) return status;
    if (!written) return fail(b, fault, TL_FULL, (int64_t)(bound + TL_HEADER_SIZE_V2), (int64_t)f->capacity);
    size = (size_t)(written - to);
    if (codec) {
        tl_fault inner;
        status = tl_compress_records(f->compressor, codec, to, size, payload, (size_t)(end - payload), &size, &inner);
        if (status == TL_FULL) inner.expected += TL_HEADER_SIZE_V2;
        if (status == TL_BAD_ARGUMENT) status = TL_OVER_LIMIT, inner.expected = INT32_MAX;
        if (status != TL_OK) return fail(b, fault, status, inner.expected, inner.found);
    }
    if (size > INT32_MAX - TL_HEADER_SIZE_V2) return fail(b, fault, TL_OVER_LIMIT, INT32_MAX, (int64_t)size);
    header.size_bytes = (int32_t)(TL_HEADER_SIZE_V2 + size);
    write_header(f->out, &header);
    f->written = (size_t)header.size_bytes;
    return TL_OK;
}

static tl_status keep_empty(filter *f, const batch *b, tl_fault *fault) {
    if (f->capacity < TL_HEADER_SIZE_V2) return fail(b, fault, TL_FULL, TL_HEADER_SIZE_V2, (int64_t)f->capacity);
    write_empty(f->out, &b->header);
    f->written = TL_HEADER_SIZE_V2;
    return TL_OK;
}

/* The batch, opened, into the output: as it is, built anew, empty, or not at all. */
static tl_status filter_batch(filter *f, const batch *b, unsigned verdict, retained *kept, tl_fault *fault) {
    int codec = b->header.attributes & TL_ATTRIBUTE_CODEC;
    size_t bits_at = b->scratch_used, bits_size = (size_t)(b->count + 7) >> 3;
    size_t growth = (size_t)b->count * (b->header.magic == 2 ? RECORD_GROWTH : LEGACY_GROWTH);
    size_t need = bits_at + bits_size + 1 + (codec ? (size_t)(b->end - b->content) + growth : 0);
    if (need > f->scratch->capacity) return fail(b, fault, TL_NEED_SCRATCH, (int64_t)need, 0);
    *kept = (retained){.bits = f->scratch->data + bits_at};
    memset(kept->bits, 0, bits_size);
    tl_status status = judge(b, f->options, kept, fault);
    if (status != TL_OK) return status;
    if (!kept->count) return verdict & TL_VERDICT_RETAIN_EMPTY ? keep_empty(f, b, fault) : TL_OK;
    bool has = has_horizon(&b->header);
    bool gets = !has && (kept->has_tombstone || verdict & TL_VERDICT_EMPTY_TRANSACTION);
    if (b->header.magic != 2 || gets || kept->count < b->count) {
        int64_t horizon = gets ? f->options->delete_horizon_ms : has ? b->header.base_timestamp : NO_TIMESTAMP;
        return rebuild(f, b, kept, bits_at + bits_size, horizon < 0 ? NO_TIMESTAMP : horizon, fault);
    }
    f->written = (size_t)b->header.size_bytes;
    if (f->written > f->capacity) return fail(b, fault, TL_FULL, b->header.size_bytes, (int64_t)f->capacity);
    memcpy(f->out, b->data, f->written);
    return TL_OK;
}

tl_status tl_compaction_filter(const uint8_t *data, size_t size, const uint8_t *verdicts,
                               const tl_compaction_options *options, const tl_scratch *scratch,
                               tl_compressor *compressor, tl_window_state *state, uint8_t *out, size_t capacity,
                               tl_fault *fault) {
    TL_REQUIRE_WHOLE(options);
    while (state->at < size) {
        batch b;
        retained kept = {0};
        filter f = {options, scratch, compressor, out + state->out_size, capacity - state->out_size, 0};
        tl_status status = take_batch(data, size, state->at, &b, fault);
        if (status != TL_OK) return status;
        unsigned verdict = verdicts ? verdicts[state->batch] : 0;
        if (last_offset_of(&b.header) == options->retained_next_offset - 1) verdict |= TL_VERDICT_RETAIN_EMPTY;
        if (verdict & TL_VERDICT_DISCARD) {
            if (verdict & TL_VERDICT_RETAIN_EMPTY) b.count = b.header.record_count, status = keep_empty(&f, &b, fault);
        } else {
            status = open_batch(&b, options->decompressed_limit, scratch, fault);
            if (status == TL_OK) status = filter_batch(&f, &b, verdict, &kept, fault);
        }
        if (status != TL_OK) return status;
        state->messages_read += b.count;
        state->messages_retained += kept.count;
        state->invalid_messages += kept.invalid;
        state->out_size += f.written;
        state->at += (size_t)b.header.size_bytes;
        state->batch++;
    }
    return TL_OK;
}
