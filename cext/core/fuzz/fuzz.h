/* What the targets share: input that is taken from the front, and exact copies so that ASan sees every stray byte. */
#ifndef TIERLOG_FUZZ_H
#define TIERLOG_FUZZ_H

#include "tierlog/tierlog.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Holds in a release build too: a broken promise of the header must stop the fuzzer. */
#define REQUIRE(condition)                                                                                             \
    do {                                                                                                               \
        if (!(condition)) abort();                                                                                     \
    } while (0)

static inline int64_t take_number(const uint8_t **data, size_t *size, size_t bytes) {
    uint64_t value = 0;
    for (; bytes && *size; bytes--, --*size) value = value << 8 | *(*data)++;
    return (int64_t)value;
}

static inline uint8_t *exact_copy(const uint8_t *data, size_t size) {
    uint8_t *copy = malloc(size + !size);
    REQUIRE(copy);
    if (size) memcpy(copy, data, size);
    return copy;
}

#endif
