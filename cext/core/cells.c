/* Slabs of cells, cut off areas that are mapped one after another. */
#define _DEFAULT_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "cells.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    HUGE_PAGE = 2 << 20,
    FIRST_AREA = 1 << 20, /* of usual pages: of a small table, the rest of a huge page would weigh more than its walks */
    AREA = 32 << 20,
};

tl_status tl_cells_create(tl_cells **out) {
    tl_cells *cells = calloc(1, sizeof *cells);
    if (!cells) return TL_NO_MEMORY;
    *out = cells;
    return TL_OK;
}

void tl_cells_destroy(tl_cells *cells) {
    if (!cells) return;
    for (size_t i = 0; i < cells->area_count; i++) munmap(cells->areas[i].at, cells->areas[i].size);
    for (unsigned class = 0; class < TL_CELL_CLASSES; class ++) free(cells->classes[class].slabs);
    free(cells->areas);
    free(cells);
}

/* Where an area begins at a multiple of a huge page, it can be made of them. */
static uint8_t *map_area(size_t size, bool huge) {
    size_t spare = huge ? HUGE_PAGE : 0;
    void *mapped = mmap(NULL, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    uint8_t *at = mapped;
    if (!huge) return at;
    size_t before = (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(at, before);
    if (spare > before) munmap(at + before + size, spare - before);
#ifdef MADV_HUGEPAGE
    madvise(at + before, size, MADV_HUGEPAGE);
#endif
    return at + before;
}

static uint8_t *cut_slab(tl_cells *cells, size_t size) {
    for (size_t i = cells->area_count; i > 0 && i + 2 > cells->area_count; i--) { /* the last two: sizes differ */
        struct tl_cell_area *area = &cells->areas[i - 1];
        if (area->size - area->used < size) continue;
        area->used += size;
        return area->at + area->used - size;
    }
    struct tl_cell_area *more = realloc(cells->areas, (cells->area_count + 1) * sizeof *more);
    if (!more) return NULL;
    cells->areas = more;
    bool first = cells->area_count == 0 && size < FIRST_AREA;
    size_t whole = first ? FIRST_AREA : AREA;
    uint8_t *at = map_area(whole, !first);
    if (!at) return NULL;
    more[cells->area_count++] = (struct tl_cell_area){at, whole, size};
    return at;
}

/* A number that was never given out. */
static tl_status take_new(tl_cells *cells, unsigned class, tl_cell *out) {
    tl_cell_class *kind = &cells->classes[class];
    uint32_t index = kind->used;
    unsigned shift = tl_cell_class_shift(class);
    size_t slab = index >> shift;
    if (slab >= TL_CELL_SLABS_MAX || index >= (1u << TL_CELL_NUMBER_BITS) - 1) return TL_NO_MEMORY;
    if (!kind->slabs) {
        kind->slabs = calloc(TL_CELL_SLABS_MAX, sizeof *kind->slabs);
        if (!kind->slabs) return TL_NO_MEMORY;
    }
    if (!kind->slabs[slab]) {
        kind->slabs[slab] = cut_slab(cells, tl_cell_class_size(class) << shift);
        if (!kind->slabs[slab]) return TL_NO_MEMORY;
    }
    __atomic_store_n(&kind->used, index + 1, __ATOMIC_RELEASE);
    *out = tl_cell_named(class, index + 1);
    return TL_OK;
}

tl_status tl_cell_take_in(tl_cells *cells, unsigned class, tl_cell *out) {
    if (class >= TL_CELL_CLASSES) return TL_OVER_LIMIT;
    tl_cell_class *kind = &cells->classes[class];
    if (kind->freed) {
        *out = kind->freed;
        kind->freed = tl_cell_load32(tl_cell_own(cells, *out), 0);
    } else {
        tl_status status = take_new(cells, class, out);
        if (status != TL_OK) return status;
    }
    cells->held_bytes += tl_cell_class_size(class);
    return TL_OK;
}

void tl_cell_give(tl_cells *cells, tl_cell cell) {
    tl_cell_class *kind = &cells->classes[tl_cell_class_of(cell)];
    tl_cell_store32(tl_cell_own(cells, cell), 0, kind->freed);
    kind->freed = cell;
    cells->held_bytes -= tl_cell_size(cell);
}
