/* Memory in cells of fixed sizes, named by 32 bits, which readers may look at while a writer uses them again.
 *
 * A cell of one size is never a part of one of another size, and none goes back to the system before all do: a
 * reader finds another cell's bytes behind an old name, never a fault. A reader beside the writer loads words by
 * tl_cell_load and checks afterwards (by a sequence number) that nothing changed meanwhile. One writer at a time.
 *
 * Cells of one class lie in slabs; slabs of all classes lie behind one another in areas, so that no class holds a huge
 * page of its own that is mostly empty. */
#ifndef TIERLOG_CELLS_H
#define TIERLOG_CELLS_H

#include "tierlog/status.h"

/* The class of a cell in the upper five bits, its number from 1 in the others. */
typedef uint32_t tl_cell;

enum {
    TL_CELL_NUMBER_BITS = 27,
    TL_CELL_POWERS = 19,                  /* classes of 8 << class bytes: 8 bytes … 2 MiB, */
    TL_CELL_CLASSES = TL_CELL_POWERS + 7, /* then of 24 << more: 24 bytes … 1536 */
    TL_CELL_BYTES_MAX = 8 << (TL_CELL_POWERS - 1),
    TL_CELL_SLABS_MAX = 1 << 17, /* of one class: 8 GiB where a slab has 64 KiB */
};

typedef struct tl_cell_class {
    uint8_t **slabs; /* made with the first cell */
    uint32_t used;   /* numbers that were given out so far; published behind their slab */
    tl_cell freed;   /* the first of a list through the first words of free cells */
} tl_cell_class;

typedef struct tl_cells {
    tl_cell_class classes[TL_CELL_CLASSES];
    uint64_t held_bytes; /* of cells that are in use */
    struct tl_cell_area {
        uint8_t *at;
        size_t size, used;
        size_t huge, settled; /* bytes from the beginning: that may be huge pages, that were made so */
    } * areas;
    size_t area_count;
} tl_cells;

tl_status tl_cells_create(tl_cells **out);
void tl_cells_destroy(tl_cells *cells);
/* Asks for at most so many huge pages at once where the system has them; returns the number. Readers see nothing of
 * it. */
size_t tl_cells_settle(tl_cells *cells, size_t pages);

/* A cell of a class, not cleared. TL_OVER_LIMIT for TL_CELL_CLASSES, TL_NO_MEMORY. */
tl_status tl_cell_take_in(tl_cells *cells, unsigned class, tl_cell *out);
void tl_cell_give(tl_cells *cells, tl_cell cell);

static inline unsigned tl_cell_class_of(tl_cell cell) { return cell >> TL_CELL_NUMBER_BITS; }
static inline uint32_t tl_cell_number(tl_cell cell) { return cell & ((1u << TL_CELL_NUMBER_BITS) - 1); }
static inline tl_cell tl_cell_named(unsigned class, uint32_t number) {
    return (tl_cell) class << TL_CELL_NUMBER_BITS | number;
}

/* Bytes of the cells of a class; a slab has 1 << shift of them: 64 KiB of small ones (48 of those between two powers
 * of two), 2 MiB of those from 8 KiB on. */
static inline size_t tl_cell_class_size(unsigned class) {
    return class < TL_CELL_POWERS ? (size_t)8 << class : (size_t)24 << (class - TL_CELL_POWERS);
}
static inline unsigned tl_cell_class_shift(unsigned class) {
    return class >= TL_CELL_POWERS ? 11 - (class - TL_CELL_POWERS) : class < 10 ? 13 - class : 18 - class;
}
static inline size_t tl_cell_size(tl_cell cell) { return tl_cell_class_size(tl_cell_class_of(cell)); }

/* The least class whose cells hold so many bytes; TL_CELL_CLASSES if there is none. */
static inline unsigned tl_cell_class_for(size_t size) {
    if (size > TL_CELL_BYTES_MAX) return TL_CELL_CLASSES;
    unsigned power = size <= 8 ? 0 : 61 - (unsigned)__builtin_clzll(size - 1);
    bool between = power >= 2 && power - 2 < TL_CELL_CLASSES - TL_CELL_POWERS && size <= (size_t)6 << power;
    return between ? TL_CELL_POWERS + power - 2 : power;
}

/* A cell of at least so many bytes. TL_OVER_LIMIT above TL_CELL_BYTES_MAX, TL_NO_MEMORY. */
static inline tl_status tl_cell_take(tl_cells *cells, size_t size, tl_cell *out) {
    return tl_cell_take_in(cells, tl_cell_class_for(size), out);
}

/* The bytes of a cell of a class that the caller knows. */
static inline uint8_t *tl_cell_own_in(const tl_cells *cells, unsigned class, uint32_t number) {
    unsigned shift = tl_cell_class_shift(class);
    uint32_t index = number - 1;
    return cells->classes[class].slabs[index >> shift] +
           ((size_t)index & (((size_t)1 << shift) - 1)) * tl_cell_class_size(class);
}

/* The bytes of a cell that is there: the writer knows those that it took. */
static inline uint8_t *tl_cell_own(const tl_cells *cells, tl_cell cell) {
    return tl_cell_own_in(cells, tl_cell_class_of(cell), tl_cell_number(cell));
}

/* The bytes of any cell; NULL for a name that no cell has. */
static inline uint8_t *tl_cell_at(const tl_cells *cells, tl_cell cell) {
    unsigned class = tl_cell_class_of(cell);
    uint32_t number = tl_cell_number(cell);
    if (class >= TL_CELL_CLASSES || number == 0) return NULL;
    if (number > __atomic_load_n(&cells->classes[class].used, __ATOMIC_ACQUIRE)) return NULL;
    return tl_cell_own_in(cells, class, number);
}

/* A reader's loads stay before the look at the sequence number, a writer's stores theirs behind it. */
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
static inline uint16_t tl_cell_load16(const uint8_t *cell, size_t half_word) {
    return __atomic_load_n((const uint16_t *)(const void *)cell + half_word, __ATOMIC_ACQUIRE);
}
static inline void tl_cell_store16(uint8_t *cell, size_t half_word, uint16_t value) {
    __atomic_store_n((uint16_t *)(void *)cell + half_word, value, __ATOMIC_RELEASE);
}
static inline void tl_cell_store8(uint8_t *cell, size_t byte, uint8_t value) {
    __atomic_store_n(cell + byte, value, __ATOMIC_RELEASE);
}

#endif
