/* Linear hashing. A bucket is a chain of cells of 64 bytes: the next one's name, a count, nine rows, nine tags. */
#include "segment_ids.h"

#include <stdlib.h>

enum {
    LINK_BYTES = 64,
    LINK_ROWS = 9,
    BUCKET_ROWS = 24, /* on average, above which one more is split */
    PAGES_MAX = 1 << 17,
    TAGS_AT = 8 + 4 * LINK_ROWS, /* 44: nine tags of two bytes end at 62 */
};

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static uint64_t hash_of(const tl_segment_ids *ids, tl_cell partition, const uint64_t id[2]) {
    return mixed(mixed(id[0] ^ ids->seed) + id[1] + ((uint64_t)partition << 32 | partition));
}

/* Readers of other cells may look here by an old name: what is stored is stored whole. */
static void put_word(uint8_t *link, size_t index, uint32_t value) { tl_cell_store32(link, index, value); }
static uint16_t *tags_of(uint8_t *link) { return (uint16_t *)(void *)(link + TAGS_AT); }
static void put_tag(uint8_t *link, size_t index, uint16_t tag) {
    __atomic_store_n(&tags_of(link)[index], tag, __ATOMIC_RELAXED);
}
static uint32_t *words_of(uint8_t *link) { return (uint32_t *)(void *)link; }

static tl_cell *head_of(const tl_segment_ids *ids, uint64_t bucket) {
    return &ids->pages[bucket / TL_IDS_PAGE][bucket % TL_IDS_PAGE];
}

static uint64_t bucket_of(const tl_segment_ids *ids, uint64_t hash) {
    uint64_t bucket = hash & (ids->base - 1);
    return bucket < ids->split ? hash & (2 * ids->base - 1) : bucket;
}

tl_status tl_segment_ids_open(tl_segment_ids *ids, tl_cells *cells, uint64_t seed) {
    (void)cells;
    *ids = (tl_segment_ids){.seed = seed, .buckets = 1, .base = 1};
    ids->pages = calloc(PAGES_MAX, sizeof *ids->pages);
    if (ids->pages) ids->pages[0] = calloc(TL_IDS_PAGE, sizeof(tl_cell));
    if (ids->pages && ids->pages[0]) return TL_OK;
    tl_segment_ids_close(ids);
    return TL_NO_MEMORY;
}

void tl_segment_ids_close(tl_segment_ids *ids) {
    for (size_t i = 0; ids->pages && i < PAGES_MAX && ids->pages[i]; i++) free(ids->pages[i]);
    free(ids->pages);
    ids->pages = NULL;
}

static bool is_row_of(const tl_cells *cells, tl_cell row_cell, tl_cell partition, const uint64_t id[2]) {
    const uint8_t *row = tl_cell_own(cells, row_cell);
    return tl_cell_load(row, 0) == id[0] && tl_cell_load(row, 1) == id[1] && (tl_cell)tl_cell_load(row, 7) == partition;
}

tl_cell tl_segment_ids_find(const tl_segment_ids *ids, const tl_cells *cells, tl_cell partition, const uint64_t id[2]) {
    uint64_t hash = hash_of(ids, partition, id);
    uint16_t tag = (uint16_t)(hash >> 48);
    for (tl_cell cell = *head_of(ids, bucket_of(ids, hash)); cell;) {
        uint8_t *link = tl_cell_own(cells, cell);
        uint32_t *words = words_of(link);
        for (uint32_t i = 0; i < words[1]; i++)
            if (tags_of(link)[i] == tag && is_row_of(cells, words[2 + i], partition, id)) return words[2 + i];
        cell = words[0];
    }
    return 0;
}

/* In front of the chain, where a first link that is not full is. `fresh`: a cell for another link, 0 once it is used.
 */
static void push(tl_cells *cells, tl_cell *head, tl_cell row_cell, uint16_t tag, tl_cell *fresh) {
    if (!*head || words_of(tl_cell_own(cells, *head))[1] == LINK_ROWS) {
        put_word(tl_cell_own(cells, *fresh), 0, *head);
        put_word(tl_cell_own(cells, *fresh), 1, 0);
        *head = *fresh;
        *fresh = 0;
    }
    uint8_t *link = tl_cell_own(cells, *head);
    uint32_t at = words_of(link)[1];
    put_word(link, 1, at + 1);
    put_word(link, 2 + at, row_cell);
    put_tag(link, at, tag);
}

static tl_status refill(tl_cells *cells, tl_cell *fresh) {
    return *fresh ? TL_OK : tl_cell_take(cells, LINK_BYTES, fresh);
}

static uint64_t hash_of_row(const tl_segment_ids *ids, const tl_cells *cells, tl_cell row_cell) {
    const uint8_t *row = tl_cell_own(cells, row_cell);
    uint64_t id[2] = {tl_cell_load(row, 0), tl_cell_load(row, 1)};
    return hash_of(ids, (tl_cell)tl_cell_load(row, 7), id);
}

/* One more bucket: the next one to be split gives it what its hash's next bit says. Links are used again; at most two
 * more are needed, and where they cannot be had all stays as it is. */
