#include "table/metadata_record.h"

enum { FRAME_VERSION = 1, VERSION = 0, HEADER_NUMBER_MAX = 32767, EPOCH_BYTES = 13, TXN_INDEX_EMPTY_TAG = 0 };

static tl_status refuse(tl_fault *fault, tl_status status, int64_t expected, int64_t found) {
    fault->expected = expected;
    fault->found = found;
    return status;
}

#define TL_TRY(call)                                                                                                   \
    do {                                                                                                               \
        tl_status status_ = (call);                                                                                    \
        if (status_ != TL_OK) return status_;                                                                          \
    } while (0)

static inline tl_status take_uvarint(tl_cursor *cursor, uint32_t *out) {
    if (cursor->at < cursor->end && *cursor->at < 0x80) {
        *out = *cursor->at++;
        return TL_OK;
    }
    return tl_take_uvarint(cursor, out);
}

static tl_status take_sized(tl_cursor *cursor, size_t size, const uint8_t **out, tl_fault *fault) {
    if (tl_take(cursor, size, out) == TL_OK) return TL_OK;
    return refuse(fault, TL_TRUNCATED, (int64_t)size, (int64_t)tl_left(cursor));
}

static tl_status take_header_number(tl_cursor *cursor, uint32_t *out, tl_fault *fault) {
    TL_TRY(take_uvarint(cursor, out));
    return *out > HEADER_NUMBER_MAX ? refuse(fault, TL_BAD_VERSION, 0, *out) : TL_OK;
}

/* `*empty`: tag 0's value, where there is one; other tags are passed over. */
static tl_status take_tags(tl_cursor *cursor, bool *empty, tl_fault *fault) {
    uint32_t count, tag, size, flag_size = 1;
    TL_TRY(take_uvarint(cursor, &count));
    if (count == 0) return TL_OK;
    if (count > tl_left(cursor) / 2) return refuse(fault, TL_BAD_COUNT, count, (int64_t)tl_left(cursor));
    for (uint32_t i = 0; i < count; i++) {
        const uint8_t *content;
        TL_TRY(take_uvarint(cursor, &tag));
        TL_TRY(take_uvarint(cursor, &size));
        TL_TRY(take_sized(cursor, size, &content, fault));
        if (tag != TXN_INDEX_EMPTY_TAG || !empty) continue;
        flag_size = size;
        *empty = size && *content;
    }
    return flag_size == 1 ? TL_OK : refuse(fault, TL_BAD_SIZE, 1, flag_size);
}

static tl_status take_custom(tl_cursor *cursor, const uint8_t **out, int64_t *size, tl_fault *fault) {
    uint32_t length;
    TL_TRY(take_uvarint(cursor, &length));
    *size = (int64_t)length - 1;
    *out = NULL;
    if (length > 1) TL_TRY(take_sized(cursor, length - 1, out, fault));
    return *size > TL_SEGMENT_CUSTOM_BYTES_MAX ? refuse(fault, TL_OVER_LIMIT, TL_SEGMENT_CUSTOM_BYTES_MAX, *size)
                                               : TL_OK;
}

static tl_status take_state(tl_cursor *cursor, uint8_t greatest, uint8_t *out, tl_fault *fault) {
    const uint8_t *at;
    TL_TRY(take_sized(cursor, 1, &at, fault));
    *out = *at;
    return *at > greatest ? refuse(fault, TL_BAD_ENTRY, greatest, (int8_t)*at) : TL_OK;
}

static tl_status take_end(const tl_cursor *cursor, tl_fault *fault) {
    return tl_left(cursor) ? refuse(fault, TL_TRAILING_BYTES, 0, (int64_t)tl_left(cursor)) : TL_OK;
}

