#include "headers.h"

#include "local_file.h"

/* The first bytes of the batch at a position: a whole header where the range has one. */
static tl_status look(tlj_walk *walk, int64_t position, const uint8_t **head, size_t *size) {
    int64_t at = position - walk->block_position, left = walk->end_position - position;
    if (at < 0 || at > walk->block_size ||
        (walk->block_size - at < TL_HEADER_SIZE_V2 && walk->block_size - at < left)) {
        int64_t wanted = left < TLJ_HEADER_BLOCK_BYTES ? left : TLJ_HEADER_BLOCK_BYTES;
        int64_t found = tlj_file_read(walk->file, walk->log_position + position, walk->block, wanted);
        walk->requests++;
        walk->block_size = 0;
        if (found < 0) {
            walk->error = (int)-found;
            return TL_BAD_ARGUMENT;
        }
        walk->bytes += found;
        if (found < wanted) return TL_TRUNCATED;
        walk->block_position = position;
        walk->block_size = found;
        at = 0;
    }
    *head = walk->block + at;
    *size = (size_t)(walk->block_size - at);
    return TL_OK;
}

tl_status tlj_walk_headers(tlj_decoder *decoder, tlj_walk *walk) {
    tl_decode_state *state = &decoder->state;
    int64_t base = (int64_t)decoder->options.base_position;
    walk->needed_from = walk->needed_to = 0;
    for (int headers = 0; headers < TLJ_HEADERS_PER_WALK; headers++) {
        int64_t position = base + (int64_t)state->at;
        if (state->in_batch < 0 || position == walk->end_position) {
            walk->ended = true;
            return TL_OK;
        }
        if (walk->headers == TLJ_HEADERS_TO_JUDGE && position - base < walk->headers * walk->worth_bytes) {
            if (walk->needed_from == walk->needed_to) walk->needed_from = position;
            walk->needed_to = walk->end_position;
            walk->ended = true;
            return TL_OK;
        }
        walk->headers++;
        const uint8_t *head = NULL;
        size_t size = 0;
        bool is_enough = true;
        tl_status status = look(walk, position, &head, &size);
        if (status == TL_OK)
            status = tl_decode_header(head, size, &decoder->options, state, &decoder->room.columns, &is_enough,
                                      &decoder->fault);
        if (status != TL_OK) return status;
        int64_t next = base + (int64_t)state->at;
        if (next > walk->end_position) return TL_TRUNCATED;
        if (!is_enough) {
            if (walk->needed_from == walk->needed_to) walk->needed_from = position;
            walk->needed_to = next;
        } else if (walk->needed_from < walk->needed_to) {
            return TL_OK;
        }
    }
    return TL_OK;
}
