/* Regions of 2 MiB, mapped one after another for each class of cells. */
#define _DEFAULT_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "cells.h"

#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_FROM_REGION = 16 }; /* before that, the rest of a huge page would weigh more than its walks */

tl_status tl_cells_create(tl_cells **out) {
    tl_cells *cells = calloc(1, sizeof *cells);
    if (!cells) return TL_NO_MEMORY;
    for (unsigned class = 0; class < TL_CELL_CLASSES; class ++) {
        cells->classes[class].regions = calloc(TL_CELL_REGIONS_MAX, sizeof(uint8_t *));
        if (!cells->classes[class].regions) {
            tl_cells_destroy(cells);
            return TL_NO_MEMORY;
        }
    }
    *out = cells;
    return TL_OK;
}

void tl_cells_destroy(tl_cells *cells) {
    if (!cells) return;
    for (unsigned class = 0; class < TL_CELL_CLASSES; class ++) {
        uint8_t **regions = cells->classes[class].regions;
        for (size_t i = 0; regions && i < TL_CELL_REGIONS_MAX && regions[i]; i++)
            munmap(regions[i], TL_CELL_REGION_BYTES);
        free(regions);
    }
    free(cells);
}

/* Where a region begins at a multiple of its size, it can be one huge page. */
static uint8_t *map_region(bool huge) {
    size_t spare = huge ? TL_CELL_REGION_BYTES : 0;
    void *mapped = mmap(NULL, TL_CELL_REGION_BYTES + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    uint8_t *at = mapped;
    if (!huge) return at;
    size_t before = (TL_CELL_REGION_BYTES - (uintptr_t)at % TL_CELL_REGION_BYTES) % TL_CELL_REGION_BYTES;
    if (before) munmap(at, before);
    if (spare > before) munmap(at + before + TL_CELL_REGION_BYTES, spare - before);
#ifdef MADV_HUGEPAGE
    madvise(at + before, TL_CELL_REGION_BYTES, MADV_HUGEPAGE);
#endif
    return at + before;
}

tl_status tl_cell_take(tl_cells *cells, size_t size, tl_cell *out) {
    unsigned class = tl_cell_class_for(size);
    if (class >= TL_CELL_CLASSES) return TL_OVER_LIMIT;
    tl_cell_class *kind = &cells->classes[class];
    if (kind->freed) {
        *out = kind->freed;
        kind->freed = tl_cell_load32(tl_cell_own(cells, *out), 0);
    } else {
        uint32_t index = kind->used;
        size_t region = index >> (18 - class);
        if (region >= TL_CELL_REGIONS_MAX || index >= (1u << TL_CELL_NUMBER_BITS) - 1) return TL_NO_MEMORY;
        if (!kind->regions[region]) {
            uint8_t *mapped = map_region(region >= HUGE_FROM_REGION);
            if (!mapped) return TL_NO_MEMORY;
            kind->regions[region] = mapped;
        }
        __atomic_store_n(&kind->used, index + 1, __ATOMIC_RELEASE);
        *out = tl_cell_named(class, index + 1);
    }
    cells->held_bytes += (uint64_t)8 << class;
    return TL_OK;
}

void tl_cell_give(tl_cells *cells, tl_cell cell) {
    tl_cell_class *kind = &cells->classes[tl_cell_class_of(cell)];
    tl_cell_store32(tl_cell_own(cells, cell), 0, kind->freed);
    kind->freed = cell;
    cells->held_bytes -= tl_cell_size(cell);
}
