#include "files/memory_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool tl_reserve(void **array, size_t *capacity, size_t needed, size_t element) {
    if (needed <= *capacity) return true;
    size_t wanted = *capacity ? *capacity : 8;
    while (wanted < needed) wanted *= 2;
    void *grown = realloc(*array, wanted * element);
    if (!grown) return false;
    *array = grown;
    *capacity = wanted;
    return true;
}

static void let_go(tl_tree *tree, tl_node *n) {
    if (!n || --n->users) return;
    tree->used -= n->now.size;
    free(n->now.data);
    free(n->synced.data);
    free(n);
}

void tl_point(tl_tree *tree, tl_node **at, tl_node *to) {
    if (to) to->users++;
    tl_node *before = *at;
    *at = to;
    let_go(tree, before);
}

char *tl_normal_path(const char *path) {
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

/* The index of a name, or the index at which to insert it. */
static size_t place_of(const tl_tree *tree, const char *path, size_t length, bool *found) {
    size_t low = 0, high = tree->count;
    *found = false;
    while (low < high && !*found) {
        size_t middle = low + (high - low) / 2;
        const char *here = tree->names[middle].path;
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

tl_name *tl_find_name(const tl_tree *tree, const char *path) {
    bool found;
    size_t at = place_of(tree, path, strlen(path), &found);
    return found ? &tree->names[at] : NULL;
}

tl_node *tl_find_node(const tl_tree *tree, const char *path) {
    tl_name *found = tl_find_name(tree, path);
    return found ? found->now : NULL;
}

tl_name *tl_claim_name(tl_tree *tree, const char *path) {
    bool found;
    size_t at = place_of(tree, path, strlen(path), &found);
    if (found) return &tree->names[at];
    char *copy = malloc(strlen(path) + 1);
    if (!copy || !tl_reserve((void **)&tree->names, &tree->capacity, tree->count + 1, sizeof(tl_name))) {
        free(copy);
        return NULL;
    }
    strcpy(copy, path);
    tl_name *entry = &tree->names[at];
    memmove(entry + 1, entry, (tree->count++ - at) * sizeof(tl_name));
    *entry = (tl_name){.path = copy};
    return entry;
}

void tl_sweep_names(tl_tree *tree) {
    size_t kept = 0;
    for (size_t i = 0; i < tree->count; i++) {
        tl_name *entry = &tree->names[i];
        if (entry->now || entry->synced) {
            tree->names[kept++] = *entry;
        } else {
            free(entry->path);
        }
    }
    tree->count = kept;
}

bool tl_lies_in(const char *path, const char *directory) {
    size_t length = strlen(directory);
    if (!*path || strncmp(path, directory, length)) return false;
    const char *rest = path + length;
    if (length && *rest++ != '/') return false;
    return *rest && !strchr(rest, '/');
}

int64_t tl_check_parent(const tl_tree *tree, const char *path) {
    const char *slash = strrchr(path, '/');
    if (!slash) return 0; /* the root is always there */
    bool found;
    size_t at = place_of(tree, path, (size_t)(slash - path), &found);
    tl_node *parent = found ? tree->names[at].now : NULL;
    return !parent ? -ENOENT : parent->is_directory ? 0 : -ENOTDIR;
}

int64_t tl_add_node(tl_tree *tree, const char *path, bool is_directory, tl_node **out) {
    int64_t error = tl_check_parent(tree, path);
    if (error) return error;
    tl_name *entry = tl_claim_name(tree, path);
    tl_node *made = calloc(1, sizeof *made);
    if (!entry || !made) {
        free(made);
        tl_sweep_names(tree);
        return -ENOMEM;
    }
    made->is_directory = is_directory;
    tl_point(tree, &entry->now, made);
    *out = made;
    return 0;
}

void tl_clear_tree(tl_tree *tree) {
    for (size_t i = 0; i < tree->count; i++) {
        tl_point(tree, &tree->names[i].now, NULL);
        tl_point(tree, &tree->names[i].synced, NULL);
        free(tree->names[i].path);
    }
    free(tree->names);
    *tree = (tl_tree){0};
}
