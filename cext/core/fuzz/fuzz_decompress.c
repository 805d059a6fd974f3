/* Any bytes as a compressed stream: never past the room, never above the limit, and asking for room comes to an end.
 * Input: codec, magic, two bytes of first capacity, the stream. */
#include "fuzz.h"

enum { LIMIT = 1 << 20 };

static tl_status read_into(tl_codecs *codecs, int codec, int magic, const uint8_t *in, size_t size, size_t capacity,
                           uint8_t **out, size_t *out_size, tl_fault *fault) {
    *out = malloc(capacity + !capacity);
    REQUIRE(*out);
    tl_status status = tl_decompress(codecs, codec, magic, in, size, *out, capacity, LIMIT, out_size, fault);
    REQUIRE(*out_size <= capacity);
    REQUIRE(status == TL_OK || status == TL_BAD_COMPRESSED || status == TL_BAD_CODEC || status == TL_OVER_LIMIT ||
            status == TL_NEED_SCRATCH);
    REQUIRE(status == TL_OK || *out_size == 0);
    REQUIRE(status != TL_BAD_COMPRESSED || fault->position <= size);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tl_codecs *codecs; /* reused, so that one stream's state can only show in the next */
    if (!codecs) REQUIRE(tl_codecs_create(&codecs) == TL_OK);
    int codec = (int)take_number(&data, &size, 1) % 6, magic = (int)take_number(&data, &size, 1) % 3;
    size_t capacity = (size_t)take_number(&data, &size, 2), out_size, again_size;
    uint8_t *in = exact_copy(data, size), *out, *again;
    tl_fault fault, again_fault;
    tl_status status = read_into(codecs, codec, magic, in, size, capacity, &out, &out_size, &fault);
    for (int asked = 0; status == TL_NEED_SCRATCH; asked++) {
        REQUIRE(asked < 24 && fault.expected > (int64_t)capacity && fault.expected <= LIMIT);
        capacity = (size_t)fault.expected;
        free(out);
        status = read_into(codecs, codec, magic, in, size, capacity, &out, &out_size, &fault);
    }
    if (status == TL_OK) { /* the content fits itself; LZ4 may want room for a whole block */
        tl_status exact = read_into(codecs, codec, magic, in, size, out_size, &again, &again_size, &again_fault);
        REQUIRE(exact == TL_OK || (codec == TL_CODEC_LZ4 && exact == TL_NEED_SCRATCH));
        REQUIRE(exact != TL_OK || (again_size == out_size && !memcmp(again, out, out_size)));
        free(again);
    }
    size_t bound;
    tl_status bound_status = tl_decompress_bound(codec, magic, in, size, LIMIT, &bound, &again_fault);
    REQUIRE(status != TL_OK || bound_status == TL_OK);
    REQUIRE(status != TL_OK || codec == TL_CODEC_GZIP || bound >= out_size);
    REQUIRE(bound <= LIMIT);
    free(out);
    free(in);
    return 0;
}
