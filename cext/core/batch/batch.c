#include "tierlog/batch.h"
#include "struct_size.h"

#include "batch/record.h"
#include "cursor.h"
#include "tierlog/checksum.h"

#include <assert.h>

static tl_status batch_fault(tl_fault *fault, tl_status status, int64_t base_offset, int64_t expected, int64_t found) {
    *fault = (tl_fault){.position = 0, .base_offset = base_offset, .record = -1, .expected = expected, .found = found};
    return status;
}

static void parse_v2(const uint8_t *data, tl_batch_header *out) {
    out->leader_epoch = tl_load_i32(data + 12);
    out->crc = tl_load_u32(data + 17);
    out->attributes = tl_load_i16(data + 21);
    out->last_offset_delta = tl_load_i32(data + 23);
    out->base_timestamp = tl_load_i64(data + 27);
    out->max_timestamp = tl_load_i64(data + 35);
    out->producer_id = tl_load_i64(data + 43);
    out->producer_epoch = tl_load_i16(data + 51);
    out->base_sequence = tl_load_i32(data + 53);
    out->record_count = tl_load_i32(data + 57);
}

static void parse_legacy(const uint8_t *data, tl_batch_header *out) {
    out->leader_epoch = -1;
    out->crc = tl_load_u32(data + 12);
    out->attributes = data[17];
    out->last_offset_delta = 0;
    out->base_timestamp = out->max_timestamp = out->magic == 1 ? tl_load_i64(data + 18) : -1;
    out->producer_id = -1;
    out->producer_epoch = -1;
    out->base_sequence = -1;
    out->record_count = (out->attributes & TL_ATTRIBUTE_CODEC) == 0 ? 1 : -1;
}

/* Parses the first field of every entry; TL_PARTIAL if not even that is there. */
static tl_status parse_size(const uint8_t *data, size_t size, int64_t *entry_size, tl_fault *fault) {
    if (size <= TL_MAGIC_POSITION) return batch_fault(fault, TL_PARTIAL, -1, 0, (int64_t)size);
    int32_t length = tl_load_i32(data + 8);
    if (length < TL_OVERHEAD_V0) return batch_fault(fault, TL_BAD_SIZE, tl_load_i64(data), TL_OVERHEAD_V0, length);
    *entry_size = (int64_t)length + TL_LOG_OVERHEAD;
    return TL_OK;
}

/* The header of an entry that has all its bytes, or the first TL_HEADER_SIZE_V2 of them. */
static tl_status parse_fields(const uint8_t *data, int64_t entry_size, tl_batch_header *out, tl_fault *fault) {
    int64_t base_offset = tl_load_i64(data), length = entry_size - TL_LOG_OVERHEAD;
    int8_t magic = (int8_t)data[TL_MAGIC_POSITION];
    if (magic < 0 || magic > 2) return batch_fault(fault, TL_BAD_MAGIC, base_offset, 2, magic);
    int32_t minimum = magic == 2 ? TL_HEADER_SIZE_V2 - TL_LOG_OVERHEAD : magic == 1 ? TL_OVERHEAD_V1 : TL_OVERHEAD_V0;
    /* INT32_MAX - 11 and above: 12 more would not fit the size column; no broker writes such a batch. */
    if (length < minimum || entry_size > INT32_MAX)
        return batch_fault(fault, TL_BAD_SIZE, base_offset, minimum, length);
    out->base_offset = base_offset;
    out->size_bytes = (int32_t)entry_size;
    out->magic = magic;
    if (magic == 2) {
        parse_v2(data, out);
    } else {
        parse_legacy(data, out);
    }
    return TL_OK;
}

tl_status tl_batch_parse(const uint8_t *data, size_t size, tl_batch_header *out, tl_fault *fault) {
    int64_t entry_size;
    tl_status status = parse_size(data, size, &entry_size, fault);
    if (status != TL_OK) return status;
    if ((uint64_t)entry_size > size)
        return batch_fault(fault, TL_PARTIAL, tl_load_i64(data), entry_size, (int64_t)size);
    return parse_fields(data, entry_size, out, fault);
}

tl_status tl_batch_parse_header(const uint8_t *data, size_t size, tl_batch_header *out, tl_fault *fault) {
    int64_t entry_size;
    tl_status status = parse_size(data, size, &entry_size, fault);
    if (status != TL_OK) return status;
    int64_t needed = entry_size < TL_HEADER_SIZE_V2 ? entry_size : TL_HEADER_SIZE_V2;
    if ((uint64_t)needed > size) return batch_fault(fault, TL_PARTIAL, tl_load_i64(data), needed, (int64_t)size);
    return parse_fields(data, entry_size, out, fault);
}

/* The start of the bytes under the checksum, which is of one kind for the new format and of another for the old
 * ones. */
static size_t summed_from(const tl_batch_header *header) { return header->magic == 2 ? 21 : 16; }

static uint32_t extend_sum(const tl_batch_header *header, uint32_t sum, const uint8_t *data, size_t size) {
    return header->magic == 2 ? tl_crc32c(sum, data, size) : tl_crc32(sum, data, size);
}

