/* Memory for bytes that come and go by the megabyte: mapped by ourselves, used again, given back when idle.
 *
 * malloc maps such blocks anew each time, at a page fault for every 4 KiB, until it has learned their size; from then
 * on it takes them from arenas, one a thread, whose middle never goes back to the system. A pool keeps what is given
 * back for the next who takes. What nobody wanted for a while is unmapped, by a thread that is there only while there
 * is something to unmap. */
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

/* `kept_max`: bytes that nobody holds, at most. `kept_spare`: beyond so many, kept blocks make room for one of another
 * size that has to be mapped: what a process has of the system is what was lent at once, and these. `kept_min`: so many
 * stay for good; the others go back to the system when nobody wanted them for `idle_ms`. */
typedef struct tl_buffer_limits {
    size_t struct_size;
    size_t kept_max, kept_spare, kept_min;
    int64_t idle_ms;
} tl_buffer_limits;

/* Bytes that are lent and kept now; whether there is a thread that gives back. */
typedef struct tl_buffer_figures {
    size_t lent, kept;
    bool has_thread;
} tl_buffer_figures;

TL_API tl_status tl_buffer_pool_create(tl_buffer_pool **out, const tl_buffer_limits *limits);

/* Nothing may be lent; waits for its thread. */
TL_API void tl_buffer_pool_destroy(tl_buffer_pool *pool);

/* A block of `size` bytes or more, never one that somebody holds. TL_NO_MEMORY. */
TL_API tl_status tl_buffer_take(tl_buffer_pool *pool, size_t size, tl_block **out);

/* Its holder is done with it. Any thread, at any time. */
TL_API void tl_buffer_give(tl_block *block);

/* Somebody else's malloc, of this process, holds or held so many bytes of ours: when none were noted for `idle_ms`,
 * malloc is asked to give back what is free (glibc: malloc_trim). */
TL_API void tl_buffer_note_foreign(tl_buffer_pool *pool, size_t size);

/* Give back what nobody wanted for `idle_ms`, without regard to `kept_min`; the bytes. */
TL_API size_t tl_buffer_pool_trim(tl_buffer_pool *pool, int64_t idle_ms);

TL_API tl_buffer_figures tl_buffer_pool_figures(tl_buffer_pool *pool);

/* Around a fork: nobody changes the pool meanwhile. A child has what was kept, and no thread. */
TL_API void tl_buffer_pool_before_fork(tl_buffer_pool *pool);
TL_API void tl_buffer_pool_after_fork(tl_buffer_pool *pool, bool is_child);

#ifdef __cplusplus
}
#endif
#endif
