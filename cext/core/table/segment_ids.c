/* Linear hashing over buckets of one cell each. */
#include "table/segment_ids.h"

#include <stdlib.h>

enum {
    BUCKET_BYTES = 64,
    BUCKET_ROWS = 24, /* on average, above which one more is split */
    PAGES_MAX = 1 << 17,
    GOING_MAX = 512,
};

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

uint64_t tl_segment_ids_hash(const tl_segment_ids *ids, tl_cell partition, const uint64_t id[2]) {
    return mixed(mixed(id[0] ^ ids->seed) + id[1] + ((uint64_t)partition << 32 | partition));
}

static uint64_t base_of(uint64_t buckets) { return (uint64_t)1 << (63 - __builtin_clzll(buckets)); }
static uint8_t tag_of(uint64_t hash) { return (uint8_t)(hash >> 56); }

static tl_cell *head_of(const tl_segment_ids *ids, uint64_t bucket) {
    return &__atomic_load_n(&ids->pages[bucket / TL_IDS_PAGE], __ATOMIC_ACQUIRE)[bucket % TL_IDS_PAGE];
}

static tl_cell *head_for(const tl_segment_ids *ids, uint64_t hash) {
    uint64_t buckets = __atomic_load_n(&ids->buckets, __ATOMIC_ACQUIRE), base = base_of(buckets);
    uint64_t bucket = hash & (base - 1);
    return head_of(ids, bucket < buckets - base ? hash & (2 * base - 1) : bucket);
}

static tl_cell load_head(const tl_cell *head) { return __atomic_load_n(head, __ATOMIC_ACQUIRE); }
static void store_head(tl_cell *head, tl_cell cell) { __atomic_store_n(head, cell, __ATOMIC_RELEASE); }

/* The number of rows of a bucket of so many bytes, and the word in which their names begin. */
static uint32_t capacity_of(tl_cell cell) { return (uint32_t)((tl_cell_size(cell) - 4) / 5); }
static uint32_t names_at(tl_cell cell) { return (4 + capacity_of(cell) + 3) / 4; }

static uint32_t count_of(const uint8_t *bucket, tl_cell cell) {
    uint32_t count = tl_cell_load32(bucket, 0), most = capacity_of(cell);
    return count < most ? count : most;
}

static void put(uint8_t *bucket, tl_cell cell, uint32_t at, uint8_t tag, tl_cell row_cell) {
    tl_cell_store32(bucket, names_at(cell) + at, row_cell);
    tl_cell_store8(bucket, 4 + at, tag);
}

static void begin_move(tl_segment_ids *ids) { __atomic_store_n(&ids->moves, ids->moves + 1, __ATOMIC_RELEASE); }
static void end_move(tl_segment_ids *ids) { begin_move(ids); }

tl_status tl_segment_ids_open(tl_segment_ids *ids, tl_cells *cells, uint64_t seed) {
    (void)cells;
    *ids = (tl_segment_ids){.seed = seed, .buckets = 1};
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
    const uint8_t *row = tl_cell_class_of(row_cell) == TL_ROW_CLASS ? tl_cell_at(cells, row_cell) : NULL;
    return row && tl_cell_load(row, 0) == id[0] && tl_cell_load(row, 1) == id[1] &&
           (tl_cell)tl_cell_load(row, 7) == partition;
}

/* Marks, as 0x80, the bytes of the next eight that equal this byte of hash; a byte behind such a one may be set too. */
static uint64_t matches(const uint8_t *bucket, uint32_t word, uint8_t tag) {
    const uint64_t ones = 0x0101010101010101u;
    uint64_t bytes = tl_cell_load(bucket, word) ^ ones * tag;
    if (word == 0) bytes |= UINT32_MAX; /* the count */
    return (bytes - ones) & ~bytes & ones << 7;
}

tl_cell tl_segment_ids_find(const tl_segment_ids *ids, const tl_cells *cells, uint64_t hash, tl_cell partition,
                            const uint64_t id[2]) {
    tl_cell cell = load_head(head_for(ids, hash));
    const uint8_t *bucket = tl_cell_at(cells, cell);
    if (!bucket) return 0;
    uint32_t count = count_of(bucket, cell), names = names_at(cell);
    for (uint32_t word = 0; 8 * word < 4 + count; word++) {
        for (uint64_t found = matches(bucket, word, tag_of(hash)); found; found &= found - 1) {
            uint32_t at = 8 * word + (uint32_t)__builtin_ctzll(found) / 8 - 4;
            if (at >= count) break;
            tl_cell row_cell = tl_cell_load32(bucket, names + at);
            if (is_row_of(cells, row_cell, partition, id)) return row_cell;
        }
    }
    return 0;
}

