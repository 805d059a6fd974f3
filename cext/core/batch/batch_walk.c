#include "tierlog/batch_walk.h"

#include <errno.h>
#include <string.h>

/* Bytes of a file that are read at once: a header or a few at first, and more where batches are small. */
enum { PIECE = 256, PIECE_MAX = 16384 };

/* The walk's place in its pieces. */
typedef struct place {
    const tl_piece *pieces;
    size_t count;
    size_t index;
    int64_t start; /* position in the log of pieces[index] */
} place;

void tl_batch_walk_begin(tl_batch_walk *walk, int64_t position) {
    *walk =
        (tl_batch_walk){.position = position, .first_position = -1, .whole_position = position, .last_position = -1};
}

/* The bytes from a position on, TL_HEADER_SIZE_V2 of them or as many as there are: in their piece, or put together in
 * `room` where they lie in several. */
static const uint8_t *head_at(place *at, int64_t position, uint8_t *room, size_t *size) {
    while (at->index < at->count && (uint64_t)(position - at->start) >= at->pieces[at->index].size)
        at->start += (int64_t)at->pieces[at->index++].size;
    *size = 0;
    if (at->index == at->count) return room;
    const tl_piece *piece = &at->pieces[at->index];
    size_t inside = (size_t)(position - at->start);
    if (piece->size - inside >= TL_HEADER_SIZE_V2) {
        *size = TL_HEADER_SIZE_V2;
        return piece->data + inside;
    }
    for (size_t index = at->index; index < at->count && *size < TL_HEADER_SIZE_V2; index++, inside = 0) {
        size_t left = at->pieces[index].size - inside, room_left = TL_HEADER_SIZE_V2 - *size;
        size_t taken = left < room_left ? left : room_left;
        if (taken) memcpy(room + *size, at->pieces[index].data + inside, taken);
        *size += taken;
    }
    return room;
}

static tl_status broken(tl_fault *fault, tl_status status, int64_t position, int64_t base_offset, int64_t expected,
                        int64_t found) {
    *fault = (tl_fault){(uint64_t)position, base_offset, -1, expected, found};
    return status;
}

/* The next header, if the bytes have it: TL_PARTIAL if not. */
static tl_status next_header(const tl_batch_walk *walk, place *at, tl_batch_header *header, tl_fault *fault) {
    uint8_t room[TL_HEADER_SIZE_V2];
    int64_t left = walk->log_size - walk->position;
    size_t size;
    const uint8_t *data = head_at(at, walk->position, room, &size);
    if ((uint64_t)left < size) size = (size_t)left;
    tl_status status = tl_batch_parse_header(data, size, header, fault);
    if (status == TL_PARTIAL && size == (uint64_t)left)
        return broken(fault, TL_BAD_SIZE, walk->position, -1, fault->expected, left);
    if (status != TL_OK) {
        fault->position = (uint64_t)walk->position;
        return status;
    }
    if (header->size_bytes > left)
        return broken(fault, TL_BAD_SIZE, walk->position, header->base_offset, left, header->size_bytes);
    return TL_OK;
}

/* Behind the last byte that is wanted, once it is known where they begin. */
static int64_t cut_of(const tl_batch_walk *walk) {
    if (!walk->is_found) return 0;
    int64_t most = walk->max_bytes > walk->first.size_bytes ? walk->max_bytes : walk->first.size_bytes;
    return most < walk->log_size - walk->first_position ? walk->first_position + most : walk->log_size;
}

static bool is_done(const tl_batch_walk *walk, int64_t cut) {
    return walk->is_ended || (walk->is_found && walk->position >= cut);
}

/* Takes the last batch back: the one behind it begins below its end, and either may have the wrong base offset. */
static tl_status not_rising(tl_batch_walk *walk, const tl_batch_header *header, tl_fault *fault) {
    tl_status status = broken(fault, TL_BAD_OFFSET, walk->position, header->base_offset, walk->least_offset,
                              (int64_t)((uint64_t)header->base_offset + (uint64_t)(int64_t)header->last_offset_delta));
    if (walk->last_position < 0) return status;
    walk->position = walk->last_position;
    walk->least_offset = walk->last_least_offset;
    walk->whole_position = walk->last_whole_position;
    walk->whole_offset = walk->last_whole_offset;
    walk->last_position = -1;
    if (walk->is_found && walk->first_position == walk->position) {
        walk->is_found = false;
        walk->first_position = -1;
    }
    return status;
}

/* Compares the base offset behind the last batch that was walked over, where its header is at hand. What else is wrong
 * with that header is its own fault, for whoever wants it. */
