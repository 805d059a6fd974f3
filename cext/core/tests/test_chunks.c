/* A view that is a byte off hands Kafka's reader bytes of the wrong place. Vectors: lists that
 * the plugin packed. */
#include "check.h"
#include "tierlog/chunks.h"

static void expect_sizes(const char *hex, const int32_t *expected, int64_t count) {
    bytes packed = from_hex(hex);
    int32_t sizes[8];
    int64_t found;
    tl_fault fault;
    CHECK_STATUS(tl_chunk_sizes_count(packed.data, packed.size, &found, &fault), TL_OK);
    CHECK_EQUAL(found, count);
    CHECK_STATUS(tl_chunk_sizes_decode(packed.data, packed.size, sizes, 8, &fault), TL_OK);
    for (int64_t i = 0; i < count; i++) CHECK_EQUAL(sizes[i], expected[i]);
    if (count) CHECK_STATUS(tl_chunk_sizes_decode(packed.data, packed.size, sizes, (size_t)count - 1, &fault), TL_FULL);
    free(packed.data);
}

static void expect_fault(const char *hex, tl_status expected) {
    bytes packed = from_hex(hex);
    int32_t sizes[8];
    tl_fault fault;
    CHECK_STATUS(tl_chunk_sizes_decode(packed.data, packed.size, sizes, 8, &fault), expected);
    free(packed.data);
}

static void test_sizes(void) {
    expect_sizes("00000000", NULL, 0);
    expect_sizes("000000030000000a01000a0000001e", (int32_t[]){10, 20, 30}, 3);
    expect_sizes("00000001000000d5", (int32_t[]){213}, 1);
    expect_sizes("00000004000000050100000000000005", (int32_t[]){5, 5, 5, 5}, 4);
    expect_sizes("000000050000000002000003e80002abe200000171", (int32_t[]){0, 1000, 2, 44002, 369}, 5);
    expect_sizes("0000000500000001020000"
                 "01080112011c7fffffff",
                 (int32_t[]){1, 265, 275, 285, INT32_MAX}, 5);
    expect_sizes("0000000300000000047fffffff0000000000000007", (int32_t[]){INT32_MAX, 0, 7}, 3);
    expect_sizes("00000005000075450100e357e10000449b", (int32_t[]){30021, 30248, 30108, 30246, 17563}, 5);
    expect_fault("", TL_TRUNCATED);
    expect_fault("000000", TL_TRUNCATED);
    expect_fault("ffffffff", TL_BAD_COUNT);
    expect_fault("7fffffff00000000010000000007", TL_BAD_COUNT);
    expect_fault("00000001", TL_BAD_COUNT);
    expect_fault("00000002000000", TL_TRUNCATED);
    expect_fault("0000000000", TL_TRAILING_BYTES);
    expect_fault("00000001000000d500", TL_TRAILING_BYTES);
    expect_fault("000000030000000a09000a0000001e", TL_BAD_SIZE);
    expect_fault("000000030000000a00000a0000001e", TL_BAD_SIZE);
    expect_fault("00000001ffffffff", TL_BAD_ENTRY);
    expect_fault("000000038000000001000a0000001e", TL_BAD_ENTRY);
    expect_fault("000000037fffffff01000a0000001e", TL_BAD_ENTRY);
}