void tl_segment_ids_ask_name(const tl_segment_ids *ids, uint64_t hash) { __builtin_prefetch(head_for(ids, hash)); }

tl_cell tl_segment_ids_ask_bucket(const tl_segment_ids *ids, const tl_cells *cells, uint64_t hash) {
    tl_cell cell = load_head(head_for(ids, hash));
    const uint8_t *bucket = tl_cell_at(cells, cell);
    if (bucket) __builtin_prefetch(bucket, 1);
    return cell;
}

void tl_segment_ids_ask_end(const tl_cells *cells, tl_cell cell) {
    const uint8_t *bucket = tl_cell_at(cells, cell);
    if (bucket) __builtin_prefetch(bucket + 4 * (size_t)(names_at(cell) + count_of(bucket, cell)), 1);
}

/* The index of the first row that may be the wanted one; the count, if there is none. */
static uint32_t first_match(const uint8_t *bucket, uint32_t count, uint64_t hash) {
    for (uint32_t word = 0; 8 * word < 4 + count; word++) {
        uint64_t found = matches(bucket, word, tag_of(hash));
        uint32_t at = found ? 8 * word + (uint32_t)__builtin_ctzll(found) / 8 - 4 : count;
        if (at < count) return at;
    }
    return count;
}

uint32_t tl_segment_ids_ask_match(const tl_cells *cells, tl_cell cell, uint64_t hash) {
    const uint8_t *bucket = tl_cell_at(cells, cell);
    if (!bucket) return 0;
    uint32_t at = names_at(cell) + first_match(bucket, count_of(bucket, cell), hash);
    __builtin_prefetch(bucket + 4 * (size_t)at);
    return at;
}

tl_cell tl_segment_ids_ask_row(const tl_cells *cells, tl_cell cell, uint32_t at) {
    const uint8_t *bucket = tl_cell_at(cells, cell);
    if (!bucket || 4 * (size_t)at >= tl_cell_size(cell)) return 0;
    tl_cell row_cell = tl_cell_load32(bucket, at);
    if (tl_cell_class_of(row_cell) != TL_ROW_CLASS) return 0;
    tl_row_ask(cells, row_cell);
    return row_cell;
}

bool tl_segment_ids_is(const tl_cells *cells, tl_cell row_cell, tl_cell partition, const uint64_t id[2]) {
    return is_row_of(cells, row_cell, partition, id);
}

static uint64_t hash_of_row(const tl_segment_ids *ids, const tl_cells *cells, tl_cell row_cell) {
    const uint8_t *row = tl_cell_own(cells, row_cell);
    uint64_t id[2] = {tl_cell_load(row, 0), tl_cell_load(row, 1)};
    return tl_segment_ids_hash(ids, (tl_cell)tl_cell_load(row, 7), id);
}

/* The bytes of a bucket that holds so many rows: 64, 128, 192, 256, 384 … */
static size_t bytes_for(uint32_t rows) {
    size_t size = BUCKET_BYTES;
    while ((size - 4) / 5 < rows) size = size & (size - 1) ? size / 3 * 4 : size < 128 ? 128 : size / 2 * 3;
    return size;
}

static tl_status new_bucket(tl_cells *cells, uint32_t rows, tl_cell *out) {
    *out = 0;
    if (!rows) return TL_OK;
    tl_status status = tl_cell_take(cells, bytes_for(rows), out);
    if (status == TL_OK) tl_cell_store32(tl_cell_own(cells, *out), 0, 0);
    return status;
}

/* A bucket that is being filled, and its count, which is stored behind its rows. */
typedef struct filling {
    tl_cell cell;
    uint8_t *bucket;
    uint32_t count, names;
} filling;

static filling fill(const tl_cells *cells, tl_cell cell) {
    if (!cell) return (filling){.cell = 0};
    uint8_t *bucket = tl_cell_own(cells, cell);
    return (filling){cell, bucket, tl_cell_load32(bucket, 0), names_at(cell)};
}

