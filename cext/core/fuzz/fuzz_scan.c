/* Any bytes as a log: the scan stays inside them, goes on where it stopped, and agrees with itself however small the
 * table. Input: capacity, verify, the log. */
#include "fuzz.h"

enum { CAPACITY_MAX = 64 };

typedef struct scan {
    int64_t base_offset[CAPACITY_MAX], last_offset[CAPACITY_MAX], position[CAPACITY_MAX];
    int32_t size_bytes[CAPACITY_MAX];
    uint8_t crc_ok[CAPACITY_MAX];
    tl_batch_table table;
} scan;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    size_t capacity = 1 + (size_t)take_number(&data, &size, 1) % CAPACITY_MAX, at = 0;
    bool verify = take_number(&data, &size, 1) & 1;
    uint8_t *log = exact_copy(data, size);
    tl_fault fault = {0};
    tl_status status;
    int64_t end = 0;
    do {
        scan s;
        size_t before = at;
        s.table = (tl_batch_table){.struct_size = sizeof(tl_batch_table),
                                   .capacity = capacity,
                                   .base_offset = s.base_offset,
                                   .last_offset = s.last_offset,
                                   .position = s.position,
                                   .size_bytes = s.size_bytes,
                                   .crc_ok = s.crc_ok};
        status = tl_scan(log, size, 1000, verify, &at, &s.table, &fault);
        REQUIRE(s.table.count <= capacity && at <= size && at >= before);
        REQUIRE(status != TL_FULL || at > before);
        for (size_t i = 0; i < s.table.count; i++) {
            tl_batch_header header;
            REQUIRE(s.position[i] == 1000 + end && s.size_bytes[i] > 0);
            REQUIRE(tl_batch_parse(log + end, size - (size_t)end, &header, &fault) == TL_OK);
            REQUIRE(header.size_bytes == s.size_bytes[i] && header.base_offset == s.base_offset[i]);
            if (verify) REQUIRE((tl_batch_verify(log + end, &header, &fault) == TL_OK) == s.crc_ok[i]);
            end += s.size_bytes[i];
        }
        REQUIRE((size_t)end == at);
    } while (status == TL_FULL);
    REQUIRE((status == TL_OK) == (at == size));
    free(log);
    return 0;
}
