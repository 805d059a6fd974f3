#define _POSIX_C_SOURCE 200809L
#include "local_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

static _Atomic int64_t open_files;

int tlj_file_open(const char *path) {
    int file;
    do {
        file = open(path, O_RDONLY | O_CLOEXEC);
    } while (file < 0 && errno == EINTR);
    if (file < 0) return -errno;
    struct stat found;
    int error = fstat(file, &found) ? -errno : S_ISREG(found.st_mode) ? 0 : TLJ_NOT_REGULAR;
    if (error) {
        close(file);
        return error;
    }
    atomic_fetch_add(&open_files, 1);
    return file;
}

int64_t tlj_file_read(int file, int64_t position, uint8_t *out, int64_t size) {
    int64_t done = 0;
    while (done < size) {
        ssize_t count = pread(file, out + done, (size_t)(size - done), (off_t)(position + done));
        if (count == 0) break;
        if (count < 0 && errno != EINTR) return -errno;
        if (count > 0) done += count;
    }
    return done;
}

void tlj_file_expect(int file, int64_t position, int64_t size) {
    posix_fadvise(file, (off_t)position, (off_t)size, POSIX_FADV_WILLNEED);
}

void tlj_file_close(int file) {
    close(file);
    atomic_fetch_sub(&open_files, 1);
}

int64_t tlj_file_count(void) { return atomic_load(&open_files); }
