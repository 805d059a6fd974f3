/* Any bytes as a packed list of chunk sizes, and any numbers as a chunk index over it.
 * Input: chunk size, file size, range, fixed sizes, the list. */
#include "fuzz.h"

enum { VIEWS = 64 };

static void use_index(const tl_chunk_index *index, int64_t start, int64_t end) {
    tl_chunk_view views[VIEWS];
    tl_fault fault;
    size_t count;
    if (tl_chunk_index_check(index, &fault) != TL_OK) return;
    int64_t object_size = tl_chunk_index_object_size(index), at = start;
    REQUIRE(object_size >= 0);
    if (tl_chunk_views(index, start, end, views, VIEWS, &count) != TL_OK) return;
    for (size_t i = 0; i < count; i++) {
        const tl_chunk_view *view = &views[i];
        REQUIRE(view->chunk * index->original_chunk_size + view->from == at);
        REQUIRE(view->to > view->from && view->to <= view->original_size);
        REQUIRE(view->transformed_position >= 0 && view->transformed_size > 0);
        REQUIRE(view->transformed_size <= object_size - view->transformed_position);
        at += view->to - view->from;
    }
    REQUIRE(at == end);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tl_chunk_index index = {.original_chunk_size = take_number(&data, &size, 8)};
    index.original_file_size = take_number(&data, &size, 8);
    int64_t start = take_number(&data, &size, 8), end = take_number(&data, &size, 8), count;
    index.transformed_chunk_size = take_number(&data, &size, 8);
    index.final_transformed_chunk_size = take_number(&data, &size, 8);
    if (index.original_chunk_size > 0 && index.original_file_size > 0)
        index.chunk_count = (index.original_file_size - 1) / index.original_chunk_size + 1;
    use_index(&index, start, end);
    uint8_t *packed = exact_copy(data, size);
    tl_fault fault;
    if (tl_chunk_sizes_count(packed, size, &count, &fault) == TL_OK) {
        REQUIRE(count >= 0 && (uint64_t)count <= size);
        int32_t *sizes = malloc((size_t)count * sizeof *sizes + 1);
        int64_t *positions = calloc((size_t)count + 1, sizeof *positions);
        REQUIRE(sizes && positions);
        if (tl_chunk_sizes_decode(packed, size, sizes, (size_t)count, &fault) == TL_OK) {
            for (int64_t i = 0; i < count; i++) {
                REQUIRE(sizes[i] >= 0);
                positions[i + 1] = positions[i] + sizes[i];
            }
            index.transformed_sizes = sizes;
            index.transformed_positions = positions;
            index.chunk_count = count;
            use_index(&index, start, end);
        }
        free(positions);
        free(sizes);
    }
    free(packed);
    return 0;
}
