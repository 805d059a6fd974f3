/* A thousand small tables, so that growing one delays no caller. */
#include "table/segment_partitions.h"

#include <stdlib.h>
#include <string.h>

enum { TABLE_SLOTS_MIN = 4 };

static uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    x = (x ^ x >> 32) * 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

static uint64_t hash_words(const tl_partitions *partitions, uint64_t first, uint64_t second, uint32_t partition) {
    return mixed(mixed(mixed(first ^ partitions->seed) + second) + partition);
}

uint64_t tl_partition_hash(const tl_partitions *partitions, const tl_partition_id *id) {
    uint64_t topic[2];
    memcpy(topic, id->topic_id, 16);
    return hash_words(partitions, topic[0], topic[1], (uint32_t)id->partition);
}

static uint64_t hash_of_cell(const tl_partitions *partitions, const uint8_t *cell) {
    return hash_words(partitions, tl_cell_load(cell, 0), tl_cell_load(cell, 1), (uint32_t)tl_cell_load(cell, 2));
}

tl_status tl_partitions_open(tl_partitions *partitions, uint64_t seed) {
    memset(partitions, 0, sizeof *partitions);
    partitions->seed = seed;
    partitions->pages = calloc(TL_PARTITION_PAGES_MAX, sizeof *partitions->pages);
    return partitions->pages ? TL_OK : TL_NO_MEMORY;
}

void tl_partitions_close(tl_partitions *partitions) {
    for (size_t i = 0; partitions->pages && i < TL_PARTITION_PAGES_MAX; i++) free(partitions->pages[i]);
    free(partitions->pages);
    partitions->pages = NULL;
}

static tl_cell table_of(const tl_partitions *partitions, uint64_t hash) {
    return __atomic_load_n(&partitions->tables[hash % TL_DIRECTORY_TABLES], __ATOMIC_ACQUIRE);
}

/* The partition's cell; with no `id` the first one of that hash's upper half, which is not read here. */
static tl_cell look(const tl_partitions *partitions, const tl_cells *cells, const tl_partition_id *id, uint64_t hash) {
    tl_cell table = table_of(partitions, hash);
    const uint8_t *slots = tl_cell_at(cells, table);
    if (!slots) return 0;
    size_t mask = tl_cell_size(table) / 8 - 1, at = (size_t)(hash >> 20) & mask;
    for (size_t i = 0; i <= mask; i++, at = (at + 1) & mask) {
        uint64_t slot = tl_cell_load(slots, at);
        tl_cell cell = (tl_cell)slot;
        if (!cell) return 0;
        if (slot >> 32 != hash >> 32 || tl_cell_class_of(cell) != TL_PARTITION_CLASS) continue;
        if (!id) return cell;
        const uint8_t *found = tl_cell_at(cells, cell);
        if (found && tl_partition_is(found, id)) return cell;
    }
    return 0;
}

tl_cell tl_partition_find(const tl_partitions *partitions, const tl_cells *cells, const tl_partition_id *id) {
    uint64_t hash = tl_partition_hash(partitions, id);
    for (;;) {
        uint64_t before = __atomic_load_n(&partitions->changes, __ATOMIC_ACQUIRE);
        tl_cell cell = look(partitions, cells, id, hash);
        if (!(before & 1) && __atomic_load_n(&partitions->changes, __ATOMIC_ACQUIRE) == before) return cell;
    }
}

void tl_partition_ask_slot(const tl_partitions *partitions, const tl_cells *cells, uint64_t hash) {
    tl_cell table = table_of(partitions, hash);
    const uint8_t *slots = tl_cell_at(cells, table);
    if (slots) __builtin_prefetch(slots + 8 * ((size_t)(hash >> 20) & (tl_cell_size(table) / 8 - 1)));
}

tl_cell tl_partition_guess(const tl_partitions *partitions, const tl_cells *cells, uint64_t hash) {
    return look(partitions, cells, NULL, hash);
}

static void put(const tl_cells *cells, tl_cell table, uint64_t slot, uint64_t hash) {
    uint8_t *slots = tl_cell_own(cells, table);
    size_t mask = tl_cell_size(table) / 8 - 1, at = (size_t)(hash >> 20) & mask;
    while (tl_cell_load(slots, at)) at = (at + 1) & mask;
    tl_cell_store(slots, at, slot);
}

static tl_status new_table(tl_cells *cells, size_t slots, tl_cell *out) {
    tl_status status = tl_cell_take(cells, slots * 8, out);
    if (status != TL_OK) return status;
    uint8_t *at = tl_cell_own(cells, *out);
    for (size_t i = 0; i < slots; i++) tl_cell_store(at, i, 0);
    return TL_OK;
}

/* The same partitions in a table that has more slots. */
static void rebuild(const tl_partitions *partitions, tl_cells *cells, tl_cell from, tl_cell to) {
    const uint8_t *slots = tl_cell_own(cells, from);
    for (size_t i = 0; i < tl_cell_size(from) / 8; i++) {
        uint64_t slot = tl_cell_load(slots, i);
        if (slot) put(cells, to, slot, hash_of_cell(partitions, tl_cell_own(cells, (tl_cell)slot)));
    }
}

static void change_tables(tl_partitions *partitions) {
    __atomic_store_n(&partitions->changes, partitions->changes + 1, __ATOMIC_RELEASE);
}

