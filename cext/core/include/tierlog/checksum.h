/* CRC-32C (Castagnoli) of record batches and snapshots, CRC-32 (zlib) of magic 0/1, xxHash32 of LZ4 frames. */
#ifndef TIERLOG_CHECKSUM_H
#define TIERLOG_CHECKSUM_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Extends `crc` (0 to begin) by the bytes. SSE4.2 three-way beside VPCLMULQDQ folding, SSE4.2 + PCLMUL three-way, ARMv8
 * CRC + PMULL three-way, or tables; chosen at run time. */
TL_API uint32_t tl_crc32c(uint32_t crc, const uint8_t *data, size_t size);

/* The CRC of A followed by B, from crc(A), crc(B) and the size of B in bytes. */
TL_API uint32_t tl_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t size_b);

/* "sse42-vpclmul", "sse42-pclmul", "armv8" or "table". */
TL_API const char *tl_crc32c_implementation(void);

/* The table form whatever the processor has; for tests. */
TL_API uint32_t tl_crc32c_table(uint32_t crc, const uint8_t *data, size_t size);

/* CRC-32 as in zlib, for magic 0 and 1. */
TL_API uint32_t tl_crc32(uint32_t crc, const uint8_t *data, size_t size);

TL_API uint32_t tl_xxhash32(const uint8_t *data, size_t size, uint32_t seed);

#ifdef __cplusplus
}
#endif
#endif
