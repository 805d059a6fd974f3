/* Structs that a caller fills and that later versions may lengthen begin with `struct_size`, their size as the
 * caller compiled them: this core refuses a shorter struct than its own. */
#ifndef TIERLOG_STRUCT_SIZE_H
#define TIERLOG_STRUCT_SIZE_H

#include "tierlog/status.h"

static inline tl_status tl_check_struct_size(size_t struct_size, size_t known_size, tl_fault *fault) {
    if (struct_size >= known_size) return TL_OK;
    *fault =
        (tl_fault){.base_offset = -1, .record = -1, .expected = (int64_t)known_size, .found = (int64_t)struct_size};
    return TL_BAD_ARGUMENT;
}

/* Returns TL_BAD_ARGUMENT from a function with a `fault` where the struct is too short. */
#define TL_REQUIRE_WHOLE(given)                                                                                        \
    do {                                                                                                               \
        tl_status whole = tl_check_struct_size((given)->struct_size, sizeof *(given), fault);                          \
        if (whole != TL_OK) return whole;                                                                              \
    } while (0)

#endif