/* Room for one more in its table: at most three of four slots are used. */
static tl_status make_room(tl_partitions *partitions, tl_cells *cells, uint64_t which) {
    tl_cell old = partitions->tables[which];
    size_t slots = old ? tl_cell_size(old) / 8 : 0;
    if (old && (partitions->used[which] + 1) * 4 <= slots * 3) return TL_OK;
    tl_cell made;
    tl_status status = new_table(cells, slots ? 2 * slots : TABLE_SLOTS_MIN, &made);
    if (status != TL_OK) return status;
    if (old) rebuild(partitions, cells, old, made);
    change_tables(partitions);
    __atomic_store_n(&partitions->tables[which], made, __ATOMIC_RELEASE);
    if (old) tl_cell_give(cells, old);
    change_tables(partitions);
    return TL_OK;
}

static tl_status list_it(tl_partitions *partitions, tl_cell cell) {
    uint64_t page = partitions->count / TL_PARTITION_PAGE;
    if (page >= TL_PARTITION_PAGES_MAX) return TL_OVER_LIMIT;
    if (!partitions->pages[page]) {
        partitions->pages[page] = calloc(TL_PARTITION_PAGE, sizeof(tl_cell));
        if (!partitions->pages[page]) return TL_NO_MEMORY;
    }
    partitions->pages[page][partitions->count % TL_PARTITION_PAGE] = cell;
    return TL_OK;
}

static tl_status take_cell(tl_partitions *partitions, tl_cells *cells, tl_cell *out) {
    if (!partitions->freed) {
        tl_status status = tl_cell_take_in(cells, TL_PARTITION_CLASS, out);
        if (status == TL_OK) tl_cell_store(tl_cell_own(cells, *out), 2, 0);
        return status;
    }
    *out = partitions->freed;
    partitions->freed = (tl_cell)tl_cell_load(tl_cell_own(cells, *out), 7);
    return TL_OK;
}

static void give_cell(tl_partitions *partitions, tl_cells *cells, tl_cell cell) {
    tl_cell_store(tl_cell_own(cells, cell), 2, 0);
    tl_cell_store(tl_cell_own(cells, cell), 7, partitions->freed);
    partitions->freed = cell;
}

tl_status tl_partition_make(tl_partitions *partitions, tl_cells *cells, const tl_partition_id *id, tl_cell *out) {
    uint64_t hash = tl_partition_hash(partitions, id), which = hash % TL_DIRECTORY_TABLES;
    *out = look(partitions, cells, id, hash);
    if (*out) return TL_OK;
    tl_cell made = 0;
    tl_status status = make_room(partitions, cells, which);
    if (status == TL_OK) status = take_cell(partitions, cells, &made);
    if (status == TL_OK) status = list_it(partitions, made);
    if (status != TL_OK) {
        if (made) give_cell(partitions, cells, made);
        return status;
    }
    *out = made;
    uint8_t *cell = tl_cell_own(cells, made);
    uint64_t topic[2], sequence = tl_cell_load(cell, 6);
    memcpy(topic, id->topic_id, 16);
    sequence += sequence & 1;
    tl_cell_store(cell, 6, sequence + 1);
    tl_cell_store(cell, 0, topic[0]);
    tl_cell_store(cell, 1, topic[1]);
    tl_cell_store(cell, 2, (uint32_t)id->partition | (uint64_t)TL_PARTITION_USED << 32);
    tl_cell_store(cell, 3, 0);
    tl_cell_store(cell, 4, partitions->count << 32);
    tl_cell_store(cell, 5, 0);
    tl_cell_store(cell, 7, (uint64_t)INT64_MIN);
    tl_cell_store(cell, 6, sequence + 2);
    put(cells, partitions->tables[which], made | hash >> 32 << 32, hash);
    partitions->used[which]++;
    partitions->count++;
    return TL_OK;
}

void tl_partition_drop(tl_partitions *partitions, tl_cells *cells, tl_cell cell) {
    uint8_t *at = tl_cell_own(cells, cell);
    uint64_t which = hash_of_cell(partitions, at) % TL_DIRECTORY_TABLES, place = tl_cell_load(at, 4) >> 32;
    tl_cell table = partitions->tables[which];
    uint8_t *slots = tl_cell_own(cells, table);
    size_t count = tl_cell_size(table) / 8;
    change_tables(partitions);
    /* The entries behind it in its run are put again, so that no search ends at a hole. */
    size_t hole = 0;
    while ((tl_cell)tl_cell_load(slots, hole) != cell) hole++;
    tl_cell_store(slots, hole, 0);
    for (size_t i = (hole + 1) & (count - 1); tl_cell_load(slots, i); i = (i + 1) & (count - 1)) {
        uint64_t moved = tl_cell_load(slots, i);
        tl_cell_store(slots, i, 0);
        put(cells, table, moved, hash_of_cell(partitions, tl_cell_own(cells, (tl_cell)moved)));
    }
    change_tables(partitions);
    partitions->used[which]--;
    tl_cell last =
        partitions->pages[(partitions->count - 1) / TL_PARTITION_PAGE][(partitions->count - 1) % TL_PARTITION_PAGE];
    partitions->pages[place / TL_PARTITION_PAGE][place % TL_PARTITION_PAGE] = last;
    uint8_t *moved = tl_cell_own(cells, last);
    tl_cell_store(moved, 4, (uint32_t)tl_cell_load(moved, 4) | place << 32);
    partitions->count--;
    give_cell(partitions, cells, cell);
}
