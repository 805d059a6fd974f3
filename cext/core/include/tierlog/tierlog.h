/* The C ABI of the Tierlog core: everything that touches bytes per record, per batch or per index entry.
 * Plain C11, no globals, thread-safe: functions are pure but for the memory that the caller hands in. Files are reached
 * through a table that the caller hands in too (file_ops.h), and nowhere else.
 *
 * Options, tables, reports and the table of file functions may get further fields: their first one is `struct_size`,
 * sizeof the struct as the caller compiled it, and a size that is too small is TL_BAD_ARGUMENT. All other structs
 * are closed: another field would be another TIERLOG_ABI_VERSION. */
#ifndef TIERLOG_H
#define TIERLOG_H

#include "aborted.h"
#include "batch.h"
#include "batch_search.h"
#include "batch_walk.h"
#include "buffer_pool.h"
#include "checksum.h"
#include "chunks.h"
#include "cleaned_transactions.h"
#include "codec.h"
#include "compaction.h"
#include "compress.h"
#include "decode.h"
#include "file_ops.h"
#include "growing_file.h"
#include "index.h"
#include "index_append.h"
#include "log_append.h"
#include "log_end.h"
#include "mapped_memory.h"
#include "metadata_events.h"
#include "metadata_partitions.h"
#include "offset_map.h"
#include "range_check.h"
#include "read_range.h"
#include "segment_snapshot.h"
#include "segment_table.h"
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
