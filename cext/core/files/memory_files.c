/* Handles to nodes of a tree, and the table over them: one mutex around every call. */
#define _POSIX_C_SOURCE 200809L
#include "files/memory_files.h"

#include "files/memory_tree.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct handle {
    tl_node *node;    /* NULL: free */
    uint64_t crashes; /* when it was opened */
} handle;

struct tl_memory_files {
    pthread_mutex_t lock;
    tl_tree tree;
    uint64_t capacity; /* of content, bytes */
    uint64_t crashes;
    handle *handles;
    size_t handle_count, handle_capacity;
};

static bool reserve_bytes(tl_content *c, size_t needed) {
    return tl_reserve((void **)&c->data, &c->capacity, needed, 1);
}

static int64_t new_handle(tl_memory_files *memory, tl_node *n) {
    size_t at = 0;
    while (at < memory->handle_count && memory->handles[at].node) at++;
    if (at == memory->handle_count) {
        if (!tl_reserve((void **)&memory->handles, &memory->handle_capacity, at + 1, sizeof(handle))) return -ENOMEM;
        memory->handles[memory->handle_count++] = (handle){0};
    }
    tl_point(&memory->tree, &memory->handles[at].node, n);
    memory->handles[at].crashes = memory->crashes;
    return (int64_t)at;
}

/* The node of a handle, or why there is none. */
static int64_t node_of(const tl_memory_files *memory, int64_t file, tl_node **out) {
    if (file < 0 || (uint64_t)file >= memory->handle_count || !memory->handles[file].node) return -EBADF;
    *out = memory->handles[file].node;
    return memory->handles[file].crashes == memory->crashes ? 0 : -EIO;
}

static int64_t open_locked(tl_memory_files *memory, const char *path, tl_open_mode mode) {
    tl_node *found = tl_find_node(&memory->tree, path);
    if (found && mode == TL_OPEN_NEW) return -EEXIST;
    bool is_read = mode == TL_OPEN_READ || mode == TL_OPEN_READY;
    if (found && found->is_directory) return is_read ? TL_NOT_REGULAR : -EISDIR;
    if (!found) {
        int64_t error = tl_check_parent(&memory->tree, path);
        if (!error) error = is_read ? -ENOENT : tl_add_node(&memory->tree, path, false, &found);
        if (error) return error;
    }
    return new_handle(memory, found);
}

static int64_t memory_open(void *context, const char *path, tl_open_mode mode) {
    tl_memory_files *memory = context;
    char *known_as = tl_normal_path(path);
    if (!known_as) return -ENOMEM;
    pthread_mutex_lock(&memory->lock);
    int64_t file = open_locked(memory, known_as, mode);
    pthread_mutex_unlock(&memory->lock);
    free(known_as);
    return file;
}

static void memory_close(void *context, int64_t file) {
    tl_memory_files *memory = context;
    pthread_mutex_lock(&memory->lock);
    if (file >= 0 && (uint64_t)file < memory->handle_count) tl_point(&memory->tree, &memory->handles[file].node, NULL);
    pthread_mutex_unlock(&memory->lock);
}

static int64_t memory_size(void *context, int64_t file) {
    tl_memory_files *memory = context;
    tl_node *found;
    pthread_mutex_lock(&memory->lock);
    int64_t error = node_of(memory, file, &found), size = error ? error : (int64_t)found->now.size;
    pthread_mutex_unlock(&memory->lock);
    return size;
}

static int64_t memory_pread(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    tl_memory_files *memory = context;
    tl_node *found;
    if (position > INT64_MAX || size > INT64_MAX - position) return -EINVAL;
    pthread_mutex_lock(&memory->lock);
    int64_t done = node_of(memory, file, &found);
    if (!done && position < found->now.size) {
        size_t left = found->now.size - (size_t)position;
        done = (int64_t)(size < left ? size : left);
        if (done) memcpy(out, found->now.data + position, (size_t)done);
    }
    pthread_mutex_unlock(&memory->lock);
    return done;
}

static int64_t memory_holds(void *context, int64_t file, uint64_t position, uint64_t size) {
    int64_t there = memory_size(context, file);
    if (there < 0) return there;
    return position <= (uint64_t)there && size <= (uint64_t)there - position;
}

