/* Names and meanings of the statuses; the version of the ABI. */
#include "tierlog/status.h"
#include "tierlog/tierlog.h"

const char *tl_status_name(tl_status status) {
    switch (status) {
    case TL_OK: return "OK";
    case TL_FULL: return "FULL";
    case TL_NEED_SCRATCH: return "NEED_SCRATCH";
    case TL_PARTIAL: return "PARTIAL";
    case TL_TRUNCATED: return "TRUNCATED";
    case TL_BAD_SIZE: return "BAD_SIZE";
    case TL_BAD_MAGIC: return "BAD_MAGIC";
    case TL_BAD_CRC: return "BAD_CRC";
    case TL_BAD_CODEC: return "BAD_CODEC";
    case TL_BAD_COUNT: return "BAD_COUNT";
    case TL_TRAILING_BYTES: return "TRAILING_BYTES";
    case TL_BAD_VARINT: return "BAD_VARINT";
    case TL_BAD_RECORD_LENGTH: return "BAD_RECORD_LENGTH";
    case TL_BAD_FIELD_LENGTH: return "BAD_FIELD_LENGTH";
    case TL_BAD_HEADER_COUNT: return "BAD_HEADER_COUNT";
    case TL_BAD_OFFSET: return "BAD_OFFSET";
    case TL_BAD_TIMESTAMP: return "BAD_TIMESTAMP";
    case TL_BAD_COMPRESSED: return "BAD_COMPRESSED";
    case TL_BAD_CONTROL: return "BAD_CONTROL";
    case TL_BAD_LEGACY: return "BAD_LEGACY";
    case TL_BAD_VERSION: return "BAD_VERSION";
    case TL_BAD_ORDER: return "BAD_ORDER";
    case TL_BAD_ENTRY: return "BAD_ENTRY";
    case TL_OVER_LIMIT: return "OVER_LIMIT";
    case TL_NO_MEMORY: return "NO_MEMORY";
    case TL_BAD_ARGUMENT: return "BAD_ARGUMENT";
    }
    return "UNKNOWN";
}

const char *tl_status_text(tl_status status) {
    switch (status) {
    case TL_OK: return "no fault";
    case TL_FULL: return "an output array is full";
    case TL_NEED_SCRATCH: return "the decompression scratch is too small";
    case TL_PARTIAL: return "the bytes end inside a batch";
    case TL_TRUNCATED: return "a structure runs past the end of the bytes";
    case TL_BAD_SIZE: return "impossible size";
    case TL_BAD_MAGIC: return "unknown magic";
    case TL_BAD_CRC: return "checksum differs";
    case TL_BAD_CODEC: return "unknown compression codec, or one that is not legal here";
    case TL_BAD_COUNT: return "impossible count";
    case TL_TRAILING_BYTES: return "bytes left over after the last record";
    case TL_BAD_VARINT: return "variable-length number is too long";
    case TL_BAD_RECORD_LENGTH: return "impossible record length";
    case TL_BAD_FIELD_LENGTH: return "impossible length of a key, value or header";
    case TL_BAD_HEADER_COUNT: return "impossible number of headers";
    case TL_BAD_OFFSET: return "impossible offset";
    case TL_BAD_TIMESTAMP: return "timestamp out of range";
    case TL_BAD_COMPRESSED: return "compressed stream is corrupt";
    case TL_BAD_CONTROL: return "malformed control record";
    case TL_BAD_LEGACY: return "malformed message set of magic 0 or 1";
    case TL_BAD_VERSION: return "unknown version";
    case TL_BAD_ORDER: return "entries are out of order";
    case TL_BAD_ENTRY: return "impossible entry";
    case TL_OVER_LIMIT: return "content is larger than the limit";
    case TL_NO_MEMORY: return "out of memory";
    case TL_BAD_ARGUMENT: return "wrong argument";
    }
    return "unknown status";
}

int tl_abi_version(void) { return TIERLOG_ABI_VERSION; }