static void push(filling *f, uint8_t tag, tl_cell row_cell) {
    if (!f->bucket) return; /* there is one for each that gets a row */
    tl_cell_store32(f->bucket, f->names + f->count, row_cell);
    tl_cell_store8(f->bucket, 4 + f->count, tag);
    f->count++;
}

static void filled(const filling *f) {
    if (f->cell) tl_cell_store32(f->bucket, 0, f->count);
}

static tl_status make_page(tl_segment_ids *ids, uint64_t bucket) {
    uint64_t page = bucket / TL_IDS_PAGE;
    if (page >= PAGES_MAX) return TL_OVER_LIMIT;
    if (ids->pages[page]) return TL_OK;
    tl_cell *made = calloc(TL_IDS_PAGE, sizeof *made);
    if (!made) return TL_NO_MEMORY;
    __atomic_store_n(&ids->pages[page], made, __ATOMIC_RELEASE);
    return TL_OK;
}

/* Between two splits, each row prefetches a part of the next split's reads: its bucket's name, the bucket, its rows.
 * `left`: rows until then. */
static void ask_split(const tl_segment_ids *ids, const tl_cells *cells, uint64_t left) {
    enum { NAME = 20, BUCKET = 16, ROWS = 12, ROWS_EACH = 5 };
    const tl_cell *head = head_of(ids, ids->buckets - base_of(ids->buckets));
    if (left == NAME) __builtin_prefetch(head);
    if (left > BUCKET || !*head) return;
    const uint8_t *bucket = tl_cell_own(cells, *head);
    if (left == BUCKET)
        for (size_t at = 0; at < tl_cell_size(*head) && at < 256; at += 64) __builtin_prefetch(bucket + at);
    if (left > ROWS || left == 0) return;
    uint32_t first = ROWS_EACH * (ROWS - (uint32_t)left), count = tl_cell_load32(bucket, 0);
    for (uint32_t i = first; i < first + ROWS_EACH && i < count; i++)
        __builtin_prefetch(tl_cell_own(cells, tl_cell_load32(bucket, names_at(*head) + i)));
}

/* One more bucket: the next one to be split gives it what its hash's next bit says. Where memory cannot be had for it,
 * all stays as it is. */
static void split_one(tl_segment_ids *ids, tl_cells *cells) {
    uint64_t base = base_of(ids->buckets), from = ids->buckets - base;
    if (make_page(ids, ids->buckets) != TL_OK) return;
    tl_cell old = *head_of(ids, from), made[2];
    if (old) {
        uint8_t *bucket = tl_cell_own(cells, old), goes[GOING_MAX];
        uint32_t count = tl_cell_load32(bucket, 0), names = names_at(old), moving = 0;
        if (count > GOING_MAX) return; /* no hash does that */
        for (uint32_t i = 0; i < count; i++) {
            goes[i] = (hash_of_row(ids, cells, tl_cell_load32(bucket, names + i)) & base) != 0;
            moving += goes[i];
        }
        if (new_bucket(cells, count - moving, &made[0]) != TL_OK) return;
        if (new_bucket(cells, moving, &made[1]) != TL_OK) {
            if (made[0]) tl_cell_give(cells, made[0]);
            return;
        }
        filling halves[2] = {fill(cells, made[0]), fill(cells, made[1])};
        for (uint32_t i = 0; i < count; i++) push(&halves[goes[i]], bucket[4 + i], tl_cell_load32(bucket, names + i));
        filled(&halves[0]);
        filled(&halves[1]);
        begin_move(ids);
        store_head(head_of(ids, from), made[0]);
        store_head(head_of(ids, ids->buckets), made[1]);
        tl_cell_give(cells, old);
    } else {
        begin_move(ids);
    }
    __atomic_store_n(&ids->buckets, ids->buckets + 1, __ATOMIC_RELEASE);
    end_move(ids);
}

