/* The calls of a file system that the core makes, as a table: the only way in which C reaches a file.
 *
 * Code that needs files takes a tl_files and calls through it, so that a short write, a full disk or a crash can be
 * injected at any call: Python's files in memory, for tests and simulation, are behind such a table. Here is the
 * machine's, over POSIX. */
#ifndef TIERLOG_FILE_OPS_H
#define TIERLOG_FILE_OPS_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Modes of opening a file. */
typedef enum tl_open_mode {
    TL_OPEN_READ = 0,  /* what is there */
    TL_OPEN_WRITE = 1, /* to read and write, with its content; made where it is missing */
    TL_OPEN_NEW = 2,   /* the same, but -EEXIST where it is there */
    TL_OPEN_READY = 3, /* an existing file, if the system finds it without waiting for a disk; else -EAGAIN */
} tl_open_mode;

/* The answer of open for a folder or a device, beside the negative errno values. */
enum { TL_NOT_REGULAR = -4096 };

/* Paths end with NUL; "/" parts them. Every function answers 0 or more on success, else a negative errno.
 * Interrupted calls are made again inside. Any number of threads may call, on one file too. */
typedef struct tl_file_ops {
    size_t struct_size;
    int64_t (*open)(void *context, const char *path, tl_open_mode mode); /* the file's number */
    void (*close)(void *context, int64_t file);
    int64_t (*size)(void *context, int64_t file); /* bytes, now */

    /* Bytes read: all of them, or fewer when the file ends before. */
    int64_t (*pread)(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size);

    /* Reads the bytes that are in memory, up to the first one that is only on the disk: returns their number,
     * -EAGAIN for none. -ENOTSUP where the system does not know. */
    int64_t (*pread_ready)(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size);

    /* 1 where all bytes of a range are in memory, 0 where a disk would be waited for, or the system does not know
     * for this file. -ENOTSUP where it never knows. */
    int64_t (*holds)(void *context, int64_t file, uint64_t position, uint64_t size);

    /* Writes all of them; bytes between the end of the file and `position` become 0. After a fault any number of the
     * first bytes may be there. */
    int64_t (*pwrite)(void *context, int64_t file, uint64_t position, const uint8_t *data, size_t size);

    /* Cuts a file to a size, or lengthens it by zeros. */
    int64_t (*truncate)(void *context, int64_t file, uint64_t size);

    /* Reserves space on the disk for bytes from `position` on; the file's size stays, and cutting it frees the space
     * behind. A fault means that a write has to find its space itself, as without. */
    int64_t (*reserve)(void *context, int64_t file, uint64_t position, uint64_t size);

    int64_t (*fsync)(void *context, int64_t file);
    int64_t (*rename)(void *context, const char *from, const char *to); /* replaces a file; atomic */
    int64_t (*unlink)(void *context, const char *path);                 /* a file, which stays while it is open */
    int64_t (*mkdir)(void *context, const char *path);                  /* -EEXIST if something is there */
    int64_t (*fsync_dir)(void *context, const char *path); /* names made, changed or removed in it outlive a crash */
} tl_file_ops;

/* A file system. Small, passed by value; `context` belongs to whoever made it. */
typedef struct tl_files {
    const tl_file_ops *ops;
    void *context;
} tl_files;

/* The machine's. New files are 0644, new directories 0755, before the umask. */
TL_API tl_files tl_posix_files(void);

#ifdef __cplusplus
}
#endif
#endif
