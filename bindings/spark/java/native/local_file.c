#define _POSIX_C_SOURCE 200809L
#include "local_file.h"

#include <fcntl.h>
#include <stdatomic.h>

static _Atomic int64_t open_files;

int tlj_file_open(const char *path) {
    tl_files files = tl_posix_files();
    int64_t file = files.ops->open(files.context, path, TL_OPEN_READ);
    if (file >= 0) atomic_fetch_add(&open_files, 1);
    return (int)file;
}

int64_t tlj_file_read(int file, int64_t position, uint8_t *out, int64_t size) {
    tl_files files = tl_posix_files();
    return files.ops->pread(files.context, file, (uint64_t)position, out, (size_t)size);
}

void tlj_file_expect(int file, int64_t position, int64_t size) {
    posix_fadvise(file, (off_t)position, (off_t)size, POSIX_FADV_WILLNEED);
}

void tlj_file_close(int file) {
    tl_files files = tl_posix_files();
    files.ops->close(files.context, file);
    atomic_fetch_sub(&open_files, 1);
}

int64_t tlj_file_count(void) { return atomic_load(&open_files); }