tl_status tl_metadata_take_head(tl_cursor *cursor, tl_metadata_head *head, tl_fault *fault) {
    uint32_t frame, version, name_size;
    const uint8_t *at;
    TL_TRY(take_header_number(cursor, &frame, fault));
    if (frame != FRAME_VERSION) return refuse(fault, TL_BAD_VERSION, FRAME_VERSION, frame);
    TL_TRY(take_header_number(cursor, &head->kind, fault));
    if (head->kind >= TL_METADATA_SNAPSHOT) return refuse(fault, TL_BAD_VERSION, TL_METADATA_REMOVAL, head->kind);
    TL_TRY(take_header_number(cursor, &version, fault));
    if (version != VERSION) return refuse(fault, TL_BAD_VERSION, VERSION, version);
    TL_TRY(take_uvarint(cursor, &name_size));
    if (name_size == 0) return refuse(fault, TL_BAD_FIELD_LENGTH, 1, 0);
    head->name_size = name_size - 1;
    TL_TRY(take_sized(cursor, head->name_size, &at, fault));
    head->name = (const char *)at;
    TL_TRY(take_sized(cursor, 20, &at, fault));
    memcpy(head->partition.topic_id, at, 16);
    head->partition.partition = tl_load_i32(at + 16);
    TL_TRY(take_tags(cursor, NULL, fault));
    if (head->partition.partition < 0) return refuse(fault, TL_BAD_ENTRY, 0, head->partition.partition);
    return head->name_size ? TL_OK : refuse(fault, TL_BAD_ENTRY, 1, 0);
}

/* Sorts by epoch, later ones behind equal earlier ones: a run of one, two, four … merged with the next. */
static void sort_epochs(tl_segment_epoch *epochs, size_t count, tl_segment_epoch *spare) {
    for (size_t width = 1; width < count; width *= 2) {
        for (size_t from = 0; from < count; from += 2 * width) {
            size_t middle = from + width < count ? from + width : count;
            size_t end = middle + width < count ? middle + width : count;
            size_t a = from, b = middle;
            for (size_t to = from; to < end; to++)
                spare[to] = a < middle && (b == end || epochs[a].epoch <= epochs[b].epoch) ? epochs[a++] : epochs[b++];
        }
        memcpy(epochs, spare, count * sizeof *epochs);
    }
}

static tl_status take_epochs(tl_cursor *cursor, tl_segment_epoch *epochs, tl_segment *segment, tl_fault *fault) {
    uint32_t length;
    bool ascends = true, fits = true;
    TL_TRY(take_uvarint(cursor, &length));
    if (length == 0) return refuse(fault, TL_BAD_COUNT, 1, 0);
    size_t count = length - 1, kept = 0;
    if (count > tl_left(cursor) / EPOCH_BYTES)
        return refuse(fault, TL_BAD_COUNT, (int64_t)count, (int64_t)tl_left(cursor));
    if (count > TL_SEGMENT_EPOCHS_MAX) return refuse(fault, TL_OVER_LIMIT, TL_SEGMENT_EPOCHS_MAX, (int64_t)count);
    for (size_t i = 0; i < count; i++) {
        const uint8_t *at;
        TL_TRY(take_sized(cursor, 12, &at, fault));
        epochs[i] = (tl_segment_epoch){tl_load_i32(at), tl_load_i64(at + 4)};
        ascends &= !i || epochs[i - 1].epoch < epochs[i].epoch;
        TL_TRY(take_tags(cursor, NULL, fault));
    }
    if (!ascends) {
        sort_epochs(epochs, count, epochs + TL_SEGMENT_EPOCHS_MAX);
        for (size_t i = 0; i < count; i++)
            if (i + 1 == count || epochs[i].epoch != epochs[i + 1].epoch) epochs[kept++] = epochs[i];
        count = kept;
    }
    for (size_t i = 0; i < count; i++) fits &= epochs[i].epoch >= 0 && epochs[i].start_offset >= 0;
    segment->epochs = epochs;
    segment->epoch_count = count;
    return fits ? TL_OK : refuse(fault, TL_BAD_ENTRY, 0, -1);
}