static int64_t write_locked(tl_memory_files *memory, tl_content *c, uint64_t position, const uint8_t *data,
                            size_t size) {
    uint64_t end = position + size;
    if (!size) return 0;
    if (end > c->size) {
        if (end - c->size > memory->capacity - memory->tree.used) return -ENOSPC;
        if (!reserve_bytes(c, (size_t)end)) return -ENOSPC;
        memset(c->data + c->size, 0, (size_t)end - c->size);
        memory->tree.used += end - c->size;
        c->size = (size_t)end;
    }
    memcpy(c->data + position, data, size);
    return 0;
}

static int64_t memory_pwrite(void *context, int64_t file, uint64_t position, const uint8_t *data, size_t size) {
    tl_memory_files *memory = context;
    tl_node *found;
    if (position > INT64_MAX || size > INT64_MAX - position) return -EFBIG;
    pthread_mutex_lock(&memory->lock);
    int64_t error = node_of(memory, file, &found);
    if (!error) error = write_locked(memory, &found->now, position, data, size);
    pthread_mutex_unlock(&memory->lock);
    return error;
}

static int64_t truncate_locked(tl_memory_files *memory, tl_content *c, uint64_t size) {
    if (size < c->size) {
        memory->tree.used -= c->size - size;
        c->size = (size_t)size;
    }
    return size == c->size ? 0 : write_locked(memory, c, size - 1, &(uint8_t){0}, 1);
}

static int64_t memory_truncate(void *context, int64_t file, uint64_t size) {
    tl_memory_files *memory = context;
    tl_node *found;
    if (size > INT64_MAX) return -EFBIG;
    pthread_mutex_lock(&memory->lock);
    int64_t error = node_of(memory, file, &found);
    if (!error) error = truncate_locked(memory, &found->now, size);
    pthread_mutex_unlock(&memory->lock);
    return error;
}

static int64_t memory_reserve(void *context, int64_t file, uint64_t position, uint64_t size) {
    (void)context, (void)file, (void)position, (void)size;
    return -ENOTSUP;
}

static int64_t memory_fsync(void *context, int64_t file) {
    tl_memory_files *memory = context;
    tl_node *found;
    pthread_mutex_lock(&memory->lock);
    int64_t error = node_of(memory, file, &found);
    if (!error && !reserve_bytes(&found->synced, found->now.size)) error = -EIO;
    if (!error) {
        if (found->now.size) memcpy(found->synced.data, found->now.data, found->now.size);
        found->synced.size = found->now.size;
    }
    pthread_mutex_unlock(&memory->lock);
    return error;
}

static int64_t rename_locked(tl_memory_files *memory, const char *from, const char *to) {
    tl_node *moved = tl_find_node(&memory->tree, from), *replaced = tl_find_node(&memory->tree, to);
    if (!moved) return -ENOENT;
    if (moved->is_directory) return -ENOTSUP; /* directories are not renamed */
    if (replaced && replaced->is_directory) return -EISDIR;
    if (moved == replaced) return 0;
    int64_t error = tl_check_parent(&memory->tree, to);
    if (error) return error;
    tl_name *target = tl_claim_name(&memory->tree, to);
    if (!target) return -ENOMEM;
    tl_point(&memory->tree, &target->now, moved);
    tl_point(&memory->tree, &tl_find_name(&memory->tree, from)->now, NULL);
    tl_sweep_names(&memory->tree);
    return 0;
}

static int64_t memory_rename(void *context, const char *from, const char *to) {
    tl_memory_files *memory = context;
    char *known_from = tl_normal_path(from), *known_to = tl_normal_path(to);
    int64_t error = -ENOMEM;
    if (known_from && known_to) {
        pthread_mutex_lock(&memory->lock);
        error = rename_locked(memory, known_from, known_to);
        pthread_mutex_unlock(&memory->lock);
    }
    free(known_from);
    free(known_to);
    return error;
}

static int64_t memory_unlink(void *context, const char *path) {
    tl_memory_files *memory = context;
    char *known_as = tl_normal_path(path);
    if (!known_as) return -ENOMEM;
    pthread_mutex_lock(&memory->lock);
    tl_name *found = tl_find_name(&memory->tree, known_as);
    int64_t error = !found || !found->now ? -ENOENT : found->now->is_directory ? -EISDIR : 0;
    if (!error) {
        tl_point(&memory->tree, &found->now, NULL);
        tl_sweep_names(&memory->tree);
    }
    pthread_mutex_unlock(&memory->lock);
    free(known_as);
    return error;
}

