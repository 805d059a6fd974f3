/* One record of `__remote_log_metadata`: its value, field by field. Internal to the readers of events.
 *
 * As strict as Kafka: unknown frames, types and versions, a body that is cut short and bytes left over are refused;
 * beyond Kafka, states that do not exist. Layout: docs/formats/metadata-records.md. */
#ifndef TIERLOG_METADATA_RECORD_H
#define TIERLOG_METADATA_RECORD_H

#include "cursor.h"
#include "tierlog/metadata_events.h"

enum {
    TL_METADATA_SEGMENT = 0,
    TL_METADATA_UPDATE = 1,
    TL_METADATA_REMOVAL = 2,
    TL_METADATA_SNAPSHOT = 3,
};

/* The kind and the user partition of a record. `name`, the topic's, lies in the record. */
typedef struct tl_metadata_head {
    uint32_t kind;
    tl_partition_id partition;
    const char *name;
    size_t name_size;
} tl_metadata_head;

/* Up to the partition's number and the tags behind it. The name is not looked at. TL_BAD_VERSION for a snapshot record
 * too: no version writes it into the topic. */
tl_status tl_metadata_take_head(tl_cursor *cursor, tl_metadata_head *head, tl_fault *fault);
/* The rest of a segment's record or an update. `epochs` has room for TL_SEGMENT_EPOCHS_MAX, and as many behind them to
 * sort in; the event points into it and into the record. TL_OVER_LIMIT: more epochs than that, or more custom
 * metadata than TL_SEGMENT_CUSTOM_BYTES_MAX; what stands behind them was not looked at. */
tl_status tl_metadata_take_event(tl_cursor *cursor, const tl_metadata_head *head, tl_segment_epoch *epochs,
                                 tl_segment_event *event, tl_fault *fault);
tl_status tl_metadata_take_removal(tl_cursor *cursor, const tl_metadata_head *head, tl_metadata_removal *removal,
                                   tl_fault *fault);
/* Whether a name is one: UTF-8, and not empty. */
bool tl_metadata_is_name(const char *name, size_t size);

#endif
