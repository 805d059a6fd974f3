# The segment table, its events and its snapshots, declared once; nothing else. As tl_core.pxd.

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from tl_core cimport tl_bool, tl_fault, tl_status


cdef extern from "tierlog/segment_table.h" nogil:
    enum:
        TL_COPY_STARTED, TL_COPY_FINISHED, TL_DELETE_STARTED, TL_DELETE_FINISHED

    ctypedef struct tl_segment_table:
        pass

    ctypedef struct tl_partition_id:
        uint8_t topic_id[16]
        int32_t partition

    ctypedef struct tl_segment_epoch:
        int32_t epoch
        int64_t start_offset

    ctypedef struct tl_segment:
        uint8_t id[16]
        int64_t start_offset
        int64_t end_offset
        int64_t max_timestamp_ms
        int64_t event_timestamp_ms
        int32_t broker_id
        int32_t size_bytes
        uint8_t state
        tl_bool txn_index_empty
        const tl_segment_epoch *epochs
        size_t epoch_count
        const uint8_t *custom
        int64_t custom_size

    ctypedef struct tl_segment_change:
        uint8_t id[16]
        uint8_t state
        int32_t broker_id
        int64_t event_timestamp_ms
        const uint8_t *custom
        int64_t custom_size

    ctypedef enum tl_event_outcome:
        TL_EVENT_APPLIED, TL_EVENT_UNKNOWN_SEGMENT, TL_EVENT_BAD_TRANSITION

    ctypedef struct tl_segment_table_options:
        size_t struct_size
        uint64_t hash_seed
        tl_bool as_kafka

    ctypedef struct tl_segment_table_figures:
        uint64_t segments
        uint64_t partitions
        uint64_t held_bytes

    ctypedef struct tl_segment_copy:
        int64_t start_offset
        int64_t end_offset
        int64_t max_timestamp_ms
        int64_t event_timestamp_ms
        int32_t broker_id
        int32_t size_bytes
        uint8_t id[16]
        uint8_t state
        tl_bool txn_index_empty
        uint32_t epoch_count
        int64_t custom_size

    ctypedef struct tl_segment_room:
        tl_segment_epoch *epochs
        size_t epochs_capacity
        uint8_t *custom
        size_t custom_capacity

    ctypedef struct tl_segment_question:
        tl_partition_id partition
        int32_t epoch
        int64_t offset

    ctypedef struct tl_segment_cursor:
        tl_bool ended

    bint tl_segment_may_become(int found_state, int state) noexcept
    tl_status tl_segment_table_create(tl_segment_table **out, const tl_segment_table_options *options) noexcept
    void tl_segment_table_destroy(tl_segment_table *table) noexcept
    tl_status tl_segment_table_add(tl_segment_table *table, const tl_partition_id *partition, const tl_segment *segment,
                                   tl_event_outcome *outcome, int *found_state) noexcept
    tl_status tl_segment_table_change(tl_segment_table *table, const tl_partition_id *partition,
                                      const tl_segment_change *change, tl_event_outcome *outcome,
                                      int *found_state) noexcept
    size_t tl_segment_table_settle(tl_segment_table *table, size_t pages) noexcept
    bint tl_segment_table_forget(tl_segment_table *table, const tl_partition_id *partition) noexcept
    tl_status tl_segment_table_find(const tl_segment_table *table, const tl_partition_id *partition, int32_t epoch,
                                    int64_t offset, tl_segment_room *room, tl_segment_copy *out,
                                    tl_bool *found) noexcept
    void tl_segment_table_find_many(const tl_segment_table *table, const tl_segment_question *questions, size_t count,
                                    tl_segment_copy *out, uint8_t *found) noexcept
    int64_t tl_segment_table_highest(const tl_segment_table *table, const tl_partition_id *partition,
                                     int32_t epoch) noexcept
    ctypedef struct tl_partition_version:
        uint64_t cell, sequence

    tl_partition_version tl_segment_table_version(const tl_segment_table *table,
                                                  const tl_partition_id *partition) noexcept
    void tl_segment_cursor_open(tl_segment_cursor *cursor, const tl_partition_id *partition, int32_t epoch) noexcept
    size_t tl_segment_table_list(const tl_segment_table *table, tl_segment_cursor *cursor, tl_segment_copy *out,
                                 size_t capacity) noexcept
    tl_status tl_segment_table_get(const tl_segment_table *table, const tl_partition_id *partition, const uint8_t *id,
                                   tl_segment_room *room, tl_segment_copy *out, tl_bool *found) noexcept
    tl_segment_table_figures tl_segment_table_figures_of(const tl_segment_table *table) noexcept


cdef extern from "tierlog/metadata_partitions.h" nogil:
    ctypedef struct tl_metadata_partitions:
        pass

    ctypedef struct tl_metadata_topic:
        size_t name_size
        const char *name

    ctypedef struct tl_metadata_partition:
        tl_partition_id id
        int32_t place
        int64_t applied
        tl_metadata_topic *topic

    tl_status tl_metadata_partitions_create(tl_metadata_partitions **out, uint64_t hash_seed) noexcept
    void tl_metadata_partitions_destroy(tl_metadata_partitions *partitions) noexcept
    tl_status tl_metadata_partitions_add(tl_metadata_partitions *partitions, const tl_partition_id *id,
                                         const char *name, size_t name_size, int32_t place, int64_t applied) noexcept
    bint tl_metadata_partitions_remove(tl_metadata_partitions *partitions, const tl_partition_id *id) noexcept
    tl_metadata_partition *tl_metadata_partitions_find(const tl_metadata_partitions *partitions,
                                                       const tl_partition_id *id) noexcept
    uint64_t tl_metadata_partitions_count(const tl_metadata_partitions *partitions) noexcept
    size_t tl_metadata_partitions_list(const tl_metadata_partitions *partitions, uint64_t *at,
                                       tl_metadata_partition *out, size_t capacity) noexcept


