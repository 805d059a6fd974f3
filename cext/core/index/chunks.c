/* Arithmetic of chunk indexes, and the plugin's packed list of chunk sizes. */
#include "tierlog/chunks.h"

#include "cursor.h"

static tl_status fault_at(tl_fault *fault, tl_status status, size_t position, int64_t expected, int64_t found) {
    *fault = (tl_fault){position, -1, -1, expected, found};
    return status;
}

static int64_t chunks_of(const tl_chunk_index *index) {
    int64_t size = index->original_file_size, chunk = index->original_chunk_size;
    return size / chunk + (size % chunk != 0);
}

static tl_status check_variable(const tl_chunk_index *index, tl_fault *fault) {
    const int64_t *positions = index->transformed_positions;
    if (positions[0]) return fault_at(fault, TL_BAD_SIZE, 0, 0, positions[0]);
    for (int64_t i = 0; i < index->chunk_count; i++) {
        int64_t end, size = index->transformed_sizes[i];
        if (size <= 0) return fault_at(fault, TL_BAD_SIZE, (size_t)positions[i], 1, size);
        if (__builtin_add_overflow(positions[i], size, &end) || positions[i + 1] != end)
            return fault_at(fault, TL_BAD_SIZE, (size_t)positions[i], end, positions[i + 1]);
    }
    return TL_OK;
}

static tl_status check_fixed(const tl_chunk_index *index, tl_fault *fault) {
    int64_t size = index->transformed_chunk_size, last = index->final_transformed_chunk_size, end;
    if (size < 0 || (size == 0 && index->chunk_count > 1)) return fault_at(fault, TL_BAD_SIZE, 0, 1, size);
    if (last < 0 || (last == 0 && index->chunk_count > 0)) return fault_at(fault, TL_BAD_SIZE, 0, 1, last);
    if (__builtin_mul_overflow(size, index->chunk_count, &end) || __builtin_add_overflow(end, last, &end))
        return fault_at(fault, TL_BAD_SIZE, 0, INT64_MAX / (index->chunk_count + 1), size);
    return TL_OK;
}

tl_status tl_chunk_index_check(const tl_chunk_index *index, tl_fault *fault) {
    if (index->original_chunk_size <= 0) return fault_at(fault, TL_BAD_SIZE, 0, 1, index->original_chunk_size);
    if (index->original_file_size < 0) return fault_at(fault, TL_BAD_SIZE, 0, 0, index->original_file_size);
    int64_t expected = chunks_of(index);
    if (index->chunk_count != expected) return fault_at(fault, TL_BAD_COUNT, 0, expected, index->chunk_count);
    return index->transformed_sizes ? check_variable(index, fault) : check_fixed(index, fault);
}

int64_t tl_chunk_index_object_size(const tl_chunk_index *index) {
    if (!index->chunk_count) return 0;
    if (index->transformed_sizes) return index->transformed_positions[index->chunk_count];
    return (index->chunk_count - 1) * index->transformed_chunk_size + index->final_transformed_chunk_size;
}

tl_status tl_chunk_count(const tl_chunk_index *index, int64_t start, int64_t end_exclusive, int64_t *count) {
    *count = 0;
    if (start < 0 || start >= end_exclusive || end_exclusive > index->original_file_size) return TL_BAD_ARGUMENT;
    *count = (end_exclusive - 1) / index->original_chunk_size - start / index->original_chunk_size + 1;
    return TL_OK;
}

