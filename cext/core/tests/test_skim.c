/* A count that is passed and cannot be ends the process: the decoder behind this makes room for what it says. */
#include "check.h"
#include "skim.h"

#define COUNT(steps) (sizeof(steps) / sizeof *(steps))

static tl_status skimmed(const tl_skim_step *steps, size_t count, const char *hex, uint32_t *elements) {
    bytes data = from_hex(hex);
    *elements = UINT32_MAX;
    tl_status status = tl_skim(steps, count, data.data, data.size, 5, elements);
    free(data.data);
    return status;
}

static void test_strings(void) {
    static const struct {
        uint8_t kind, is_nullable;
        const char *hex;
        tl_status status;
    } cases[] = {
        {TL_SKIM_SHORT, 0, "0000", TL_OK},
        {TL_SKIM_SHORT, 0, "00026162", TL_OK},
        {TL_SKIM_SHORT, 0, "000261", TL_TRUNCATED},
        {TL_SKIM_SHORT, 0, "00", TL_TRUNCATED},
        {TL_SKIM_SHORT, 0, "ffff", TL_BAD_FIELD_LENGTH},
        {TL_SKIM_SHORT, 1, "ffff", TL_OK},
        {TL_SKIM_SHORT, 1, "fffe", TL_BAD_FIELD_LENGTH},
        {TL_SKIM_LONG, 0, "0000000161", TL_OK},
        {TL_SKIM_LONG, 0, "7fffffff61", TL_TRUNCATED},
        {TL_SKIM_LONG, 1, "ffffffff", TL_OK},
        {TL_SKIM_LONG, 1, "80000000", TL_BAD_FIELD_LENGTH},
        {TL_SKIM_COMPACT, 0, "01", TL_OK},
        {TL_SKIM_COMPACT, 0, "0261", TL_OK},
        {TL_SKIM_COMPACT, 0, "02", TL_TRUNCATED},
        {TL_SKIM_COMPACT, 0, "", TL_TRUNCATED},
        {TL_SKIM_COMPACT, 0, "80", TL_TRUNCATED},
        {TL_SKIM_COMPACT, 0, "00", TL_BAD_FIELD_LENGTH},
        {TL_SKIM_COMPACT, 1, "00", TL_OK},
        {TL_SKIM_COMPACT, 0, "82800061", TL_OK}, /* longer than it need be, as Kafka takes it */
        {TL_SKIM_COMPACT, 0, "8280800061", TL_BAD_VARINT},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        tl_skim_step step = {cases[i].kind, cases[i].is_nullable, 0};
        uint32_t elements;
        CHECK_STATUS(skimmed(&step, 1, cases[i].hex, &elements), cases[i].status);
        CHECK_EQUAL(elements, cases[i].status == TL_OK ? 0 : UINT32_MAX);
    }
}

static void test_arrays(void) {
    static const tl_skim_step fixed[] = {{TL_SKIM_ARRAY, 1, 1}, {TL_SKIM_BYTES, 0, 3}};
    static const tl_skim_step nested[] = {
        {TL_SKIM_COMPACT_ARRAY, 0, 4}, {TL_SKIM_COMPACT, 0, 0}, {TL_SKIM_COMPACT_ARRAY, 0, 1},
        {TL_SKIM_BYTES, 0, 1},         {TL_SKIM_NO_TAGS, 0, 0}, {TL_SKIM_BYTES, 0, 1},
    };
    uint32_t elements;
    CHECK_STATUS(skimmed(fixed, 2, "00000002010203040506", &elements), TL_OK);
    CHECK_EQUAL(elements, 2);
    CHECK_STATUS(skimmed(fixed, 2, "ffffffff", &elements), TL_OK);
    CHECK_EQUAL(elements, 0);
    CHECK_STATUS(skimmed(fixed, 2, "fffffffe", &elements), TL_BAD_COUNT);
    CHECK_STATUS(skimmed(fixed, 2, "7fffffff00", &elements), TL_BAD_COUNT);
    CHECK_STATUS(skimmed(fixed, 2, "000000020102030405", &elements), TL_TRUNCATED);
    CHECK_STATUS(skimmed(fixed, 2, "00000006000000000000", &elements), TL_OVER_LIMIT);
    /* two elements: "a" with two numbers, "" with none; a byte behind the array */
    CHECK_STATUS(skimmed(nested, 6, "03026103070800010100ff", &elements), TL_OK);
    CHECK_EQUAL(elements, 4);
    CHECK_STATUS(skimmed(nested, 6, "03026103070800010100", &elements), TL_TRUNCATED);
    CHECK_STATUS(skimmed(nested, 6, "03026103070801010100ff", &elements), TL_BAD_COUNT); /* a tagged field */
    CHECK_STATUS(skimmed(nested, 6, "0302610307080001050000000000ff", &elements), TL_OVER_LIMIT);
    CHECK_STATUS(skimmed(nested, 6, "00ff", &elements), TL_BAD_COUNT);
}

static void test_what_may_be_null(void) {
    static const tl_skim_step steps[] = {{TL_SKIM_OPTIONAL, 1, 2}, {TL_SKIM_BYTES, 0, 2}, {TL_SKIM_SHORT, 0, 0}};
    uint32_t elements;
    CHECK_STATUS(skimmed(steps, 3, "ff", &elements), TL_OK);
    CHECK_STATUS(skimmed(steps, 3, "0101020000", &elements), TL_OK);
    CHECK_STATUS(skimmed(steps, 3, "01010200", &elements), TL_TRUNCATED);
    CHECK_STATUS(skimmed(steps, 3, "", &elements), TL_TRUNCATED);
}

static void test_programs_that_cannot_be(void) {
    static const tl_skim_step unknown = {TL_SKIM_NO_TAGS + 1, 0, 0}, open = {TL_SKIM_ARRAY, 0, 1};
    uint32_t elements;
    CHECK_STATUS(skimmed(&unknown, 1, "00", &elements), TL_BAD_ARGUMENT);
    CHECK_STATUS(skimmed(&open, 1, "00000000", &elements), TL_BAD_ARGUMENT);
    CHECK_STATUS(skimmed(NULL, 0, "", &elements), TL_OK);
}

int main(void) {
    test_strings();
    test_arrays();
    test_what_may_be_null();
    test_programs_that_cannot_be();
    return 0;
}
