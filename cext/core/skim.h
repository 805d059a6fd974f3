/* Checks that bytes are an entity of Kafka's protocol as clients send it, by a program that describes its fields.
 *
 * A decoder that trusts counts may read bytes that passed this check: each count is of elements that have a byte at
 * least, within the bytes left and within a limit for all arrays together; null is only where it may be; nothing has
 * tagged fields. Time: a step for each string, array and element. No memory but the stack's, by how deep the program
 * nests. */
#ifndef TIERLOG_SKIM_H
#define TIERLOG_SKIM_H

#include "tierlog/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tl_skim_kind {
    TL_SKIM_BYTES = 0,         /* `argument` bytes */
    TL_SKIM_SHORT = 1,         /* an int16 and so many bytes; -1 for null */
    TL_SKIM_LONG = 2,          /* an int32 and so many bytes; -1 for null */
    TL_SKIM_COMPACT = 3,       /* a varint of three bytes at most, and one byte less; 0 for null */
    TL_SKIM_OPTIONAL = 4,      /* a byte, below 0 for null; else the `argument` steps behind this one */
    TL_SKIM_ARRAY = 5,         /* an int32, -1 for null, and as often the `argument` steps behind this one */
    TL_SKIM_COMPACT_ARRAY = 6, /* the same with a varint of one more, 0 for null */
    TL_SKIM_NO_TAGS = 7,       /* a byte 0: no tagged fields */
} tl_skim_kind;

/* One field, or neighbours of fixed size. `is_nullable` says of a string or an array whether it may be null. */
typedef struct tl_skim_step {
    uint8_t kind;
    uint8_t is_nullable;
    uint32_t argument;
} tl_skim_step;

/* Passes over an entity at the beginning of data[0..size); bytes may follow. `steps` is the caller's own program, never
 * a stranger's: it nests no deeper than its author wrote it.
 *
 *   TL_TRUNCATED         it ends behind the bytes
 *   TL_BAD_VARINT        a length or count of more than three bytes
 *   TL_BAD_FIELD_LENGTH  a string of a negative length, or null where it may not be
 *   TL_BAD_COUNT         a negative count, null where it may not be, more elements than bytes left, or tagged fields
 *   TL_OVER_LIMIT        more than `elements_max` elements in all arrays together
 *   TL_BAD_ARGUMENT      a step of no kind, or whose steps end behind the program
 *
 * On TL_OK `elements` is how many all arrays have together. */
tl_status tl_skim(const tl_skim_step *steps, size_t count, const uint8_t *data, size_t size, uint32_t elements_max,
                  uint32_t *elements);

#ifdef __cplusplus
}
#endif
#endif