static int64_t memory_mkdir(void *context, const char *path) {
    tl_memory_files *memory = context;
    tl_node *made;
    char *known_as = tl_normal_path(path);
    if (!known_as) return -ENOMEM;
    pthread_mutex_lock(&memory->lock);
    int64_t error = tl_find_node(&memory->tree, known_as) ? -EEXIST : tl_add_node(&memory->tree, known_as, true, &made);
    pthread_mutex_unlock(&memory->lock);
    free(known_as);
    return error;
}

static void sync_name(tl_tree *tree, tl_name *entry) {
    tl_node *before = entry->synced, *now = entry->now;
    if (before == now) return;
    tl_point(tree, &entry->synced, now);
    /* A rename is never done by half: the node's other name goes, or comes, in the same moment. */
    for (size_t i = 0; i < tree->count; i++) {
        tl_name *other = &tree->names[i];
        bool is_where_it_was = now && other->synced == now && other->now != now;
        bool is_where_it_went = before && other->now == before && other->synced != before;
        if (is_where_it_was || is_where_it_went) sync_name(tree, other);
    }
}

static int64_t memory_fsync_dir(void *context, const char *path) {
    tl_memory_files *memory = context;
    char *known_as = tl_normal_path(path);
    if (!known_as) return -ENOMEM;
    pthread_mutex_lock(&memory->lock);
    tl_node *directory = tl_find_node(&memory->tree, known_as);
    int64_t error = !directory ? -ENOENT : directory->is_directory ? 0 : -ENOTDIR;
    for (size_t i = 0; !error && i < memory->tree.count; i++) {
        tl_name *entry = &memory->tree.names[i];
        if (tl_lies_in(entry->path, known_as)) sync_name(&memory->tree, entry);
    }
    tl_sweep_names(&memory->tree);
    pthread_mutex_unlock(&memory->lock);
    free(known_as);
    return error;
}

tl_status tl_memory_files_create(tl_memory_files **out, uint64_t capacity) {
    *out = NULL;
    tl_memory_files *memory = calloc(1, sizeof *memory);
    if (!memory) return TL_NO_MEMORY;
    memory->capacity = capacity;
    if (pthread_mutex_init(&memory->lock, NULL)) {
        free(memory);
        return TL_NO_MEMORY;
    }
    tl_node *made;
    if (tl_add_node(&memory->tree, "", true, &made)) {
        tl_memory_files_destroy(memory);
        return TL_NO_MEMORY;
    }
    tl_point(&memory->tree, &memory->tree.names[0].synced, made);
    *out = memory;
    return TL_OK;
}

void tl_memory_files_destroy(tl_memory_files *memory) {
    if (!memory) return;
    for (size_t i = 0; i < memory->handle_count; i++) tl_point(&memory->tree, &memory->handles[i].node, NULL);
    tl_clear_tree(&memory->tree);
    pthread_mutex_destroy(&memory->lock);
    free(memory->handles);
    free(memory);
}

void tl_memory_files_crash(tl_memory_files *memory) {
    pthread_mutex_lock(&memory->lock);
    memory->crashes++;
    /* A lost directory takes along its content; it comes before. */
    for (size_t i = 0; i < memory->tree.count; i++) {
        tl_name *entry = &memory->tree.names[i];
        tl_point(&memory->tree, &entry->now, tl_check_parent(&memory->tree, entry->path) ? NULL : entry->synced);
        tl_point(&memory->tree, &entry->synced, entry->now);
    }
    tl_sweep_names(&memory->tree);
    for (size_t i = 0; i < memory->tree.count; i++) {
        tl_node *left = memory->tree.names[i].now;
        if (!left || left->is_directory) continue;
        memory->tree.used -= left->now.size;
        left->now.size = 0;
        write_locked(memory, &left->now, 0, left->synced.data, left->synced.size);
    }
    pthread_mutex_unlock(&memory->lock);
}

tl_files tl_memory_files_of(tl_memory_files *memory) {
    static const tl_file_ops OPS = {
        .struct_size = sizeof(tl_file_ops),
        .open = memory_open,
        .close = memory_close,
        .size = memory_size,
        .pread = memory_pread,
        .pread_ready = memory_pread, /* all of it is in memory */
        .holds = memory_holds,
        .pwrite = memory_pwrite,
        .truncate = memory_truncate,
        .reserve = memory_reserve,
        .fsync = memory_fsync,
        .rename = memory_rename,
        .unlink = memory_unlink,
        .mkdir = memory_mkdir,
        .fsync_dir = memory_fsync_dir,
    };
    return (tl_files){&OPS, memory};
}