static void check_views(const tl_chunk_index *index) {
    tl_fault fault;
    tl_chunk_view views[8];
    size_t count;
    int64_t needed;
    CHECK_STATUS(tl_chunk_index_check(index, &fault), TL_OK);
    for (int64_t start = 0; start < index->original_file_size; start++) {
        for (int64_t end = start + 1; end <= index->original_file_size; end++) {
            CHECK_STATUS(tl_chunk_views(index, start, end, views, 8, &count), TL_OK);
            CHECK_STATUS(tl_chunk_count(index, start, end, &needed), TL_OK);
            CHECK_EQUAL(count, needed);
            int64_t at = start;
            for (size_t i = 0; i < count; i++) { /* the parts, put behind one another, are the range */
                CHECK(views[i].from >= 0 && views[i].from < views[i].to && views[i].to <= views[i].original_size);
                CHECK_EQUAL(views[i].chunk * index->original_chunk_size + views[i].from, at);
                at += views[i].to - views[i].from;
                if (i)
                    CHECK_EQUAL(views[i].transformed_position,
                                views[i - 1].transformed_position + views[i - 1].transformed_size);
            }
            CHECK_EQUAL(at, end);
            if (count > 1) CHECK_STATUS(tl_chunk_views(index, start, end, views, count - 1, &count), TL_FULL);
        }
    }
    CHECK_STATUS(tl_chunk_views(index, 0, index->original_file_size, views, 8, &count), TL_OK);
    CHECK_EQUAL(views[count - 1].transformed_position + views[count - 1].transformed_size,
                tl_chunk_index_object_size(index));
    CHECK_STATUS(tl_chunk_count(index, 0, 0, &needed), TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_chunk_count(index, -1, 1, &needed), TL_BAD_ARGUMENT);
    CHECK_STATUS(tl_chunk_count(index, 0, index->original_file_size + 1, &needed), TL_BAD_ARGUMENT);
}

static void test_views(void) {
    int32_t sizes[] = {7, 3, 12, 5};
    int64_t positions[] = {0, 7, 10, 22, 27};
    check_views(&(tl_chunk_index){10, 35, 0, 0, sizes, positions, 4});
    check_views(&(tl_chunk_index){10, 40, 0, 0, sizes, positions, 4});
    check_views(&(tl_chunk_index){10, 35, 38, 33, NULL, NULL, 4});
    check_views(&(tl_chunk_index){10, 40, 10, 10, NULL, NULL, 4});
    check_views(&(tl_chunk_index){1000, 9, 1028, 37, NULL, NULL, 1});
}

static void test_far_out(void) {
    int64_t chunk = 4 << 20, file = INT64_C(1) << 60;
    tl_chunk_index index = {chunk, file, chunk + 28, chunk + 28, NULL, NULL, file / chunk};
    tl_chunk_view view;
    size_t count;
    tl_fault fault;
    CHECK_STATUS(tl_chunk_index_check(&index, &fault), TL_OK);
    CHECK_STATUS(tl_chunk_views(&index, file - 1, file, &view, 1, &count), TL_OK);
    CHECK_EQUAL(view.chunk, file / chunk - 1);
    CHECK_EQUAL(view.transformed_position, (file / chunk - 1) * (chunk + 28));
    CHECK_EQUAL(tl_chunk_index_object_size(&index), file / chunk * (chunk + 28));
    index.transformed_chunk_size = INT64_MAX / 2;
    CHECK_STATUS(tl_chunk_index_check(&index, &fault), TL_BAD_SIZE);
}

static void test_contradictions(void) {
    int32_t sizes[] = {7, 0, 12, 5};
    int64_t positions[] = {0, 7, 7, 19, 24}, wrong[] = {0, 7, 8, 19, 24};
    tl_fault fault;
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){0, 35, 1, 1, NULL, NULL, 4}, &fault), TL_BAD_SIZE);
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){-1, 35, 1, 1, NULL, NULL, 4}, &fault), TL_BAD_SIZE);
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){10, -1, 1, 1, NULL, NULL, 0}, &fault), TL_BAD_SIZE);
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){10, 35, 1, 1, NULL, NULL, 3}, &fault), TL_BAD_COUNT);
    CHECK_EQUAL(fault.expected, 4);
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){10, 35, 0, 1, NULL, NULL, 4}, &fault), TL_BAD_SIZE);
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){10, 35, 1, -1, NULL, NULL, 4}, &fault), TL_BAD_SIZE);
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){10, 35, 0, 0, sizes, positions, 4}, &fault), TL_BAD_SIZE);
    sizes[1] = 1;
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){10, 35, 0, 0, sizes, wrong, 4}, &fault), TL_BAD_SIZE);
    CHECK_STATUS(tl_chunk_index_check(&(tl_chunk_index){10, 0, 10, 0, NULL, NULL, 0}, &fault), TL_OK);
    CHECK_EQUAL(tl_chunk_index_object_size(&(tl_chunk_index){10, 0, 10, 0, NULL, NULL, 0}), 0);
}

int main(void) {
    test_sizes();
    test_views();
    test_far_out();
    test_contradictions();
    return 0;
}
