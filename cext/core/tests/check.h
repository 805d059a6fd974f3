/* The little that the C tests need: a check that says where it failed, bytes from hex, and a seeded generator. */
#ifndef TIERLOG_TESTS_CHECK_H
#define TIERLOG_TESTS_CHECK_H

#include "tierlog/status.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_EQUAL(found, expected)                                                                                   \
    do {                                                                                                               \
        int64_t found_ = (int64_t)(found), expected_ = (int64_t)(expected);                                            \
        if (found_ != expected_) {                                                                                     \
            fprintf(stderr, "%s:%d: %s is %" PRId64 ", not %" PRId64 "\n", __FILE__, __LINE__, #found, found_,         \
                    expected_);                                                                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_STATUS(found, expected)                                                                                  \
    do {                                                                                                               \
        tl_status status_ = (found);                                                                                   \
        if (status_ != (expected)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s is %s, not %s\n", __FILE__, __LINE__, #found, tl_status_name(status_),          \
                    tl_status_name(expected));                                                                         \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

typedef struct bytes {
    uint8_t *data; /* exactly `size`, so that a sanitizer sees a read past the end */
    size_t size;
} bytes;

static inline bytes from_hex(const char *hex) {
    bytes b = {malloc(strlen(hex) / 2 + !*hex), strlen(hex) / 2};
    for (size_t i = 0; i < b.size; i++) {
        unsigned value;
        CHECK(sscanf(hex + 2 * i, "%2x", &value) == 1);
        b.data[i] = (uint8_t)value;
    }
    return b;
}

static inline bytes copy_of(const void *data, size_t size) {
    bytes b = {malloc(size + !size), size};
    if (size) memcpy(b.data, data, size);
    return b;
}

static inline uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline bytes random_bytes(size_t size, uint64_t seed) {
    bytes b = {malloc(size + !size), size};
    for (size_t i = 0; i < size; i++) b.data[i] = (uint8_t)next_random(&seed);
    return b;
}

#endif
