/* Every kernel and every way to cut the bytes give the same checksum. */
#include "codec/crc32c.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    uint32_t start = (uint32_t)take_number(&data, &size, 4);
    size_t cut = (size_t)take_number(&data, &size, 2);
    cut %= size + 1; /* in an expression with the call, compilers differ in which size it is */
    uint8_t *copy = exact_copy(data, size);
    uint32_t expected = tl_crc32c_table(start, copy, size), tail = tl_crc32c(0, copy + cut, size - cut);
    const char *name;
    tl_crc32c_kernel kernel;
    for (unsigned rank = 0; (kernel = tl_crc32c_native(rank, &name)); rank++)
        REQUIRE(~kernel(~start, copy, size) == expected);
    REQUIRE(tl_crc32c(tl_crc32c(start, copy, cut), copy + cut, size - cut) == expected);
    REQUIRE(tl_crc32c_combine(tl_crc32c(start, copy, cut), tail, size - cut) == expected);
    free(copy);
    return 0;
}
