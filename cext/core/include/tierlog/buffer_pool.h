/* Memory for bytes that come and go by the megabyte: mapped by ourselves, used again, unmapped when idle.
 *
 * malloc maps such blocks anew each time, at a page fault for every 4 KiB, until it has learned their size; from
 * then on it takes them from arenas, one a thread, whose middle never goes back to the system. A pool holds freed
 * blocks for the next caller. Blocks that are unused for a while are unmapped, by a thread that runs only while
 * there are such blocks. */
#ifndef TIERLOG_BUFFER_POOL_H
#define TIERLOG_BUFFER_POOL_H

#include "status.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_buffer_pool tl_buffer_pool;

/* Memory of the holder, writable, not cleared, of `capacity` bytes at least as many as were asked for. */
typedef struct tl_block {
    uint8_t *data;
    size_t capacity;
    struct tl_block *next; /* the pool's */
    int64_t given_at_ms;   /* the pool's */
    tl_buffer_pool *pool;
} tl_block;

/* `kept_max`: free bytes, at most. `kept_spare`: beyond so many, free blocks make room for one of another size that
 * has to be mapped: a process has the bytes that were lent at once, and these. `kept_min`: so many always stay; the
 * others go back to the system when they are unused for `idle_ms`. */
typedef struct tl_buffer_limits {
    size_t struct_size;
    size_t kept_max, kept_spare, kept_min;
    int64_t idle_ms;
} tl_buffer_limits;

/* Bytes that are lent and free now; whether the thread that unmaps runs. */
typedef struct tl_buffer_figures {
    size_t lent, kept;
    bool has_thread;
} tl_buffer_figures;

TL_API tl_status tl_buffer_pool_create(tl_buffer_pool **out, const tl_buffer_limits *limits);

/* Nothing may be lent; waits for its thread. */
TL_API void tl_buffer_pool_destroy(tl_buffer_pool *pool);

/* Takes a block of `size` bytes or more, never a lent one. TL_NO_MEMORY. */
TL_API tl_status tl_buffer_take(tl_buffer_pool *pool, size_t size, tl_block **out);

/* Frees a block. Any thread, at any time. */
TL_API void tl_buffer_give(tl_block *block);

/* Notes that another library's malloc, of this process, holds or held so many bytes of ours: when none were noted
 * for `idle_ms`, malloc is asked to release free memory (glibc: malloc_trim). */
TL_API void tl_buffer_note_foreign(tl_buffer_pool *pool, size_t size);

/* Unmaps blocks that are unused for `idle_ms`, without regard to `kept_min`; returns the bytes. */
TL_API size_t tl_buffer_pool_trim(tl_buffer_pool *pool, int64_t idle_ms);

TL_API tl_buffer_figures tl_buffer_pool_figures(tl_buffer_pool *pool);

/* Around a fork: no thread changes the pool meanwhile. A child has the free blocks, and no thread. */
TL_API void tl_buffer_pool_before_fork(tl_buffer_pool *pool);
TL_API void tl_buffer_pool_after_fork(tl_buffer_pool *pool, bool is_child);

#ifdef __cplusplus
}
#endif
#endif
