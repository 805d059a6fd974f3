/* The one way in which the core answers: a status, and where in the bytes it happened.
 *
 * Every function that can fail returns tl_status; results come through out-pointers. The caller owns all memory,
 * there is no global state, and no function allocates inside a loop. */
#ifndef TIERLOG_STATUS_H
#define TIERLOG_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(TIERLOG_SHARED) && defined(__GNUC__)
#define TL_API __attribute__((visibility("default")))
#else
#define TL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers are part of the C ABI: add at the end of a group, never renumber. */
typedef enum tl_status {
    TL_OK = 0,

    /* Requests, not faults: provide it and call again; no finished work is lost. */
    TL_FULL = 1,         /* an output array is full */
    TL_NEED_SCRATCH = 2, /* the decompression scratch is too small; fault.expected says how many bytes */
    TL_PARTIAL = 3,      /* the bytes end inside a batch; fault.position says where it begins */

    /* Faults of the bytes. */
    TL_TRUNCATED = 16,         /* a structure runs past the end of what holds it */
    TL_BAD_SIZE = 17,          /* a batch, entry or file size that cannot be */
    TL_BAD_MAGIC = 18,         /* a magic other than 0, 1, 2 */
    TL_BAD_CRC = 19,           /* stored and computed checksum differ (expected = stored, found = computed) */
    TL_BAD_CODEC = 20,         /* unknown compression codec, or not allowed with this magic */
    TL_BAD_COUNT = 21,         /* record count negative, or more than the bytes hold */
    TL_TRAILING_BYTES = 22,    /* bytes left over after the declared records */
    TL_BAD_VARINT = 23,        /* a varint of more than 5 (32 bit) or 10 (64 bit) bytes */
    TL_BAD_RECORD_LENGTH = 24, /* record length negative, beyond the batch, or not what its fields add up to */
    TL_BAD_FIELD_LENGTH = 25,  /* key, value or header length below -1 (header key: below 0) or beyond the record */
    TL_BAD_HEADER_COUNT = 26,  /* header count negative or more than the record's bytes hold */
    TL_BAD_OFFSET = 27,        /* offsets do not rise, are negative, or lie outside the batch's range */
    TL_BAD_TIMESTAMP = 28,     /* a timestamp that does not fit the unit asked for */
    TL_BAD_COMPRESSED = 29,    /* the compressed stream is corrupt */
    TL_BAD_CONTROL = 30,       /* a control record whose key is shorter than 4 bytes or of a negative version */
    TL_BAD_LEGACY = 31,        /* a rule of magic 0/1 wrappers is broken */
    TL_BAD_VERSION = 32,       /* a version that this code does not know */
    TL_BAD_ORDER = 33,         /* entries that must rise do not */
    TL_BAD_ENTRY = 34,         /* an index or checkpoint entry that cannot be */

    /* Limits and misuse. */
    TL_OVER_LIMIT = 64,   /* more output than the caller's limit allows (expected = limit) */
    TL_NO_MEMORY = 65,    /* a library context could not be made */
    TL_BAD_ARGUMENT = 66, /* misuse by the caller */
} tl_status;

/* The place and the values of a fault; filled whenever the status is not TL_OK. */
typedef struct tl_fault {
    uint64_t position;   /* byte position of the batch or entry, from the caller's base position */
    int64_t base_offset; /* Kafka offset of the batch or record, -1 if unknown */
    int64_t record;      /* index of the record within its batch, -1 if none */
    int64_t expected;    /* the value that the format demands or the bytes declare; 0 if it does not apply */
    int64_t found;       /* the value found */
} tl_fault;

/* The name of a status as the tests and the oracle spell it: "BAD_CRC". Never NULL. */
TL_API const char *tl_status_name(tl_status status);

/* The meaning of a status, in words for a user: "CRC-32C differs". Never NULL. */
TL_API const char *tl_status_text(tl_status status);

#ifdef __cplusplus
}
#endif
#endif