/* The same rows in a larger bucket. */
static tl_status widen(tl_segment_ids *ids, tl_cells *cells, tl_cell *head) {
    tl_cell old = *head, made;
    uint32_t count = old ? tl_cell_load32(tl_cell_own(cells, old), 0) : 0;
    tl_status status = new_bucket(cells, count + 1, &made);
    if (status != TL_OK) return status;
    if (!old) {
        store_head(head, made);
        return TL_OK;
    }
    const uint8_t *bucket = tl_cell_own(cells, old);
    filling wider = fill(cells, made);
    for (uint32_t i = 0; i < count; i++) push(&wider, bucket[4 + i], tl_cell_load32(bucket, names_at(old) + i));
    filled(&wider);
    begin_move(ids);
    store_head(head, made);
    tl_cell_give(cells, old);
    end_move(ids);
    return TL_OK;
}

tl_status tl_segment_ids_insert(tl_segment_ids *ids, tl_cells *cells, uint64_t hash, tl_cell row_cell) {
    tl_cell *head = head_for(ids, hash);
    filling f = fill(cells, *head);
    if (!f.cell || f.count == capacity_of(f.cell)) {
        tl_status status = widen(ids, cells, head);
        if (status != TL_OK) return status;
        f = fill(cells, *head);
    }
    push(&f, tag_of(hash), row_cell);
    filled(&f);
    if (++ids->count > ids->buckets * BUCKET_ROWS) {
        split_one(ids, cells);
    } else {
        ask_split(ids, cells, ids->buckets * BUCKET_ROWS - ids->count);
    }
    return TL_OK;
}

/* The bucket's last row takes its place. */
void tl_segment_ids_remove(tl_segment_ids *ids, tl_cells *cells, tl_cell row_cell) {
    tl_cell *head = head_for(ids, hash_of_row(ids, cells, row_cell)), cell = *head;
    if (!cell) return;
    uint8_t *bucket = tl_cell_own(cells, cell);
    uint32_t last = tl_cell_load32(bucket, 0) - 1, names = names_at(cell), at = 0;
    while (at <= last && tl_cell_load32(bucket, names + at) != row_cell) at++;
    if (at > last) return;
    begin_move(ids);
    put(bucket, cell, at, bucket[4 + last], tl_cell_load32(bucket, names + last));
    tl_cell_store32(bucket, 0, last);
    if (last == 0) {
        store_head(head, 0);
        tl_cell_give(cells, cell);
    }
    end_move(ids);
    ids->count--;
}

tl_status tl_segment_ids_reserve(tl_segment_ids *ids, uint64_t rows) {
    uint64_t buckets = rows / BUCKET_ROWS + 1, most = (uint64_t)PAGES_MAX * TL_IDS_PAGE;
    if (ids->count) return TL_BAD_ARGUMENT;
    if (buckets > most) buckets = most;
    for (uint64_t bucket = 0; bucket < buckets; bucket += TL_IDS_PAGE) {
        tl_status status = make_page(ids, bucket);
        if (status != TL_OK) return status;
    }
    begin_move(ids);
    __atomic_store_n(&ids->buckets, buckets, __ATOMIC_RELEASE);
    end_move(ids);
    return TL_OK;
}

tl_status tl_segment_ids_insert_many(tl_segment_ids *ids, tl_cells *cells, const tl_cell *rows, size_t count,
                                     size_t *done) {
    enum { AHEAD = 32 };
    for (*done = 0; *done < count;) {
        size_t some = count - *done < AHEAD ? count - *done : AHEAD;
        const tl_cell *these = rows + *done;
        uint64_t hashes[AHEAD];
        for (size_t i = 0; i < some; i++) {
            hashes[i] = hash_of_row(ids, cells, these[i]);
            tl_segment_ids_ask_name(ids, hashes[i]);
        }
        tl_cell buckets[AHEAD];
        for (size_t i = 0; i < some; i++) buckets[i] = tl_segment_ids_ask_bucket(ids, cells, hashes[i]);
        for (size_t i = 0; i < some; i++) tl_segment_ids_ask_end(cells, buckets[i]);
        for (size_t i = 0; i < some; i++) {
            const uint8_t *row = tl_cell_own(cells, these[i]);
            uint64_t id[2] = {tl_cell_load(row, 0), tl_cell_load(row, 1)};
            if (tl_segment_ids_find(ids, cells, hashes[i], (tl_cell)tl_cell_load(row, 7), id)) return TL_BAD_ENTRY;
            tl_status status = tl_segment_ids_insert(ids, cells, hashes[i], these[i]);
            if (status != TL_OK) return status;
            ++*done;
        }
    }
    return TL_OK;
}
