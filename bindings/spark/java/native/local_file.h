/* Files of this machine, read by position through the core's table of file operations. Counted. */
#ifndef TLJ_LOCAL_FILE_H
#define TLJ_LOCAL_FILE_H

#include "tierlog/file_ops.h"

/* A descriptor, a negative errno, or TL_NOT_REGULAR. */
int tlj_file_open(const char *path);

/* Up to `size` bytes from `position`; fewer only at the end of the file. A negative errno for an error. */
int64_t tlj_file_read(int file, int64_t position, uint8_t *out, int64_t size);

/* Asks the system to read ahead what will be read soon. */
void tlj_file_expect(int file, int64_t position, int64_t size);

void tlj_file_close(int file);

/* Open files of the process that were opened here. */
int64_t tlj_file_count(void);

#endif