static tl_status take_segment(tl_cursor *cursor, tl_segment_epoch *epochs, tl_segment *segment, tl_fault *fault) {
    const uint8_t *at;
    TL_TRY(take_sized(cursor, 36, &at, fault));
    segment->start_offset = tl_load_i64(at);
    segment->end_offset = tl_load_i64(at + 8);
    segment->broker_id = tl_load_i32(at + 16);
    segment->max_timestamp_ms = tl_load_i64(at + 20);
    segment->event_timestamp_ms = tl_load_i64(at + 28);
    TL_TRY(take_epochs(cursor, epochs, segment, fault));
    TL_TRY(take_sized(cursor, 4, &at, fault));
    segment->size_bytes = tl_load_i32(at);
    TL_TRY(take_custom(cursor, &segment->custom, &segment->custom_size, fault));
    TL_TRY(take_state(cursor, TL_DELETE_FINISHED, &segment->state, fault));
    segment->txn_index_empty = false;
    TL_TRY(take_tags(cursor, &segment->txn_index_empty, fault));
    if (segment->start_offset < 0) return refuse(fault, TL_BAD_ENTRY, 0, segment->start_offset);
    if (segment->end_offset < segment->start_offset)
        return refuse(fault, TL_BAD_ENTRY, segment->start_offset, segment->end_offset);
    if (segment->size_bytes < 0) return refuse(fault, TL_BAD_ENTRY, 0, segment->size_bytes);
    return segment->epoch_count ? TL_OK : refuse(fault, TL_BAD_ENTRY, 1, 0);
}

static tl_status take_update(tl_cursor *cursor, tl_segment_change *change, tl_fault *fault) {
    const uint8_t *at;
    TL_TRY(take_sized(cursor, 12, &at, fault));
    change->broker_id = tl_load_i32(at);
    change->event_timestamp_ms = tl_load_i64(at + 4);
    TL_TRY(take_custom(cursor, &change->custom, &change->custom_size, fault));
    TL_TRY(take_state(cursor, TL_DELETE_FINISHED, &change->state, fault));
    return take_tags(cursor, NULL, fault);
}

tl_status tl_metadata_take_event(tl_cursor *cursor, const tl_metadata_head *head, tl_segment_epoch *epochs,
                                 tl_segment_event *event, tl_fault *fault) {
    const uint8_t *id;
    event->partition = head->partition;
    event->is_change = head->kind == TL_METADATA_UPDATE;
    TL_TRY(take_sized(cursor, 16, &id, fault));
    memcpy(event->is_change ? event->of.change.id : event->of.segment.id, id, 16);
    TL_TRY(take_tags(cursor, NULL, fault));
    TL_TRY(event->is_change ? take_update(cursor, &event->of.change, fault)
                            : take_segment(cursor, epochs, &event->of.segment, fault));
    return take_end(cursor, fault);
}

tl_status tl_metadata_take_removal(tl_cursor *cursor, const tl_metadata_head *head, tl_metadata_removal *removal,
                                   tl_fault *fault) {
    const uint8_t *at;
    removal->partition = head->partition;
    TL_TRY(take_sized(cursor, 12, &at, fault));
    removal->broker_id = tl_load_i32(at);
    removal->event_timestamp_ms = tl_load_i64(at + 4);
    TL_TRY(take_state(cursor, 2, &removal->state, fault));
    TL_TRY(take_tags(cursor, NULL, fault));
    return take_end(cursor, fault);
}

bool tl_metadata_is_name(const char *name, size_t size) {
    const uint8_t *at = (const uint8_t *)name, *end = at + size;
    while (at < end) {
        unsigned lead = *at++, more = lead < 0x80 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
        if ((lead >= 0x80 && lead < 0xc2) || lead > 0xf4 || (size_t)(end - at) < more) return false;
        /* The second byte alone has varying bounds: nothing overlong, no surrogates, nothing above U+10FFFF. */
        unsigned least = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
        unsigned most = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
        for (unsigned i = 0; i < more; i++, at++) {
            if (*at < least || *at > most) return false;
            least = 0x80;
            most = 0xbf;
        }
    }
    return size > 0;
}
