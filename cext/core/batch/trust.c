#include "batch/trust.h"

#include "batch/record.h"

/* A transaction marker takes 78 bytes, and a future broker's not much more. */
enum { MARKER_BYTES_MAX = 256 };

static bool is_marker(const tl_batch_header *header) {
    return header->record_count == 1 && (header->attributes & TL_ATTRIBUTE_TRANSACTIONAL) && header->producer_id >= 0 &&
           header->base_sequence < 0 && header->size_bytes <= MARKER_BYTES_MAX;
}

/* The producer's fields are whole or not there, and only markers have no sequence. */
static bool is_of_a_producer(const tl_batch_header *header, const tl_decode_options *options) {
    bool transactional = header->attributes & TL_ATTRIBUTE_TRANSACTIONAL, named = header->producer_id >= 0;
    if (header->attributes & TL_ATTRIBUTE_CONTROL) return is_marker(header);
    if (named != (header->base_sequence >= 0) || named != (header->producer_epoch >= 0)) return false;
    if (transactional) return named;
    return !options->aborted ||
           !tl_is_aborted(options->aborted, options->aborted_count, header->producer_id, header->base_offset);
}

static bool is_in_time(const tl_batch_header *header, int64_t greatest_timestamp) {
    if (header->max_timestamp < 0 || header->max_timestamp > greatest_timestamp) return false;
    /* The broker's clock may be behind that of the producer, whose time the first record has. */
    if (header->attributes & (TL_ATTRIBUTE_LOG_APPEND_TIME | TL_ATTRIBUTE_DELETE_HORIZON)) return true;
    return header->base_timestamp <= header->max_timestamp;
}

/* Whether no part of the header contradicts another. Of old formats no header says enough anyway. */
static bool is_sound(const tl_header_trust *trust, const tl_batch_header *header, const tl_decode_options *options) {
    enum { KNOWN = TL_ATTRIBUTE_DELETE_HORIZON * 2 - 1 };
    int codec = header->attributes & TL_ATTRIBUTE_CODEC;
    int32_t content = header->size_bytes - TL_HEADER_SIZE_V2;
    if (header->magic != 2) return true;
    if ((header->attributes & ~KNOWN) || codec > TL_CODEC_ZSTD) return false;
    if ((int64_t)header->record_count != (int64_t)header->last_offset_delta + 1) return false;
    if (codec == TL_CODEC_NONE && header->record_count > content / TL_RECORD_MINIMUM) return false;
    return is_of_a_producer(header, options) && is_in_time(header, trust->greatest_timestamp);
}

tl_header_verdict tl_trust_header(tl_header_trust *trust, const tl_batch_header *header,
                                  const tl_decode_options *options) {
    bool first = !trust->begun, append_time = header->attributes & TL_ATTRIBUTE_LOG_APPEND_TIME;
    bool follows = header->base_offset == trust->next_offset && append_time == trust->append_time;
    trust->begun = true;
    trust->next_offset = header->base_offset + header->last_offset_delta + 1;
    trust->append_time = append_time;
    if (!first && !follows) return TL_HEADER_BREAK;
    return is_sound(trust, header, options) ? TL_HEADER_ENOUGH : TL_HEADER_NEEDED;
}