tl_status tl_chunk_views(const tl_chunk_index *index, int64_t start, int64_t end_exclusive, tl_chunk_view *out,
                         size_t capacity, size_t *count) {
    int64_t needed;
    *count = 0;
    tl_status status = tl_chunk_count(index, start, end_exclusive, &needed);
    if (status != TL_OK) return status;
    if ((uint64_t)needed > capacity) return TL_FULL;
    int64_t chunk_size = index->original_chunk_size, first = start / chunk_size;
    for (int64_t chunk = first; chunk < first + needed; chunk++) {
        int64_t position = chunk * chunk_size; /* below the file's size, so it cannot overflow */
        int64_t left = index->original_file_size - position, size = left < chunk_size ? left : chunk_size;
        bool is_last = chunk == index->chunk_count - 1;
        const int32_t *sizes = index->transformed_sizes;
        out[(*count)++] = (tl_chunk_view){
            .chunk = chunk,
            .original_size = size,
            .from = start > position ? start - position : 0,
            .to = end_exclusive - position < size ? end_exclusive - position : size,
            .transformed_position = sizes ? index->transformed_positions[chunk] : chunk * index->transformed_chunk_size,
            .transformed_size = sizes     ? sizes[chunk]
                                : is_last ? index->final_transformed_chunk_size
                                          : index->transformed_chunk_size,
        };
    }
    return TL_OK;
}

/* count, then: nothing (0), the last size (1), or base, width, count - 1 deltas, the last size (2 and more). */
enum { COUNT_SIZE = 4, BASE_POSITION = 4, WIDTH_POSITION = 8, DELTAS_POSITION = 9, LAST_SIZE = 4, WIDTH_MAX = 4 };

tl_status tl_chunk_sizes_count(const uint8_t *data, size_t size, int64_t *count, tl_fault *fault) {
    *count = 0;
    if (size < COUNT_SIZE) return fault_at(fault, TL_TRUNCATED, 0, COUNT_SIZE, (int64_t)size);
    int64_t declared = tl_load_i32(data);
    if (declared < 0) return fault_at(fault, TL_BAD_COUNT, 0, 0, declared);
    int64_t needed = COUNT_SIZE + (declared ? LAST_SIZE : 0);
    if (declared > 1) {
        if (size < DELTAS_POSITION) return fault_at(fault, TL_TRUNCATED, 0, DELTAS_POSITION, (int64_t)size);
        int64_t width = data[WIDTH_POSITION];
        if (width < 1 || width > WIDTH_MAX) return fault_at(fault, TL_BAD_SIZE, WIDTH_POSITION, WIDTH_MAX, width);
        needed = DELTAS_POSITION + (declared - 1) * width + LAST_SIZE;
    }
    if ((uint64_t)needed > size) return fault_at(fault, TL_BAD_COUNT, 0, needed, (int64_t)size);
    if ((uint64_t)needed < size) return fault_at(fault, TL_TRAILING_BYTES, (size_t)needed, needed, (int64_t)size);
    *count = declared;
    return TL_OK;
}

tl_status tl_chunk_sizes_decode(const uint8_t *data, size_t size, int32_t *sizes, size_t capacity, tl_fault *fault) {
    int64_t count;
    tl_status status = tl_chunk_sizes_count(data, size, &count, fault);
    if (status != TL_OK) return status;
    if ((uint64_t)count > capacity) return fault_at(fault, TL_FULL, 0, count, (int64_t)capacity);
    if (!count) return TL_OK;
    if (count > 1) {
        int64_t base = tl_load_i32(data + BASE_POSITION), width = data[WIDTH_POSITION];
        if (base < 0) return fault_at(fault, TL_BAD_ENTRY, BASE_POSITION, 0, base);
        const uint8_t *delta = data + DELTAS_POSITION;
        for (int64_t i = 0; i < count - 1; i++, delta += width) {
            int64_t value = 0;
            for (int64_t byte = 0; byte < width; byte++) value = value << 8 | delta[byte];
            if (value > INT32_MAX - base)
                return fault_at(fault, TL_BAD_ENTRY, (size_t)(delta - data), INT32_MAX, base + value);
            sizes[i] = (int32_t)(base + value);
        }
    }
    int32_t last = tl_load_i32(data + size - LAST_SIZE);
    if (last < 0) return fault_at(fault, TL_BAD_ENTRY, size - LAST_SIZE, 0, last);
    sizes[count - 1] = last;
    return TL_OK;
}
