/* A segment table as the columns of a file, and back: sections that carry their own checksums, written and loaded one
 * at a time, so that neither takes more memory than one of them. Bytes: docs/formats/metadata-snapshots.md.
 *
 * A section is a head of 32 bytes and a payload, a multiple of 8 bytes:
 *   0 uint32 CRC-32C of all behind it | 4 uint32 kind | 8 uint64 bytes of the payload | 16 uint32 its number, from 0
 *   | 20 uint32 count | 24 uint32 more | 28 uint32 bytes
 * All numbers are little-endian. What `count`, `more` and `bytes` count, and the payload's columns, which follow one
 * another in this order:
 *   TL_SNAPSHOT_PARTITIONS  partitions, remembered offsets, bytes of names: topic id (16), last applied offset (8),
 *                           remembered offset (8 each), segments (4), partition (4), metadata partition (4), how many
 *                           remembered offsets (4),
 *                           size of its name (4), epoch of each remembered offset (4), names
 *   TL_SNAPSHOT_SEGMENTS    segments, epochs of all, bytes of custom metadata: id (16), start offset (8), end offset
 *                           (8), max timestamp (8), event time (8), start of each epoch (8), broker (4), size (4),
 *                           how many epochs (4), size of custom metadata or -1 (4), each epoch (4), flags (1), Kafka's
 *                           mark of each epoch (1), custom metadata */
#ifndef TIERLOG_SEGMENT_SNAPSHOT_H
#define TIERLOG_SEGMENT_SNAPSHOT_H

#include "metadata_partitions.h"
#include "segment_table.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TL_SNAPSHOT_HEAD_BYTES = 32,
    TL_SNAPSHOT_SEGMENTS_MAX = 1 << 16,   /* in a section */
    TL_SNAPSHOT_SECTION_USUAL = 16 << 20, /* a section is closed before it is larger, unless it holds one item */
    TL_SNAPSHOT_SECTION_MAX = 20 << 20,
    TL_SNAPSHOT_PARTITION_BYTES = 16 + 8 + 5 * 4,                   /* at least */
    TL_SNAPSHOT_SEGMENT_BYTES = 16 + 4 * 8 + 4 * 4 + 1 + 8 + 4 + 1, /* with one epoch */
    TL_SNAPSHOT_NAME_MAX = 1 << 16,
};

enum {
    TL_SNAPSHOT_TOPIC = 1,
    TL_SNAPSHOT_REMOVALS = 2,
    TL_SNAPSHOT_PARTITIONS = 3,
    TL_SNAPSHOT_SEGMENTS = 4,
    TL_SNAPSHOT_END = 5,
};

/* Flags of a segment: its state in the two lowest bits. */
enum { TL_SNAPSHOT_STATE = 3, TL_SNAPSHOT_TXN_EMPTY = 4, TL_SNAPSHOT_WAS_FINISHED = 8 };
/* Kafka's mark of an epoch's entry. */
enum { TL_SNAPSHOT_PLAIN = 0, TL_SNAPSHOT_REFERENCED = 1, TL_SNAPSHOT_LOST = 2 };

typedef struct tl_snapshot_head {
    uint32_t crc, kind, number, count, more, bytes;
    uint64_t payload_size;
} tl_snapshot_head;

/* The head of a section: TL_BAD_ENTRY for an unknown kind, TL_BAD_SIZE for a payload that is no multiple of 8 or too
 * large. Nothing is known of its checksum yet. */
TL_API tl_status tl_snapshot_head_read(const uint8_t head[TL_SNAPSHOT_HEAD_BYTES], tl_snapshot_head *out,
                                       tl_fault *fault);
/* A whole section: as above, TL_TRUNCATED, TL_TRAILING_BYTES or TL_BAD_CRC. */
TL_API tl_status tl_snapshot_check(const uint8_t *section, size_t size, tl_snapshot_head *out, tl_fault *fault);
/* Writes the head of a section whose payload stands behind it. */
TL_API void tl_snapshot_seal(uint8_t *section, tl_snapshot_head head);

/* ---- out of the table: the writer's thread ---- */

typedef struct tl_snapshot_partition {
    tl_partition_id id;
    int32_t place; /* the metadata partition that has its events; -1 if none is known */
    int64_t last_applied_offset;
    const char *name;
    size_t name_size;
} tl_snapshot_partition;

typedef struct tl_snapshot_writer tl_snapshot_writer;

/* Makes a writer of some partitions, in their order, and of their segments, by first epoch, start offset in it and
 * id in each. The partitions and their names outlive the writer. */
TL_API tl_status tl_snapshot_writer_create(tl_snapshot_writer **out, const tl_segment_table *table,
                                           const tl_snapshot_partition *partitions, size_t count);
TL_API void tl_snapshot_writer_destroy(tl_snapshot_writer *writer);
/* Number of segments of these partitions. */
TL_API uint64_t tl_snapshot_writer_segments(const tl_snapshot_writer *writer);
/* Whether the table answers as Kafka's, and its marks say so. */
TL_API bool tl_snapshot_writer_as_kafka(const tl_snapshot_writer *writer);

/* One more section of partitions, or of segments; `*size` is 0 at the end. `out` is of TL_SNAPSHOT_SECTION_MAX bytes.
 * TL_OVER_LIMIT: a name above TL_SNAPSHOT_NAME_MAX. TL_BAD_ARGUMENT: a partition was changed since the writer was
 * created, so that no snapshot can be of one moment. */
TL_API tl_status tl_snapshot_put_partitions(tl_snapshot_writer *writer, uint32_t number, uint8_t *out, size_t *size);
TL_API tl_status tl_snapshot_put_segments(tl_snapshot_writer *writer, uint32_t number, uint8_t *out, size_t *size);

/* ---- into an empty table ---- */

typedef struct tl_snapshot_loader tl_snapshot_loader;

/* `segments`: how many will come; the caller has seen that the file is large enough for them. After a fault the table
 * holds a part of them, and can only be destroyed. TL_BAD_ARGUMENT: the table is not empty. */
TL_API tl_status tl_snapshot_loader_create(tl_snapshot_loader **out, tl_segment_table *table, uint64_t segments);
TL_API void tl_snapshot_loader_destroy(tl_snapshot_loader *loader);

/* Sections that tl_snapshot_check found whole. `names`: takes the partitions, with their places and offsets; NULL
 * for none. TL_BAD_ENTRY is also a partition that comes twice, or a topic id under two names. Every count is checked
 * against the bytes. TL_BAD_COUNT, TL_BAD_ENTRY, TL_BAD_OFFSET, TL_BAD_ORDER (leader epochs do not rise): faults, at
 * `position` in the section. */
TL_API tl_status tl_snapshot_load_partitions(tl_snapshot_loader *loader, tl_metadata_partitions *names,
                                             const uint8_t *section, size_t size, tl_fault *fault);
TL_API tl_status tl_snapshot_load_segments(tl_snapshot_loader *loader, const uint8_t *section, size_t size,
                                           tl_fault *fault);
/* Whether every partition has all its segments: TL_BAD_COUNT. */
TL_API tl_status tl_snapshot_load_end(tl_snapshot_loader *loader, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
