/* Chunks of a segment as the object store holds them: cut, zstd, AES-256-GCM (section 3 of the object format), and
 * back.
 *
 * One call a chunk, from the caller's memory straight into the caller's memory. These functions need libcrypto and are
 * no part of libtierlog_core, which does without: see assembly_sources.txt. */
#ifndef TIERLOG_ASSEMBLE_H
#define TIERLOG_ASSEMBLE_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    TL_DATA_KEY_SIZE = 32,
    TL_IV_SIZE = 12,
    TL_TAG_SIZE = 16,
    TL_UNIT_OVERHEAD = TL_IV_SIZE + TL_TAG_SIZE /* of an encrypted unit: IV, ciphertext, tag */
};

/* How the chunks of a segment are stored. Borrowed: key and AAD belong to the caller. */
typedef struct tl_chunk_form {
    const uint8_t *data_key; /* [TL_DATA_KEY_SIZE], or NULL: not encrypted */
    const uint8_t *aad;
    size_t aad_size;
    int compression_level; /* zstd's; looked at only to compress */
    bool compressed;
} tl_chunk_form;

/* Reused contexts of the libraries, each made when it is needed first. One per thread at a time. */
typedef struct tl_workbench tl_workbench;
TL_API tl_status tl_workbench_create(tl_workbench **out);
TL_API void tl_workbench_destroy(tl_workbench *bench); /* NULL is fine */

/* The most bytes that a chunk of `size` original bytes can take when stored; rises with `size`. 0: `size` is more than
 * a chunk can have (2 GiB less a percent). */
TL_API size_t tl_stored_bound(const tl_chunk_form *form, size_t size);

/* One chunk: frame with declared content size, then IV, ciphertext and tag. `iv` is [TL_IV_SIZE], fresh for every call
 * with one key, or NULL where nothing is encrypted. `out` holds tl_stored_bound bytes and does not overlap `original`;
 * only of chunks that are stored as they are the two may be the same, then nothing is copied.
 *   TL_FULL          capacity is below the bound (fault->expected)
 *   TL_BAD_ARGUMENT  an IV where none is needed or none where one is, or too large a chunk
 *   TL_NO_CIPHER     libcrypto gives no AES-256-GCM */
TL_API tl_status tl_assemble_chunk(tl_workbench *bench, const tl_chunk_form *form, const uint8_t *iv,
                                   const uint8_t *original, size_t size, uint8_t *out, size_t capacity,
                                   size_t *out_size, tl_fault *fault);

/* One stored chunk back into out[0..original_size), all of it. After a fault nothing in `out` means anything, and
 * nothing that is not authentic is left there.
 *   TL_TRUNCATED       shorter than IV and tag
 *   TL_NOT_AUTHENTIC   the tag does not fit the content, the key and the AAD
 *   TL_BAD_COMPRESSED  the frame is corrupt
 *   TL_OVER_LIMIT      the frame holds more than the chunk
 *   TL_BAD_SIZE        the chunk holds fault->found bytes, not fault->expected */
TL_API tl_status tl_open_chunk(tl_workbench *bench, const tl_chunk_form *form, const uint8_t *stored, size_t size,
                               uint8_t *out, size_t original_size, tl_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
