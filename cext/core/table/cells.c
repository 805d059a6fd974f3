/* Slabs of cells, cut off areas that are mapped one after another. Memory comes in usual pages, a slab's at once: a
 * huge page is cleared while whoever touched it first waits, up to 10 ms on a virtual machine that never had it. Where
 * all of a huge page has been cut the system may make it one (later, aside), or tl_cells_settle does. */
#define _DEFAULT_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "table/cells.h"

#include <stdlib.h>
#include <sys/mman.h>

enum {
    HUGE_PAGE = 2 << 20,
    FIRST_AREA = 1 << 20, /* a small table has no huge pages */
    AREA = 32 << 20,
    SLAB_MAX_AT_ONCE = 1 << 16, /* of larger ones a cell may be all that is ever used */
    SLABS_BY_TOUCH = 2,         /* of a class, before whole ones are asked for */
    ADVICE_POPULATE = 23,       /* MADV_POPULATE_WRITE, since Linux 5.14 */
    ADVICE_COLLAPSE = 25,       /* MADV_COLLAPSE, since Linux 6.1 */
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

/* An area begins at a multiple of a huge page, so that it can be made of them. */
static uint8_t *map_area(size_t size) {
    void *mapped = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return NULL;
    uint8_t *at = mapped;
    size_t before = (HUGE_PAGE - (uintptr_t)at % HUGE_PAGE) % HUGE_PAGE;
    if (before) munmap(at, before);
    if (HUGE_PAGE > before) munmap(at + before + size, HUGE_PAGE - before);
#ifdef MADV_NOHUGEPAGE
    madvise(at + before, size, MADV_NOHUGEPAGE);
#endif
    return at + before;
}

/* Huge pages of which all has been cut. */
static void let_be_huge(struct tl_cell_area *area) {
    size_t whole = area->used / HUGE_PAGE * HUGE_PAGE;
    if (whole == area->huge) return;
#ifdef MADV_HUGEPAGE
    madvise(area->at + area->huge, whole - area->huge, MADV_HUGEPAGE);
#endif
    area->huge = whole;
}

static uint8_t *cut_slab(tl_cells *cells, size_t size, bool populate) {
    struct tl_cell_area *area = NULL;
    for (size_t i = cells->area_count; !area && i > 0 && i + 2 > cells->area_count; i--) /* the last two */
        if (cells->areas[i - 1].size - cells->areas[i - 1].used >= size) area = &cells->areas[i - 1];
    if (!area) {
        struct tl_cell_area *more = realloc(cells->areas, (cells->area_count + 1) * sizeof *more);
        if (!more) return NULL;
        cells->areas = more;
        size_t whole = cells->area_count == 0 && size < FIRST_AREA ? FIRST_AREA : AREA;
        uint8_t *at = map_area(whole);
        if (!at) return NULL;
        area = &more[cells->area_count++];
        *area = (struct tl_cell_area){.at = at, .size = whole};
    }
    uint8_t *slab = area->at + area->used;
    area->used += size;
#ifdef __linux__
    if (populate && size <= SLAB_MAX_AT_ONCE) madvise(slab, size, ADVICE_POPULATE); /* else page by page, as ever */
#endif
    let_be_huge(area);
    return slab;
}

size_t tl_cells_settle(tl_cells *cells, size_t pages) {
    size_t asked = 0;
#ifdef __linux__
    for (size_t i = 0; i < cells->area_count; i++) {
        struct tl_cell_area *area = &cells->areas[i];
        for (; area->settled < area->huge && asked < pages; area->settled += HUGE_PAGE, asked++)
            madvise(area->at + area->settled, HUGE_PAGE, ADVICE_COLLAPSE); /* where it cannot be, nothing is lost */
    }
#else
    (void)cells;
    (void)pages;
#endif
    return asked;
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
        kind->slabs[slab] = cut_slab(cells, tl_cell_class_size(class) << shift, slab >= SLABS_BY_TOUCH);
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