tl_status tl_batch_verify(const uint8_t *data, const tl_batch_header *header, tl_fault *fault) {
    size_t size = (size_t)header->size_bytes, from = summed_from(header);
    uint32_t computed = extend_sum(header, 0, data + from, size - from);
    if (computed == header->crc) return TL_OK;
    return batch_fault(fault, TL_BAD_CRC, header->base_offset, header->crc, computed);
}

#define TL_SET(column, value)                                                                                          \
    if (table->column) table->column[row] = (value)

void tl_batch_table_append(tl_batch_table *table, const tl_batch_header *header, int64_t position, bool crc_ok) {
    assert(table->count < table->capacity);
    size_t row = table->count++;
    /* Wraps like Java where hostile headers overflow; the decoder refuses them. */
    int64_t last = (int64_t)((uint64_t)header->base_offset + (uint64_t)(int64_t)header->last_offset_delta);
    TL_SET(base_offset, header->base_offset);
    TL_SET(last_offset, last);
    TL_SET(position, position);
    TL_SET(size_bytes, header->size_bytes);
    TL_SET(leader_epoch, header->leader_epoch);
    TL_SET(base_timestamp, header->base_timestamp);
    TL_SET(max_timestamp, header->max_timestamp);
    TL_SET(producer_id, header->producer_id);
    TL_SET(producer_epoch, header->producer_epoch);
    TL_SET(base_sequence, header->base_sequence);
    TL_SET(record_count, header->record_count);
    TL_SET(attributes, header->attributes);
    TL_SET(magic, header->magic);
    TL_SET(crc, header->crc);
    TL_SET(crc_ok, crc_ok ? 1 : 0);
}

tl_status tl_scan(const uint8_t *data, size_t size, uint64_t base_position, bool verify_crc, size_t *at,
                  tl_batch_table *table, tl_fault *fault) {
    TL_REQUIRE_WHOLE(table);
    tl_batch_header header;
    while (*at < size) {
        if (table->count == table->capacity) return TL_FULL;
        uint64_t position = base_position + *at;
        tl_status status = tl_batch_parse(data + *at, size - *at, &header, fault);
        if (status != TL_OK) {
            fault->position = position;
            return status;
        }
        bool crc_ok = true;
        if (verify_crc) {
            tl_fault mismatch;
            crc_ok = tl_batch_verify(data + *at, &header, &mismatch) == TL_OK;
        }
        tl_batch_table_append(table, &header, (int64_t)position, crc_ok);
        *at += (size_t)header.size_bytes;
    }
    return TL_OK;
}

void tl_batch_stream_begin(tl_batch_stream *stream, uint64_t position, bool verify_crc) {
    *stream = (tl_batch_stream){.position = position, .verify_crc = verify_crc};
}

bool tl_batch_stream_open(const tl_batch_stream *stream) { return stream->left || stream->head_size; }

static void end_batch(tl_batch_stream *stream, tl_batch_table *table) {
    bool crc_ok = !stream->verify_crc || stream->crc == stream->header.crc;
    tl_batch_table_append(table, &stream->header, (int64_t)stream->position, crc_ok);
    stream->position += (uint64_t)stream->header.size_bytes;
}

/* Gathers a header that lies across pieces, and no byte behind it. */
static tl_status gather_header(tl_batch_stream *stream, const uint8_t *data, size_t size, size_t *at, tl_fault *fault) {
    tl_status status = tl_batch_parse_header(stream->head, stream->head_size, &stream->header, fault);
    while (status == TL_PARTIAL && *at < size) {
        size_t needed = fault->expected ? (size_t)fault->expected : TL_MAGIC_POSITION + 1;
        for (; stream->head_size < needed && *at < size; ++*at) stream->head[stream->head_size++] = data[*at];
        status = tl_batch_parse_header(stream->head, stream->head_size, &stream->header, fault);
    }
    if (status != TL_OK) {
        fault->position = stream->position;
        return status == TL_PARTIAL ? TL_OK : status;
    }
    size_t from = summed_from(&stream->header);
    stream->crc =
        stream->verify_crc ? extend_sum(&stream->header, 0, stream->head + from, stream->head_size - from) : 0;
    stream->left = (uint32_t)stream->header.size_bytes - stream->head_size;
    stream->head_size = 0;
    return TL_OK;
}

tl_status tl_batch_stream_feed(tl_batch_stream *stream, const uint8_t *data, size_t size, size_t *at,
                               tl_batch_table *table, tl_fault *fault) {
    TL_REQUIRE_WHOLE(table);
    while (*at < size) {
        if (!tl_batch_stream_open(stream)) {
            size_t before = *at;
            uint64_t origin = stream->position - before;
            tl_status status = tl_scan(data, size, origin, stream->verify_crc, at, table, fault);
            stream->position += *at - before;
            if (status != TL_PARTIAL) return status;
        }
        if (table->count == table->capacity) return TL_FULL; /* the batch may end in this piece */
        if (!stream->left) {
            tl_status status = gather_header(stream, data, size, at, fault);
            if (status != TL_OK) return status;
            if (stream->head_size) return TL_OK; /* it goes on in the next piece */
        }
        size_t most = size - *at, taken = stream->left < most ? stream->left : most;
        if (stream->verify_crc) stream->crc = extend_sum(&stream->header, stream->crc, data + *at, taken);
        stream->left -= (uint32_t)taken;
        *at += taken;
        if (!stream->left) end_batch(stream, table);
    }
    return TL_OK;
}