static tl_status look_behind(tl_batch_walk *walk, place *at, tl_fault *fault) {
    tl_batch_header header;
    tl_fault its_own;
    if (!walk->is_found || walk->is_ended || walk->position >= walk->log_size) return TL_OK;
    if (next_header(walk, at, &header, &its_own) != TL_OK || header.base_offset >= walk->least_offset) return TL_OK;
    return not_rising(walk, &header, fault);
}

/* Walks as far as the headers at hand go; the bytes below `end` may be handed out. */
static tl_status walk_on(tl_batch_walk *walk, place *at, int64_t end, tl_fault *fault) {
    int64_t cut = cut_of(walk);
    while (!is_done(walk, cut)) {
        if (walk->position >= walk->log_size) {
            walk->is_ended = true;
            break;
        }
        tl_batch_header header;
        tl_status status = next_header(walk, at, &header, fault);
        if (status == TL_PARTIAL) break;
        if (status != TL_OK) return status;
        /* Wraps like Java where a hostile header overflows. */
        int64_t last = (int64_t)((uint64_t)header.base_offset + (uint64_t)(int64_t)header.last_offset_delta);
        if (header.base_offset < walk->least_offset) return not_rising(walk, &header, fault);
        if (!tl_offsets_fit(header.base_offset, last, walk->least_offset, walk->greatest_offset))
            return broken(fault, TL_BAD_OFFSET, walk->position, header.base_offset, walk->least_offset, last);
        if (header.base_offset >= walk->end_offset) {
            walk->is_ended = true;
            break;
        }
        if (!walk->is_found && last >= walk->wanted_offset) {
            walk->is_found = true;
            walk->first = header;
            walk->first_position = walk->position;
            walk->first_last_offset = last;
            cut = cut_of(walk);
        }
        walk->last_position = walk->position;
        walk->last_least_offset = walk->least_offset;
        walk->last_whole_position = walk->whole_position;
        walk->last_whole_offset = walk->whole_offset;
        walk->position += header.size_bytes;
        walk->least_offset = (int64_t)((uint64_t)last + 1);
        if (walk->is_found && walk->position <= cut && walk->position <= end) {
            walk->whole_position = walk->position;
            walk->whole_offset = walk->least_offset;
        }
    }
    return TL_OK;
}

tl_status tl_batch_walk_run(tl_batch_walk *walk, const tl_piece *pieces, size_t count, int64_t start, tl_fault *fault) {
    place at = {pieces, count, 0, start};
    int64_t end = start;
    for (size_t index = 0; index < count; index++) end += (int64_t)pieces[index].size;
    tl_status status = walk_on(walk, &at, end, fault);
    return status == TL_OK ? look_behind(walk, &at, fault) : status;
}

tl_status tl_batch_walk_run_ready(tl_batch_walk *walk, tl_files files, int64_t file, int64_t log, int64_t end,
                                  int64_t *error, tl_fault *fault) {
    uint8_t data[PIECE_MAX];
    size_t wanted = PIECE;
    *error = 0;
    while (walk->position < end && !is_done(walk, cut_of(walk))) {
        int64_t before = walk->position, left = end - before;
        if ((uint64_t)left < wanted) wanted = (size_t)left;
        int64_t count = files.ops->pread_ready(files.context, file, (uint64_t)log + (uint64_t)before, data, wanted);
        if (count <= 0) {
            *error = count ? count : -EAGAIN;
            return TL_OK;
        }
        tl_piece piece = {data, (size_t)count};
        place at = {&piece, 1, 0, before};
        tl_status status = walk_on(walk, &at, end, fault);
        if (status != TL_OK) return status;
        if (walk->position == before) { /* not a whole header: `end` cuts it, or memory does */
            if (!walk->is_ended && count < left && count < TL_HEADER_SIZE_V2) *error = -EAGAIN;
            break;
        }
        if (wanted < PIECE_MAX && (size_t)(walk->position - before) < 2 * wanted) wanted *= 4;
    }
    if (walk->position >= walk->log_size && !walk->is_found) walk->is_ended = true;
    if (!walk->is_found || walk->is_ended || walk->position >= walk->log_size) return TL_OK;
    int64_t left = walk->log_size - walk->position;
    int64_t count = files.ops->pread_ready(files.context, file, (uint64_t)log + (uint64_t)walk->position, data,
                                           left < TL_HEADER_SIZE_V2 ? (size_t)left : TL_HEADER_SIZE_V2);
    tl_piece piece = {data, count > 0 ? (size_t)count : 0};
    place at = {&piece, 1, 0, walk->position};
    return look_behind(walk, &at, fault);
}