cdef extern from "tierlog/metadata_events.h" nogil:
    ctypedef struct tl_metadata_removal:
        int64_t offset
        int64_t event_timestamp_ms
        tl_partition_id partition
        int32_t broker_id
        uint8_t state

    ctypedef struct tl_metadata_name:
        uint8_t size
        char data[249]

    ctypedef struct tl_metadata_refusal:
        int64_t offset
        tl_partition_id partition
        uint8_t id[16]
        int8_t found_state
        uint8_t state

    ctypedef struct tl_metadata_report:
        size_t struct_size
        int64_t next_offset
        int64_t newest_timestamp_ms
        uint64_t applied
        uint64_t refused
        uint64_t passed_over
        uint64_t tombstones
        uint64_t oversized
        int64_t oversized_offset
        tl_metadata_refusal *refusals
        size_t refusals_capacity
        size_t refusals_count
        tl_metadata_removal *removals
        size_t removals_capacity
        size_t removals_count
        tl_metadata_name *removal_names
        int64_t last_offset
        uint32_t last_value_crc

    ctypedef struct tl_metadata_feed:
        pass

    ctypedef struct tl_metadata_value:
        const uint8_t *data
        int64_t size
        int64_t offset
        int64_t timestamp_ms
        tl_bool has_key

    tl_status tl_metadata_feed_create(tl_metadata_feed **out, tl_segment_table *table,
                                      tl_metadata_partitions *partitions, bint learns) noexcept
    void tl_metadata_feed_destroy(tl_metadata_feed *feed) noexcept
    void tl_metadata_feed_begin(tl_metadata_feed *feed, int32_t place) noexcept
    tl_status tl_metadata_feed_batches(tl_metadata_feed *feed, const uint8_t *data, size_t size,
                                       tl_metadata_report *report, tl_fault *fault) noexcept
    tl_status tl_metadata_feed_values(tl_metadata_feed *feed, const tl_metadata_value *values, size_t count, size_t *at,
                                      tl_metadata_report *report, tl_fault *fault) noexcept


cdef extern from "tierlog/segment_snapshot.h" nogil:
    enum:
        TL_SNAPSHOT_HEAD_BYTES, TL_SNAPSHOT_SECTION_MAX
        TL_SNAPSHOT_TOPIC, TL_SNAPSHOT_REMOVALS, TL_SNAPSHOT_PARTITIONS, TL_SNAPSHOT_SEGMENTS, TL_SNAPSHOT_END

    ctypedef struct tl_snapshot_head:
        uint32_t crc
        uint32_t kind
        uint32_t number
        uint32_t count
        uint32_t more
        uint32_t bytes
        uint64_t payload_size

    ctypedef struct tl_snapshot_partition:
        tl_partition_id id
        int32_t place
        int64_t last_applied_offset
        const char *name
        size_t name_size

    ctypedef struct tl_snapshot_writer:
        pass

    ctypedef struct tl_snapshot_loader:
        pass

    tl_status tl_snapshot_head_read(const uint8_t *head, tl_snapshot_head *out, tl_fault *fault) noexcept
    tl_status tl_snapshot_check(const uint8_t *section, size_t size, tl_snapshot_head *out, tl_fault *fault) noexcept
    void tl_snapshot_seal(uint8_t *section, tl_snapshot_head head) noexcept
    tl_status tl_snapshot_writer_create(tl_snapshot_writer **out, const tl_segment_table *table,
                                        const tl_snapshot_partition *partitions, size_t count) noexcept
    void tl_snapshot_writer_destroy(tl_snapshot_writer *writer) noexcept
    uint64_t tl_snapshot_writer_segments(const tl_snapshot_writer *writer) noexcept
    bint tl_snapshot_writer_as_kafka(const tl_snapshot_writer *writer) noexcept
    tl_status tl_snapshot_put_partitions(tl_snapshot_writer *writer, uint32_t number, uint8_t *out,
                                         size_t *size) noexcept
    tl_status tl_snapshot_put_segments(tl_snapshot_writer *writer, uint32_t number, uint8_t *out, size_t *size) noexcept
    tl_status tl_snapshot_loader_create(tl_snapshot_loader **out, tl_segment_table *table, uint64_t segments) noexcept
    void tl_snapshot_loader_destroy(tl_snapshot_loader *loader) noexcept
    tl_status tl_snapshot_load_partitions(tl_snapshot_loader *loader, tl_metadata_partitions *names,
                                          const uint8_t *section, size_t size, tl_fault *fault) noexcept
    tl_status tl_snapshot_load_segments(tl_snapshot_loader *loader, const uint8_t *section, size_t size,
                                        tl_fault *fault) noexcept
    tl_status tl_snapshot_load_end(tl_snapshot_loader *loader, tl_fault *fault) noexcept
