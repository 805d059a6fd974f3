/* Memory in cells of fixed sizes, named by 32 bits, which readers may look at while a writer uses them again.
 *
 * A cell of one size is never a part of one of another size, and none goes back to the system before all do: what a
 * reader finds behind an old name is another cell's bytes, never a fault. Whoever reads beside the writer loads words
 * by tl_cell_load and checks afterwards (by a sequence number) that nothing changed meanwhile. One writer at a time. */
#ifndef TIERLOG_CELLS_H
#define TIERLOG_CELLS_H

#include "status.h"

/* The class of a cell (its size is 8 << class bytes) in the upper five bits, its number from 1 in the others. */
typedef uint32_t tl_cell;

enum {
    TL_CELL_NUMBER_BITS = 27,
    TL_CELL_CLASSES = 18, /* 8 bytes … 1 MiB */
    TL_CELL_BYTES_MAX = 8 << (TL_CELL_CLASSES - 1),
    TL_CELL_REGION_BYTES = 2 << 20,
    TL_CELL_REGIONS_MAX = 4096, /* of one class: 8 GiB */
};

typedef struct tl_cell_class {
    uint8_t **regions;
    uint32_t used; /* numbers that were given out so far; published behind their region */
    tl_cell freed; /* the first of a list through the first words of free cells */
} tl_cell_class;

typedef struct tl_cells {
    tl_cell_class classes[TL_CELL_CLASSES];
    uint64_t held_bytes; /* of cells that are in use */
} tl_cells;

tl_status tl_cells_create(tl_cells **out);
void tl_cells_destroy(tl_cells *cells);

/* A cell of at least so many bytes, not cleared. TL_OVER_LIMIT above TL_CELL_BYTES_MAX, TL_NO_MEMORY. */
tl_status tl_cell_take(tl_cells *cells, size_t size, tl_cell *out);
void tl_cell_give(tl_cells *cells, tl_cell cell);

static inline unsigned tl_cell_class_of(tl_cell cell) { return cell >> TL_CELL_NUMBER_BITS; }
static inline uint32_t tl_cell_number(tl_cell cell) { return cell & ((1u << TL_CELL_NUMBER_BITS) - 1); }
static inline size_t tl_cell_size(tl_cell cell) { return (size_t)8 << tl_cell_class_of(cell); }
static inline tl_cell tl_cell_named(unsigned class, uint32_t number) {
    return (tl_cell) class << TL_CELL_NUMBER_BITS | number;
}

/* The least class whose cells hold so many bytes; TL_CELL_CLASSES if there is none. */
static inline unsigned tl_cell_class_for(size_t size) {
    unsigned class = 0;
    while (class < TL_CELL_CLASSES && ((size_t)8 << class) < size) class ++;
    return class;
}

/* The bytes of a cell that is there: the writer knows those that it took. */
static inline uint8_t *tl_cell_own(const tl_cells *cells, tl_cell cell) {
    unsigned class = tl_cell_class_of(cell), shift = 18 - class; /* 2 MiB hold 1 << shift cells of 8 << class bytes */
    uint32_t index = tl_cell_number(cell) - 1;
    return cells->classes[class].regions[index >> shift] + (((size_t)index & ((1u << shift) - 1)) << (class + 3));
}

/* The bytes of any cell; NULL for a name that no cell has. */
static inline uint8_t *tl_cell_at(const tl_cells *cells, tl_cell cell) {
    unsigned class = tl_cell_class_of(cell);
    uint32_t number = tl_cell_number(cell);
    if (class >= TL_CELL_CLASSES || number == 0) return NULL;
    if (number > __atomic_load_n(&cells->classes[class].used, __ATOMIC_ACQUIRE)) return NULL;
    return tl_cell_own(cells, cell);
}

/* A reader's loads keep their order before the look at the sequence number, a writer's stores theirs behind it. */
static inline uint64_t tl_cell_load(const uint8_t *cell, size_t word) {
    return __atomic_load_n((const uint64_t *)(const void *)cell + word, __ATOMIC_ACQUIRE);
}
static inline void tl_cell_store(uint8_t *cell, size_t word, uint64_t value) {
    __atomic_store_n((uint64_t *)(void *)cell + word, value, __ATOMIC_RELEASE);
}
static inline uint32_t tl_cell_load32(const uint8_t *cell, size_t word) {
    return __atomic_load_n((const uint32_t *)(const void *)cell + word, __ATOMIC_ACQUIRE);
}
static inline void tl_cell_store32(uint8_t *cell, size_t word, uint32_t value) {
    __atomic_store_n((uint32_t *)(void *)cell + word, value, __ATOMIC_RELEASE);
}

#endif
