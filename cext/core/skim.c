#include "skim.h"
#include "cursor.h"

typedef struct skim {
    tl_cursor cursor;
    uint32_t elements_left;
} skim;

/* Kafka's unsigned varint; one of more than three bytes is no length of a part of a request. */
static tl_status take_varint(tl_cursor *cursor, uint32_t *out) {
    uint32_t value = 0;
    for (unsigned shift = 0; shift < 21; shift += 7) {
        if (cursor->at == cursor->end) return TL_TRUNCATED;
        uint8_t byte = *cursor->at++;
        value |= (uint32_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return TL_OK;
        }
    }
    return TL_BAD_VARINT;
}

static tl_status pass(tl_cursor *cursor, uint64_t size) {
    if (size > tl_left(cursor)) return TL_TRUNCATED;
    cursor->at += size;
    return TL_OK;
}

/* A length or count, -1 for null. */
static tl_status take_length(tl_cursor *cursor, const tl_skim_step *step, int32_t *out) {
    const uint8_t *bytes;
    tl_status status;
    uint32_t compact;
    switch (step->kind) {
    case TL_SKIM_SHORT:
        if ((status = tl_take(cursor, 2, &bytes))) return status;
        *out = tl_load_i16(bytes);
        break;
    case TL_SKIM_LONG:
    case TL_SKIM_ARRAY:
        if ((status = tl_take(cursor, 4, &bytes))) return status;
        *out = tl_load_i32(bytes);
        break;
    default:
        if ((status = take_varint(cursor, &compact))) return status;
        *out = (int32_t)compact - 1;
        break;
    }
    return TL_OK;
}

static tl_status pass_string(tl_cursor *cursor, const tl_skim_step *step) {
    int32_t length;
    tl_status status = take_length(cursor, step, &length);
    if (status) return status;
    if (length < 0) return length == -1 && step->is_nullable ? TL_OK : TL_BAD_FIELD_LENGTH;
    return pass(cursor, (uint64_t)length);
}

static tl_status run(skim *it, const tl_skim_step *at, const tl_skim_step *end);

static tl_status pass_array(skim *it, const tl_skim_step *step) {
    const tl_skim_step *body = step + 1, *end = body + step->argument;
    int32_t count;
    tl_status status = take_length(&it->cursor, step, &count);
    if (status) return status;
    if (count < 0) return count == -1 && step->is_nullable ? TL_OK : TL_BAD_COUNT;
    if ((size_t)count > tl_left(&it->cursor)) return TL_BAD_COUNT;
    if ((uint32_t)count > it->elements_left) return TL_OVER_LIMIT;
    it->elements_left -= (uint32_t)count;
    if (step->argument == 1 && body->kind == TL_SKIM_BYTES) return pass(&it->cursor, (uint64_t)count * body->argument);
    for (; count; count--)
        if ((status = run(it, body, end))) return status;
    return TL_OK;
}

static tl_status run(skim *it, const tl_skim_step *at, const tl_skim_step *end) {
    for (; at < end; at++) {
        const uint8_t *byte;
        tl_status status;
        bool has_body = at->kind >= TL_SKIM_OPTIONAL && at->kind <= TL_SKIM_COMPACT_ARRAY;
        if (has_body && at->argument >= (size_t)(end - at)) return TL_BAD_ARGUMENT;
        switch (at->kind) {
        case TL_SKIM_BYTES: status = pass(&it->cursor, at->argument); break;
        case TL_SKIM_SHORT:
        case TL_SKIM_LONG:
        case TL_SKIM_COMPACT: status = pass_string(&it->cursor, at); break;
        case TL_SKIM_OPTIONAL:
            status = tl_take(&it->cursor, 1, &byte);
            if (!status && *byte < 0x80) status = run(it, at + 1, at + 1 + at->argument);
            break;
        case TL_SKIM_ARRAY:
        case TL_SKIM_COMPACT_ARRAY: status = pass_array(it, at); break;
        case TL_SKIM_NO_TAGS:
            status = tl_take(&it->cursor, 1, &byte);
            if (!status && *byte) status = TL_BAD_COUNT;
            break;
        default: status = TL_BAD_ARGUMENT;
        }
        if (status) return status;
        if (has_body) at += at->argument;
    }
    return TL_OK;
}

tl_status tl_skim(const tl_skim_step *steps, size_t count, const uint8_t *data, size_t size, uint32_t elements_max,
                  uint32_t *elements) {
    skim it = {{data, data + size}, elements_max};
    tl_status status = run(&it, steps, steps + count);
    if (!status) *elements = elements_max - it.elements_left;
    return status;
}
