/* Nodes by name, and handles to nodes. A node lives as long as a name, a synced name or a handle has it.
 *
 * Names are whole paths without empty and "." elements ("a/b"; "" is the root), in one sorted list, so a directory
 * stands before what is in it. One mutex around every call. */
#define _POSIX_C_SOURCE 200809L
#include "memory_files.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct content {
    uint8_t *data;
    size_t size, capacity;
} content;

typedef struct node {
    content now, synced;
    size_t users; /* names, synced names, handles */
    bool is_directory;
} node;

typedef struct name {
    char *path;
    node *now, *synced; /* what it stands for, and what it stood for at the last fsync_dir; NULL: nothing */
} name;

typedef struct handle {
    node *node;       /* NULL: free */
    uint64_t crashes; /* when it was opened */
} handle;

struct tl_memory_files {
    pthread_mutex_t lock;
    uint64_t capacity, used; /* bytes of content, as it is now */
    uint64_t crashes;
    name *names;
    size_t name_count, name_capacity;
    handle *handles;
    size_t handle_count, handle_capacity;
};

/* Room for `needed` in an array that grows by doubling. */
static bool reserve(void **array, size_t *capacity, size_t needed, size_t element) {
    if (needed <= *capacity) return true;
    size_t wanted = *capacity ? *capacity : 8;
    while (wanted < needed) wanted *= 2;
    void *grown = realloc(*array, wanted * element);
    if (!grown) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static bool reserve_bytes(content *c, size_t needed) { return reserve((void **)&c->data, &c->capacity, needed, 1); }

static void let_go(tl_memory_files *memory, node *n) {
    if (!n || --n->users) return;
    memory->used -= n->now.size;
    free(n->now.data);
    free(n->synced.data);
    free(n);
}

static void point(tl_memory_files *memory, node **at, node *to) {
    if (to) to->users++;
    node *before = *at;
    *at = to;
    let_go(memory, before);
}

/* The path as names have it, on the heap; NULL without memory. */
static char *normal(const char *path) {
    char *made = malloc(strlen(path) + 1), *end = made;
    if (!made) return NULL;
    while (*path) {
        size_t length = strcspn(path, "/");
        if (length && !(length == 1 && *path == '.')) {
            if (end != made) *end++ = '/';
            memcpy(end, path, length);
            end += length;
        }
        path += length + (path[length] == '/');
    }
    *end = 0;
    return made;
}

/* Where a name is, or would have to be put. */
static size_t place_of(const tl_memory_files *memory, const char *path, size_t length, bool *found) {
    size_t low = 0, high = memory->name_count;
    *found = false;
    while (low < high && !*found) {
        size_t middle = low + (high - low) / 2;
        const char *here = memory->names[middle].path;
        int order = strncmp(here, path, length);
        if (!order) order = here[length] != 0;
        *found = order == 0;
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return high;
}

static name *find(const tl_memory_files *memory, const char *path) {
    bool found;
    size_t at = place_of(memory, path, strlen(path), &found);
    return found ? &memory->names[at] : NULL;
}

static node *find_node(const tl_memory_files *memory, const char *path) {
    name *found = find(memory, path);
    return found ? found->now : NULL;
}

/* The name, made where it is missing; NULL without memory. Others move. */
static name *claim(tl_memory_files *memory, const char *path) {
    bool found;
    size_t at = place_of(memory, path, strlen(path), &found);
    if (found) return &memory->names[at];
    char *copy = malloc(strlen(path) + 1);
    if (!copy || !reserve((void **)&memory->names, &memory->name_capacity, memory->name_count + 1, sizeof(name))) {
        free(copy);
        return NULL;
    }
    strcpy(copy, path);
    name *entry = &memory->names[at];
    memmove(entry + 1, entry, (memory->name_count++ - at) * sizeof(name));
    *entry = (name){.path = copy};
    return entry;
}

/* Takes the names away that stand for nothing, before and after a crash. */
static void sweep(tl_memory_files *memory) {
    size_t kept = 0;
    for (size_t i = 0; i < memory->name_count; i++) {
        name *entry = &memory->names[i];
        if (entry->now || entry->synced) {
            memory->names[kept++] = *entry;
        } else {
            free(entry->path);
        }
    }
    memory->name_count = kept;
}

/* Whether `path` lies directly in `directory`. */
static bool lies_in(const char *path, const char *directory) {
    size_t length = strlen(directory);
    if (!*path || strncmp(path, directory, length)) return false;
    const char *rest = path + length;
    if (length && *rest++ != '/') return false;
    return *rest && !strchr(rest, '/');
}

/* 0, or why there can be nothing at `path`: its directory is missing or a file. */
static int64_t check_parent(const tl_memory_files *memory, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return 0; /* the root is always there */
    bool found;
    size_t at = place_of(memory, path, (size_t)(slash - path), &found);
    node *parent = found ? memory->names[at].now : NULL;
    return !parent ? -ENOENT : parent->is_directory ? 0 : -ENOTDIR;
}

/* A new node under `path`, which has none. */
static int64_t add(tl_memory_files *memory, const char *path, bool is_directory, node **out) {
    int64_t error = check_parent(memory, path);
    if (error) return error;
    name *entry = claim(memory, path);
    node *made = calloc(1, sizeof *made);
    if (!entry || !made) {
        free(made);
        sweep(memory);
        return -ENOMEM;
    }
    made->is_directory = is_directory;
    point(memory, &entry->now, made);
    *out = made;
    return 0;
}

static int64_t new_handle(tl_memory_files *memory, node *n) {
    size_t at = 0;
    while (at < memory->handle_count && memory->handles[at].node) at++;
    if (at == memory->handle_count) {
        if (!reserve((void **)&memory->handles, &memory->handle_capacity, at + 1, sizeof(handle))) return -ENOMEM;
        memory->handles[memory->handle_count++] = (handle){0};
    }
    point(memory, &memory->handles[at].node, n);
    memory->handles[at].crashes = memory->crashes;
    return (int64_t)at;
}

/* The node of a handle, or why there is none. */
static int64_t node_of(const tl_memory_files *memory, int64_t file, node **out) {
    if (file < 0 || (uint64_t)file >= memory->handle_count || !memory->handles[file].node) return -EBADF;
    *out = memory->handles[file].node;
    return memory->handles[file].crashes == memory->crashes ? 0 : -EIO;
}

static int64_t open_locked(tl_memory_files *memory, const char *path, tl_open_mode mode) {
    node *found = find_node(memory, path);
    if (found && mode == TL_OPEN_NEW) return -EEXIST;
    if (found && found->is_directory) return mode == TL_OPEN_READ ? TL_NOT_REGULAR : -EISDIR;
    if (!found) {
        int64_t error = check_parent(memory, path);
        if (!error) error = mode == TL_OPEN_READ ? -ENOENT : add(memory, path, false, &found);
        if (error) return error;
    }
    return new_handle(memory, found);
}

static int64_t memory_open(void *context, const char *path, tl_open_mode mode) {
    tl_memory_files *memory = context;
    char *known_as = normal(path);
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
    if (file >= 0 && (uint64_t)file < memory->handle_count) point(memory, &memory->handles[file].node, NULL);
    pthread_mutex_unlock(&memory->lock);
}

static int64_t memory_size(void *context, int64_t file) {
    tl_memory_files *memory = context;
    node *found;
    pthread_mutex_lock(&memory->lock);
    int64_t error = node_of(memory, file, &found), size = error ? error : (int64_t)found->now.size;
    pthread_mutex_unlock(&memory->lock);
    return size;
}

static int64_t memory_pread(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    tl_memory_files *memory = context;
    node *found;
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

static int64_t write_locked(tl_memory_files *memory, content *c, uint64_t position, const uint8_t *data, size_t size) {
    uint64_t end = position + size;
    if (!size) return 0;
    if (end > c->size) {
        if (end - c->size > memory->capacity - memory->used) return -ENOSPC;
        if (!reserve_bytes(c, (size_t)end)) return -ENOSPC;
        memset(c->data + c->size, 0, (size_t)end - c->size);
        memory->used += end - c->size;
        c->size = (size_t)end;
    }
    memcpy(c->data + position, data, size);
    return 0;
}

static int64_t memory_pwrite(void *context, int64_t file, uint64_t position, const uint8_t *data, size_t size) {
    tl_memory_files *memory = context;
    node *found;
    if (position > INT64_MAX || size > INT64_MAX - position) return -EFBIG;
    pthread_mutex_lock(&memory->lock);
    int64_t error = node_of(memory, file, &found);
    if (!error) error = write_locked(memory, &found->now, position, data, size);
    pthread_mutex_unlock(&memory->lock);
    return error;
}

static int64_t memory_fsync(void *context, int64_t file) {
    tl_memory_files *memory = context;
    node *found;
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
    node *moved = find_node(memory, from), *replaced = find_node(memory, to);
    if (!moved) return -ENOENT;
    if (moved->is_directory) return -ENOTSUP; /* nobody renames directories */
    if (replaced && replaced->is_directory) return -EISDIR;
    if (moved == replaced) return 0;
    int64_t error = check_parent(memory, to);
    if (error) return error;
    name *target = claim(memory, to);
    if (!target) return -ENOMEM;
    point(memory, &target->now, moved);
    point(memory, &find(memory, from)->now, NULL);
    sweep(memory);
    return 0;
}

static int64_t memory_rename(void *context, const char *from, const char *to) {
    tl_memory_files *memory = context;
    char *known_from = normal(from), *known_to = normal(to);
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
    char *known_as = normal(path);
    if (!known_as) return -ENOMEM;
    pthread_mutex_lock(&memory->lock);
    name *found = find(memory, known_as);
    int64_t error = !found || !found->now ? -ENOENT : found->now->is_directory ? -EISDIR : 0;
    if (!error) {
        point(memory, &found->now, NULL);
        sweep(memory);
    }
    pthread_mutex_unlock(&memory->lock);
    free(known_as);
    return error;
}

static int64_t memory_mkdir(void *context, const char *path) {
    tl_memory_files *memory = context;
    node *made;
    char *known_as = normal(path);
    if (!known_as) return -ENOMEM;
    pthread_mutex_lock(&memory->lock);
    int64_t error = find_node(memory, known_as) ? -EEXIST : add(memory, known_as, true, &made);
    pthread_mutex_unlock(&memory->lock);
    free(known_as);
    return error;
}

static int64_t memory_fsync_dir(void *context, const char *path) {
    tl_memory_files *memory = context;
    char *known_as = normal(path);
    if (!known_as) return -ENOMEM;
    pthread_mutex_lock(&memory->lock);
    node *directory = find_node(memory, known_as);
    int64_t error = !directory ? -ENOENT : directory->is_directory ? 0 : -ENOTDIR;
    for (size_t i = 0; !error && i < memory->name_count; i++) {
        name *entry = &memory->names[i];
        if (lies_in(entry->path, known_as)) point(memory, &entry->synced, entry->now);
    }
    sweep(memory);
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
    node *made;
    if (add(memory, "", true, &made)) {
        tl_memory_files_destroy(memory);
        return TL_NO_MEMORY;
    }
    point(memory, &memory->names[0].synced, made);
    *out = memory;
    return TL_OK;
}

void tl_memory_files_destroy(tl_memory_files *memory) {
    if (!memory) return;
    for (size_t i = 0; i < memory->name_count; i++) {
        point(memory, &memory->names[i].now, NULL);
        point(memory, &memory->names[i].synced, NULL);
        free(memory->names[i].path);
    }
    for (size_t i = 0; i < memory->handle_count; i++) point(memory, &memory->handles[i].node, NULL);
    pthread_mutex_destroy(&memory->lock);
    free(memory->names);
    free(memory->handles);
    free(memory);
}

void tl_memory_files_crash(tl_memory_files *memory) {
    pthread_mutex_lock(&memory->lock);
    memory->crashes++;
    /* A directory that is lost takes along what is in it; it comes before. */
    for (size_t i = 0; i < memory->name_count; i++) {
        name *entry = &memory->names[i];
        point(memory, &entry->now, check_parent(memory, entry->path) ? NULL : entry->synced);
        point(memory, &entry->synced, entry->now);
    }
    sweep(memory);
    for (size_t i = 0; i < memory->name_count; i++) {
        node *left = memory->names[i].now;
        if (!left || left->is_directory) continue;
        memory->used -= left->now.size;
        left->now.size = 0;
        write_locked(memory, &left->now, 0, left->synced.data, left->synced.size);
    }
    pthread_mutex_unlock(&memory->lock);
}

tl_files tl_memory_files_of(tl_memory_files *memory) {
    static const tl_file_ops OPS = {
        .open = memory_open,
        .close = memory_close,
        .size = memory_size,
        .pread = memory_pread,
        .pwrite = memory_pwrite,
        .fsync = memory_fsync,
        .rename = memory_rename,
        .unlink = memory_unlink,
        .mkdir = memory_mkdir,
        .fsync_dir = memory_fsync_dir,
    };
    return (tl_files){&OPS, memory};
}
