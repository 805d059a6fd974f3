/* The C ABI of the Tierlog core: everything that touches bytes per record, per batch or per index entry.
 * Plain C11, no globals, no I/O, thread-safe: functions are pure but for the memory that the caller hands in. */
#ifndef TIERLOG_H
#define TIERLOG_H

#include "aborted.h"
#include "batch.h"
#include "checksum.h"
#include "chunks.h"
#include "codec.h"
#include "decode.h"
#include "index.h"
#include "status.h"

#define TIERLOG_ABI_VERSION 1

#ifdef __cplusplus
extern "C" {
#endif
/* TIERLOG_ABI_VERSION of the library that is loaded. */
TL_API int tl_abi_version(void);
#ifdef __cplusplus
}
#endif
#endif
