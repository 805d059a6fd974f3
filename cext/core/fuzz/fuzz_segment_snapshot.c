/* Any bytes as the sections of a snapshot, their checksums put right. Input: the mode, then sections, each behind three
 * bytes of its size. What is loaded must be what is written again. */
#include "fuzz.h"
#include "tierlog/segment_snapshot.h"

enum { PARTITIONS_MAX = 64, QUESTIONS = 8 };

static void check_loaded(const tl_segment_table *table) {
    tl_partition_id ids[PARTITIONS_MAX];
    uint64_t at = 0;
    size_t count = tl_segment_table_partitions(table, &at, ids, PARTITIONS_MAX), size;
    tl_snapshot_partition partitions[PARTITIONS_MAX] = {0};
    uint64_t listed = 0;
    for (size_t i = 0; i < count; i++) {
        partitions[i].id = ids[i];
        tl_segment_cursor cursor;
        tl_segment_copy copy, found;
        tl_segment_cursor_open(&cursor, &ids[i], -1);
        for (; tl_segment_table_list(table, &cursor, &copy, 1) == 1; listed++) {
            bool there;
            REQUIRE(tl_segment_table_get(table, &ids[i], copy.id, NULL, &found, &there) == TL_OK && there);
            REQUIRE(memcmp(&found.id, &copy.id, 16) == 0 && found.start_offset == copy.start_offset);
        }
        for (int32_t epoch = 0; epoch < QUESTIONS; epoch++) {
            bool there;
            tl_segment_table_find(table, &ids[i], epoch, 100, NULL, &copy, &there);
            tl_segment_table_highest(table, &ids[i], epoch);
        }
    }
    if (count == PARTITIONS_MAX) return;
    REQUIRE(listed == tl_segment_table_figures_of(table).segments);
    uint8_t *room = malloc(TL_SNAPSHOT_SECTION_MAX);
    tl_snapshot_writer *writer;
    REQUIRE(room && tl_snapshot_writer_create(&writer, table, partitions, count) == TL_OK);
    for (uint64_t written = 0;;) {
        tl_snapshot_head head;
        tl_fault fault;
        REQUIRE(tl_snapshot_put_segments(writer, 0, room, &size) == TL_OK);
        if (!size) {
            REQUIRE(written == listed);
            break;
        }
        REQUIRE(tl_snapshot_check(room, size, &head, &fault) == TL_OK);
        written += head.count;
    }
    tl_snapshot_writer_destroy(writer);
    free(room);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    bool as_kafka = take_number(&data, &size, 1) & 1;
    tl_segment_table *table;
    tl_snapshot_loader *loader;
    tl_metadata_partitions *names;
    tl_fault fault;
    REQUIRE(tl_segment_table_create(
                &table, &(tl_segment_table_options){sizeof(tl_segment_table_options), 1, as_kafka}) == TL_OK);
    REQUIRE(tl_snapshot_loader_create(&loader, table, size / TL_SNAPSHOT_SEGMENT_BYTES) == TL_OK);
    REQUIRE(tl_metadata_partitions_create(&names, 1) == TL_OK);
    tl_status status = TL_OK;
    while (size && status == TL_OK) {
        size_t want = (size_t)take_number(&data, &size, 3), taken = want < size ? want : size;
        uint8_t *section = exact_copy(data, taken);
        tl_snapshot_head head;
        status = tl_snapshot_check(section, taken, &head, &fault);
        if (status == TL_BAD_CRC) {
            tl_snapshot_seal(section, head);
            status = tl_snapshot_check(section, taken, &head, &fault);
            REQUIRE(status == TL_OK);
        }
        if (status == TL_OK && head.kind == TL_SNAPSHOT_PARTITIONS) {
            status = tl_snapshot_load_partitions(loader, names, section, taken, &fault);
        } else if (status == TL_OK) {
            status = tl_snapshot_load_segments(loader, section, taken, &fault);
        }
        REQUIRE(status == TL_OK || fault.position <= taken);
        free(section);
        data += taken;
        size -= taken;
    }
    if (status == TL_OK) status = tl_snapshot_load_end(loader, &fault);
    tl_snapshot_loader_destroy(loader);
    if (status == TL_OK) check_loaded(table);
    tl_segment_table_destroy(table);
    tl_metadata_partitions_destroy(names);
    return 0;
}
