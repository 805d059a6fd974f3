/* Free blocks in lists, one a size class, under one mutex; nothing is mapped or unmapped while it is held. */
#define _DEFAULT_SOURCE 1
#define _DARWIN_C_SOURCE 1
#include "tierlog/buffer_pool.h"
#include "tierlog/mapped_memory.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif

enum {
    POOLED_BITS_MIN = 17, /* 64 KiB: smaller ones are malloc's, which caches those */
    POOLED_BITS_MAX = 27, /* 64 MiB: larger ones are mapped for one holder */
    CLASSES = (POOLED_BITS_MAX - POOLED_BITS_MIN) * 8 + 1,
    THREAD_STACK_BYTES = 128 << 10,
    STEP_MS_MIN = 10,
};

struct tl_buffer_pool {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* is_closing, has_thread */
    tl_buffer_limits limits;
    tl_block *kept[CLASSES]; /* newest first */
    size_t kept_bytes, lent_bytes;
    bool has_thread, is_closing;
    bool has_foreign;
    int64_t foreign_at_ms;
};

static int64_t now_ms(void) {
    struct timespec now;
#ifdef CLOCK_MONOTONIC_COARSE
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
#else
    clock_gettime(CLOCK_MONOTONIC, &now);
#endif
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int bit_length(size_t value) { return value ? 64 - __builtin_clzll((unsigned long long)value) : 0; }

/* One of eight sizes between powers of two, so that chunks of nearly the same size share blocks; -1 for none. Sets the
 * size that is mapped. */
static int class_of(size_t size, size_t *capacity) {
    int bits = bit_length(size);
    *capacity = size;
    if (bits < POOLED_BITS_MIN || size > (size_t)1 << (POOLED_BITS_MAX - 1)) return -1;
    size_t steps = (size + ((size_t)1 << (bits - 4)) - 1) >> (bits - 4);
    *capacity = steps << (bits - 4);
    return (bits - POOLED_BITS_MIN) * 8 + (int)steps - 8;
}

static bool is_mapped(size_t capacity) { return bit_length(capacity) >= POOLED_BITS_MIN; }

static void lock_cond_init(tl_buffer_pool *pool) {
    pthread_mutex_init(&pool->lock, NULL);
#ifdef __APPLE__
    pthread_cond_init(&pool->changed, NULL);
#else
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
#endif
}

tl_status tl_buffer_pool_create(tl_buffer_pool **out, const tl_buffer_limits *limits) {
    if (limits->struct_size < sizeof *limits) return TL_BAD_ARGUMENT;
    tl_buffer_pool *pool = calloc(1, sizeof *pool);
    if (!pool) return TL_NO_MEMORY;
    pool->limits = *limits;
    lock_cond_init(pool);
    *out = pool;
    return TL_OK;
}

static tl_block *new_block(size_t size, size_t capacity) {
    if (!is_mapped(capacity)) { /* block and bytes in one */
        tl_block *block = size <= SIZE_MAX - sizeof *block ? malloc(sizeof *block + size) : NULL;
        if (block) *block = (tl_block){.data = (uint8_t *)(block + 1), .capacity = size};
        return block;
    }
    tl_block *block = malloc(sizeof *block);
    if (!block) return NULL;
    void *data = tl_memory_map(capacity);
    if (!data) {
        free(block);
        return NULL;
    }
    *block = (tl_block){.data = data, .capacity = capacity};
    return block;
}

/* Unmaps a list of blocks without a holder; returns the bytes. */
static size_t unmap(tl_block *blocks) {
    size_t freed = 0;
    while (blocks) {
        tl_block *next = blocks->next;
        freed += blocks->capacity;
        if (is_mapped(blocks->capacity)) tl_memory_unmap(blocks->data, blocks->capacity);
        free(blocks);
        blocks = next;
    }
    return freed;
}

/* Under the lock: removes the blocks that were freed before then, oldest first out of each class, down to so many
 * free bytes. */
static tl_block *cut(tl_buffer_pool *pool, int64_t before_ms, size_t kept_min) {
    tl_block *gone = NULL;
    for (int class = CLASSES - 1; class >= 0; class --) {
        tl_block **at = &pool->kept[class];
        while (*at && (*at)->given_at_ms > before_ms) at = &(*at)->next;
        while (*at && pool->kept_bytes > kept_min) { /* newest first: all that follow are older */
            tl_block *block = *at;
            *at = block->next;
            pool->kept_bytes -= block->capacity;
            block->next = gone;
            gone = block;
        }
    }
    return gone;
}

/* Under the lock: removes free blocks of other sizes to make room for so many bytes that have to be mapped, largest
 * first, so that the process never has much more than was lent at once. */
static tl_block *make_room(tl_buffer_pool *pool, size_t size) {
    tl_block *gone = NULL;
    size_t freed = 0;
    for (int class = CLASSES - 1; class >= 0; class --) {
        while (pool->kept[class] && freed < size && pool->kept_bytes > pool->limits.kept_spare) {
            tl_block *block = pool->kept[class];
            pool->kept[class] = block->next;
            pool->kept_bytes -= block->capacity;
            freed += block->capacity;
            block->next = gone;
            gone = block;
        }
    }
    return gone;
}

static void wait_ms(tl_buffer_pool *pool, int64_t ms) {
#ifdef __APPLE__
    struct timespec span = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    pthread_cond_timedwait_relative_np(&pool->changed, &pool->lock, &span);
#else
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)(ms / 1000);
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
#endif
}

