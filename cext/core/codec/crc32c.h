/* CRC-32C by the instructions of one processor family. Internal to the core.
 *
 * Kernels extend the bare register: the caller inverts it before and after. */
#ifndef TIERLOG_CRC32C_H
#define TIERLOG_CRC32C_H

#include "tierlog/status.h"

typedef uint32_t (*tl_crc32c_kernel)(uint32_t state, const uint8_t *data, size_t size);

/* The kernels that this processor can run, best first (rank 0), with their names; NULL behind the last. */
tl_crc32c_kernel tl_crc32c_native(unsigned rank, const char **name);

/* TL_CRC32C_SHIFTS[n] moves a register over 8 * n zero bytes: x^(64 * n - 33) modulo the polynomial, bit-reversed.
 * The multiplication and the reduction by a CRC instruction add the 33. Enough for lanes of 64 words. */
enum { TL_CRC32C_LANE_WORDS_MAX = 64 };
extern const uint32_t TL_CRC32C_SHIFTS[2 * TL_CRC32C_LANE_WORDS_MAX + 1];

#endif
