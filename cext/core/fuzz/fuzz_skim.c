/* Any bytes by any program: nothing past the end is read, and bytes behind an entity change nothing. Input: how many
 * steps; of each its kind, its argument, whether null is allowed; the entity. */
#include "fuzz.h"
#include "skim.h"

enum { STEPS_MAX = 12, ELEMENTS_MAX = 1000, BEHIND = 7 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tl_skim_step steps[STEPS_MAX];
    size_t count = (size_t)take_number(&data, &size, 1) % (STEPS_MAX + 1);
    for (size_t i = 0; i < count; i++) {
        steps[i].kind = (uint8_t)(take_number(&data, &size, 1) % (TL_SKIM_NO_TAGS + 2));
        steps[i].argument = (uint32_t)take_number(&data, &size, 1);
        steps[i].is_nullable = steps[i].argument & 1;
        steps[i].argument >>= 1;
    }
    uint8_t *alone = exact_copy(data, size), *longer = calloc(size + BEHIND, 1);
    REQUIRE(longer);
    if (size) memcpy(longer, data, size);
    uint32_t elements = UINT32_MAX, same = UINT32_MAX;
    tl_status status = tl_skim(steps, count, alone, size, ELEMENTS_MAX, &elements);
    if (status == TL_OK) {
        REQUIRE(elements <= ELEMENTS_MAX);
        REQUIRE(tl_skim(steps, count, longer, size + BEHIND, ELEMENTS_MAX, &same) == TL_OK && same == elements);
        if (elements) REQUIRE(tl_skim(steps, count, alone, size, elements - 1, &same) == TL_OVER_LIMIT);
    }
    free(longer);
    free(alone);
    return 0;
}