static void split_one(tl_segment_ids *ids, tl_cells *cells) {
    uint64_t made = ids->base + ids->split;
    if (made / TL_IDS_PAGE >= PAGES_MAX) return;
    if (!ids->pages[made / TL_IDS_PAGE]) {
        ids->pages[made / TL_IDS_PAGE] = calloc(TL_IDS_PAGE, sizeof(tl_cell));
        if (!ids->pages[made / TL_IDS_PAGE]) return;
    }
    tl_cell spare[2] = {0, 0};
    if (refill(cells, &spare[0]) != TL_OK || refill(cells, &spare[1]) != TL_OK) {
        if (spare[0]) tl_cell_give(cells, spare[0]);
        return;
    }
    tl_cell old = *head_of(ids, ids->split), stays = 0, goes = 0;
    while (old) {
        uint8_t *link = tl_cell_own(cells, old);
        uint32_t count = words_of(link)[1], rows[LINK_ROWS];
        uint16_t tags[LINK_ROWS];
        for (uint32_t i = 0; i < count; i++) rows[i] = words_of(link)[2 + i], tags[i] = tags_of(link)[i];
        tl_cell next = words_of(link)[0];
        if (!spare[0]) {
            spare[0] = old;
        } else if (!spare[1]) {
            spare[1] = old;
        } else {
            tl_cell_give(cells, old);
        }
        for (uint32_t i = 0; i < count; i++) {
            bool moves = (hash_of_row(ids, cells, rows[i]) & ids->base) != 0;
            push(cells, moves ? &goes : &stays, rows[i], tags[i], spare[0] ? &spare[0] : &spare[1]);
        }
        old = next;
    }
    for (int i = 0; i < 2; i++)
        if (spare[i]) tl_cell_give(cells, spare[i]);
    *head_of(ids, ids->split) = stays;
    *head_of(ids, made) = goes;
    ids->buckets++;
    if (++ids->split == ids->base) {
        ids->base *= 2;
        ids->split = 0;
    }
}

tl_status tl_segment_ids_insert(tl_segment_ids *ids, tl_cells *cells, tl_cell row_cell) {
    tl_cell fresh = 0;
    uint64_t hash = hash_of_row(ids, cells, row_cell);
    tl_cell *head = head_of(ids, bucket_of(ids, hash));
    if (!*head || words_of(tl_cell_own(cells, *head))[1] == LINK_ROWS) {
        tl_status status = refill(cells, &fresh);
        if (status != TL_OK) return status;
    }
    push(cells, head, row_cell, (uint16_t)(hash >> 48), &fresh);
    if (++ids->count > ids->buckets * BUCKET_ROWS) split_one(ids, cells);
    return TL_OK;
}

/* The chain's first entry takes its place, so that all links but the first stay full. */
void tl_segment_ids_remove(tl_segment_ids *ids, tl_cells *cells, tl_cell row_cell) {
    tl_cell *head = head_of(ids, bucket_of(ids, hash_of_row(ids, cells, row_cell)));
    uint8_t *first = *head ? tl_cell_own(cells, *head) : NULL;
    for (tl_cell cell = *head; cell; cell = words_of(tl_cell_own(cells, cell))[0]) {
        uint8_t *link = tl_cell_own(cells, cell);
        for (uint32_t i = 0; i < words_of(link)[1]; i++) {
            if (words_of(link)[2 + i] != row_cell) continue;
            uint32_t last = words_of(first)[1] - 1;
            put_word(first, 1, last);
            put_word(link, 2 + i, words_of(first)[2 + last]);
            put_tag(link, i, tags_of(first)[last]);
            ids->count--;
            if (last == 0) {
                tl_cell next = words_of(first)[0];
                tl_cell_give(cells, *head);
                *head = next;
            }
            return;
        }
    }
}

tl_status tl_segment_ids_reserve(tl_segment_ids *ids, uint64_t rows) {
    uint64_t buckets = rows / BUCKET_ROWS + 1, most = (uint64_t)PAGES_MAX * TL_IDS_PAGE;
    if (ids->count) return TL_BAD_ARGUMENT;
    if (buckets > most) buckets = most;
    for (uint64_t page = 0; page * TL_IDS_PAGE < buckets; page++) {
        if (ids->pages[page]) continue;
        ids->pages[page] = calloc(TL_IDS_PAGE, sizeof(tl_cell));
        if (!ids->pages[page]) return TL_NO_MEMORY;
    }
    ids->buckets = buckets;
    for (ids->base = 1; ids->base * 2 <= buckets;) ids->base *= 2;
    ids->split = buckets - ids->base;
    return TL_OK;
}

/* Each step asks for the line that the next one reads: the bucket's first cell, its name, the link, the one behind. */
tl_status tl_segment_ids_insert_many(tl_segment_ids *ids, tl_cells *cells, const tl_cell *rows, size_t count,
                                     size_t *done) {
    enum { AHEAD = 32 };
    for (*done = 0; *done < count;) {
        size_t some = count - *done < AHEAD ? count - *done : AHEAD;
        const tl_cell *these = rows + *done;
        uint64_t hashes[AHEAD];
        for (size_t i = 0; i < some; i++) {
            hashes[i] = hash_of_row(ids, cells, these[i]);
            __builtin_prefetch(head_of(ids, bucket_of(ids, hashes[i])), 1);
        }
        for (size_t i = 0; i < some; i++) {
            tl_cell head = *head_of(ids, bucket_of(ids, hashes[i]));
            if (head) __builtin_prefetch(tl_cell_own(cells, head), 1);
        }
        for (size_t i = 0; i < some; i++) {
            tl_cell head = *head_of(ids, bucket_of(ids, hashes[i]));
            tl_cell next = head ? words_of(tl_cell_own(cells, head))[0] : 0;
            if (next) __builtin_prefetch(tl_cell_own(cells, next));
        }
        for (size_t i = 0; i < some; i++) {
            const uint8_t *row = tl_cell_own(cells, these[i]);
            uint64_t id[2] = {tl_cell_load(row, 0), tl_cell_load(row, 1)};
            if (tl_segment_ids_find(ids, cells, (tl_cell)tl_cell_load(row, 7), id)) return TL_BAD_ENTRY;
            tl_status status = tl_segment_ids_insert(ids, cells, these[i]);
            if (status != TL_OK) return status;
            ++*done;
        }
    }
    return TL_OK;
}
