#define _DEFAULT_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "tierlog/mapped_memory.h"

#include <sys/mman.h>
#include <unistd.h>

enum { HUGE_PAGE_BYTES = 2 << 20 };

void *tl_memory_map(size_t size) {
    size_t spare = size >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 0;
    if (size > SIZE_MAX - spare) return NULL;
    uint8_t *at = mmap(NULL, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
    if (!spare) return at;
    size_t before = (HUGE_PAGE_BYTES - (uintptr_t)at % HUGE_PAGE_BYTES) % HUGE_PAGE_BYTES;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t end = (size + page - 1) / page * page; /* as munmap rounds */
    if (before) munmap(at, before);
    if (end < size + spare - before) munmap(at + before + end, size + spare - before - end);
#ifdef MADV_HUGEPAGE
    madvise(at + before, size, MADV_HUGEPAGE);
#endif
    return at + before;
}

void tl_memory_unmap(void *memory, size_t size) { munmap(memory, size); }
