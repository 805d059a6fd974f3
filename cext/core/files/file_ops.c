/* The table over POSIX. */
#define _GNU_SOURCE 1 /* fallocate, preadv2 */
#define _FILE_OFFSET_BITS 64
#include "tierlog/file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#if defined(__linux__) && defined(__has_include)
#if __has_include(<linux/openat2.h>)
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#endif
#endif
#if defined(SYS_openat2) && defined(RESOLVE_CACHED) && defined(RWF_NOWAIT)
#define READS_READY 1
#endif

static int open_again(const char *path, int flags) {
    int file;
    do {
        file = open(path, flags | O_CLOEXEC, 0644);
    } while (file < 0 && errno == EINTR);
    return file < 0 ? -errno : file;
}

static int64_t answer(int result) { return result < 0 ? -errno : 0; }

/* A file whose name and inode are in memory. */
static int open_ready(const char *path) {
#ifdef READS_READY
    struct open_how how = {.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC, .resolve = RESOLVE_CACHED};
    long file = syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
    if (file >= 0) return (int)file;
    /* EINVAL and ENOSYS: of an older kernel; EPERM: of a filter that does not know the call. */
    return errno == EINVAL || errno == ENOSYS || errno == EPERM ? -ENOTSUP : -errno;
#else
    (void)path;
    return -ENOTSUP;
#endif
}

static int64_t posix_open(void *context, const char *path, tl_open_mode mode) {
    (void)context;
    /* A pipe without a writer would hold up open for ever. */
    int flags = O_NONBLOCK | (mode == TL_OPEN_READ ? O_RDONLY : O_RDWR | O_CREAT | (mode == TL_OPEN_NEW ? O_EXCL : 0));
    int file = mode == TL_OPEN_READY ? open_ready(path) : open_again(path, flags);
    if (file < 0) return file;
    struct stat found;
    int64_t error = fstat(file, &found) ? -errno : S_ISREG(found.st_mode) ? 0 : TL_NOT_REGULAR;
    if (error) {
        close(file);
        return error;
    }
    return file;
}

static void posix_close(void *context, int64_t file) {
    (void)context;
    close((int)file); /* not again after EINTR: Linux has closed it */
}

static int64_t posix_size(void *context, int64_t file) {
    (void)context;
    struct stat found;
    return fstat((int)file, &found) ? -errno : (int64_t)found.st_size;
}

static int64_t posix_pread(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    (void)context;
    if (position > INT64_MAX || size > INT64_MAX - position) return -EINVAL;
    size_t done = 0;
    while (done < size) {
        ssize_t count = pread((int)file, out + done, size - done, (off_t)(position + done));
        if (count == 0) break;
        if (count < 0 && errno != EINTR) return -errno;
        if (count > 0) done += (size_t)count;
    }
    return (int64_t)done;
}

static int64_t posix_pread_ready(void *context, int64_t file, uint64_t position, uint8_t *out, size_t size) {
    (void)context;
#ifdef READS_READY
    if (position > INT64_MAX || size > INT64_MAX - position) return -EINVAL;
    struct iovec into = {out, size};
    ssize_t count;
    do {
        count = preadv2((int)file, &into, 1, (off_t)position, RWF_NOWAIT);
    } while (count < 0 && errno == EINTR);
    if (count >= 0) return count;
    return errno == EOPNOTSUPP || errno == ENOSYS ? -ENOTSUP : -errno;
#else
    (void)file, (void)position, (void)out, (void)size;
    return -ENOTSUP;
#endif
}

static int64_t posix_holds(void *context, int64_t file, uint64_t position, uint64_t size) {
    (void)context;
#ifdef READS_READY
    /* cachestat (Linux 6.5), whose number is the same on all machines and whose structures older headers lack. */
    enum { CACHESTAT = 451 };
    struct {
        uint64_t position, size;
    } range = {position, size};
    struct {
        uint64_t cached, dirty, written_back, evicted, recently_evicted;
    } found;
    if (!size) return 1;
    if (position > INT64_MAX || size > INT64_MAX - position) return -EINVAL;
    /* It answers EPERM to a process that neither owns the file nor may write it. */
    if (syscall(CACHESTAT, (int)file, &range, &found, 0)) return errno == ENOSYS ? -ENOTSUP : 0;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), first = position / page, last = (position + size - 1) / page;
    if (found.cached < last - first + 1) return 0;
    /* A page that is being read is there, too: pages read ahead come in order, so the last one is proof. */
    uint8_t byte;
    return posix_pread_ready(NULL, file, position + size - 1, &byte, 1) == 1;
#else
    (void)file, (void)position, (void)size;
    return -ENOTSUP;
#endif
}

static int64_t posix_pwrite(void *context, int64_t file, uint64_t position, const uint8_t *data, size_t size) {
    (void)context;
    if (position > INT64_MAX || size > INT64_MAX - position) return -EFBIG;
    size_t done = 0;
    while (done < size) {
        ssize_t count = pwrite((int)file, data + done, size - done, (off_t)(position + done));
        if (count == 0) return -EIO;
        if (count < 0 && errno != EINTR) return -errno;
        if (count > 0) done += (size_t)count;
    }
    return 0;
}

static int64_t posix_truncate(void *context, int64_t file, uint64_t size) {
    (void)context;
    if (size > INT64_MAX) return -EFBIG;
    int result;
    do {
        result = ftruncate((int)file, (off_t)size);
    } while (result < 0 && errno == EINTR);
    return answer(result);
}

static int64_t posix_reserve(void *context, int64_t file, uint64_t position, uint64_t size) {
    (void)context;
    if (position > INT64_MAX || size > INT64_MAX - position) return -EFBIG;
#ifdef FALLOC_FL_KEEP_SIZE
    return answer(fallocate((int)file, FALLOC_FL_KEEP_SIZE, (off_t)position, (off_t)size));
#else
    (void)file;
    return -ENOTSUP;
#endif
}

static int64_t posix_fsync(void *context, int64_t file) {
    (void)context;
    int result;
    do {
        result = fsync((int)file);
    } while (result < 0 && errno == EINTR);
    return answer(result);
}

static int64_t posix_rename(void *context, const char *from, const char *to) {
    (void)context;
    return answer(rename(from, to));
}

static int64_t posix_unlink(void *context, const char *path) {
    (void)context;
    return answer(unlink(path));
}

static int64_t posix_mkdir(void *context, const char *path) {
    (void)context;
    return answer(mkdir(path, 0755));
}

static int64_t posix_fsync_dir(void *context, const char *path) {
    int directory = open_again(path, O_RDONLY | O_DIRECTORY);
    if (directory < 0) return directory;
    int64_t result = posix_fsync(context, directory);
    close(directory);
    return result;
}

tl_files tl_posix_files(void) {
    static const tl_file_ops OPS = {
        .struct_size = sizeof(tl_file_ops),
        .open = posix_open,
        .close = posix_close,
        .size = posix_size,
        .pread = posix_pread,
        .pread_ready = posix_pread_ready,
        .holds = posix_holds,
        .pwrite = posix_pwrite,
        .truncate = posix_truncate,
        .reserve = posix_reserve,
        .fsync = posix_fsync,
        .rename = posix_rename,
        .unlink = posix_unlink,
        .mkdir = posix_mkdir,
        .fsync_dir = posix_fsync_dir,
    };
    return (tl_files){&OPS, NULL};
}