static bool has_work(const tl_buffer_pool *pool) {
    return !pool->is_closing && (pool->kept_bytes > pool->limits.kept_min || pool->has_foreign);
}

static void *give_back(void *context) {
    tl_buffer_pool *pool = context;
    int64_t idle_ms = pool->limits.idle_ms;
    pthread_mutex_lock(&pool->lock);
    while (has_work(pool)) {
        wait_ms(pool, idle_ms / 2 > STEP_MS_MIN ? idle_ms / 2 : STEP_MS_MIN);
        int64_t before_ms = now_ms() - idle_ms;
        tl_block *gone = cut(pool, before_ms, pool->limits.kept_min);
        bool is_foreign_idle = pool->has_foreign && pool->foreign_at_ms <= before_ms;
        if (is_foreign_idle) pool->has_foreign = false;
        pthread_mutex_unlock(&pool->lock);
        unmap(gone);
#ifdef __GLIBC__
        if (is_foreign_idle) malloc_trim(0);
#endif
        pthread_mutex_lock(&pool->lock);
    }
    pool->has_thread = false;
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

/* Under the lock: whether the caller has to start the thread. */
static bool claim_thread(tl_buffer_pool *pool) {
    if (pool->has_thread || !has_work(pool)) return false;
    pool->has_thread = true;
    return true;
}

/* The thread takes no signals: those are for the threads of the program. If it cannot be started, the next call that
 * frees a block tries again. */
static void start_thread(tl_buffer_pool *pool) {
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&thread, &attributes, give_back, pool);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error) {
        pthread_mutex_lock(&pool->lock);
        pool->has_thread = false;
        pthread_cond_broadcast(&pool->changed);
        pthread_mutex_unlock(&pool->lock);
    }
}

tl_status tl_buffer_take(tl_buffer_pool *pool, size_t size, tl_block **out) {
    size_t capacity;
    int class = class_of(size, &capacity);
    tl_block *block = NULL;
    if (class >= 0) {
        pthread_mutex_lock(&pool->lock);
        block = pool->kept[class];
        if (block) {
            pool->kept[class] = block->next;
            pool->kept_bytes -= block->capacity;
            pool->lent_bytes += block->capacity;
        }
        pthread_mutex_unlock(&pool->lock);
    }
    if (!block) {
        block = new_block(size, capacity);
        if (!block) return TL_NO_MEMORY;
        block->pool = pool;
        pthread_mutex_lock(&pool->lock);
        pool->lent_bytes += block->capacity;
        tl_block *gone = is_mapped(capacity) ? make_room(pool, capacity) : NULL;
        pthread_mutex_unlock(&pool->lock);
        unmap(gone);
    }
    block->next = NULL;
    *out = block;
    return TL_OK;
}

void tl_buffer_give(tl_block *block) {
    tl_buffer_pool *pool = block->pool;
    size_t capacity;
    int class = class_of(block->capacity, &capacity);
    pthread_mutex_lock(&pool->lock);
    pool->lent_bytes -= block->capacity;
    bool is_kept = class >= 0 && block->capacity <= pool->limits.kept_max - pool->kept_bytes;
    if (is_kept) {
        block->given_at_ms = now_ms();
        block->next = pool->kept[class];
        pool->kept[class] = block;
        pool->kept_bytes += block->capacity;
    }
    bool needs_thread = claim_thread(pool);
    pthread_mutex_unlock(&pool->lock);
    if (!is_kept) unmap(block);
    if (needs_thread) start_thread(pool);
}

void tl_buffer_note_foreign(tl_buffer_pool *pool, size_t size) {
    if (!is_mapped(size)) return;
    pthread_mutex_lock(&pool->lock);
    pool->has_foreign = true;
    pool->foreign_at_ms = now_ms();
    bool needs_thread = claim_thread(pool);
    pthread_mutex_unlock(&pool->lock);
    if (needs_thread) start_thread(pool);
}

size_t tl_buffer_pool_trim(tl_buffer_pool *pool, int64_t idle_ms) {
    pthread_mutex_lock(&pool->lock);
    tl_block *gone = cut(pool, now_ms() - idle_ms, 0);
    pthread_mutex_unlock(&pool->lock);
    return unmap(gone);
}

tl_buffer_figures tl_buffer_pool_figures(tl_buffer_pool *pool) {
    pthread_mutex_lock(&pool->lock);
    tl_buffer_figures figures = {pool->lent_bytes, pool->kept_bytes, pool->has_thread};
    pthread_mutex_unlock(&pool->lock);
    return figures;
}

void tl_buffer_pool_before_fork(tl_buffer_pool *pool) { pthread_mutex_lock(&pool->lock); }

void tl_buffer_pool_after_fork(tl_buffer_pool *pool, bool is_child) {
    if (!is_child) {
        pthread_mutex_unlock(&pool->lock);
        return;
    }
    lock_cond_init(pool); /* its thread, which may have waited there, is the parent's */
    pool->has_thread = false;
}

void tl_buffer_pool_destroy(tl_buffer_pool *pool) {
    if (!pool) return;
    pthread_mutex_lock(&pool->lock);
    pool->is_closing = true;
    pthread_cond_broadcast(&pool->changed);
    while (pool->has_thread) pthread_cond_wait(&pool->changed, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
    tl_buffer_pool_trim(pool, -1000);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}
