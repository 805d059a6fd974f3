/* The content of a file system in memory: nodes, and names of them. Internal to memory_files.c.
 *
 * A node lives as long as it has a name or is open. Names are whole paths without empty and "." elements ("a/b"; ""
 * is the root), in one sorted list, so a directory comes before its content. Nothing here locks. */
#ifndef TIERLOG_MEMORY_TREE_H
#define TIERLOG_MEMORY_TREE_H

#include "tierlog/status.h"

typedef struct tl_content {
    uint8_t *data;
    size_t size, capacity;
} tl_content;

typedef struct tl_node {
    tl_content now, synced;
    size_t users; /* names, synced names, handles */
    bool is_directory;
} tl_node;

typedef struct tl_name {
    char *path;
    tl_node *now, *synced; /* its node, and its node at the last fsync_dir; NULL: none */
} tl_name;

typedef struct tl_tree {
    uint64_t used; /* bytes of content, as it is now */
    tl_name *names;
    size_t count, capacity;
} tl_tree;

/* Room for `needed` in an array that grows by doubling; false without memory. */
bool tl_reserve(void **array, size_t *capacity, size_t needed, size_t element);

/* Points *at to `to` (NULL: nothing), and frees a node that is unused then. */
void tl_point(tl_tree *tree, tl_node **at, tl_node *to);

/* The path as names have it, on the heap; NULL without memory. */
char *tl_normal_path(const char *path);

tl_name *tl_find_name(const tl_tree *tree, const char *path);
tl_node *tl_find_node(const tl_tree *tree, const char *path);

/* The name, made where it is missing; NULL without memory. Others move. */
tl_name *tl_claim_name(tl_tree *tree, const char *path);

/* Takes the names away that stand for nothing, before and after a crash. */
void tl_sweep_names(tl_tree *tree);

/* Whether `path` lies directly in `directory`. */
bool tl_lies_in(const char *path, const char *directory);

/* 0, or why there can be nothing at `path`: -ENOENT where its directory is missing, -ENOTDIR where it is a file. */
int64_t tl_check_parent(const tl_tree *tree, const char *path);

/* 0, or why there is no new node under `path`, which has none. */
int64_t tl_add_node(tl_tree *tree, const char *path, bool is_directory, tl_node **out);

/* All of it. */
void tl_clear_tree(tl_tree *tree);

#endif
