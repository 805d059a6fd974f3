/* Files in memory, behind the table of file_ops.h: for tests, and for a simulator that runs whole clusters. The core's
 * own: no program outside sees it. */
#ifndef TIERLOG_MEMORY_FILES_H
#define TIERLOG_MEMORY_FILES_H

#include "tierlog/file_ops.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tl_memory_files tl_memory_files;

/* An empty file system with its root. `capacity` bytes of content at most: writes past it say -ENOSPC. */
tl_status tl_memory_files_create(tl_memory_files **out, uint64_t capacity);

/* With all that is in it; nothing may be open. */
void tl_memory_files_destroy(tl_memory_files *memory);

/* The file system; as long as `memory` lives. Thread-safe. */
tl_files tl_memory_files_of(tl_memory_files *memory);

/* A power cut: it leaves content as of each file's last fsync, names as of each directory's last fsync_dir. Open
 * files answer -EIO from then on. */
void tl_memory_files_crash(tl_memory_files *memory);

#ifdef __cplusplus
}
#endif
#endif
